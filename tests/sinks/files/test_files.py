"""The file sink appends whole lines, also beside other writers and after a crash."""

import dataclasses
import fcntl
import json
import multiprocessing
import os
import resource
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.plugins import (
    CheckResult,
    ConfigError,
    Delivery,
    MissingRequirementError,
    NumberPosition,
    RecordBatch,
    RetriableError,
)
from headrace.plugins.testing import SinkDriver, SinkSuite
from headrace.plugins.testing.doubles import DocumentCodec, context, sample_records
from headrace.plugins.testing.sink_suite import Results
from headrace.sinks.files import FileSink, FileSinkConfig
from headrace.sinks.files import lines as file_lines
from headrace.sinks.files.lines import append_lines


class FileDriver(SinkDriver):
    """One file."""

    def __init__(self, path: Path) -> None:
        """Write to *path*."""
        self.path = path

    def sink(self, *, resumes: bool = True) -> FileSink:
        """Return the sink of a job that wrote into it before, or not."""
        lent = dataclasses.replace(context(), resumes=resumes)
        return FileSink(FileSinkConfig(path=str(self.path)), lent)

    def written(self) -> Sequence[tuple[bytes | None, bytes]]:
        """Return the lines."""
        return [(None, line) for line in self.path.read_bytes().splitlines()]

    def tear(self) -> None:
        """Leave half a line."""
        with self.path.open("ab") as file:
            file.write(b'{"table":"shop.orders","op":"UPD')


class TestFileSink(SinkSuite):
    """The reference sink obeys the contract."""

    @pytest.fixture
    def driver(self, tmp_path: Path) -> SinkDriver:
        """Return the driver."""
        return FileDriver(tmp_path / "out.jsonl")


def delivery(first: int, count: int) -> Delivery:
    """Return *count* records, numbered from *first*."""
    records = sample_records(count, first=first)
    batch = RecordBatch("a", NumberPosition(first + count), 0, records)
    return Delivery(batch, DocumentCodec().encode(batch))


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (b"", b""),
        (b"\n", b"\n"),
        (b'{"n', b""),
        (b'{"n":1}\n', b'{"n":1}\n'),
        (b'{"n":1}\n{"n":2}', b'{"n":1}\n'),
        (b"x" * 100_000, b""),
        (b"x\n" + b"y" * 100_000, b"x\n"),
    ],
)
def test_cuts_off_a_torn_line(tmp_path: Path, before: bytes, expected: bytes) -> None:
    """Opening leaves the whole lines and nothing else."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(before)
    FileDriver(path).sink().open().close()

    assert expected == path.read_bytes()


@pytest.mark.parametrize("whole", [b"", b"a line\n"])
def test_leaves_a_line_that_is_not_its_own(tmp_path: Path, whole: bytes) -> None:
    """A file that a job never wrote into loses nothing: a last line without an end is refused."""
    driver = FileDriver(tmp_path / "notes.txt")
    driver.path.write_bytes(whole)
    driver.sink(resumes=False).open().close()
    driver.path.write_bytes(whole + b"no end")

    with pytest.raises(MissingRequirementError, match="expected whole lines") as caught:
        driver.sink(resumes=False).open()

    assert str(driver.path) == caught.value.place
    assert whole + b"no end" == driver.path.read_bytes()


def test_a_device_is_no_file(tmp_path: Path) -> None:
    """What lines cannot be appended to is refused by its name, also through a link."""
    (tmp_path / "out").symlink_to("/dev/full")
    sink = FileDriver(tmp_path / "out").sink()

    with pytest.raises(MissingRequirementError, match="found a device") as caught:
        sink.open()
    assert str(tmp_path / "out") == caught.value.place
    assert [CheckResult.FAILED] == [finding.result for finding in sink.check()]


def test_cuts_off_what_another_left(tmp_path: Path) -> None:
    """A process that dies while this one runs spoils no line of this one."""
    driver = FileDriver(tmp_path / "out.jsonl")
    writer = driver.sink().open()
    driver.tear()
    writer.submit(delivery(0, 2), Results())

    assert [0, 1] == [json.loads(line)["n"] for _, line in driver.written()]


def _write(path: Path, first: int) -> None:
    writer = FileDriver(path).sink().open()
    for start in range(first, first + 500, 10):
        writer.submit(delivery(start, 10), Results())


def test_processes_share_the_file(tmp_path: Path) -> None:
    """Two processes that append at the same time lose nothing and mix no lines."""
    path = tmp_path / "out.jsonl"
    spawn = multiprocessing.get_context("fork")
    children = [spawn.Process(target=_write, args=(path, first)) for first in (0, 1000)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    found = [json.loads(line)["n"] for _, line in FileDriver(path).written()]

    assert Counter([*range(500), *range(1000, 1500)]) == Counter(found)
    assert sorted(n for n in found if n < 1000) == [n for n in found if n < 1000]


def test_a_process_that_stands_still_amid_an_append_hangs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is waited for so long; then the delivery is tried again, and nothing was written."""
    monkeypatch.setattr(file_lines, "LOCK_SECONDS_MAX", 0.0)
    driver, results = FileDriver(tmp_path / "out.jsonl"), Results()
    with driver.path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = driver.sink().open()
        with pytest.raises(RetriableError, match="another process") as caught:
            writer.submit(delivery(0, 2), results)
        assert "stopped" in str(caught.value.hint)
        assert ([], b"") == (results.calls, driver.path.read_bytes())
    writer.submit(delivery(0, 2), results)

    assert 2 == len(driver.written())


def test_full_disk_takes_nothing(tmp_path: Path) -> None:
    """A delivery that does not fit leaves the file as it was, and is settled when it fits."""
    driver = FileDriver(tmp_path / "out.jsonl")
    writer, results = driver.sink().open(), Results()
    writer.submit(delivery(0, 1), Results())
    before = driver.path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        with pytest.raises(RetriableError):
            writer.submit(delivery(1, 9), results)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert before == driver.path.read_bytes()
    assert [] == results.calls
    writer.submit(delivery(1, 9), results)
    assert 10 == len(driver.written())


@pytest.mark.parametrize("path", ["", "/", "out/"])
def test_names_a_file(path: str) -> None:
    """A path that is empty or a folder's is a mistake of the configuration."""
    with pytest.raises(ConfigError, match="names no file"):
        FileSinkConfig(path=path)


@pytest.mark.parametrize("name", ["", "no/such/folder/out.jsonl"])
def test_cannot_be_written(tmp_path: Path, name: str) -> None:
    """A path that cannot be appended to is an error of the environment, before any delivery."""
    with pytest.raises(MissingRequirementError) as caught:
        FileDriver(tmp_path / name).sink().open()

    assert caught.value.hint


def test_lines_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are on disk when the call returns: an fsync that fails is an error (I7)."""

    def fail(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        append_lines(tmp_path / "out.jsonl", b"{}\n")

    assert b"" == (tmp_path / "out.jsonl").read_bytes()


def test_uri(tmp_path: Path) -> None:
    """A URI names a file from the root with three slashes, from the working folder with two."""
    assert {"path": f"{tmp_path}/out"} == FileSink.config_of_uri("", f"{tmp_path}/out")
    assert {"path": "out.jsonl"} == FileSink.config_of_uri("out.jsonl", "")
    assert {} == FileSink.config_of_uri("", "")
    with pytest.raises(ConfigError, match="'folder' is not a folder"):
        FileSink.config_of_uri("folder", "/out.jsonl")
