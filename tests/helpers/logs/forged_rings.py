"""Forged rings: nodes, replication, what each node logged and when, all made of a seed.

Mutations are recorded ones, and forged ones with tokens at the bounds of ranges. Replicas and
levels are those of `helpers.model.walked_ring`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.forge.wrapping import PLAIN, compression
from helpers.logs.forged import OTHER, SCHEMA, TABLE, UNKNOWN, mutation, update
from helpers.logs.token_keys import key_of
from helpers.model.walked_ring import EVERYWHERE, LEVELS, Member, Ring
from helpers.recordings.corpora import recording
from helpers.recordings.justified import Content, Logs, atoms, entries_of

# Versions of segments, of the messages in them, and recordings of these.
FAMILIES: Final[Sequence[tuple[int, int, Sequence[str]]]] = (
    (7, 12, ("4.0-random", "4.1-random")),
    (7, 12, ("5.0-random",)),
    (8, 13, ("5.0-v8-random",)),
    (9, 14, ("6.0-v9-random",)),
)
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
ENDS: Final = (LOWEST, LOWEST + 1, LOWEST + 2, -1, 0, 1, HIGHEST - 1, HIGHEST)
NODES_MAX: Final = 9
RECORDED_TABLES: Final = 2
FORGED: Final = SCHEMA.replace("cdc = false", "cdc = true")
SECOND: Final = f"""
CREATE KEYSPACE second WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '3'}};
CREATE TABLE second.t (k blob PRIMARY KEY, v blob) WITH cdc = true AND ID = {UNKNOWN};
"""
# The tables of one mutation: keyspace, then their ids.
SHAPES: Final = (
    ("forged", (TABLE,)),
    ("forged", (OTHER,)),
    ("forged", (TABLE, OTHER)),
    ("forged", (OTHER, TABLE)),
    ("second", (UNKNOWN,)),
)
_KEYSPACE: Final = re.compile(r"CREATE KEYSPACE (\w+) WITH replication = \{[^}]*\}")
_DRAWS_MAX: Final = 300


class Written(NamedTuple):
    """A mutation, its table and its token."""

    raw: bytes
    keyspace: str
    table: str
    token: int
    content: Content


class Due(NamedTuple):
    """A copy that a node will log."""

    node: str
    written: Written


@cache
def pool(family: int) -> Sequence[Written]:
    """Return recorded mutations with different contents."""
    made: list[Written] = []
    said: Counter[object] = Counter()
    for name in FAMILIES[family][2]:
        for entry in entries_of(name):
            line = msgspec.json.decode(entry.text)
            first = line["updates"][0]
            content = frozenset(atoms(line))
            made.append(
                Written(entry.raw, line["keyspace"], first["id"], int(first["token"]), content)
            )
            said.update(content)
    return [each for each in made if each.content and all(said[a] == 1 for a in each.content)]


def forged(messaging: int, token: int, number: int, shape: int) -> Written:
    """Return a mutation with a given token; *number* makes it different."""
    keyspace, tables = SHAPES[shape]
    key = key_of(token, number % 2)
    updates = [update(key, b"%d" % number, table=t, messaging=messaging) for t in tables]
    content = frozenset((table, key, number) for table in tables)
    at = HIGHEST if token == LOWEST else token  # So does Cassandra's partitioner.
    return Written(mutation(*updates, messaging=messaging), keyspace, str(tables[0]), at, content)


class World:
    """The events of a seed: a sequence of rings, and what their nodes log.

    `active` are the rings by which a mutation may be judged at present, `unread` the nodes whose
    logs are not read.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        """Draw the first ring, and the mutations."""
        self.random = random = Random(f"ring {seed}")  # noqa: S311 (a test's dice)
        self.folder = folder
        self.family = random.randrange(len(FAMILIES))
        self.version, self.messaging, self._recordings = FAMILIES[self.family]
        self._all = self._left = self._mutations()
        self._schema = FORGED + SECOND
        for name in self._recordings:
            self._schema += "".join(self._statements(name))
        self.keyspaces = _KEYSPACE.findall(self._schema)
        self.refused: list[Ring] = []
        self._named = 0
        self._vnodes = random.choice([1, 1, 4, 16])
        self.unread: set[str] = set()
        self.ring = self._first()
        self.active = [self.ring]
        self._due: list[Due] = []
        self._segments: Counter[str] = Counter()
        self.places: defaultdict[tuple[str, int], list[tuple[int, Content]]] = defaultdict(list)
        self.by_content = {each.content: each for each in self._left}
        self.contents = {sha256(w.raw).digest(): w.content for w in self._left}

    # ---- writes ----

    def _mutations(self) -> list[Written]:
        random = self.random
        tables = sorted({each.table for each in pool(self.family)})
        self._tables = random.sample(tables, RECORDED_TABLES)
        recorded = [each for each in pool(self.family) if each.table in self._tables]
        found = random.sample(recorded, min(len(recorded), random.randint(20, 70)))
        for number in range(random.randint(20, 60)):
            near = random.choice(found).token + random.choice([-1, 0, 1])
            token = random.choice([*ENDS, near, random.randint(LOWEST, HIGHEST)])
            token = min(max(LOWEST, token), HIGHEST)
            shape = random.randrange(len(SHAPES))
            found.append(forged(self.messaging, token, number, shape))
        random.shuffle(found)
        return found

    def _statements(self, name: str) -> Iterator[str]:
        """Yield the statements of a recording's schema, without tables that have no writes."""
        with (recording(name) / "schema.cql").open() as lines:
            for line in lines:
                if not line.startswith("CREATE TABLE") or any(t in line for t in self._tables):
                    yield line

    def logs(self) -> Logs:
        """Return what is in the logs: bytes by digest, and the ends of entries."""
        return Logs(self.contents, Counter(), {}, self.places)

    # ---- the ring ----

    def _first(self) -> Ring:
        random = self.random
        for _ in range(_DRAWS_MAX):
            self._named = 0
            centres = ["east", "west", "north"][: random.choice([1, 1, 2, 2, 3])]
            members: dict[str, Member] = {}
            for centre in centres:
                racks = random.randint(1, 3)
                for _ in range(random.randint(1, 5)):
                    if len(members) < NODES_MAX:
                        rack = f"r{random.randint(1, racks)}"
                        members[self._name()] = Member(self._tokens(members), centre, rack)
            copies = {name: self._copies(members) for name in self.keyspaces}
            ring = Ring(
                members,
                copies,
                random.choice(LEVELS),
                random.choice(sorted({m.centre for m in members.values()})),
            )
            names = list(members)
            self.unread = set(random.sample(names, random.choice([0, 0, 0, 1]) * (len(names) > 1)))
            if self.can_be(ring):
                return ring
            if not self.unread:
                self.refused.append(ring)
        raise AssertionError("the ring is unknown")

    def can_be(self, ring: Ring) -> bool:
        """Return whether a job can read such a ring at its level."""
        return ring.can_be_met(ring.members.keys() - self.unread)

    def _name(self) -> str:
        self._named += 1
        return f"n{self._named}"

    def _tokens(self, members: Mapping[str, Member]) -> tuple[int, ...]:
        """Draw unused tokens: those of mutations, beside them, at the ends, or any."""
        random = self.random
        taken = {token for member in members.values() for token in member.tokens}
        found: set[int] = set()
        while len(found) < self._vnodes:
            near = random.choice(self._all).token + random.choice([-1, 0, 0, 1])
            token = random.choice([random.choice(ENDS), near, random.randint(LOWEST, HIGHEST)])
            if LOWEST <= token <= HIGHEST and token not in taken:
                found.add(token)
        return tuple(sorted(found))

    def _copies(self, members: Mapping[str, Member]) -> Mapping[str, int]:
        random = self.random
        if random.random() < 0.4:
            return {EVERYWHERE: random.choice([1, 2, 3, 3, 5])}
        centres = sorted({member.centre for member in members.values()})
        counts = {centre: random.choice([0, 1, 2, 3, 3, 5]) for centre in centres}
        return counts if any(counts.values()) else {centres[0]: 1}

    def change(self) -> None:
        """Change the ring."""
        for _ in range(_DRAWS_MAX):
            kind = self.random.choice(
                ["nothing", "join", "join", "leave", "replace", "move", "copies", "level"]
            )
            changed = self._changed(kind)
            if changed is not None and self.can_be(changed):
                self.ring = changed
                return
        raise AssertionError("nothing can happen")

    def _changed(self, kind: str) -> Ring | None:
        random, ring = self.random, self.ring
        members = {n: replace(m, joining=False) for n, m in ring.members.items()}
        name = random.choice(sorted(members))
        member = members[name]
        alone = sum(m.centre == member.centre for m in members.values()) == 1
        match kind:
            case "join" if len(members) < NODES_MAX:
                members[self._name()] = replace(
                    member, tokens=self._tokens(members), joining=random.random() < 0.5
                )
            case "leave" if not alone:
                del members[name]
            case "replace":
                del members[name]
                members[self._name()] = member
            case "move":
                del members[name]
                members[name] = replace(member, tokens=self._tokens(members))
            case "copies":
                keyspace = random.choice(self.keyspaces)
                return replace(
                    ring, members=members, copies={**ring.copies, keyspace: self._copies(members)}
                )
            case "level":
                return replace(ring, members=members, level=random.choice(LEVELS))
            case "nothing":
                pass
            case _:
                return None
        return replace(ring, members=members)

    # ---- logs ----

    def write(self, count: int, *, is_last: bool) -> Path:
        """Write mutations to the current ring, whose copies will be logged at different times.

        Returns the folder of what is logged at once.
        """
        written, self._left = self._left[:count], self._left[count:]
        random, ring = self.random, self.ring
        for each in written:
            holders = ring.holders(each.keyspace, each.token)
            logging = set(holders)
            if random.random() < 0.4:
                logging = set(random.sample(sorted(logging), random.randint(0, len(logging))))
            if random.random() < 0.15:  # A node that is no longer a replica, or not yet.
                logging.add(random.choice(sorted(ring.members)))
            logging |= {n for n, m in ring.members.items() if m.joining and random.random() < 0.5}
            for node in sorted(logging - self.unread):
                times = random.choices([1, 2, 3], [90, 8, 2])[0]
                self._due += [Due(node, each)] * times
        random.shuffle(self._due)
        now: list[Due] = []
        later: list[Due] = []
        for due in self._due:
            is_gone = due.node not in ring.members
            (now if is_last or is_gone or random.random() < 0.8 else later).append(due)
        self._due = later
        return self.log(now)

    def forget(self, contents: set[Content]) -> None:
        """Drop the copies of these mutations that are not logged yet."""
        self._due = [due for due in self._due if due.written.content not in contents]

    def log(self, copies: Sequence[Due]) -> Path:
        """Forge the next segments of the nodes; return their folder."""
        later = self.folder / f"later-{sum(self._segments.values())}"
        by_node: defaultdict[str, list[Written]] = defaultdict(list)
        for node, written in copies:
            by_node[node].append(written)
        for node, logged in by_node.items():
            for part in self._parts(logged, 3):
                self._segment(later / node, list(self._parts(part, 4)))
        return later

    def _parts(self, logged: Sequence[Written], count_max: int) -> Iterator[list[Written]]:
        count = self.random.randint(1, count_max)
        size = -(-len(logged) // count)
        for at in range(0, len(logged), size):
            yield list(logged[at : at + size])

    def _segment(self, folder: Path, sections: Sequence[Sequence[Written]]) -> None:
        node = folder.name
        number = SEGMENT_ID + self._segments[node]
        self._segments[node] += 1
        wrapping = self.random.choice([PLAIN, PLAIN, PLAIN, compression("LZ4Compressor")])
        raws = [[each.raw for each in section] for section in sections]
        made = segment(raws, version=self.version, segment_id=number, wrapping=wrapping)
        contents = [each.content for section in sections for each in section]
        self.places[node, number] += zip(made.ends, contents, strict=True)
        index = f"{made.durable}\nCOMPLETED"
        write_segment(folder, made.content, version=self.version, segment_id=number, index=index)

    # ---- options of a job ----

    def schema(self) -> str:
        """Return the schema with the current replication."""

        def said(match: re.Match[str]) -> str:
            copies = self.ring.copies[match[1]]
            strategy = "NetworkTopologyStrategy"
            if EVERYWHERE in copies:
                strategy, copies = "SimpleStrategy", {"replication_factor": copies[EVERYWHERE]}
            options = {"class": strategy, **{name: str(count) for name, count in copies.items()}}
            return f"CREATE KEYSPACE {match[1]} WITH replication = {options}"

        return _KEYSPACE.sub(said, self._schema)

    def topology(self) -> Mapping[str, Mapping[str, object]]:
        """Return the current ring as a job's options have it, without defaults."""
        return {
            name: {"tokens": list(m.tokens), "dc": m.centre, "rack": m.rack}
            | ({"joining": True} if m.joining else {})
            for name, m in self.ring.members.items()
        }

    def options(self) -> Mapping[str, object]:
        """Return the options of a job for the current level."""
        return {"consistency": self.ring.level, "datacenter": self.ring.local}

    # ---- what is justified ----

    def is_justified(self, content: Content, logged: Collection[str]) -> bool:
        """Return whether the copies of these nodes are enough by one of the rings."""
        each = self.by_content[content]
        return any(ring.is_met(each.keyspace, each.token, logged) for ring in self.active)

    def holders(self, content: Content) -> set[str]:
        """Return the nodes whose copies count by one of the rings, and whose logs are read."""
        each = self.by_content[content]
        found = {n for ring in self.active for n in ring.holders(each.keyspace, each.token)}
        return found - self.unread
