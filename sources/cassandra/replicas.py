"""The versions of a topology that splits go by, from when one is seen until it is retired.

A mutation that was written under one ring may be read under the next: it is judged by every version
that is not retired yet, and one of them is enough. Lines cite docs/agreement.md. For one thread.
Must not do I/O or ask a clock.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from headrace.sources.cassandra.chunks import Chunk
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.groups import Groups
from headrace.sources.cassandra.schema import KeyspaceSchema
from headrace.sources.cassandra.state import StoredTopology
from headrace.sources.cassandra.topology import Node, Topology, check_readable, set_replicas


class Nodes(Protocol):
    """Where the ring comes from: a file, or a live cluster."""

    def changed(self, now_ms: int) -> Sequence[Node] | None:
        """Return the nodes as of now if they may have changed; None when there is nothing new.

        Called in every pass; whoever asks somebody for it must not do so every time.
        """

    def close(self) -> None:
        """Give back what was opened. Safe to call twice."""


def _all_read(_since: int) -> Collection[str]:
    return ()


class Replicas:
    """The version that is in force for the whole job, and the groups of all splits.

    `keyspaces` are the delivered ones, in the order that numbers them; it only grows.
    """

    def __init__(self, hosts: Sequence[str], current: Topology, keyspaces: Sequence[str]) -> None:
        """Begin with *current*; *hosts* are the nodes whose logs are read.

        Raises:
            TopologyError: the replicas of a keyspace cannot be told, or are too few.

        """
        self.current = current
        self.keyspaces = list(keyspaces)
        self._hosts = tuple(hosts)
        self._used: dict[int, tuple[Topology, ...]] = {}
        self._made: dict[tuple[Topology, ...], Groups] = {}
        self._check(current)

    def groups(self, split: int, superseded: Collection[Topology]) -> Groups:
        """Return the groups by the version in force and the *superseded* ones of a split."""
        versions = (self.current, *sorted(superseded, key=Topology.encode))
        self._used[split] = versions
        in_use = set(self._used.values())
        self._made = {each: groups for each, groups in self._made.items() if each in in_use}
        if versions not in self._made:
            self._made[versions] = groups = Groups(len(self._hosts))
            set_replicas(groups, self._hosts, versions, self.keyspaces)
        return self._made[versions]

    def number(self, keyspace: KeyspaceSchema) -> int:
        """Return the number of a keyspace; one that is new to us is in force from now on.

        Raises:
            TopologyError: its replicas cannot be told, or are too few.

        """
        if keyspace.name not in self.keyspaces:
            changed = self.current.with_keyspace(keyspace)
            check_readable(changed, keyspace.name, self._hosts)
            self.keyspaces.append(keyspace.name)
            before, self.current = self.current, changed
            self._extend(before)
        return self.keyspaces.index(keyspace.name)

    def _extend(self, before: Topology) -> None:
        """Let the groups in use know a keyspace more, which changes nothing for the others."""

        def extended(versions: tuple[Topology, ...]) -> tuple[Topology, ...]:
            return tuple(self.current if each == before else each for each in versions)

        self._used = {split: extended(versions) for split, versions in self._used.items()}
        self._made = {extended(versions): groups for versions, groups in self._made.items()}
        for versions, groups in self._made.items():
            set_replicas(groups, self._hosts, versions, self.keyspaces)

    def follow_replication(self, keyspaces: Mapping[str, KeyspaceSchema]) -> None:
        """Go by another replication of keyspaces that are numbered, as a log tells of it.

        Raises:
            TopologyError: their replicas cannot be told any more, or are too few.

        """
        changed = self.current
        for name in self.keyspaces:
            if name in keyspaces and keyspaces[name].replication:
                changed = changed.with_keyspace(keyspaces[name])
        self._move(changed)

    def follow_nodes(self, nodes: Sequence[Node]) -> None:
        """Go by another ring.

        Raises:
            TopologyError: as above.

        """
        keyspaces = [KeyspaceSchema(name, dict(r)) for name, r in self.current.keyspaces]
        self._move(Topology.of(nodes, keyspaces, self.current.level, self.current.local))

    def _move(self, changed: Topology) -> None:
        if changed != self.current:
            self._check(changed)
            self.current = changed

    def _check(self, version: Topology) -> None:
        for keyspace in self.keyspaces:
            check_readable(version, keyspace, self._hosts)


class SplitVersions:
    """The versions that one split goes by (lines 2 and 9)."""

    def __init__(
        self, replicas: Replicas, split: int, stored: Sequence[StoredTopology], tau: int
    ) -> None:
        """Go on from what was *stored* at split time *tau*.

        Raises:
            StateError: it is no topology.

        """
        self._replicas = replicas
        self._split = split
        self._in_force = replicas.current
        self._superseded: dict[Topology, int] = {}  # When, in split time.
        for version in stored:
            topology = _decoded(version.chunk)
            self._superseded[topology] = tau if version.superseded is None else version.superseded
            if version.superseded is None and topology.is_part_of(replicas.current):
                del self._superseded[topology]
        self._superseded.pop(self._in_force, None)
        self._chunks: dict[Topology, Chunk] = {}
        self.groups = self._groups()

    def follow(
        self,
        tau: int,
        retire_ms: int,
        unread_since: Callable[[int], Collection[str]] = _all_read,
    ) -> bool:
        """Learn what is in force, retire what is old; say whether `groups` are others now.

        A version is retired when *retire_ms* of split time went by since it was superseded, and
        all of its logs were read to their ends since; *unread_since* says which were not.
        """
        before, current = self._in_force, self._replicas.current
        retired = [
            version
            for version, since in self._superseded.items()
            if tau >= since + retire_ms and version.names().isdisjoint(unread_since(since))
        ]
        for version in retired:
            del self._superseded[version]
        if before is current:
            moved = False
        else:
            self._in_force = current
            moved = before != current and not before.is_part_of(current)
            if moved:
                self._superseded[before] = tau
            self._superseded.pop(current, None)
        if not moved and not retired:
            return False
        self.groups = self._groups()
        return True

    def _groups(self) -> Groups:
        return self._replicas.groups(self._split, self._superseded)

    def needed(self) -> frozenset[str]:
        """Return the nodes whose logs count by a version that is not retired (line 10)."""
        return self._in_force.names().union(*(each.names() for each in self._superseded))

    def stored(self) -> tuple[StoredTopology, ...]:
        """Return what `__init__` goes on from."""
        versions: dict[Topology, int | None] = {self._in_force: None, **self._superseded}
        self._chunks = {v: self._chunks.get(v) or Chunk(v.encode()) for v in versions}
        return tuple(StoredTopology(self._chunks[v], since) for v, since in versions.items())


def _decoded(chunk: Chunk) -> Topology:
    try:
        return Topology.decode(chunk.rows)
    except msgspec.MsgspecError as error:
        raise StateError(
            f"expected a topology, found {error}",
            place=f"CDC state, chunk {chunk.name}",
            hint="restore the store from a backup, or start the job under a new name",
        ) from error
