"""Options declared once, on a frozen dataclass; everything else is derived from the declaration.

A plugin author writes `path: str = option("Where to write.")` and gets coercion from strings,
bounds, choices, all errors at once with a "did you mean", and the table for the documentation.
"""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.plugins.errors import ConfigError, Problem

C = TypeVar("C")

_MISSING = dataclasses.MISSING
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The declaration of one option; what `OptionTable` and the documentation read."""

    doc: str
    name: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False
    keys_allowed: str = ""


def option(  # noqa: PLR0913 (each argument is one property of an option)
    doc: str,
    *,
    default: Any = _MISSING,  # Any: the field's own type, which the annotation gives.
    name: str = "",
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    secret: bool = False,
    keys_allowed: str = "",
) -> Any:
    """Declare the option of a dataclass field; without *default* it must be given.

    *name* is the key where it cannot be the field's name (`bootstrap.servers`). *minimum* and
    *maximum* are inclusive. *keys_allowed* is a regular expression: the field, a mapping of
    strings, then takes every key that matches it and belongs to no other field.
    """
    declared = Option(
        doc=doc,
        name=name,
        choices=choices,
        minimum=minimum,
        maximum=maximum,
        secret=secret,
        keys_allowed=keys_allowed,
    )
    metadata = {"option": declared}
    if keys_allowed:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    if isinstance(default, dict | list):
        copied = default
        return dataclasses.field(default_factory=lambda: copied.copy(), metadata=metadata)
    if default is _MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def parse_config(config_class: type[C], given: Mapping[str, Any], *, place: str = "") -> C:
    """Check and convert *given* to an instance of *config_class*.

    Values may be strings, as Kafka Connect sends them, or what YAML and JSON made of them.

    Raises:
        ConfigError: with every mistake found, each under its key.

    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    fields = declared_options(config_class)
    hints = typing.get_type_hints(config_class)
    left = dict(given)
    for key, (field, declared) in fields.items():
        if declared.keys_allowed:
            continue
        if key in left:
            raw = left.pop(key)
            try:
                values[field.name] = _convert(raw, hints[field.name], declared)
            except ValueError as error:
                problems.append(Problem(key, str(error)))
        elif field.default is _MISSING and field.default_factory is _MISSING:
            problems.append(Problem(key, "is required", declared.doc))
    for field, declared in fields.values():
        if declared.keys_allowed:
            taken = {k: v for k, v in left.items() if re.fullmatch(declared.keys_allowed, k)}
            values[field.name] = {k: _text(v) for k, v in taken.items()}
            left = {k: v for k, v in left.items() if k not in taken}
    problems += [_unknown(key, fields) for key in left]
    if not problems:
        try:
            return config_class(**values)
        except ConfigError as error:  # A cross-field check in __post_init__.
            problems += error.problems
    raise ConfigError(problems, place=place)


def declared_options(config_class: type) -> dict[str, tuple[dataclasses.Field[Any], Option]]:
    """Return the options of *config_class* by key, in the order of declaration."""
    fields = dataclasses.fields(config_class)
    found = [(f, f.metadata["option"]) for f in fields if "option" in f.metadata]
    return {declared.name or f.name: (f, declared) for f, declared in found}


def _unknown(key: str, fields: Mapping[str, object]) -> Problem:
    near = difflib.get_close_matches(key, fields, n=1)
    known = f"did you mean {near[0]}?" if near else f"known options: {', '.join(fields)}"
    return Problem(key, "is not an option", known)


def _text(raw: Any) -> str:
    return str(raw).lower() if isinstance(raw, bool) else str(raw)


def _convert(raw: Any, hint: Any, declared: Option) -> Any:
    """Convert *raw* to the annotated type. Raises ValueError with what was expected."""
    if isinstance(hint, types.UnionType):
        if raw is None or raw == "":
            return None
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not type(None))
    if hint is bool:
        word = _text(raw).lower()
        if word not in _TRUE + _FALSE:
            raise ValueError(f"expected true or false, found {raw!r}")
        return word in _TRUE
    if hint in (int, float):
        return _number(raw, hint, declared)
    if hint is str:
        if isinstance(raw, Mapping | list) or raw is None:
            raise ValueError(f"expected a text, found {raw!r}")
        if declared.choices and _text(raw) not in declared.choices:
            near = difflib.get_close_matches(_text(raw), declared.choices, n=1)
            tail = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"expected one of {', '.join(declared.choices)}, found {raw!r}{tail}")
        return _text(raw)
    origin = typing.get_origin(hint)
    if origin is tuple:
        items = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
        if not isinstance(items, list | tuple):
            raise ValueError(f"expected a list, found {raw!r}")
        return tuple(_text(item) for item in items)
    if not isinstance(raw, Mapping):
        raise ValueError(f"expected a mapping, found {raw!r}")
    return dict(raw)


def _number(raw: Any, hint: type[int] | type[float], declared: Option) -> int | float:
    noun = "a whole number" if hint is int else "a number"
    try:
        number = hint(str(raw))
    except ValueError:
        raise ValueError(f"expected {noun}, found {raw!r}") from None
    if declared.minimum is not None and number < declared.minimum:
        raise ValueError(f"must be at least {declared.minimum:g}, found {number}")
    if declared.maximum is not None and number > declared.maximum:
        raise ValueError(f"must be at most {declared.maximum:g}, found {number}")
    return number
