"""The agreement of one split against a slow model of its rules, over random schedules.

The model is written from docs/agreement.md in plain dictionaries; "line n" is a line of it.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.ring.replica_groups import Group, Groups
from headrace.sources.cassandra.ring.splits import RING, place_of
from headrace.sources.cassandra.state.chunks import RecordChunks
from helpers.model.agreement_rules import (
    COMPLETE,
    FIRST,
    HOSTS,
    MEMORY,
    RINGS,
    ROW_WORDS,
    STEPS,
    WAIT,
    Digest,
    Model,
    Record,
    digests,
    everyone,
    feed,
    groups,
    origin,
    sweep,
)
from helpers.settings.native_modules import long
from helpers.settings.seeds import soaked

pytestmark = pytest.mark.hot

PARTS = 3  # A round of storing what did not change.


def stored_rows(rows: bytes) -> dict[Digest, tuple[object, ...] | None]:
    """Return what rows say of each record, None for one that was dropped."""
    words = memoryview(rows).cast("Q").tolist()
    signed = memoryview(rows).cast("q").tolist()
    found: dict[Digest, tuple[object, ...] | None] = {}
    at = 0
    while at < len(words):
        d0, d1, seen, _, meta, number, born, since, last, end = words[at : at + ROW_WORDS]
        at += ROW_WORDS
        token = signed[at - ROW_WORDS + 3]
        kind = meta & 0xFF
        if kind == constants.PUBLISHED:
            places: list[tuple[int, ...]] = [(meta >> 48, born, end >> 32, end & 0xFFFF_FFFF)]
        else:
            places = [tuple(signed[at + 4 * i : at + 4 * i + 4]) for i in range(end)]
            at += 4 * end
        hosts = {host for host in range(64) if seen >> host & 1}
        keyspace = meta >> 32 & 0xFFFF
        found[d0, d1] = None
        if kind != constants.FREE:
            found[d0, d1] = (kind, keyspace, token, hosts, number, born, since, last, places)
    return found


def fields_of(record: Record) -> tuple[object, ...]:
    """Return what a row must say of *record*."""
    r = record
    places = list(r.locations)
    return (r.kind, r.keyspace, r.token, r.seen, r.number, r.born, r.since, r.last, places)


@dataclass
class Run:
    """An agreement that is driven together with the model, stored, and restored."""

    random: Random
    agreement: Agreement = field(default_factory=lambda: Agreement(groups()))
    model: Model = field(default_factory=Model)
    chunks: RecordChunks = field(default_factory=lambda: RecordChunks((), parts=PARTS))
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    agreed: int = 0
    expired: int = 0
    not_replica: int = 0
    position: int = 0
    still_until_ms: int = 0  # Before that nothing is due.

    def entry(self, host: int, digest: Digest) -> int:
        """Feed one entry to both; return the result."""
        self.position += 1
        place = (host, self.random.randrange(1, 9), self.position, self.random.randrange(10, 99))
        got = feed(self.agreement, digest, place)
        assert self.model.observe(host, digest, place) == got
        return got

    def tick(self, ms: int) -> None:
        """Let split time pass in both, and sweep."""
        self.model.split_time_ms += ms
        self.agreement.split_time_ms += ms
        agreement = self.agreement
        left_ms = agreement.forgets_in(MEMORY, COMPLETE)
        dropped = sweep(agreement)
        assert bool(dropped) is (left_ms == 0)
        assert left_ms > 0 or agreement.split_time_ms >= self.still_until_ms
        left_ms = agreement.forgets_in(MEMORY, COMPLETE)
        self.still_until_ms = agreement.split_time_ms + left_ms
        assert self.model.sweep() == dropped

    def end_batch(self) -> None:
        """Store what changed; all that is stored is then what the model has."""
        chunks = self.chunks.take(self.agreement)
        stored: dict[Digest, tuple[object, ...]] = {}
        for chunk in chunks:
            for digest, row in stored_rows(chunk.rows).items():
                stored.pop(digest, None)
                if row is not None:
                    stored[digest] = row
        assert {d: fields_of(r) for d, r in self.model.records.items()} == stored
        assert self.model.pending() == self.agreement.pending
        assert len(self.model.records) == self.agreement.live

    def crash(self) -> None:
        """Continue with another agreement, made from what is stored."""
        self.gather_counts()
        restored = Agreement(groups())
        for chunk in self.chunks.chunks:
            restored.restore(chunk.words, list(range(HOSTS)), list(range(len(RINGS))))
        restored.split_time_ms = self.agreement.split_time_ms
        restored.number = max(restored.number, self.agreement.number)
        self.agreement = restored
        self.chunks = RecordChunks(self.chunks.chunks, parts=PARTS)

    def gather_counts(self) -> None:
        """Add the counters of the agreement to those of the ones before it."""
        for i, count in enumerate(list(self.agreement.hosts)):
            key = divmod(i, 4)
            self.counts[key] = self.counts.get(key, 0) + count
        self.agreed += self.agreement.agreed
        self.expired += self.agreement.expired
        self.not_replica += self.agreement.not_replica


@pytest.mark.parametrize("seed", [*range(8), *map(long, range(8, 25))])
def test_it_does_what_the_rules_say(seed: int) -> None:
    """Results, records and counters are the model's, also when it is restored at batch ends."""
    random = Random(seed)  # noqa: S311 (a test's dice)
    run = Run(random)
    pool = digests(random, random.choice([3, 30, 300]))
    entries = 0
    for _ in range(STEPS):
        match random.choices(["entry", "tick", "batch", "crash"], [80, 10, 6, 4])[0]:
            case "entry":
                run.entry(random.randrange(HOSTS), random.choice(pool))
                entries += 1
            case "tick":
                run.tick(random.choice([0, 1, COMPLETE, 100, WAIT]))
            case "batch":
                run.end_batch()
            case _:
                run.end_batch()
                run.crash()
    run.end_batch()
    run.gather_counts()

    assert run.model.counts == {key: count for key, count in run.counts.items() if count}
    assert (run.model.agreed, run.model.expired) == (run.agreed, run.expired)
    assert run.model.not_replica == run.not_replica
    # I3, the second equation, with what this release has.
    firsts = sum(count for (_, fate), count in run.counts.items() if fate == FIRST)
    assert firsts == run.agreed + run.expired + run.not_replica + run.model.pending()
    assert entries == sum(run.counts.values())


@pytest.mark.soak
@pytest.mark.parametrize("seed", [0, 1, long(2), long(3), *soaked(*range(4, 10))])
def test_nothing_is_emitted_twice_or_without_enough_hosts(seed: int) -> None:
    """While records are remembered, a mutation is emitted once, from as many hosts as are needed.

    Every host repeats itself, so counting an entry as a vote would show.
    """
    random = Random(seed)  # noqa: S311 (a test's dice)
    run = Run(random)
    pool = digests(random, 60)
    fed: dict[Digest, set[int]] = {}
    emitted: set[Digest] = set()
    for _ in range(2_000):
        digest, host = random.choice(pool), random.choice([0, 0, 0, 1, 1, 2, 3])
        fed.setdefault(digest, set()).add(host)
        copies = run.entry(host, digest)
        keyspace, token = origin(digest)
        if copies:
            assert digest not in emitted
            assert copies == len(fed[digest])
            assert len(fed[digest] & RINGS[keyspace].of(token)) >= RINGS[keyspace].needed
            emitted.add(digest)
        if random.random() < 0.02:
            run.end_batch()
            run.crash()

    met = {d for d, hosts in fed.items() if enough(d, hosts)}
    assert met == emitted


def enough(digest: Digest, hosts: set[int]) -> bool:
    """Tell whether these hosts satisfy the level of the mutation."""
    keyspace, token = origin(digest)
    return len(hosts & RINGS[keyspace].of(token)) >= RINGS[keyspace].needed


def observe(agreement: Agreement, host: int, number: int) -> int:
    """Feed mutation *number*."""
    spread = number * 0x9E37_79B9_7F4A_7C15 & (1 << 64) - 1
    return agreement.observe(host, spread, number, 0, number, 1, number, 100)


def test_a_late_copy_of_an_expired_mutation_publishes_it() -> None:
    """Expired without enough copies, it is emitted as late when the copy comes, once (line 16)."""
    agreement = Agreement(everyone())
    observe(agreement, 0, 1)
    agreement.split_time_ms = WAIT
    sweep(agreement)
    assert (1, 0) == (agreement.expired, agreement.pending)
    assert {1} == set(agreement.unpublished(0, 1))

    assert 0 == observe(agreement, 0, 1)
    assert -2 == observe(agreement, 1, 1)
    assert 0 == observe(agreement, 2, 1)

    assert (0, 1) == (agreement.expired, agreement.agreed)
    assert {} == agreement.unpublished(0, 1)


@pytest.mark.parametrize(("late_ms", "expired"), [(WAIT - 1, 0), (WAIT, 1), (WAIT + 1, 1)])
def test_a_mutation_expires_at_its_time(late_ms: int, expired: int) -> None:
    """Not a millisecond of split time before (line 20)."""
    agreement = Agreement(everyone())
    agreement.split_time_ms = 77
    observe(agreement, 0, 1)
    agreement.split_time_ms += late_ms

    sweep(agreement)

    assert (expired, 1 - expired) == (agreement.expired, agreement.pending)


def test_pending_records_are_never_dropped() -> None:
    """However many there are and however old, they leave by expiry or overflow only (line 22)."""
    agreement = Agreement(everyone())
    for number in range(50):
        observe(agreement, 0, number)

    assert 0 == agreement.shorten(10)
    agreement.split_time_ms = WAIT - 1
    assert 0 == agreement.forget_old(0, 0)

    assert (50, 50, 0) == (agreement.live, agreement.pending, agreement.memory_shortened)


def test_the_oldest_complete_records_go_first() -> None:
    """Above the bound: complete ones by age, then incomplete ones, never pending ones (line 24)."""
    agreement = Agreement(everyone())
    for number in range(100):
        observe(agreement, 0, number)
        if number % 4:
            observe(agreement, 1, number)  # Published.
        if number % 4 > 1:
            observe(agreement, 2, number)  # Complete.
    agreement.changed_rows()

    agreement.shorten(70)
    gone = dropped(agreement)
    complete = [number for number in range(100) if number % 4 > 1]
    assert complete[: len(gone)] == sorted(gone)
    assert agreement.live <= 70

    agreement.shorten(30)
    gone += dropped(agreement)
    incomplete = [number for number in range(100) if number % 4 == 1]
    assert set(complete) < set(gone)
    left = set(incomplete) - set(gone)
    assert all(number < min(left, default=100) for number in set(gone) - set(complete))
    assert {number for number in range(100) if number % 4 == 0}.isdisjoint(gone)
    assert len(gone) == agreement.memory_shortened


def test_time_is_known_until_which_nothing_is_forgotten() -> None:
    """Until the first published record is old; at most until a new one may be."""
    agreement = Agreement(everyone())
    left = agreement.forgets_in
    assert [700, 500] == [left(700, 9_000), left(9_000, 500)]
    agreement.split_time_ms = 5_000
    observe(agreement, 0, 0)
    observe(agreement, 1, 0)  # Published, and not complete.
    agreement.split_time_ms = 5_600
    assert [300, 8_400, 0] == [left(900, 9_000), left(9_000, 9_000), left(600, 9_000)]
    observe(agreement, 2, 0)  # Complete.
    agreement.split_time_ms = 5_700
    assert [800, 0] == [left(900, 900), left(900, 100)]


def pending_of(agreement: Agreement) -> list[int]:
    """Return the slots of all pending records."""
    return agreement.oldest_pending(agreement.pending)


def dropped(agreement: Agreement) -> list[int]:
    """Return the numbers of the mutations forgotten since the last call."""
    rows = stored_rows(agreement.changed_rows())
    return [digest[1] for digest, row in rows.items() if row is None]


def test_an_overflowing_record_is_forgotten_with_its_places() -> None:
    """The oldest pending are named with where they lie, and leave one by one (line 25)."""
    agreement = Agreement(everyone())
    for number in range(5):
        observe(agreement, 0, number)
    observe(agreement, 1, 3)

    oldest = agreement.oldest_pending(3)

    assert [[(0, 1, 0, 100)], [(0, 1, 1, 100)], [(0, 1, 2, 100)]] == [
        agreement.locations(slot) for slot in oldest
    ]
    agreement.overflow(oldest)
    assert (2, 1) == (agreement.live, agreement.pending)
    assert 0 == observe(agreement, 1, 0)  # It starts over.
    assert 2 == observe(agreement, 2, 0)


@pytest.mark.long
def test_the_table_grows() -> None:
    """A hundred thousand pending mutations are all found, published, and forgotten."""
    count = 110_000
    agreement = Agreement(everyone())
    assert 0 == sum(observe(agreement, 0, number) for number in range(count))
    assert (count, count) == (agreement.live, agreement.pending)

    assert 2 * count == sum(observe(agreement, 1, number) for number in range(count))
    assert (count, 0) == (agreement.agreed, agreement.pending)
    agreement.split_time_ms = MEMORY

    assert count == sweep(agreement)
    assert 0 == agreement.live


def test_hosts_and_keyspaces_may_be_numbered_anew() -> None:
    """A stored record means hosts by name: after a renumbering the same copies count."""
    before = Agreement(everyone())
    observe(before, 0, 1)
    observe(before, 2, 2)
    after = Agreement(everyone())

    after.restore(memoryview(before.changed_rows()).cast("Q"), [2, 0, 1], [0])

    assert {1} == set(after.unpublished(2, 1))
    assert 0 == observe(after, 2, 1)
    assert 0 == observe(after, 1, 2)
    assert 2 == observe(after, 0, 1)
    assert 2 == observe(after, 2, 2)


def test_a_slot_dropped_and_taken_again_is_stored_once() -> None:
    """Rows name what was dropped before what took its place."""
    agreement = Agreement(everyone())
    observe(agreement, 0, 1)
    observe(agreement, 1, 1)
    agreement.changed_rows()
    agreement.split_time_ms = MEMORY
    sweep(agreement)
    observe(agreement, 0, 2)

    rows = stored_rows(agreement.changed_rows())

    assert [None, constants.PENDING] == [row and row[0] for row in rows.values()]
    assert b"" == agreement.changed_rows()


def test_dropped_and_born_again_between_two_batches() -> None:
    """A record that is forgotten and starts over is one new record after a restore."""
    agreement = Agreement(everyone())
    observe(agreement, 0, 1)
    observe(agreement, 1, 1)
    chunks = [agreement.changed_rows()]
    agreement.split_time_ms = MEMORY
    sweep(agreement)
    observe(agreement, 2, 1)
    chunks.append(agreement.changed_rows())
    restored = Agreement(everyone())

    for rows in chunks:
        restored.restore(memoryview(rows).cast("Q"), [0, 1, 2], [0])

    assert (1, 1) == (restored.live, restored.pending)
    assert 2 == observe(restored, 0, 1)


def pending_twice(agreement: Agreement) -> tuple[int, int]:
    """Feed two mutations of one token from one host each, join them, and return their slots."""
    for number, host in ((1, 0), (2, 0)):
        agreement.observe(host, number, number, 0, 5, 1, number, 100)
    older, younger = agreement.oldest_pending(2)
    agreement.join(younger, older)
    return older, younger


def test_copies_in_other_bytes_count_also_for_one_that_expired() -> None:
    """Expired or not, what a mutation was joined to gets the late copies that come in its bytes."""
    agreement = Agreement(everyone())
    pending_twice(agreement)
    agreement.split_time_ms = WAIT
    sweep(agreement)
    assert (1, 1) == (agreement.expired, agreement.reencoded)

    assert -2 == agreement.observe(1, 2, 2, 0, 5, 1, 9, 100)
    assert (1, 1) == (agreement.named0, agreement.named1)  # What is published is the first.
    assert 0 == agreement.observe(2, 2, 2, 0, 5, 1, 10, 100)

    assert (0, 1) == (agreement.expired, agreement.agreed)


def test_what_was_joined_leads_there_as_long_as_it_waits() -> None:
    """The other bytes are not forgotten before, and then by age like all that is known."""
    agreement = Agreement(everyone())
    older, younger = pending_twice(agreement)
    assert [younger] == agreement.joined(older)
    agreement.split_time_ms = 10 * MEMORY

    assert 0 == agreement.forget_old(MEMORY, COMPLETE)
    agreement.expire(older)
    assert 0 == agreement.forget_old(MEMORY, COMPLETE)
    agreement.split_time_ms += MEMORY
    assert 2 == agreement.forget_old(MEMORY, COMPLETE)


def test_what_overflows_takes_its_other_bytes_along() -> None:
    """A later copy in either form begins a new record (line 25)."""
    agreement = Agreement(everyone())
    older, _ = pending_twice(agreement)

    agreement.overflow([older])

    assert (0, 0) == (agreement.live, agreement.pending)
    assert 0 == agreement.observe(1, 2, 2, 0, 5, 1, 9, 100)
    assert 2 == agreement.observe(2, 2, 2, 0, 5, 1, 9, 100)


def test_the_last_host_votes() -> None:
    """All 64 hosts have a bit of their own, also in what is stored."""
    hosts = 64
    every = (1 << hosts) - 1
    made = Groups(hosts)
    made.set([Group((((every, hosts),),), every)], [[(0, 0)]])
    before = Agreement(made)
    for host in range(0, hosts, 2):
        assert 0 == observe(before, host, 1)
    after = Agreement(made)
    after.restore(memoryview(before.changed_rows()).cast("Q"), list(range(hosts)), [0])
    for host in range(1, hosts - 1, 2):
        assert 0 == observe(after, host, 1)

    assert hosts == observe(after, hosts - 1, 1)


def test_a_host_that_is_gone_has_no_vote_and_no_copies() -> None:
    """What is stored of a node that left the ring means nothing to those that stay."""
    before = Agreement(everyone())
    observe(before, 0, 1)
    observe(before, 1, 2)
    observe(before, 0, 3)
    observe(before, 1, 3)
    after = Agreement(everyone())

    after.restore(memoryview(before.changed_rows()).cast("Q"), [constants.HOST_GONE, 1, 2], [0])

    assert 0 == observe(after, 1, 1)
    assert 2 == observe(after, 2, 1)
    assert 2 == observe(after, 2, 2)
    assert 0 == observe(after, 2, 3)
    assert {} == after.unpublished(0, 1)


def test_copies_in_a_part_that_is_gone_can_be_assumed() -> None:
    """Up to the split time that is given, the host counts for what waits, and it is said (21)."""
    agreement = Agreement(everyone())
    observe(agreement, 0, 1)
    agreement.split_time_ms = 100
    agreement.assume([(2, 100, 0, RING)])
    observe(agreement, 0, 2)

    assert [1] == [agreement.identity(slot)[1] for slot in agreement.ready(pending_of(agreement))]
    (slot,) = agreement.ready(pending_of(agreement))
    assert 1 | constants.ASSUMED == agreement.publish(slot, 0, 1, 1, 100)
    agreement.split_time_ms = 99
    assert 1 | constants.ASSUMED == observe(agreement, 1, 3)
    agreement.assume([(2, 100, 0, place_of(0)), (0, 100, place_of(0) + 1, RING)])
    assert 0 == observe(agreement, 1, 4)


@pytest.mark.parametrize("level", [1, 2])
def test_what_may_be_streamed_waits_until_it_is_compared(level: int) -> None:
    """Also at levels that its copies meet; one copy from elsewhere makes it no stream's (17)."""
    made = Groups(3)
    made.set([Group((((0b111, level),),), 0b111)], [[(0, 0)]])
    agreement = Agreement(made)
    agreement.streamed = True
    assert [0, 0, 0, 0] == [observe(agreement, host, n) for host in (0, 1) for n in (1, 2)]
    assert [] == agreement.ready(pending_of(agreement))

    first, second = agreement.unchecked(pending_of(agreement), 0)
    agreement.check(first)
    assert [first] == agreement.ready(pending_of(agreement))
    assert agreement.is_streamed(first)
    agreement.leave_out(first)
    assert (1, 1) == (agreement.filtered, agreement.pending)

    agreement.streamed = False
    assert 3 == observe(agreement, 2, 2)
    assert not agreement.is_streamed(second)
