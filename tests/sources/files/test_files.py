"""The file source follows growing files line by line."""

from pathlib import Path

import pytest

from headrace.plugins import Demand, Idle, MissingRequirementError, NumberPosition, RecordBatch
from headrace.plugins.testing import RelocationSuite, SourceDriver, SourceSuite
from headrace.plugins.testing.doubles import context
from headrace.sources.files import FileSource, FileSourceConfig
from headrace.sources.files.lines import LINE_BYTES_MAX, BadLineError, UnreadableFileError

LARGE = Demand(records_max=100)


class FilesDriver(SourceDriver):
    """Two files in a folder."""

    def __init__(self, folder: Path) -> None:
        """Write a few lines to each."""
        self.folder = folder
        for name, count in {"a": 9, "b": 3}.items():
            (folder / f"{name}.jsonl").write_text(
                "".join(f'{{"file": "{name}", "n": {n}}}\n' for n in range(count))
            )

    def source(self) -> FileSource:
        """Return a source over both."""
        return FileSource(FileSourceConfig(path=f"{self.folder}/*.jsonl"), context())

    def grow(self) -> int:
        """Append to one."""
        with (self.folder / "b.jsonl").open("a") as file:
            file.write('{"n": 100}\n{"n": 101}\n')
        return 2


class TestFileSource(SourceSuite, RelocationSuite):
    """The reference source obeys the contract."""

    @pytest.fixture
    def driver(self, tmp_path: Path) -> SourceDriver:
        """Return the driver."""
        return FilesDriver(tmp_path)


def read(path: Path, start_bytes: int = 0, demand: Demand = LARGE) -> RecordBatch | Idle:
    """Return what a reader of *path* finds from *start_bytes* on."""
    source = FileSource(FileSourceConfig(path=str(path)), context())
    (split,) = source.plan()
    found = source.open(split, NumberPosition(start_bytes)).read(demand)
    assert isinstance(found, RecordBatch | Idle)
    return found


def test_document_is_the_line(tmp_path: Path) -> None:
    """A line's document has its members and no others."""
    path = tmp_path / "in.jsonl"
    path.write_text('{"table": "ks.t", "key": {"id": 7}}\n')
    batch = read(path)
    assert isinstance(batch, RecordBatch)

    assert [{"table": "ks.t", "key": {"id": 7}}] == [r.document() for r in batch.records()]


def test_waits_for_the_line_feed(tmp_path: Path) -> None:
    """Every prefix of a file gives its whole lines, and no part of one."""
    content = b'{"n":1}\n{"n":22}\n'
    path = tmp_path / "in.jsonl"
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        found = read(path)
        records = list(found.records()) if isinstance(found, RecordBatch) else []
        assert content[:size].count(b"\n") == len(records)


@pytest.mark.parametrize(
    ("demand", "count", "more"),
    [
        (Demand(records_max=2), 2, True),
        (Demand(records_max=3), 3, True),
        (Demand(records_max=4), 3, False),
        (Demand(bytes_max=8), 1, True),
        (Demand(bytes_max=9), 2, True),
    ],
)
def test_says_when_there_is_more(tmp_path: Path, demand: Demand, count: int, more: bool) -> None:  # noqa: FBT001 (a case)
    """A batch that stopped at a bound asks to be followed at once."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"n":1}\n' * 3)
    batch = read(path, demand=demand)
    assert isinstance(batch, RecordBatch)

    assert (count, more) == (len(list(batch.records())), batch.more)


@pytest.mark.parametrize("line", [b"{", b"[1]", b"7", b"\xff", b"[" * 100_000, b""])
def test_bad_line(tmp_path: Path, line: bytes) -> None:
    """A line that is not a JSON object is a bad record with its place, and the next one is fine."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"n":1}\n' + line + b'\n{"n":2}\n')
    batch = read(path)
    assert isinstance(batch, RecordBatch)
    good, bad, after = batch.records()
    with pytest.raises(BadLineError) as caught:
        bad.document()

    assert f"{path}, byte 8" == caught.value.place
    assert [{"n": 1}, {"n": 2}] == [good.document(), after.document()]


def test_no_file(tmp_path: Path) -> None:
    """A pattern that names nothing is an error of the environment."""
    source = FileSource(FileSourceConfig(path=f"{tmp_path}/*.jsonl"), context())
    with pytest.raises(MissingRequirementError) as caught:
        source.plan()

    assert f"{tmp_path}/*.jsonl" == caught.value.place


def test_shrunken_file(tmp_path: Path) -> None:
    """A file shorter than what was read of it stops its split."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"n":1}\n')

    assert isinstance(read(path, 8), Idle)
    with pytest.raises(UnreadableFileError, match="byte 9: the file is shorter"):
        read(path, 9)


def test_vanished_file(tmp_path: Path) -> None:
    """A file that is gone stops its split."""
    path = tmp_path / "in.jsonl"
    path.touch()
    source = FileSource(FileSourceConfig(path=str(path)), context())
    reader = source.open(source.plan()[0], None)
    path.unlink()
    with pytest.raises(UnreadableFileError):
        reader.read(LARGE)


def test_endless_line(tmp_path: Path) -> None:
    """A line without end is refused at a bound instead of filling the memory (I9)."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"{}\n")
    with path.open("r+b") as file:
        file.truncate(LINE_BYTES_MAX + 3)

    assert isinstance(read(path), RecordBatch)
    with pytest.raises(UnreadableFileError, match="no line feed"):
        read(path, 3)


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("in/*.jsonl", "in/a.jsonl", False),
        ("in/*.jsonl", "in/a.txt", True),
        ("in/*.jsonl", "in/deep/a.jsonl", True),
        ("in/[ab].jsonl", "in/c.jsonl", True),
        ("in/a.jsonl", "in/a.jsonl", False),
        ("a.jsonl", "in/a.jsonl", True),
    ],
)
def test_what_it_gives_up(path: str, name: str, *, expected: bool) -> None:
    """A file that its path does not name is given up; one that it names is missed."""
    source = FileSource(FileSourceConfig(path=path), context())

    assert expected is source.gives_up(name)
