"""States that are cut by range and merged: laws, on states that the rules of agreement made."""

# ruff: noqa: SLF001 (what is broken is inside)

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace.connector.runtime.books.equations import SplitBooks, differences
from headrace.plugins import Split
from headrace.plugins.positions import ACCEPTED, OPEN, PASSED
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.ring.replica_groups import Group, Groups
from headrace.sources.cassandra.ring.splits import RING, Arc, arc_of, count_in, names, place_of
from headrace.sources.cassandra.state import resharding
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from headrace.sources.cassandra.state.cdc_state import (
    Ahead,
    CdcState,
    Marker,
    StoredGap,
    StoredTopology,
    left_ahead,
)
from headrace.sources.cassandra.state.chunks import Chunk, RecordChunks
from headrace.sources.cassandra.state.gaps import ASSUME, MARKER, MENDED
from headrace.sources.cassandra.state.resharding import Share, latest, marker_at, merged, resplit
from headrace.sources.cassandra.state.rows import Row, Terms, kind_of, latest_rows, place_on_ring
from headrace.sources.cassandra.state.unavailable_logs import Absence
from helpers.logs.forged import insert
from helpers.logs.node_logs import batches, forged_nodes, source

HOSTS: Final = ("a", "b", "c")
KEYSPACES: Final = ("one", "two")
PLACES: Final = (0, 1, RING // 3, RING // 2 - 1, RING // 2, RING - 1)
NOWHERE: Final = Marker(0, 0)


def agreed(events: Sequence[tuple[int, int, int]]) -> Agreement:
    """Return what the rules make of *events*: a mutation's number, a host, ms that pass."""
    groups = Groups(len(HOSTS))
    groups.set([Group((((0b111, 2),),), 0b111)], [[(0, 0)], [(0, 0)]])
    made = Agreement(groups)
    for number, host, passed_ms in events:
        made.split_time_ms += passed_ms
        token = (PLACES[number % len(PLACES)] << 32) - (1 << 63) + number
        made.observe(host, number, number * 7, number % 2, token, 5, 10 * number + host, 70)
        for slot in made.due(made.oldest_pending(made.pending), 500):
            made.expire(slot)
    return made


def state_of(
    events: Sequence[tuple[int, int, int]],
    markers: Sequence[int],
    ahead: tuple[Arc, int] | None,
    gap: int,
    flags: int,
) -> CdcState:
    """Return a state with such records, markers, and a gap; *flags* vary the rest."""
    agreement = agreed(events)
    hosts = HOSTS if flags & 1 else tuple(reversed(HOSTS))
    low = {node: Marker(5, at) for node, at in zip(hosts, markers, strict=True) if at}
    more = (Ahead(ahead[0], {"b": Marker(5, ahead[1])}),) if ahead else ()
    versions = [StoredTopology(Chunk(b"ring%d" % n), None if n & flags else n) for n in (1, 2)]
    return CdcState(
        split_time_ms=agreement.split_time_ms,
        number=agreement.number,
        hosts=hosts,
        keyspaces=KEYSPACES[: 2 if flags & 4 else 3],
        markers=low,
        counters={"mutations.pending": agreement.pending},
        chunks=RecordChunks(()).take(agreement),
        unread={"a": (6, 7)} if flags & 2 else {},
        met_gaps=(
            StoredGap(
                "b",
                Marker(5, gap),
                Marker(6, 0),
                MARKER,
                PASSED if gap & 1 else OPEN,
                ASSUME if gap == 3 else "",
            ),
        ),
        tables=("one.t",) if flags & 8 else None,
        topologies=tuple(versions),
        ahead=left_ahead(more, low),
        absences={"a": Absence(gap, agreement.split_time_ms - gap)} if flags & 2 else {},
    )


EVENTS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 2), st.integers(0, 300)), max_size=30
)
PLACE = st.sampled_from([0, *PLACES, RING]) | st.integers(0, RING)
ARCS = st.tuples(PLACE, PLACE).filter(lambda p: p[0] != p[1]).map(lambda p: Arc(*sorted(p)))
STATES = st.builds(
    state_of,
    EVENTS,
    st.tuples(*[st.integers(0, 9)] * 3),
    st.none() | st.tuples(ARCS, st.integers(1, 12)),
    st.integers(1, 4),
    st.integers(0, 15),
)
RANKS = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(0, 3))
SHARES = st.lists(
    st.builds(Share, ARCS, RANKS, STATES | st.none()),
    min_size=1,
    max_size=4,
    unique_by=lambda share: share.rank,
)


def content(row: Row, state: CdcState) -> tuple[object, ...]:
    """Return what a row says, by names and by age, whichever numbers its state has for them."""
    seen = {host for n, host in enumerate(state.hosts) if row[constants.SEEN] >> n & 1}
    ages = [state.split_time_ms - row[constants.SINCE], state.split_time_ms - row[constants.LAST]]
    if kind_of(row) in (constants.PENDING, constants.EXPIRED_DROPPED):
        ages.append(state.split_time_ms - row[constants.BORN])
    keyspace = state.keyspaces[row[constants.META] >> 32 & 0xFFFF]
    places = row[constants.RECORD_WORDS :]
    located = {(state.hosts[places[i]], *places[i + 1 : i + 4]) for i in range(0, len(places), 4)}
    return kind_of(row), row[constants.TOKEN], keyspace, *ages, frozenset(seen), frozenset(located)


def cut(state: CdcState, arc: Arc) -> CdcState:
    """Return *state* without what it has for other places."""
    made = merged([Share(arc, (0,), state)])
    assert made is not None
    return made


def records_in(state: CdcState | None, arc: Arc) -> dict[object, object]:
    """Return what a state says of the mutations of an arc."""
    rows = latest_rows(state.chunks) if state else {}
    return {
        name: content(row, state)
        for name, row in rows.items()
        if state and arc.has(place_on_ring(row))
    }


@settings(max_examples=60, deadline=None)
@given(shares=SHARES)
def test_of_each_place_the_latest_state_counts_whole(shares: list[Share]) -> None:
    """Line 33: no pending one is lost, no published one forgotten, none is older or younger.

    And no log is taken as read further than the state that counts has read it.
    """
    made = merged(shares)
    counting = latest(shares)
    assert all(one.arc.behind <= two.arc.first for one, two in pairwise(counting))
    if made is None:
        assert all(share.state is None for share in counting)
        return

    expected: dict[object, object] = {}
    for share in counting:
        expected |= records_in(share.state, share.arc)
        for place in (share.arc.first, share.arc.behind - 1):
            assert share.rank == max(each.rank for each in shares if each.arc.has(place))
            for node in HOSTS:
                assert marker_at(share.state, node, place) == marker_at(made, node, place)
    assert expected == records_in(made, Arc())
    taken = [share.state for share in counting if share.state]
    assert max(state.split_time_ms for state in taken) == made.split_time_ms
    pending = made.counters["mutations.pending"]
    assert pending == made.counters["mutations.opening"]
    assert () == made.contradictions()
    assert made == CdcState.decode(made.encode())


@settings(max_examples=60, deadline=None)
@given(shares=SHARES, order=st.randoms(use_true_random=False))
def test_merging_is_commutative_associative_and_idempotent(
    shares: list[Share], order: Random
) -> None:
    """In any order, in any groups, and however often the same state is there."""
    whole = merged(shares)
    shuffled = [*shares, *shares[:2]]
    order.shuffle(shuffled)

    assert whole == merged(shuffled)
    middle = len(shares) // 2
    for first, second in ((shares[:middle], shares[middle:]), (shares[middle:], shares[:middle])):
        assert whole == merged([*latest(first), *second])
        assert latest(shares) == latest([*latest(first), *latest(second)])


@settings(max_examples=60, deadline=None)
@given(state=STATES, cuts=st.sets(PLACE, max_size=4), apart=st.integers(1, 3))
def test_what_was_cut_is_merged_to_what_it_was(state: CdcState, cuts: set[int], apart: int) -> None:
    """merge(split(s)) == s, but for the books, which start over: also piece by piece."""
    bounds = sorted({0, *cuts, RING})
    arcs = [Arc(*pair) for pair in pairwise(bounds)]
    pieces = [Share(arc, (1, 1, n), cut(state, arc)) for n, arc in enumerate(arcs)]
    whole = cut(state, Arc())

    assert whole == merged(pieces)
    left, right = pieces[:apart], pieces[apart:]
    if right:
        nested = [
            Share(Arc(part[0].arc.first, part[-1].arc.behind), (2, 1, n), merged(part))
            for n, part in enumerate((left, right))
        ]
        assert whole == merged(nested)
    for piece in pieces:
        assert piece.state is not None
        assert cut(state, piece.arc) == cut(piece.state, piece.arc)


@settings(max_examples=40, deadline=None)
@given(
    states=st.lists(STATES | st.none(), min_size=1, max_size=5),
    counts=st.lists(st.integers(1, 17), max_size=3),
)
def test_any_number_of_splits_follows_any_other(
    states: list[CdcState | None], counts: list[int]
) -> None:
    """However often the ring is cut again, what is known of each place stays the same."""
    before = names(len(states))
    at: dict[str, CdcState | None] = dict(zip(before, states, strict=True))
    for plan, count in enumerate(counts, 2):
        shares = [Share(arc_of(name) or Arc(), (plan, 1, 1), at[name]) for name in at]
        at = resplit(shares, names(count))

    first = dict(zip(before, states, strict=True))
    for place in PLACES:
        then, now = (
            next(each[name] for name in each if (arc_of(name) or Arc()).has(place))
            for each in (first, at)
        )
        # The time of a split is that of the latest of them: only ages can be compared.
        spot = Arc(place, place + 1)
        assert records_in(then, spot) == records_in(now, spot)
        for node in HOSTS:
            assert marker_at(then, node, place) == marker_at(now, node, place)


LEFT, RIGHT = Arc(0, RING // 2), Arc(RING // 2, RING)


def halves(left: CdcState, right: CdcState) -> CdcState:
    """Return the merged state of two halves of the ring, the same in any order."""
    shares = [Share(LEFT, (1, 1, 1), left), Share(RIGHT, (1, 1, 2), right)]
    made = merged(shares)
    assert made is not None
    assert made == merged(shares[::-1])
    return made


def test_a_log_that_no_state_reads_is_read_from_the_least_marker() -> None:
    """A half that read it less far would else miss what is between when it reads it again."""
    base = CdcState(0, 0, ("a",), (), {"a": Marker(5, 1)}, {})
    left = replace(base, markers={**base.markers, "c": Marker(5, 9)})
    right = replace(base, markers={**base.markers, "c": Marker(5, 3)})

    assert {"a": Marker(5, 1), "c": Marker(5, 3)} == halves(left, right).markers


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ((OPEN, 90), (ACCEPTED, 10), (OPEN, 90)),
        ((OPEN, 10), (PASSED, 90), (OPEN, 10)),
        ((ACCEPTED, 90), (PASSED, 10), (ACCEPTED, 90)),
        ((PASSED, 10), (MENDED, 90), (PASSED, 10)),
        ((OPEN, 10), (OPEN, 90), (OPEN, 90)),
        ((PASSED, 90), (PASSED, 10), (PASSED, 90)),
    ],
)
def test_of_a_gap_in_two_states_the_one_with_the_most_to_come_counts(
    left: tuple[str, int], right: tuple[str, int], expected: tuple[str, int]
) -> None:
    """The least advanced one, and of equal ones that which was met last."""
    gap = StoredGap("a", Marker(5, 1), Marker(7, 0), MARKER)
    states = [
        CdcState(
            100,
            0,
            ("a",),
            (),
            {},
            {},
            met_gaps=(msgspec.structs.replace(gap, state=state, split_time_ms=met_ms),),
        )
        for state, met_ms in (left, right)
    ]

    (found,) = halves(*states).met_gaps
    assert expected == (found.state, found.split_time_ms)


def field_wise(patch: pytest.MonkeyPatch) -> None:
    """Take the greatest marker of each log for all places."""
    real = resharding._markers

    def markers(
        parts: Sequence[tuple[Arc, tuple[Marker, ...]]], hosts: Sequence[str]
    ) -> tuple[dict[str, Marker], tuple[Ahead, ...]]:
        most = tuple(map(max, zip(*(read for _, read in parts), strict=True)))
        return real([(arc, most) for arc, _ in parts], hosts)

    patch.setattr(resharding, "_markers", markers)


def in_the_time_of_each(patch: pytest.MonkeyPatch) -> None:
    """Leave the times of records as they were in the state that they come from."""
    patch.setattr(resharding, "Terms", lambda hosts, keyspaces, _: Terms(hosts, keyspaces, 0))


def all_records(patch: pytest.MonkeyPatch) -> None:
    """Take the records of all places from each state."""
    patch.setattr(
        resharding._Records, "of", lambda _, share: list(latest_rows(share.state.chunks).values())
    )


def without_what_is_ahead(patch: pytest.MonkeyPatch) -> None:
    """Forget that of some places more was read."""
    real = resharding._markers
    patch.setattr(resharding, "_markers", lambda parts, hosts: (real(parts, hosts)[0], ()))


@pytest.mark.parametrize(
    "broken", [field_wise, in_the_time_of_each, all_records, without_what_is_ahead]
)
def test_a_broken_merge_is_found_out(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first law fails where line 33 is broken."""
    law = test_of_each_place_the_latest_state_counts_whole.hypothesis.inner_test  # type: ignore[attr-defined]
    found = settings(phases=[Phase.generate], derandomize=True, database=None, max_examples=500)(
        given(shares=SHARES)(law)
    )
    broken(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        found()
    assert "assert" in str(caught.value)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 16, 255, 256])
def test_splits_are_as_the_intake_cuts_them(count: int) -> None:
    """Each place belongs to the one split whose number its token's upper half gives."""
    assert count == count_in(names(count))
    bounds = [0]
    for number, name in enumerate(names(count)):
        arc = arc_of(name)
        assert arc is not None
        assert bounds[-1] == arc.first
        for place in (arc.first, arc.behind - 1):
            assert number == place * count // RING
            assert place == place_of((place << 32) - (1 << 63) + 12345)
        bounds.append(arc.behind)
    assert RING == bounds[-1]


@pytest.mark.parametrize("name", ["0-of-3", "4-of-3", "a.jsonl", "1-of-5000", "1-of-03"])
def test_other_names_are_no_splits(name: str) -> None:
    """They are another source's, or no source's."""
    assert arc_of(name) is None
    assert count_in([name]) is None


class ForgedJob:
    """A job over forged logs whose splits, processes and luck change between any two reads."""

    def __init__(self, folder: Path, dice: Random) -> None:
        """Begin with empty logs, in two splits."""
        for node in HOSTS:
            (folder / node).mkdir()
        self.options = forged_nodes(folder, {}) | {
            "nodes": {node: str(folder / node) for node in HOSTS},
            "splits": 2,
        }
        self.folder = folder
        self.dice = dice
        self.at: dict[str, CdcState | None] = dict.fromkeys(names(2))
        self.closed: Counter[str] = Counter()
        self.published: Counter[str] = Counter()

    def log(self, number: int, copies: Sequence[tuple[int, str]]) -> None:
        """Write segment *number* of each node, with the rows that it has logged."""
        for node in HOSTS:
            rows = [insert(b"k%d" % row, b"%c" % row) for row, where in copies if where == node]
            made = segment([rows], segment_id=SEGMENT_ID + number)
            write_segment(self.folder / node, made.content, segment_id=SEGMENT_ID + number)

    def read(self) -> None:
        """Share the splits among two processes, which die as the dice say."""
        splits = list(self.at)
        self.dice.shuffle(splits)
        some = self.dice.randrange(1, len(splits) + 1)
        for mine in (splits[:some], splits[some:]):
            self.read_in(mine, batches_max=self.dice.randrange(9))

    def read_in(self, splits: Sequence[str], *, batches_max: int) -> None:
        """Read in one process, until nothing is left or it dies: what it has then is lost."""
        made = source(self.options, job="orders")
        found = batches([made.open(Split(name), self.at[name]) for name in splits])
        for batch in islice(found, batches_max):
            for record in batch.records():
                self.published[record.document()["columns"]["v"]["value"]] += 1
            assert isinstance(batch.end, CdcState)
            self.at[batch.split] = batch.end
        made.close()

    def resplit(self, count: int) -> None:
        """Continue with another number of splits."""
        self.closed.update(self.books())
        self.options["splits"] = count
        made = source(self.options, job="orders")
        found = made.resplit(self.at)
        made.close()
        assert found is not None
        self.at = {name: at for name, at in found.items() if at is None or isinstance(at, CdcState)}

    def books(self) -> Counter[str]:
        """Return the books of all splits, each of which must balance."""
        whole: Counter[str] = Counter()
        for name, state in self.at.items():
            if state is not None:
                split = SplitBooks(name, state.books(), {}, BOOKKEEPING, (), state.contradictions())
                assert [] == differences(split)
                whole.update(state.books())
        return whole


COPIES = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(HOSTS)), max_size=30, unique=True)


@settings(max_examples=15, deadline=None)
@given(
    phases=st.lists(st.tuples(COPIES, st.integers(1, 9)), min_size=1, max_size=4),
    dice=st.randoms(use_true_random=False),
)
def test_the_books_balance_after_any_end_of_splits_and_processes(
    tmp_path_factory: pytest.TempPathFactory,
    phases: list[tuple[list[tuple[int, str]], int]],
    dice: Random,
) -> None:
    """Crash, take-over, split and merge in any order: all that two nodes logged comes, and once."""
    job = ForgedJob(tmp_path_factory.mktemp("logs"), dice)
    logged: set[tuple[int, str]] = set()
    for number, (copies, count) in enumerate(phases):
        job.log(number, [copy for copy in copies if copy not in logged])
        logged |= set(copies)
        job.read()
        job.resplit(count)
    job.read_in(list(job.at), batches_max=1_000)

    nodes = Counter(row for row, _ in logged)
    assert {f"0x{row:02x}": 1 for row, seen in nodes.items() if seen > 1} == job.published
    books = job.closed + job.books()
    assert len(logged) == sum(count for name, count in books.items() if name.endswith(".read"))
    assert list(nodes.values()).count(1) == job.books()["mutations.pending"]
