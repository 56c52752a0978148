"""The history in Python is what a query returns, in the forms that programs use."""

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import history
from headrace.connector.history.errors import FramesMissingError, HistoryMissingError
from headrace.plugins import ConfigError
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, beside, settled
from helpers.histories.rows import TABLE, change, delivery

CHANGES = 2_500  # More than two pages.
ALL = ("change", "pre", "post", "latest")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a history."""
    kept = Kept(DrivenClock(), **beside(tmp_path_factory.mktemp("h"), table=TABLE, seed="empty"))
    writer = kept.writer()
    sent = [change(written_us=n, of=(n % 7, n), note=str(n)) for n in range(CHANGES)]
    for begin in range(0, CHANGES, 500):
        writer.submit(delivery(*sent[begin : begin + 500]), settled)
        kept.clock.advance(1_000)
        assert writer.commit({}, FOREVER_MS)
    writer.close()
    return Path(kept.sink.config.place)


@pytest.fixture
def opened(path: Path) -> Iterator[history.Client]:
    """Return it, open."""
    with history.connect(path) as made:
        yield made


def test_a_selection_has_all_pages(opened: history.Client) -> None:
    """Each change once, in order, as often as it is read; and no more than its limit."""
    found = opened.select("2023-01-01")
    assert list(range(CHANGES)) == [event.written_us for event in found]
    assert list(range(CHANGES)) == [event.written_us for event in found]
    limited = opened.select("2023-01-01", limit=1_700)
    assert list(range(1_700)) == [event.written_us for event in limited]
    last = opened.select("2023-01-01", descending=True, limit=2)
    assert [CHANGES - 1, CHANGES - 2] == [event.written_us for event in last]


def test_a_selection_chooses(opened: history.Client) -> None:
    """Times, keys, operations, partitions and images."""
    first = dt.datetime(2023, 11, 14, 22, 13, 22, tzinfo=dt.UTC)
    second = opened.select(first + dt.timedelta(seconds=1), first + dt.timedelta(seconds=2))
    assert list(range(500, 1_000)) == [event.written_us for event in second]
    one = opened.select(0, key={"id": 3, "at": 10}, include=ALL)
    (event,) = one
    assert {"note": "10", "total": None} == event.post == event.latest
    assert not list(opened.select(0, operations=["delete"]))
    assert not list(opened.select(dt.timedelta(days=1)))
    parts = [list(opened.select(0, partitions=[number])) for number in range(8)]
    assert CHANGES == sum(map(len, parts))


def test_a_table_of_arrow_has_the_same(opened: history.Client) -> None:
    """Columns of the key with their types, times as times, images as structs; in batches, too."""
    selection = opened.select(0, include=ALL, limit=1_200)
    table = selection.arrow()
    assert [1_000, 200] == [batch.num_rows for batch in selection.batches()]
    expected = list(selection)
    rows: list[dict[str, Any]] = table.to_pylist()
    assert len(expected) == len(rows)
    for event, row in zip(expected, rows, strict=True):
        assert event.key == {"id": row["id"], "at": row["at"]}
        assert event.post is not None
        assert {**event.key, **event.post} == row["post"]
        assert event.time_ms == round(row["cdc_time"].timestamp() * 1_000)
        assert (event.sequence, event.operation.lower()) == (row["seq"], row["op"])
    assert "pre" in table.column_names
    assert "pre" not in opened.select(0).arrow().column_names


def test_a_frame_of_pandas_has_the_same(opened: history.Client) -> None:
    """Each row, with times that pandas compares."""
    pytest.importorskip("pandas")  # Not in the extra `test`: Spark's tasks would import it.
    selection = opened.select(0, include=ALL, limit=1_200)
    frame = selection.pandas()
    assert selection.arrow().to_pylist()[7]["post"] == frame["post"][7]
    assert [str(n) for n in range(1_200)] == [image["note"] for image in frame["post"]]
    first = frame["cdc_time"].min()
    assert 500 == len(frame[frame["cdc_time"] == first])


@pytest.mark.parametrize("missing", ["pandas", "pyarrow"])
def test_what_frames_need(
    opened: history.Client, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Without pandas or pyarrow the error says how to install it; events need neither."""
    monkeypatch.setitem(sys.modules, missing, None)
    selection = opened.select(0, limit=1)
    with pytest.raises(FramesMissingError, match=rf"{missing} cannot be imported(.|\n)*\[pandas\]"):
        selection.pandas()
    if missing == "pyarrow":
        with pytest.raises(FramesMissingError, match="pyarrow cannot be imported"):
            selection.arrow()
    assert 1 == len(list(selection))


def test_a_tail_begins_where_it_is_asked_to(opened: history.Client) -> None:
    """With tokens to continue behind each change."""
    tail = opened.tail("2023-01-01")
    first = [next(tail) for _ in range(1_500)]
    assert list(range(1_500)) == [event.written_us for event, _ in first]
    again = opened.tail(after=first[-1][1])
    assert 1_500 == next(again)[0].written_us


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"since": "yesterday"}, "since: expected a duration, found 'yesterday'"),
        ({"since": 0, "include": ["past"]}, "include: image 'past' is unknown"),
        ({"since": 0, "operations": ["upset"]}, "operations: 'upset' is not an operation"),
        ({"since": 0, "operations": ["ttl_insert"]}, "operations: 'ttl_insert' is not an"),
        ({"since": 0, "key": {"note": "1"}}, "note: cannot be compared"),
    ],
)
def test_what_is_wrong_is_named(
    opened: history.Client, given: dict[str, Any], message: str
) -> None:
    """With the argument."""
    with pytest.raises(ConfigError, match=message):
        list(opened.select(**given))


def test_there_must_be_a_history(tmp_path: Path) -> None:
    """A path without a file is an error."""
    with pytest.raises(HistoryMissingError):
        history.connect(tmp_path / "none.db")
