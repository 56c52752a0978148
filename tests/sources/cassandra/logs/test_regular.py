"""Something with the name of a segment or an index that is not a file is skipped."""

import dataclasses
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from headrace.plugins import parse_config
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.agent.client import RemoteLog
from headrace.sources.cassandra.agent.protocol import SEGMENTS_PATH
from headrace.sources.cassandra.commitlog.segment import index_name
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.errors import NotAFileError
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.inspect.command import main
from headrace.sources.cassandra.logs.directory import SegmentFile
from headrace.sources.cassandra.logs.regular import (
    open_regular,
    read_regular,
    read_with_time,
    reread,
)
from headrace.sources.cassandra.source import CassandraSource
from helpers.logs.forged import insert
from helpers.logs.holding import DELETE, Node, name, retention_of
from helpers.logs.node_logs import batches, forged_nodes, open_all
from helpers.servers.agents import serving

MADE = segment([[insert(b"a", b"1")]])
ROW = "0x31"


def bound_socket(path: Path) -> None:
    """Leave a socket's name at *path*, which may be longer than a socket's can be."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "a FIFO"),
    "socket": (bound_socket, "a socket"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
    "directory": (Path.mkdir, "a directory"),
    "loop": (lambda path: path.symlink_to(path.name), "a symbolic link"),
    "nothing": (lambda path: path.symlink_to("nowhere"), "a symbolic link"),
    "link": (lambda path: path.symlink_to(f"CommitLog-7-{SEGMENT_ID}.log"), "a symbolic link"),
}
NAMES = [f"CommitLog-7-{SEGMENT_ID - 1}.log", f"CommitLog-7-{SEGMENT_ID + 1}_cdc.idx"]


def made(folder: Path, kind: str, under: str) -> Path:
    """Make a directory with a good segment, and something else *under* a name."""
    write_segment(folder, MADE.content, index=f"{MADE.durable}\nCOMPLETED")
    KINDS[kind][0](folder / under)
    return folder / under


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("under", NAMES)
def test_a_job_passes_it_over_with_a_warning(tmp_path: Path, kind: str, under: str) -> None:
    """Once; the segments beside it are read to their ends."""
    options = forged_nodes(tmp_path, {"n1": ()}) | {"consistency": "ONE", "splits": 1}
    path = made(tmp_path / "n1", kind, under)
    capture = structlog.testing.LogCapture()
    log = structlog.wrap_logger(
        None, processors=[capture], wrapper_class=structlog.stdlib.BoundLogger
    )
    config, clock = parse_config(CassandraConfig, options), DrivenClock()
    job = CassandraSource(config, dataclasses.replace(context(clock), log=log))
    readers = open_all(job).values()

    found = []
    for _ in range(3):
        clock.advance(1_000)
        found += [record for batch in batches(readers) for record in batch.records()]
    job.close()

    assert [ROW] == [record.document()["columns"]["v"]["value"] for record in found]
    (warning,) = [entry for entry in capture.entries if entry["event"] == "file_skipped"]
    assert ("n1", "not_a_file", str(path)) == tuple(
        warning[each] for each in ("node", "error_code", "place")
    )
    assert f"expected a file, found {KINDS[kind][1]}" == warning["error"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_keeper_takes_and_removes_no_such_thing(tmp_path: Path, kind: str) -> None:
    """Its own segments are held and disposed of as before."""
    node = Node(tmp_path / "n1")
    retention = retention_of(node.log, DELETE)
    retention.check()
    node.write(1, [b"a"])
    node.write(2, [b"b"])
    for other in (name(3), index_name(name(4))):
        KINDS[kind][0](node.raw / other)
    retention.take()
    retention.dispose()

    assert [1, 2] == node.held()
    assert {name(3), index_name(name(4))} <= {path.name for path in node.raw.iterdir()}
    assert not {name(3), index_name(name(4))} & {path.name for path in node.hold.iterdir()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("under", NAMES)
def test_an_agent_passes_it_over(tmp_path: Path, kind: str, under: str) -> None:
    """It is not listed, and a request for it by name is answered at once."""
    made(tmp_path, kind, under)
    with serving(tmp_path) as served:
        agent = served.agent()
        assert [SEGMENT_ID] == [each.segment_id for each in RemoteLog(agent).segments()]
        answer = agent.ask("GET", f"{SEGMENTS_PATH}/{under}", b"", {"Range": "bytes=0-9"})

    assert (404 if under.endswith(".log") else 400) == answer.status
    assert under.endswith(".idx") or b"segment_gone" in answer.content


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("under", [NAMES[0], f"CommitLog-7-{SEGMENT_ID}_cdc.idx"])
def test_inspect_passes_it_over(
    tmp_path: Path, kind: str, under: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a warning, as if it did not exist; links to files are followed."""
    options = forged_nodes(tmp_path, {"n1": ()})
    write_segment(tmp_path / "n1", MADE.content, index=None)
    (tmp_path / "n1" / f"CommitLog-7-{SEGMENT_ID}_cdc.idx").unlink()
    path = tmp_path / "n1" / under
    KINDS[kind][0](path)

    status = main([str(tmp_path / "n1"), "--schema", str(options["schema"]), "--count"])

    out, err = capsys.readouterr()
    assert "1" == out.strip()
    if kind == "link" and under.endswith(".log"):
        assert (1, True) == (status, f"{path}: byte 4: the header says segment" in err)
    elif kind != "link":
        assert (0, True) == (status, err.startswith(f"warning: not_a_file: {path}: expected a fi"))


def test_a_path_that_is_neither_file_nor_directory_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """When it is given to inspect by its own name."""
    os.mkfifo(tmp_path / "fifo")

    assert 3 == main([str(tmp_path / "fifo")])
    assert "fifo: expected a file, found a FIFO" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_else_is_opened(tmp_path: Path, kind: str) -> None:
    """Also where it took the place of a file just now."""
    path = made(tmp_path, kind, NAMES[0])

    with pytest.raises(NotAFileError, match=KINDS[kind][1]):
        SegmentFile(path)
    with pytest.raises(NotAFileError, match=KINDS[kind][1]):
        open_regular(path)
    if kind == "link":
        assert MADE.content[:9] == read_regular(path, 9, follow_symlinks=True)
    else:
        with pytest.raises(NotAFileError):
            read_regular(path, 9, follow_symlinks=True)


def test_a_file_is_read_again(tmp_path: Path) -> None:
    """With its time, as at first; what replaced it by a link meanwhile is not."""
    path = tmp_path / "index"
    path.write_bytes(b"512\n")

    assert read_with_time(path, 64) == reread(str(path), 64)
    (tmp_path / "other").write_bytes(b"9")
    path.unlink()
    path.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"):
        reread(str(path), 64)
