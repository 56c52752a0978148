"""What a sink has is counted by table, and compared with what the books say."""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from headrace.connector.runtime.books.sink_contents import SinkContent, content_of
from headrace.connector.stores import TableCounts
from headrace.connector.stores.table_content import TableContent
from headrace.plugins import HeadraceError, MissingRequirementError, Sink
from headrace.plugins.testing.doubles import context
from headrace.sinks.files import FileSink, FileSinkConfig
from headrace.sinks.kafka.failures import BrokerUnreachableError
from helpers.jobs.parted import names, parted


def sink(path: Path, lines: Iterator[str]) -> Sink:
    """Return a sink that wrote *lines*."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return FileSink(FileSinkConfig(path=str(path)), context())


def change(table: str, mutation: int, index: int) -> str:
    """Return a change in JSON."""
    return f'{{"table": "{table}", "mutation": "{mutation:032x}", "index": {index}, "more": [1]}}'


def test_different_changes_are_counted(tmp_path: Path) -> None:
    """A change is one of its table, mutation and index; it counts once, wherever it lies."""
    lines = [change("ks.a", n, i) for n in range(1000) for i in range(2)]
    lines += [change("ks.b", n, 0) for n in range(500)]
    lines += [*lines[:300], "{}", change("ks.other", 1, 1)]
    counters = {
        "ks.a": TableCounts(2001, 2001),
        "ks.b": TableCounts(500, 499, 0, 1),
        "": TableCounts(),
    }
    whole = sink(tmp_path / "out", iter(lines))
    found = content_of(lambda: (whole, names()), counters)

    assert {
        "ks.a": TableContent(delivered=2001, kept=0, found=2000, repeated=300),
        "ks.b": TableContent(delivered=499, kept=1, found=500, repeated=0),
    } == found.tables
    assert (1, True) == (found.unreadable, "mutation" in found.reason)
    assert ["sink: 1 of 2001 delivered changes of ks.a are missing"] == found.differences(
        is_moving=False
    )


@pytest.mark.parametrize("processes", [1, 9])
def test_processes_share_the_parts(tmp_path: Path, processes: int) -> None:
    """However many read them, what is in several parts is counted once."""
    for part in range(3):
        lines = [change("ks.a", n, 0) for n in range(100 * part, 100 * part + 150)]
        sink(tmp_path / f"part{part}", iter([*lines, "none"]))
    found = content_of(
        partial(parted, tmp_path), {"ks.a": TableCounts(350, 350)}, processes=processes
    )

    assert {"ks.a": TableContent(delivered=350, kept=0, found=350, repeated=100)} == found.tables
    assert (3, True) == (found.unreadable, bool(found.reason))


@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("killed", MissingRequirementError, "`--processes 1` reads it in one process"),
        ("full", MissingRequirementError, "TMPDIR names another folder"),
        ("silent", BrokerUnreachableError, "wait"),
    ],
)
def test_errors_of_processes(
    tmp_path: Path, name: str, error: type[HeadraceError], hint: str
) -> None:
    """An error in one of them comes whole; one that is killed is an error, too."""
    for part in ("a", name):
        sink(tmp_path / part, iter([change("ks.a", 1, 0)]))
    with pytest.raises(error) as caught:
        content_of(partial(parted, tmp_path), {"ks.a": TableCounts(1, 1)}, processes=2)

    assert hint in caught.value.hint


DIFFERENCES: Sequence[tuple[TableContent, bool, str]] = [
    (TableContent(10, 0, 10, 5), False, ""),
    (TableContent(10, 0, 9, 5), True, "1 of 10 delivered changes of t are missing"),
    (TableContent(10, 2, 12, 0), False, ""),
    (TableContent(10, 2, 13, 0), False, "1 changes of t are not in the books"),
    (TableContent(10, 2, 13, 0), True, ""),
]


@pytest.mark.parametrize(("content", "is_moving", "said"), DIFFERENCES)
def test_differences(content: TableContent, is_moving: bool, said: str) -> None:  # noqa: FBT001 (a case)
    """What is missing differs; so does what the books do not know, of a job that rests."""
    lines = SinkContent({"t": content}).differences(is_moving=is_moving)

    assert bool(said) == bool(lines)
    assert said in "".join(lines)


def test_names_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder for temporary files the error names it."""
    whole = sink(tmp_path / "out", iter(()))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(MissingRequirementError, match=r"none: .*cannot be kept"):
        content_of(lambda: (whole, names()), {"t": TableCounts(1, 1)})
