"""The versions of the topology that splits use, from first sight until retirement.

A mutation written under one ring may be read under the next: it is checked against each version
that is not retired, and one of them is sufficient. Lines cite docs/agreement.md. For one thread.
Must not do I/O or read a clock.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from headrace.sources.cassandra.errors import SplitTooWideError
from headrace.sources.cassandra.ring.log_slots import LOG_SLOTS_MAX, LOG_SLOTS_WANTED, LogSlots
from headrace.sources.cassandra.ring.replica_groups import Groups
from headrace.sources.cassandra.ring.splits import SPLITS_MAX, name_of, number_of, tokens_of
from headrace.sources.cassandra.ring.topology import (
    WHOLE,
    Node,
    Topology,
    can_meet,
    check_readable,
    holding,
    set_replicas,
)
from headrace.sources.cassandra.schema.tables import KeyspaceSchema
from headrace.sources.cassandra.state.cdc_state import CdcState, StoredTopology
from headrace.sources.cassandra.state.chunks import Chunk, damaged
from headrace.sources.cassandra.state.rows import seen_in


class Nodes(Protocol):
    """The source of the ring: a file, or a live cluster."""

    def changed(self, now_ms: int) -> Sequence[Node] | None:
        """Return the current nodes if they may have changed, or None if nothing is new.

        It is called in every pass; an implementation that queries a cluster must not do so each
        time.
        """

    def close(self) -> None:
        """Close all that was opened. Safe to call twice."""


class _Made(msgspec.Struct, frozen=True):
    """The groups of one split, and the input from which they were made."""

    versions: tuple[Topology, ...]
    log_slots: LogSlots
    groups: Groups


def _lowest_tokens(version: Topology) -> dict[str, int]:
    """Return the lowest token that each node owns."""
    return {node.name: min(node.tokens) for node in version.nodes if node.tokens}


def _all_read(_since: int) -> Collection[str]:
    return ()


class Replicas:
    """The version in force for the whole job, and the groups of all splits.

    `keyspaces` are the delivered ones, in the order of their numbers; it only grows.
    """

    def __init__(
        self, hosts: Sequence[str], current: Topology, keyspaces: Sequence[str], count: int = 1
    ) -> None:
        """Start with *current*; *hosts* are the nodes whose logs are read.

        The ring is cut into *count* splits.

        Raises:
            TopologyError: the replicas of a keyspace cannot be determined, or are too few.

        """
        self.current = current
        self.keyspaces = list(keyspaces)
        self.hosts = tuple(hosts)
        self._count = count
        self._made: dict[int, _Made] = {}
        self._tokens = _lowest_tokens(current)  # Also for nodes that left the ring.
        self._stored: dict[str, Topology] = {}
        self._coming = current, current.joined()
        self._widths: dict[int, int] = {}  # By number of splits; cleared on a change.
        self._check(current)

    @property
    def all_read_all(self) -> bool:
        """Whether each split reads all logs, which it does if it has enough log slots."""
        return len(self.hosts) <= LOG_SLOTS_MAX

    def log_slots(self, split: int, resume: CdcState | None) -> LogSlots:
        """Return the log slots of a split, for all nodes known to own part of it.

        Raises:
            SplitTooWideError: there are more nodes than log slots.

        """
        name = name_of(split, self._count)
        made = LogSlots(name, self.hosts, resume.hosts if resume else ())
        stored = resume.topologies if resume else ()
        needed = self.needed(split, [self.current, *(self.version_in(v.chunk) for v in stored)])
        try:
            made.need(needed)
        except SplitTooWideError:
            if resume is None or not made.idle:
                raise
            made.free(seen_in(resume.chunks))
            made.need(needed)
        return made

    def needed(self, split: int, versions: Sequence[Topology]) -> Sequence[str]:
        """Return the nodes whose logs a split that uses *versions* reads (line 10)."""
        if self.all_read_all:
            return self.hosts
        found = holding((self._to_come(), *versions), self.keyspaces, tokens_of(split, self._count))
        return sorted(found.intersection(self.hosts))

    def version_in(self, chunk: Chunk) -> Topology:
        """Return the version that is stored as *chunk*, shared by the splits.

        Raises:
            StateError: it is not a topology version.

        """
        if chunk.name not in self._stored:
            try:
                self._stored[chunk.name] = Topology.decode(chunk.rows)
            except msgspec.MsgspecError as error:
                raise damaged(f"chunk {chunk.name}", str(error), "a topology") from error
            self._tokens = _lowest_tokens(self._stored[chunk.name]) | self._tokens
        return self._stored[chunk.name]

    def forget(self, split: int) -> None:
        """Stop updating the groups of *split*."""
        self._made.pop(split, None)

    def _to_come(self) -> Topology:
        """Return the version in force after the joining nodes have joined."""
        if self._coming[0] is not self.current:
            self._coming = self.current, self.current.joined()
            self._widths.clear()
        return self._coming[1]

    def home(self, node: str) -> int:
        """Return the token whose split books what belongs to no split in a node's log.

        It is the first of all tokens if all splits read all logs, else one that the node owns.
        """
        if self.all_read_all:
            return WHOLE[0]
        return self._tokens.get(node, WHOLE[0])

    def fitting(self, least: int) -> int:
        """Return the number of splits with which each has enough log slots.

        It is *least*, doubled until the splits are narrow enough or cannot be narrower.
        """
        count = least
        while (
            not self.all_read_all and count < SPLITS_MAX and self._widest(count) > LOG_SLOTS_WANTED
        ):
            count = min(2 * count, SPLITS_MAX)
        return count

    def check_width(self) -> None:
        """Raise an error if a split is too wide.

        Raises:
            SplitTooWideError: one of them would read more logs than it has log slots.

        """
        if self.all_read_all or (most := self._widest(self._count)) <= LOG_SLOTS_MAX:
            return
        fit = self.fitting(self._count)
        raise SplitTooWideError(
            f"one of {self._count} splits needs the logs of {most} nodes, at most {LOG_SLOTS_MAX} "
            "can be read for a split",
            place="source.splits",
            hint=f"{fit} splits need {self._widest(fit)}; without `splits` they are reckoned",
        )

    def _widest(self, count: int) -> int:
        """Return the highest number of nodes that one of *count* splits would read."""
        coming = self._to_come()
        if count in self._widths:
            return self._widths[count]
        held: list[set[str]] = [set() for _ in range(count)]
        for keyspace in self.keyspaces:
            ring, number = coming.ring(keyspace), 0
            for each in ring:
                last = number_of(each.token, count)
                for nodes in held[number : last + 1]:
                    nodes.update(each.replicas)
                # Nothing is left after the greatest token.
                number = number_of(each.token + 1, count) if each.token < WHOLE[1] else count
            for nodes in held[number:] if ring else ():
                nodes.update(ring[0].replicas)
        self._widths[count] = max(map(len, held))
        return self._widths[count]

    def groups(self, split: int, superseded: Collection[Topology], log_slots: LogSlots) -> Groups:
        """Return the groups of a split, by the version in force and the *superseded* ones.

        Each node that owns part of it gets one of the *log_slots*.

        Raises:
            SplitTooWideError: there are too few log slots.

        """
        versions = (self.current, *sorted(superseded, key=Topology.encode))
        log_slots.need(self.needed(split, versions))
        made = _Made(versions, log_slots, Groups(LOG_SLOTS_MAX))
        self._set(split, made)
        return made.groups

    def can_meet(self, split: int, versions: Sequence[Topology], nodes: frozenset[str]) -> bool:
        """Return whether *nodes* and those not read can meet the level in a split."""
        part, read = tokens_of(split, self._count), frozenset(self.hosts)
        return any(
            can_meet(version, keyspace, part, nodes, read)
            for version in versions
            for keyspace in self.keyspaces
        )

    def _set(self, split: int, made: "_Made") -> None:
        part = tokens_of(split, self._count)
        set_replicas(made.groups, made.log_slots.names, made.versions, self.keyspaces, part)
        self._made[split] = made

    def number(self, keyspace: KeyspaceSchema) -> int:
        """Return the number of a keyspace; a new one is in force from now on.

        Raises:
            TopologyError: its replicas cannot be determined, or are too few.
            SplitTooWideError: its replicas are too many for a split.

        """
        if keyspace.name not in self.keyspaces:
            changed = self.current.with_keyspace(keyspace)
            check_readable(changed, keyspace.name, self.hosts)
            self.keyspaces.append(keyspace.name)
            self._widths.clear()
            before, self.current = self.current, changed
            self._extend(before)
        return self.keyspaces.index(keyspace.name)

    def _extend(self, before: Topology) -> None:
        """Add a keyspace to the groups in use; the others are unchanged."""
        for split, made in self._made.items():
            versions = tuple(self.current if each == before else each for each in made.versions)
            made.log_slots.need(self.needed(split, versions))
            self._set(split, replace(made, versions=versions))

    def follow_replication(self, keyspaces: Mapping[str, KeyspaceSchema]) -> None:
        """Apply a changed replication of numbered keyspaces, as a log reports it.

        Raises:
            TopologyError: their replicas can no longer be determined, or are too few.

        """
        changed = self.current
        for name in self.keyspaces:
            if name in keyspaces and keyspaces[name].replication:
                changed = changed.with_keyspace(keyspaces[name])
        self._move(changed)

    def follow_nodes(self, nodes: Sequence[Node]) -> None:
        """Apply a changed ring.

        Raises:
            TopologyError: as above.

        """
        keyspaces = [KeyspaceSchema(name, dict(r)) for name, r in self.current.keyspaces]
        self._move(Topology.of(nodes, keyspaces, self.current.level, self.current.local))

    def _move(self, changed: Topology) -> None:
        if changed != self.current:
            self._check(changed)
            self.current = changed
            self._tokens |= _lowest_tokens(changed)

    def _check(self, version: Topology) -> None:
        for keyspace in self.keyspaces:
            check_readable(version, keyspace, self.hosts)


class SplitVersions:
    """The versions that one split uses (lines 2 and 9)."""

    def __init__(
        self,
        replicas: Replicas,
        split: int,
        stored: Sequence[StoredTopology],
        split_time_ms: int,
        log_slots: LogSlots | None = None,
    ) -> None:
        """Continue from what was *stored* at *split_time_ms*; without *log_slots* all are free.

        Raises:
            StateError: it is not a topology.

        """
        self._replicas = replicas
        self._split = split
        self.log_slots = log_slots or LogSlots(str(split), replicas.hosts)
        self._in_force = replicas.current
        self._superseded: dict[Topology, int] = {}  # The split time at which each was superseded.
        for version in stored:
            topology = replicas.version_in(version.chunk)
            self._superseded[topology] = (
                split_time_ms if version.superseded is None else version.superseded
            )
            if version.superseded is None and topology.is_part_of(replicas.current):
                del self._superseded[topology]
        self._superseded.pop(self._in_force, None)
        self._stored: tuple[StoredTopology, ...] = ()  # Empty means that it has to be made.
        self._asked: Sequence[Topology] = ()  # The versions to which `_answers` refer.
        self._answers: dict[frozenset[str], bool] = {}
        self.groups = self._groups()

    def follow(
        self,
        split_time_ms: int,
        retire_ms: int,
        unread_since: Callable[[int], Collection[str]] = _all_read,
    ) -> bool:
        """Update the version in force, retire old ones; return whether `groups` changed.

        A version is retired when *retire_ms* of split time have passed after it was superseded, and
        all of its logs were read to their ends in that time; *unread_since* returns the others.
        """
        before, current = self._in_force, self._replicas.current
        retired = [
            version
            for version, since in self._superseded.items()
            if split_time_ms >= since + retire_ms
            and version.names().isdisjoint(unread_since(since))
        ]
        for version in retired:
            del self._superseded[version]
        if retired or before is not current:
            self._stored = ()
        if before is current:
            moved = False
        else:
            self._in_force = current
            moved = before != current and not before.is_part_of(current)
            if moved:
                self._superseded[before] = split_time_ms
            self._superseded.pop(current, None)
        if not moved and not retired:
            return False
        self.groups = self._groups()
        return True

    def can_meet(self, nodes: frozenset[str]) -> bool:
        """Return whether *nodes* and those not read can meet the level (line 3).

        One token of the split in one version is sufficient.
        """
        versions = (self._replicas.current, *self._superseded)
        if versions != self._asked:
            self._asked = versions
            self._answers.clear()
        if nodes not in self._answers:
            self._answers[nodes] = self._replicas.can_meet(self._split, versions, nodes)
        return self._answers[nodes]

    def _groups(self) -> Groups:
        return self._replicas.groups(self._split, self._superseded, self.log_slots)

    def needed(self) -> frozenset[str]:
        """Return the nodes whose logs count in a version that is not retired (line 10)."""
        return self._in_force.names().union(*(each.names() for each in self._superseded))

    def stored(self) -> tuple[StoredTopology, ...]:
        """Return the versions to store, for a later `__init__`."""
        if not self._stored:  # Hashing a version reads all tokens of its ring.
            versions: dict[Topology, int | None] = {self._in_force: None, **self._superseded}
            self._stored = tuple(
                StoredTopology(Chunk(version.encode()), since)
                for version, since in versions.items()
            )
        return self._stored
