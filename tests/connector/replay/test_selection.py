"""Which records a selection takes."""

from array import array
from collections.abc import Sequence

import msgspec
import pytest

from headrace.connector.replay.selection import Selection, time_us, token_range
from headrace.plugins import OPERATIONS, ConfigError, EncodedRecords, Facts

KEYS = (b"a", b"b", b"c", b"a")


def encoded() -> EncodedRecords:
    """Return four records of two tables, written a microsecond apart."""

    def column(numbers: Sequence[int]) -> memoryview:
        return memoryview(array("q", numbers))

    return EncodedRecords(
        list(KEYS),
        [b"0", b"1", b"2", b"3"],
        [()] * 4,
        ["ks.t", "ks.u", "ks.t", "ks.u"],
        tombstones=[1, 3],
        topics=["w", "x", "y", "z"],
        facts=Facts(
            timestamps_us=column([10, 11, 12, 13]),
            operations=column([0, 1, 2, 1]),
            indexes=column([0, 0, 0, 1]),
            mutations=column([0, 1, 2, 2]),
        ),
    )


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        pytest.param(Selection(), [0, 1, 2, 3], id="everything"),
        pytest.param(Selection(tables=frozenset({"ks.u"})), [1, 3], id="table"),
        pytest.param(Selection(operations=frozenset({"UPDATE"})), [1, 3], id="operation"),
        pytest.param(Selection(from_us=11), [1, 2, 3], id="from, with its first"),
        pytest.param(Selection(to_us=12), [0, 1], id="to, without its last"),
        pytest.param(Selection(keys=frozenset({b"a"})), [0, 3], id="key"),
        pytest.param(Selection(from_us=13, tables=frozenset({"ks.t"})), [], id="nothing"),
    ],
)
def test_apply(selection: Selection, taken: list[int]) -> None:
    """All columns of the records are reduced to what is selected."""
    left = selection.apply(encoded())

    assert taken == [int(value) for value in left.values]
    assert [KEYS[i] for i in taken] == list(left.keys)
    assert ["wxyz"[i] for i in taken] == list(left.topics or ())
    assert [taken.index(i) for i in (1, 3) if i in taken] == list(left.tombstones)
    assert left.facts is not None
    assert [10 + i for i in taken] == list(left.facts.timestamps_us)
    assert len(taken) == len(left)


def test_what_has_no_times_cannot_be_selected_by_them() -> None:
    """Records without write times are refused, not dropped, when times are selected."""
    records = EncodedRecords([b"k"], [b"v"], [()], ["t"])

    with pytest.raises(ConfigError, match="have no times"):
        Selection(from_us=1).apply(records)


def test_json() -> None:
    """A selection in JSON is read back unchanged."""
    selection = Selection(
        tables=frozenset({"ks.t"}),
        operations=frozenset({OPERATIONS[0].value}),
        from_us=1,
        to_us=2,
        tokens=((-5, 5),),
        keys=frozenset({b"\x00\xff"}),
    )

    text = msgspec.json.encode(selection)

    assert selection == msgspec.json.decode(text, type=Selection)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.000001", 1_000_001),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000_000),
    ],
)
def test_time(text: str, us: int) -> None:
    """A time without a zone is in UTC."""
    assert us == time_us(text, "--from")


def test_bad_time() -> None:
    """An invalid time is named with its option."""
    with pytest.raises(ConfigError, match="--from: expected a time, found 'noon'"):
        time_us("noon", "--from")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("-5:7", (-5, 7)),
        (":7", (-(1 << 63), 7)),
        ("7:", (7, (1 << 63) - 1)),
    ],
)
def test_token_range(text: str, tokens: tuple[int, int]) -> None:
    """A missing bound is the end of the ring."""
    assert tokens == token_range(text)


@pytest.mark.parametrize("text", ["", "5", "a:b", "1:9223372036854775808"])
def test_bad_token_range(text: str) -> None:
    """An invalid token range is named with its option."""
    with pytest.raises(ConfigError, match="--token-range"):
        token_range(text)
