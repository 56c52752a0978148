"""A slow model of agreement, written from the rules, and the ring that it is tested on."""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.ring.replica_groups import Group, Groups

HOSTS: Final = 4
WAIT, MEMORY, COMPLETE = 400, 300, 60
STEPS: Final = 600
FIRST, COUNTED, SURPLUS, REPEAT = range(4)
ROW_WORDS: Final = 10

Digest = tuple[int, int]
Location = tuple[int, int, int, int]


@dataclass(frozen=True)
class Ring:
    """The replicas of a keyspace by ring token, and how many must have a mutation."""

    replicas: tuple[tuple[int, frozenset[int]], ...]
    needed: int

    def of(self, token: int) -> frozenset[int]:
        """Return the replicas of *token*: those of the first ring token not below it."""
        found = [hosts for at, hosts in self.replicas if token <= at]
        return found[0] if found else self.replicas[0][1]


RINGS: Final = (
    Ring(((0, frozenset(range(HOSTS))),), 3),
    Ring(
        (
            (-(1 << 62), frozenset({0, 1})),
            (-5, frozenset({1, 2})),
            (1 << 62, frozenset({3, 0})),
        ),
        2,
    ),
    Ring(((7, frozenset({2})), (9, frozenset({0, 1, 2, 3}))), 1),
)


def everyone() -> Groups:
    """Return one keyspace on three hosts; two of them must agree."""
    made = Groups(3)
    made.set([Group((((0b111, 2),),), 0b111)], [[(0, 0)]])
    return made


def groups() -> Groups:
    """Return RINGS in the form that the agreement needs."""
    known: list[tuple[frozenset[int], int]] = []
    rings = []
    for ring in RINGS:
        pairs = []
        for token, hosts in ring.replicas:
            if (hosts, ring.needed) not in known:
                known.append((hosts, ring.needed))
            pairs.append((token, known.index((hosts, ring.needed))))
        rings.append(pairs)
    made = Groups(HOSTS)
    masks = [sum(1 << host for host in hosts) for hosts, _ in known]
    counts = [needed for _, needed in known]
    made.set([Group((((m, n),),), m) for m, n in zip(masks, counts, strict=True)], rings)
    return made


@dataclass
class Record:
    """Line 7."""

    number: int
    kind: int
    keyspace: int
    token: int
    born: int
    since: int
    last: int
    seen: set[int]
    locations: list[Location]
    no_replica: bool = False  # A replica had not logged it when it expired (line 13).

    def is_met(self) -> bool:
        """Line 3."""
        ring = RINGS[self.keyspace]
        return len(self.seen & ring.of(self.token)) >= ring.needed

    def is_complete(self) -> bool:
        """Lines 4 and 23."""
        return RINGS[self.keyspace].of(self.token) <= self.seen

    def publish(self, place: Location, split_time_ms: int) -> None:
        """Publish it; of the copies only the one whose bytes were published is remembered."""
        self.kind, self.since, self.born = constants.PUBLISHED, split_time_ms, place[1]
        self.locations = [place]


@dataclass
class Model:
    """Lines 11 to 17, 20, 22 and 23, with dictionaries."""

    split_time_ms: int = 0
    number: int = 0
    records: dict[Digest, Record] = field(default_factory=dict)
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    agreed: int = 0
    expired: int = 0
    not_replica: int = 0

    def observe(self, host: int, digest: Digest, place: Location) -> int:
        """Return the number of copies if the mutation is emitted now, negative if late, else 0."""
        keyspace, token = origin(digest)
        record = self.records.get(digest)
        if record is None:  # Line 14.
            self.number += 1
            record = Record(
                self.number,
                constants.PENDING,
                keyspace,
                token,
                self.split_time_ms,
                self.split_time_ms,
                self.split_time_ms,
                {host},
                [place],
            )
            self.records[digest] = record
            self._count(host, FIRST)
            return self._decide(record, place)
        record.last = self.split_time_ms
        if host in record.seen:  # Line 15.
            self._count(host, REPEAT)
            return 0
        record.seen.add(host)  # Line 16.
        if record.kind == constants.PENDING:
            record.locations.insert(0, place)
            self._count(host, COUNTED)
            return self._decide(record, place)
        if record.kind == constants.EXPIRED_DROPPED:
            self._count(host, COUNTED)
            if not record.is_met():
                return 0
            record.publish(place, self.split_time_ms)
            self.expired -= not record.no_replica
            self.not_replica -= record.no_replica
            self.agreed += 1
            return -len(record.seen)
        self._count(host, SURPLUS)
        return 0

    def _decide(self, record: Record, place: Location) -> int:
        if not record.is_met():
            return 0
        record.publish(place, self.split_time_ms)
        self.agreed += 1
        return len(record.seen)

    def _count(self, host: int, fate: int) -> None:
        self.counts[host, fate] = self.counts.get((host, fate), 0) + 1

    def sweep(self) -> int:
        """Lines 20, 22 and 23; return the number of dropped records."""
        gone = []
        for digest, record in self.records.items():
            if record.kind == constants.PENDING:
                if self.split_time_ms >= record.born + WAIT:
                    record.kind, record.since = constants.EXPIRED_DROPPED, self.split_time_ms
                    replicas = RINGS[record.keyspace].of(record.token)
                    record.no_replica = not record.seen & replicas
                    self.expired += not record.no_replica
                    self.not_replica += record.no_replica
            elif record.kind != constants.EXPIRED_DROPPED and record.is_complete():
                if self.split_time_ms >= record.last + COMPLETE:
                    gone.append(digest)
            elif self.split_time_ms >= record.since + MEMORY:
                gone.append(digest)
        for digest in gone:
            del self.records[digest]
        return len(gone)

    def pending(self) -> int:
        """Return the number of pending records."""
        return sum(record.kind == constants.PENDING for record in self.records.values())


def origin(digest: Digest) -> tuple[int, int]:
    """Return the keyspace and the token of a mutation, which follow from its bytes."""
    random = Random(f"{digest}")  # noqa: S311 (a test's dice)
    return random.randrange(len(RINGS)), random.choice(
        [-(1 << 63), -(1 << 62), -6, -5, -4, 7, 8, 9, 10, (1 << 63) - 1]
    )


def digests(random: Random, count: int) -> list[Digest]:
    """Return digests, many of which have the same slot in the table."""
    firsts = [random.getrandbits(64), 5, 5 + (1 << 20), (1 << 64) - 1, 6]
    return [(random.choice(firsts), random.getrandbits(64)) for _ in range(count)]


def feed(agreement: Agreement, digest: Digest, place: Location) -> int:
    """Feed an entry; those that share a token have different contents."""
    keyspace, token = origin(digest)
    host, segment, position, length = place
    verdict = agreement.observe(host, *digest, keyspace, token, segment, position, length)
    if verdict == constants.SUSPECT:
        verdict = agreement.publish(agreement.suspect, host, segment, position, length)
    return verdict


def sweep(agreement: Agreement) -> int:
    """Expire what is due and drop what is old; return the number of dropped records."""
    for slot in agreement.due(agreement.oldest_pending(agreement.pending), WAIT):
        agreement.expire(slot)
    return agreement.forget_old(MEMORY, COMPLETE)
