"""Reads the ring from a file, again when it changes: the content of `nodetool ring`, in YAML.

Blocking file I/O; for one thread.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from headrace.plugins import ConfigError, Context, Problem
from headrace.plugins.config.options import shown
from headrace.sources.cassandra.ring.topology import Node

LOOK_MS: Final = 5_000  # Between two looks at the file.
_STRINGS: Final = ("dc", "rack")
_KNOWN: Final = ("tokens", "dc", "rack", "joining")


class TopologyFile:
    """The ring in one file."""

    def __init__(self, path: str, context: Context) -> None:
        """Set the path; read nothing yet."""
        self._path = Path(path)
        self._log = context.log
        self._looked_ms: int | None = None
        self._read = b""

    def changed(self, now_ms: int) -> Sequence[Node] | None:
        """Return the nodes if the file has changed. One that becomes unreadable changes nothing.

        Raises:
            ConfigError: the file cannot be read at the first look.

        """
        first = self._looked_ms is None
        if self._looked_ms is not None and now_ms < self._looked_ms + LOOK_MS:
            return None
        self._looked_ms = now_ms
        try:
            content = self._path.read_bytes()
            if content == self._read:
                return None
            nodes = _nodes(content)
        except (OSError, ConfigError) as error:
            if first:
                raise _unread(error) from error
            self._log.warning("topology_unread", path=str(self._path), error=str(error))
            return None
        self._read = content
        return nodes

    def close(self) -> None:
        """Do nothing: no file stays open."""


def nodes_of(given: Mapping[str, object]) -> Sequence[Node]:
    """Return nodes by name as a job file or a topology file describes them."""
    return [_node_of(str(name), node) for name, node in given.items()]


def _node_of(name: str, given: object) -> Node:
    if not isinstance(given, Mapping):
        return Node(name)
    tokens = tuple(given.get("tokens", ()))
    dc, rack = str(given.get("dc", "")), str(given.get("rack", "rack1"))
    return Node(name, tokens, dc, rack, joining=bool(given.get("joining", False)))


def node_problems(
    key: str, node: Mapping[str, object], others: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield the problems of a node; *others* are names of further options that it may have."""
    for name in node.keys() - {*_KNOWN, *others}:
        known = ", ".join([*others, *_KNOWN])
        yield Problem(f"{key}.{name}", "unknown", f"{known} are known")
    for name in _STRINGS:
        text = node.get(name, "default")
        if not isinstance(text, str) or not text:
            yield Problem(f"{key}.{name}", f"expected a text, found {shown(text)}")
    if not isinstance(node.get("joining", False), bool):
        yield Problem(f"{key}.joining", f"expected true or false, found {shown(node['joining'])}")
    tokens = node.get("tokens", [])
    if not isinstance(tokens, Sequence) or not all(map(_is_token, tokens)):
        yield Problem(f"{key}.tokens", f"expected a list of whole numbers, found {shown(tokens)}")


def _is_token(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and -(1 << 63) <= given < 1 << 63


def _nodes(content: bytes) -> Sequence[Node]:
    try:
        loader = yaml.SafeLoader(content)
        node = loader.get_single_node()
        problems = list(_given_twice("topology", node))  # Before merge keys are resolved.
        given = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # Nested too deeply; 2026-99-99.
        raise ConfigError([Problem("topology", str(error))]) from error
    if not isinstance(given, Mapping) or not given:
        hint = "node1: {tokens: [-9223372036854775808], dc: dc1, rack: rack1}"
        raise ConfigError([Problem("topology", "expected nodes by name", hint)])
    owners: dict[object, str] = {}
    for name, node in given.items():
        key = f"topology.{name}"
        if not isinstance(node, Mapping) or not node.get("tokens"):
            problems.append(Problem(key, f"expected a node with tokens, found {shown(node)}"))
            continue
        problems += node_problems(key, node)
        for token in node["tokens"] if isinstance(node["tokens"], Sequence) else ():
            if owners.setdefault(token, name) != name:
                problems.append(Problem(f"{key}.tokens", f"{token} is {owners[token]}'s already"))
    if problems:
        raise ConfigError(problems)
    return nodes_of(given)


def _given_twice(key: str, node: object) -> Iterator[Problem]:
    """Yield duplicate names, of which YAML keeps the last."""
    if isinstance(node, yaml.MappingNode):
        names = [f"{key}.{name.value}" for name, _ in node.value]
        twice = (name for name, count in Counter(names).items() if count > 1)
        yield from (Problem(name, "is given twice") for name in twice)
        for name, (_, value) in zip(names, node.value, strict=True):
            yield from _given_twice(name, value)


def _unread(error: OSError | ConfigError) -> ConfigError:
    if isinstance(error, ConfigError):
        return error
    return ConfigError([Problem("topology", f"cannot be read: {error}")])
