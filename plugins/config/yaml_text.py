"""Strict parsing of YAML, with errors that repeat no value."""

import re
from typing import Any, Final

import yaml

from headrace.plugins.errors import ConfigError, Problem

_NAMED: Final = re.compile(r"\b(alias|anchor|handle|tag) '.*'", re.DOTALL)
_QUOTE: Final = "quote a value that begins with !, & or *"


class _Loader(yaml.SafeLoader):
    """Rejects what the safe loader accepts: a duplicate key, a key that is not text."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 (PyYAML's signature)
        try:
            return super().construct_object(node, deep)
        except (ValueError, AttributeError, KeyError, TypeError):
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"found a value that is not a valid {kind}", node.start_mark
            ) from None

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:  # noqa: ANN401 (a text)
        text = super().construct_scalar(node)
        wrong = "a NUL" if "\0" in text else ""
        try:  # PyYAML leaves surrogate pairs, from JSON's escapes, as two characters.
            text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            wrong = "half of a character (a lone surrogate)"
        if wrong:
            raise yaml.constructor.ConstructorError(
                None, None, f"a text holds {wrong}", node.start_mark
            )
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 (PyYAML's signature)
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                shown = f"{key!r}" if isinstance(key, int | float) else f"a {key_node.id}"
                raise yaml.constructor.ConstructorError(
                    None, None, f"a key must be text, found {shown}: quote it", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def parse_yaml(content: bytes, *, place: str) -> Any:  # noqa: ANN401 (any YAML value)
    """Return the value of *content*; *place* is its file, for messages.

    Raises:
        ConfigError: it is not YAML, or a mapping in it has a duplicate key or a key that is not
            text.

    """
    try:
        return yaml.load(content, _Loader)  # noqa: S506 (a subclass of the safe loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        if mark is not None:
            place = f"{place}:{mark.line + 1}:{mark.column + 1}"
        message = str(getattr(error, "problem", None) or "is not YAML")
        bare = _NAMED.sub(r"\1", message)  # The name may be an unquoted password.
        hint = _QUOTE if bare != message else ""
        raise ConfigError([Problem("", bare, hint)], place=place) from None
    except RecursionError:
        problem = Problem("", "is not usable YAML: it is nested too deep")
        raise ConfigError([problem], place=place) from None
