"""An index file is believed as far as it can be true; what stays nonsense is reported once."""

import dataclasses
from pathlib import Path

import pytest
import structlog

from headrace.plugins import parse_config
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.commitlog.segment import Index
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.forge.segments import segment, write_segment
from headrace.sources.cassandra.logs.directory import NO_LIMIT, LogDirectory
from headrace.sources.cassandra.logs.index_files import LOOKS, IndexFiles, ReportedFlaws
from headrace.sources.cassandra.source import CassandraSource
from helpers.logs.forged import insert
from helpers.logs.node_logs import batches, forged_nodes, open_all
from helpers.recordings.corpora import recording

END = 1_000
FORM = "<offset>, or <offset> and below it COMPLETED"


def look(files: IndexFiles, content: bytes, times: int = 1) -> Index | None:
    """Look so many times at the index of segment 5."""
    for _ in range(times):
        found = files.look({5: ("x.idx", content)}, lambda _: END)[5]
    return found


def messages(files: IndexFiles) -> list[str]:
    """Return what is reported."""
    return [flaw.message for flaw in files.flaws]


@pytest.mark.parametrize(
    ("before", "content", "expected", "found"),
    [
        (b"", b"garbage", FORM, "'garbage'"),
        (b"", b"-5", FORM, "'-5'"),
        (b"", b"12 34", FORM, "'12 34'"),
        (b"", b"0x10", FORM, "'0x10'"),
        (b"", b"500\nCOMPLETEDx", FORM, r"'500\nCOMPLETEDx'"),
        (b"", b"\x1b[2J\xff", FORM, r"'\x1b[2J\\xff'"),
        (b"", b"", FORM, "an empty file"),
        (b"500", b"", FORM, "an empty file"),
        (b"500", b"499", "an offset from 500 on, as it said before", "'499'"),
        (b"500", b"1001", "an offset within the segment, up to 1000", "'1001'"),
        (b"500\nCOMPLETED", b"600", "COMPLETED, as it said before", "'600'"),
    ],
)
def test_what_stays_nonsense_is_reported(
    before: bytes, content: bytes, expected: str, found: str
) -> None:
    """After some looks, not before; what it said before counts all the time."""
    files = IndexFiles()
    known = look(files, before) if before else None
    for _ in range(LOOKS - 1):
        assert known == look(files, content)
        assert [] == messages(files)

    assert known == look(files, content)

    assert [f"expected {expected}; found {found}"] == messages(files)
    assert Index(600, completed=True) == look(files, b"600\nCOMPLETED")
    assert [] == messages(files)


def test_a_missing_index_is_not_forgotten() -> None:
    """While its segment is there, what it said before counts when it comes back."""
    files = IndexFiles()
    look(files, b"500")

    assert {5: None} == files.look({5: None}, lambda _: END)

    assert Index(500, completed=False) == look(files, b"")


@pytest.mark.parametrize("content", [b"500", b"1000", b"1000\nCOMPLETED", b"7\nCOMPLETED"])
def test_what_can_be_true_is_believed(content: bytes) -> None:
    """Up to the segment's end; with COMPLETED an offset means nothing."""
    files = IndexFiles()
    look(files, b"500")
    look(files, b"", LOOKS - 1)

    found = look(files, content)

    assert found is not None
    assert content == (b"%d\nCOMPLETED" if found.completed else b"%d") % found.offset


def test_each_change_is_reported_once() -> None:
    """One that is mended and breaks again is reported again."""
    files, reported = IndexFiles(), ReportedFlaws()
    counts = []
    for content in (b"a", b"a", b"b", b"5", b"b", b"b"):
        look(files, content, LOOKS)
        counts.append(len(list(reported.new(files.flaws))))

    assert [1, 0, 1, 0, 1, 0] == counts
    files.look({}, lambda _: END)
    assert [] == messages(files)


def test_no_offset_is_beyond_a_plain_segment(tmp_path: Path) -> None:
    """Of a plain one that is the file's length; of a packed one offsets are not places in it."""
    limits = []
    for name in ("5.0-ops", "wrapped"):
        source = min(recording(name).rglob("segments/*.log"))
        (tmp_path / name).mkdir()
        (tmp_path / name / source.name).write_bytes(source.read_bytes())
        size = source.stat().st_size
        index = tmp_path / name / f"{source.stem}_cdc.idx"
        index.write_text(str(size + 1))
        log = LogDirectory(tmp_path / name)
        limits.append([log.segments()[0].limit - size, log.segments()[0].limit - size])
        index.write_text("1\nCOMPLETED")
        assert NO_LIMIT == log.segments()[0].limit
    plain, packed = limits
    assert [1, 1] == packed
    assert all(limit < 0 for limit in plain)


def test_a_job_tells_and_goes_on(tmp_path: Path) -> None:
    """A malformed index holds its own segment up, not the other nodes; nothing is lost by it."""
    capture = structlog.testing.LogCapture()
    log = structlog.wrap_logger(
        None, processors=[capture], wrapper_class=structlog.stdlib.BoundLogger
    )
    options = forged_nodes(tmp_path, {"b": [insert(b"\x02")]}) | {"consistency": "ONE", "splits": 1}
    options["nodes"] = {node: str(tmp_path / node) for node in "abc"}
    made = segment([[insert(b"\x01")]])
    write_segment(tmp_path / "a", made.content, index="nonsense")
    write_segment(tmp_path / "c", made.content, index="0")
    config, clock = parse_config(CassandraConfig, options), DrivenClock()
    source = CassandraSource(config, dataclasses.replace(context(clock), log=log))
    readers = open_all(source).values()

    def come() -> list[object]:
        clock.advance(1_000)
        return [r.document()["key"]["k"] for batch in batches(readers) for r in batch.records()]

    assert ["0x02"] == [key for _ in range(LOOKS) for key in come()]
    (warning,) = (entry for entry in capture.entries if entry["event"] == "index_unusable")
    assert ("a", "bad_index") == (warning["node"], warning["error_code"])
    assert "'nonsense'" in warning["error"]

    write_segment(tmp_path / "a", made.content, index=f"{made.durable}\nCOMPLETED")
    assert ["0x01"] == come()
    source.close()
