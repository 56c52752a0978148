"""Routing entries: whose they are, which split they belong to, and what is passed over."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cassandra import murmur3
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins import MiscountError
from headrace.sources.cassandra.agreement.intake import (
    SKIP_REASONS,
    AgreedMutations,
    Intake,
    Routes,
)
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.commitlog.framer import Framer, digest
from headrace.sources.cassandra.commitlog.heads import first_table_id
from headrace.sources.cassandra.errors import CorruptSegmentError
from headrace.sources.cassandra.forge.mutations import MESSAGING
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.ring.replica_groups import Group, Groups
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import Schema, system_table_id
from helpers.logs.forged import OTHER, SCHEMA, TABLE, UNKNOWN, insert, mutation
from helpers.logs.forged import update as updated
from helpers.logs.node_logs import everything, forged_nodes
from helpers.settings.native_modules import is_compiled

pytestmark = pytest.mark.hot

KEY = bytes(range(16))
NO_BOUND = 1 << 30
EPOCH = 7
SYSTEM = system_table_id("system", "local")
COMPILED = is_compiled("headrace.sources.cassandra.agreement.intake")


def one_host() -> Groups:
    """Return a single host that holds everything and suffices."""
    made = Groups(1)
    made.set([Group((((1, 1),),), 1)], [[(0, 0)]])
    return made


class Log:
    """An intake of one host that is fed with raw mutations."""

    def __init__(self, splits: int, schema: Schema | None = None) -> None:
        """Own all splits; deliver the table TABLE only."""
        known = schema or parse_schema(SCHEMA)
        catalogue = Catalogue(known)
        groups = one_host()
        self.splits = splits
        self.asked: list[bytes] = []
        self.intake = Intake(1, KEY, splits)
        self.routes = Routes(catalogue, EPOCH)
        for index, table in enumerate(catalogue.tables):
            selected = table.table_id == TABLE
            self.routes.treat(index, constants.SELECTED if selected else constants.NEIGHBOUR, 0)
        self.agreements = [Agreement(groups) for _ in range(splits)]
        for split, agreement in enumerate(self.agreements):
            self.intake.own(split, agreement)
            self.intake.assign(split, 0, 0)

    def feed(
        self,
        raws: Sequence[bytes],
        version: int = 7,
        *,
        held_max: int = NO_BOUND,
        damaged: bytes = b"",
    ) -> int:
        """Feed a segment of these mutations; return what the framer found last.

        The entry of the *damaged* one has other bytes than its checksum says.
        """
        content = segment([raws], version=version).content
        if damaged:
            content = content.replace(damaged, damaged[:-1] + bytes([damaged[-1] ^ 1]))

        def read_into(offset: int, buffer: memoryview) -> int:
            part = content[offset : offset + len(buffer)]
            buffer[: len(part)] = part
            return len(part)

        framer = Framer()
        framer.open(
            read_into,
            segment_id=SEGMENT_ID,
            header_bytes=20,
            messaging=MESSAGING[version],
            resume=0,
            place="node1: segment",
        )
        while True:
            found = self.intake.run(framer, 0, self.routes, NO_BOUND, held_max, NO_BOUND)
            if found != constants.UNKNOWN_TABLE:
                return found
            table_id = first_table_id(framer.entry(), framer.messaging)
            self.asked.append(table_id)
            self.intake.remember(table_id, f"entry that ends at {framer.at}")
            self.intake.again(framer, 0, self.routes)

    def taken(self) -> list[list[bytes]]:
        """Return the agreed mutations of each split."""
        return [content(self.intake.take(split)) for split in range(self.splits)]

    def skipped(self) -> dict[str, int]:
        """Return how many entries were passed over, by reason."""
        return dict(zip(SKIP_REASONS, self.intake.skipped, strict=True))


def content(agreed: AgreedMutations) -> list[bytes]:
    """Return the agreed mutations."""
    meta = memoryview(agreed.meta).tolist()
    return [
        bytes(agreed.data[meta[base + constants.AGREED_START] : meta[base + constants.AGREED_END]])
        for base in range(0, agreed.count * constants.AGREED_WIDTH, constants.AGREED_WIDTH)
    ]


def token_of(key: bytes) -> int:
    """Return the token as the public driver has it; Cassandra's minimum stands for no key."""
    token = int(murmur3.murmur3(key)) if key else -(1 << 63)
    return (1 << 63) - 1 if key and token == -(1 << 63) else token


@given(keys=st.lists(st.binary(max_size=70), max_size=30), splits=st.integers(1, 40))
def test_an_entry_goes_to_the_split_of_its_token(keys: list[bytes], splits: int) -> None:
    """Tokens are the driver's; the ring is cut into equal parts from its lowest token."""
    log = Log(splits)
    raws = [insert(key, b"%d" % i) for i, key in enumerate(keys)]

    log.feed(raws)

    expected: list[list[bytes]] = [[] for _ in range(splits)]
    for key, raw in zip(keys, raws, strict=True):
        expected[((token_of(key) >> 32) + (1 << 31)) * splits >> 32].append(raw)
    assert expected == log.taken()


@given(keys=st.lists(st.binary(max_size=70), unique=True, max_size=60))
def test_records_have_the_drivers_token_and_the_keyed_digest(keys: list[bytes]) -> None:
    """What is stored of an entry is its exact token and its digest under the job's key."""
    log = Log(1)
    raws = [insert(key) for key in keys]

    log.feed(raws)

    rows = memoryview(log.agreements[0].changed_rows()).cast("Q").tolist()
    found = {
        b"".join(word.to_bytes(8, "little") for word in rows[at : at + 2]): rows[at + 3]
        for at in range(0, len(rows), 10)
    }
    assert found == {
        digest(raw, KEY): token_of(key) & (1 << 64) - 1 for raw, key in zip(raws, keys, strict=True)
    }


@pytest.mark.parametrize("version", MESSAGING)
def test_what_is_not_asked_for_is_passed_over_and_counted(version: int) -> None:
    """System tables, unknown ones and ones not selected; of each version the same."""
    log = Log(1)
    messaging = MESSAGING[version]
    wanted = insert(b"a", messaging=messaging)
    others = [insert(b"a", table=t, messaging=messaging) for t in (OTHER, SYSTEM, SYSTEM, UNKNOWN)]

    assert constants.FINISHED == log.feed([others[0], wanted, *others[1:]], version)

    assert [[wanted]] == log.taken()
    assert {"system": 2, "unknown_table": 1, "not_selected": 1, "counter": 0} == log.skipped()
    assert [UNKNOWN.bytes] == list(log.intake.unknown)


@pytest.mark.parametrize("version", MESSAGING)
@pytest.mark.parametrize("count", [2, 127, 128, 300])
def test_a_mutation_of_several_updates_may_hold_a_selected_table(version: int, count: int) -> None:
    """One that begins with another table is kept, however many updates it has."""
    messaging = MESSAGING[version]
    updates = [updated(b"k", table=OTHER, messaging=messaging) for _ in range(count - 1)]
    both = mutation(*updates, updated(b"k", messaging=messaging), messaging=messaging)
    log = Log(1)

    log.feed([both], version)

    assert [[both]] == log.taken()


def test_unknown_tables_are_remembered_within_a_bound() -> None:
    """Each id once, with the place where it was met first; not more than a thousand."""
    log = Log(1)
    raws = [insert(b"k", table=type(UNKNOWN)(int=UNKNOWN.int + i % 1_500)) for i in range(3_000)]

    log.feed(raws)

    assert 3_000 == log.skipped()["unknown_table"]
    assert 1_000 == len(log.intake.unknown)
    assert 1_000 == len(log.asked) == len(set(log.asked))
    assert "entry that ends at " in log.intake.unknown[UNKNOWN.bytes]


def test_what_a_split_has_seen_is_passed_over() -> None:
    """Entries up to the position resumed from are neither read nor counted (line 11)."""
    raws = [insert(b"%d" % i) for i in range(9)]
    ends = segment([raws]).ends

    for i, end in enumerate(ends):
        log = Log(1)
        log.intake.resume_at(0, 0, SEGMENT_ID, end)
        log.feed(raws)
        assert [raws[i + 1 :]] == log.taken()
        assert len(raws) - i - 1 == log.intake.read_of(0, 0)


def test_bytes_held_are_bounded(tmp_path: Path) -> None:
    """All comes out, however little may be held at once."""
    raws = [insert(b"%d" % i, bytes(100)) for i in range(60)]
    options = forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []})

    found = everything(options | {"consistency": "ONE", "splits": 3})

    assert 60 == sum(len(list(batch.records())) for batch in found)


@given(
    sizes=st.lists(st.sampled_from([0, 1, 50, 3_000, 200_000]), max_size=80),
    held_max=st.integers(1, 20_000),
)
def test_a_bound_on_bytes_is_passed_by_one_mutation(sizes: list[int], held_max: int) -> None:
    """With anything beside it in the window; and what is below the bound is read."""
    log = Log(3)
    raws = [insert(b"%d" % i, bytes(size)) for i, size in enumerate(sizes)]

    log.feed(raws, held_max=held_max)

    held = [raw for agreed in log.taken() for raw in agreed]
    fits = sum(map(len, raws)) < held_max
    assert fits == (sum(map(len, held)) < held_max)
    assert not held or sum(map(len, held)) - len(raws[len(held) - 1]) < held_max


def test_the_fullest_split_is_the_one_that_has_most_now() -> None:
    """Reading stops when a split has enough; when it is taken, the next one counts."""
    log = Log(8)
    log.feed([insert(b"%d" % i) for i in range(100)])

    shown, counts = [], []
    for split in range(8):
        shown.append(log.intake.fullest)
        counts.append(log.intake.take(split).count)

    assert [max(counts[split:]) for split in range(8)] == shown
    assert 0 == log.intake.fullest


def test_agreed_mutations_grow_while_they_are_read() -> None:
    """A view stays as it was, and nothing that is appended is lost."""
    agreed = AgreedMutations()
    raws = [bytes([n]) * 30_000 for n in range(1, 100)]
    view = memoryview(agreed.data)
    for raw in raws:
        agreed.append(raw, 0, len(raw), 0, 1, 1, 1, 12, 0, 0, 0)

    assert b"".join(raws) == bytes(agreed.data[: agreed.size])
    assert raws[0] == bytes(view[: len(raws[0])])


def test_copies_are_found_while_the_table_grows() -> None:
    """Every second entry is a copy of an earlier one: none becomes a record or comes out again."""
    random = Random(11)  # noqa: S311 (a test's dice)
    fresh = [insert(b"%d" % i) for i in range(5_000)]
    log = Log(1)

    log.feed([raw for i, new in enumerate(fresh) for raw in (new, fresh[random.randrange(i + 1)])])

    assert log.taken() == [fresh]
    assert log.agreements[0].live == len(fresh)


def test_a_look_up_by_itself_begins_at_its_own_place() -> None:
    """Where the loop looked last says nothing of another digest."""
    log = Log(1)
    raws = [insert(b"%d" % i) for i in range(2)]
    log.feed(raws)
    (agreement,) = log.agreements
    for raw in raws:
        whole = digest(raw, KEY)
        words = int.from_bytes(whole[:8], "little"), int.from_bytes(whole[8:], "little")
        agreement.observe(0, *words, 0, 0, SEGMENT_ID, 1, len(raw))

    assert agreement.live == len(raws)


def every_third(whole: Callable[..., Any], fault: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that is *whole*, but at every third call *fault*, which is given it too."""
    calls = 0

    def call(*given: Any) -> Any:  # noqa: ANN401 (passed on)
        nonlocal calls
        calls += 1
        return whole(*given) if calls % 3 else fault(whole, *given)

    return call


def skip(_: Callable[..., int], intake: Intake, framer: Framer, host: int) -> int:
    """Count an entry as one of a system table."""
    (table,) = (i for i, t in enumerate(intake.routes.catalogue.tables) if t.table_id == TABLE)
    intake._skip(framer, host, table, 0)  # noqa: SLF001 (the fault is planted inside)
    return constants.ENTRY


def forget_last(whole: Callable[..., None], intake: Intake, framer: Framer, host: int) -> None:
    """Decide about all entries of a group but the last."""
    intake.waiting -= 1
    whole(intake, framer, host)


def count_surplus(_: Callable[..., int], agreement: Agreement, host: int, *__: int) -> int:
    """Count an entry as a copy of the first record."""
    agreement._count(0, host, 2)  # noqa: SLF001 (as above)
    return 0


def frame_and_forget(whole: Callable[[Framer], int], framer: Framer) -> int:
    """Pass over an entry that was found, as if it were not in the log."""
    before = framer.found
    whole(framer)
    framer.found = before
    return whole(framer)


FAULTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "an entry is not framed": (Framer, "next_entry", frame_and_forget),
    "an entry goes nowhere": (Intake, "_route", lambda *_: constants.ENTRY),
    "an entry goes to a split twice": (Intake, "_route", lambda w, *given: w(*given) and w(*given)),
    "an entry is counted as a system table's": (Intake, "_route", skip),
    "a key is not looked at": (Intake, "_note", lambda *_: None),
    "the last of a group is forgotten": (Intake, "_decide", forget_last),
    "an entry is not observed": (Intake, "_observe", lambda *_: None),
    "an entry is counted, and has no record": (Agreement, "observe", count_surplus),
    "agreement takes an entry for another": (
        Agreement,
        "observe",
        lambda w, agreement, host, d0, *rest: w(agreement, host, d0 // 2, *rest),
    ),
}


LAST = b"last"  # The key of the entry that is damaged.


@pytest.mark.parametrize("defers", [False, True])
def test_what_is_before_damage_is_complete(defers: bool) -> None:  # noqa: FBT001 (a parameter)
    """Damage is reported as damage, not as missing entries, also if only some are checked."""
    log, undamaged = Log(2), Log(2)
    for each in (log, undamaged):
        each.intake.own(1, None)
        each.intake.keep_books(0, int(defers), 0)  # A split that is not owned books nothing.
    raws = [insert(b"%d" % i) for i in range(9)]
    undamaged.feed(raws)

    with pytest.raises(CorruptSegmentError):
        log.feed([*raws, insert(LAST)], damaged=insert(LAST))
    found = content(log.intake.take(0))
    assert found
    assert content(undamaged.intake.take(0)) == found


@pytest.mark.skipif(COMPILED, reason="machine code cannot be changed")
@pytest.mark.parametrize("damaged", [b"", insert(LAST)], ids=["whole", "damaged"])
@pytest.mark.parametrize("name", FAULTS)
def test_entries_that_are_lost_or_miscounted_are_missed(
    name: str, damaged: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log held must become skipped, passed or counted, each once, as what it is."""
    kind, method, fault = FAULTS[name]
    log = Log(1)
    raws = [insert(b"%d" % i) for i in range(200)]
    monkeypatch.setattr(kind, method, every_third(getattr(kind, method), fault))

    def read() -> None:
        with suppress(CorruptSegmentError):
            log.feed([*raws, insert(LAST)], damaged=damaged)
        log.agreements[0].take_emitted("1-of-1")

    with pytest.raises(MiscountError):
        read()
