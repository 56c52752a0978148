"""How a change or a row that only one side has is classified."""

from collections.abc import Sequence

import pytest

from headrace.connector.replay.comparing.differences import Difference, classified, differing_rows
from headrace.connector.replay.comparing.messages import ChangeRow
from headrace.connector.replay.comparing.rows import CellState, RowState, Span
from headrace.connector.serde.change_names import name_of

NOW_S = 1_000


def row(
    number: int, *, key: bytes = b"k", time_us: int = 0, expires_s: int | None = None
) -> ChangeRow:
    """Return a change."""
    name = name_of(bytes([number]) * 16, 0)
    return ChangeRow(name, "ks.t", key, "UPDATE", time_us, expires_s=expires_s, content=name)


def differences(
    agreed: Sequence[ChangeRow], stored: Sequence[ChangeRow], logged: Sequence[ChangeRow] = ()
) -> list[tuple[Difference, int]]:
    """Return what differs, by the first byte of its name."""
    sides = [{each.content: each for each in side} for side in (agreed, [*agreed, *logged], stored)]
    found = classified(sides[0], sides[1], sides[2], now_s=NOW_S)
    return [(each.difference, each.row.name[0]) for each in found]


def test_nothing_differs() -> None:
    """The same changes on both sides, in any order, do not differ."""
    assert [] == differences([row(1), row(2)], [row(2), row(1)])


@pytest.mark.parametrize(
    ("agreed", "stored", "logged", "expected"),
    [
        pytest.param([row(1)], [], [], [(Difference.MISSING, 1)], id="the key is not there"),
        pytest.param(
            [row(1, time_us=5)],
            [row(2, time_us=9)],
            [row(2)],
            [(Difference.MISSING, 1), (Difference.UNDER_REPLICATED, 2)],
            id="the key is there with newer",
        ),
        pytest.param(
            [row(1, time_us=5), row(2, time_us=3)],
            [row(2, time_us=3)],
            [],
            [(Difference.STALE, 1)],
            id="the key is there with older only",
        ),
        pytest.param(
            [row(1, expires_s=NOW_S)], [], [], [(Difference.EXPIRED, 1)], id="its time is over"
        ),
        pytest.param(
            [row(1, expires_s=NOW_S + 1)], [], [], [(Difference.MISSING, 1)], id="not yet"
        ),
        pytest.param([], [row(1)], [], [(Difference.EXTRA, 1)], id="no log has it"),
        pytest.param(
            [], [], [row(1)], [(Difference.UNDER_REPLICATED, 1)], id="one log has it, none else"
        ),
    ],
)
def test_classified(
    agreed: list[ChangeRow],
    stored: list[ChangeRow],
    logged: list[ChangeRow],
    expected: list[tuple[Difference, int]],
) -> None:
    """Each difference has the name that a consumer needs to know."""
    assert expected == differences(agreed, stored, logged)


def test_what_lies_outside_the_logs_that_were_read() -> None:
    """If only a part of the logs was read, messages outside it are not called extra."""
    assert [] == classified({}, {}, {row(1).name: row(1)}, now_s=NOW_S, is_whole=False)


CUT_US = 100


def cell(time_us: int | None, content: bytes = b"x", expires_s: int | None = None) -> CellState:
    """Return a value."""
    return CellState(time_us, content, expires_s)


def state(deleted_us: int = -1, *, shown: bool = True, **cells: CellState) -> RowState:
    """Return a row."""
    return RowState("ks.t", b"k", b"row", cells, deleted_us, shown)


ROW_CASES = {
    "equal": (state(v=cell(5)), state(v=cell(5)), None),
    "only the table has it": (state(v=cell(5)), None, Difference.MISSING),
    "the topic has less of it": (state(v=cell(5), w=cell(6)), state(v=cell(5)), Difference.STALE),
    "the topic has an older value": (state(v=cell(5)), state(v=cell(4)), Difference.STALE),
    "the same value, written again": (
        state(v=cell(5, b"a")),
        state(v=cell(4, b"a")),
        Difference.STALE,
    ),
    "another value of the same time": (state(v=cell(5)), state(v=cell(5, b"y")), Difference.STALE),
    "the topic has a newer value": (state(v=cell(5)), state(v=cell(6)), Difference.EXTRA),
    "only the topic has it": (None, state(v=cell(5)), Difference.EXTRA),
    "a newer deletion": (state(v=cell(5)), state(6, shown=False, v=cell(6, b"")), Difference.EXTRA),
    "an older deletion": (state(v=cell(5)), state(4, shown=False), Difference.STALE),
    "a value deleted in the topic": (state(v=cell(5)), state(v=cell(6, b"")), Difference.EXTRA),
    "it expired while they were read": (None, state(v=cell(5, b"x", NOW_S)), Difference.EXPIRED),
    "it expired in the topic, too": (None, state(v=cell(5, b"x", 900)), None),
    "written behind the cut": (state(v=cell(CUT_US)), None, None),
    "overwritten behind the cut": (state(v=cell(CUT_US)), state(v=cell(5)), None),
    "just before the cut": (state(v=cell(CUT_US - 1)), state(v=cell(5)), Difference.STALE),
    "sets are compared by elements": (state(v=cell(None)), state(v=cell(7)), None),
    "other elements": (state(v=cell(None)), state(v=cell(None, b"y")), Difference.STALE),
    "keys without values": (state(), None, Difference.MISSING),
    "keys without values, in the topic": (None, state(), Difference.EXTRA),
    "keys deleted later": (state(), state(9, shown=False), None),
    "deleted on both sides": (None, state(9, shown=False), None),
}


@pytest.mark.parametrize(("table", "topic", "expected"), ROW_CASES.values(), ids=ROW_CASES)
def test_rows(table: RowState | None, topic: RowState | None, expected: Difference | None) -> None:
    """Rows are compared column by column, by write time, where both sides have the column."""
    span = Span(to_us=CUT_US, at_s=NOW_S - 10)

    found = differing_rows(
        {} if table is None else {table.name: table},
        {} if topic is None else {topic.name: topic},
        span,
        now_s=NOW_S,
        is_touched=lambda _: False,
    )

    assert ([] if expected is None else [expected]) == [each.difference for each in found]


@pytest.mark.parametrize(
    ("table", "topic", "expected"),
    [
        pytest.param(None, state(v=cell(5)), [], id="it may have been deleted"),
        pytest.param(None, state(), [], id="so may a row without values"),
        pytest.param(state(v=cell(5)), None, [Difference.MISSING], id="what is there is judged"),
    ],
)
def test_keys_touched_behind_the_cut(
    table: RowState | None, topic: RowState | None, expected: list[Difference]
) -> None:
    """A key that was written recently and is missing in the table is not a difference."""
    found = differing_rows(
        {} if table is None else {table.name: table},
        {} if topic is None else {topic.name: topic},
        Span(to_us=CUT_US, at_s=NOW_S),
        now_s=NOW_S,
        is_touched=lambda key: key == ("ks.t", b"k"),
    )

    assert expected == [each.difference for each in found]


def test_rows_of_a_time() -> None:
    """Values from before the compared time are ignored, and rows that have only such values."""
    span = Span(from_us=50, to_us=CUT_US, at_s=NOW_S)
    pairs = [(state(v=cell(5)), None), (state(), None), (state(v=cell(50)), state(v=cell(5)))]

    found = [
        differing_rows(
            {b"row": table},
            {b"row": topic} if topic else {},
            span,
            now_s=NOW_S,
            is_touched=lambda _: False,
        )
        for table, topic in pairs
    ]

    assert [[], [], [Difference.STALE]] == [[each.difference for each in f] for f in found]
