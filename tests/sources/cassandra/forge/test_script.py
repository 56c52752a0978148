"""Scripts become segments with any layout, and errors say which step."""

import io
from pathlib import Path

import pytest

from headrace.sources.cassandra.errors import CorruptSegmentError, ScriptError, SegmentError
from headrace.sources.cassandra.forge.script import Forge, read_steps
from headrace.sources.cassandra.log import LogEntries
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.logs.sample_log import SCHEMA, SEGMENT

INSERT = "insert: shop.users, values: {id: 7, seq: 1, name: Ann, age: 30}"
SAMPLE = f"""
- segment: {{id: 1700000000000, size: 117, index: "109\\nCOMPLETED"}}
- {{{INSERT}, timestamp: 1700000000000000}}
"""
NINE = "".join(f"- {{insert: shop.users, values: {{id: {n}, seq: 1}}}}\n" for n in range(9))


def forge(script: str, folder: Path) -> list[Path]:
    """Carry out a script of the sample's table."""
    made = Forge(parse_schema(SCHEMA.format(static="")), folder)
    return list(made.run(read_steps(script, "a.yaml")))


def entries(path: Path) -> tuple[int, list[str]]:
    """Return how many entries are read of a segment, and where it is damaged."""
    found = LogEntries(io.BytesIO(path.read_bytes()), place=path.name)
    count, damage = 0, []
    while True:
        try:
            for _ in found:
                count += 1
        except CorruptSegmentError as error:
            damage.append(error.message)
            found.go_on(error)
        else:
            return count, damage


def index_of(path: Path) -> str | None:
    """Return what a segment's index says."""
    beside = path.with_name(f"{path.stem}_cdc.idx")
    return beside.read_text() if beside.exists() else None


def test_the_worked_example(tmp_path: Path) -> None:
    """A segment of one INSERT, cleanly closed, is the one worked out by hand."""
    (path,) = forge(SAMPLE, tmp_path)

    assert "CommitLog-7-1700000000000.log" == path.name
    assert SEGMENT == path.read_bytes()
    assert "109\nCOMPLETED" == index_of(path)


def test_json_lines_are_steps_too(tmp_path: Path) -> None:
    """What `inspect --form mutations` prints is a script; a step a line."""
    lines = (
        '{"segment": {"version": 9}}\n'
        '{"updates": [{"table": "shop.users", "key": "00000007", "items": []}]}\n\n'
        '{"raw": "00010203040506070809"}\n'
    )
    (path,) = forge(lines, tmp_path)

    assert (2, []) == entries(path)


@pytest.mark.parametrize(
    ("options", "sections", "index"),
    [
        ("{}", 2, "completed"),
        ("{close: synced}", 1, "completed"),
        ("{sync_entries: 4}", 4, "completed"),
        ("{sync_bytes: 1}", 10, "completed"),
        ("{sync_entries: 3, close: synced, index: live}", 3, "live"),
        ("{index: none, size: 5000}", 2, None),
        ("{index: replayed, block: 4096}", 2, "4096\nCOMPLETED"),
        ("{index: '', close: synced}", 1, ""),
    ],
)
def test_layouts(tmp_path: Path, options: str, sections: int, index: str | None) -> None:
    """Sections, closing, the index and the file's size are as asked for."""
    (path,) = forge(f"- segment: {options}\n{NINE}", tmp_path)
    ends = marker_chain(path.read_bytes())

    assert (9, []) == entries(path)
    assert sections == len(ends)
    known = {"completed": f"{ends[-1]}\nCOMPLETED", "live": str(ends[-1])}
    assert known.get(str(index), index) == index_of(path)


def marker_chain(content: bytes) -> list[int]:
    """Return where the sections of a segment end."""
    at, ends = 20, []
    while following := int.from_bytes(content[at : at + 4], "big"):
        ends.append(at := following)
    return ends


def test_a_crash_leaves_entries_without_a_marker(tmp_path: Path) -> None:
    """They stand in the file and are not valid."""
    script = f"- segment: {{close: crash, index: live, size: 4096}}\n{NINE}- sync:\n{NINE}"
    (path,) = forge(script, tmp_path)

    assert (9, []) == entries(path)
    assert 2 * 9 == path.read_bytes().count(b"\x24\x00\x00\x00\x00\x01")
    assert str(marker_chain(path.read_bytes())[0]) == index_of(path)


@pytest.mark.parametrize(
    ("damage", "count", "message"),
    [
        ("{entry: 2, part: body, byte: 9}", 8, "the checksum of the entry is wrong"),
        ("{entry: 2, part: crc}", 8, "the checksum of the entry is wrong"),
        ("{entry: 2, part: size}", 7, "the checksum of an entry's size is wrong"),
        ("{entry: 4, part: size_crc, xor: 1}", 5, "the checksum of an entry's size is wrong"),
        ("{section: 1, part: marker_crc}", 4, "the checksum of a sync marker is wrong"),
        ("{section: 1, put: '00000001'}", 4, "a sync marker points back to 1"),
        ("{section: 1, cut: true, byte: 30}", 4, "an entry of "),
        ("{entry: 2, put: '0000'}", 8, "the checksum of the entry is wrong"),
    ],
)
def test_damage(tmp_path: Path, damage: str, count: int, message: str) -> None:
    """The part that was asked for is wrong, and the reader says so."""
    script = f"- segment: {{sync_entries: 4}}\n{NINE}- corrupt: {damage}\n"
    (path,) = forge(script, tmp_path)

    found, (reported,) = entries(path)

    assert count == found
    assert reported.startswith(message)


def test_a_header_can_be_damaged(tmp_path: Path) -> None:
    """Its checksum, or any byte of the file."""
    for damage in ("{part: header_crc, byte: 3}", "{byte: 5, xor: 1}"):
        (path,) = forge(f"{NINE}- corrupt: {damage}\n", tmp_path)
        with pytest.raises(SegmentError, match="header checksum"):
            entries(path)


def test_an_entry_can_be_written_as_it_is(tmp_path: Path) -> None:
    """With any sizes and sums."""
    (path,) = forge(f"{NINE}- entry: '00000000'\n", tmp_path)

    assert (9, ["4 bytes are left of a section, too few for an entry"]) == entries(path)


def test_ids_count_on(tmp_path: Path) -> None:
    """From segment to segment, unless one says its own."""
    paths = forge("- segment:\n- segment:\n- segment: {id: 5}\n- segment:\n", tmp_path)

    ids = [int(path.stem.rpartition("-")[2]) for path in paths]
    assert [1_700_000_000_000, 1_700_000_000_001, 5, 6] == ids


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("- {inser: 1}", "a.yaml: step 1: expected a step, found"),
        ("- sync:\n- 7", "a.yaml: step 2: expected a step, found 7"),
        ("a: 1", "a.yaml: expected a list of steps"),
        ("- [", "a.yaml:1:4: "),
        ('{"sync": 1}\n{', "a.yaml:2: is not JSON"),
        ("- segment: {versoin: 7}", "a segment has no versoin"),
        ("- segment: {version: 6}", "commit log version 6; there are 7, 8 and 9"),
        ("- segment: {close: shut}", "close is one of clean, synced, crash"),
        ("- segment: {compression: Brotli}", "'Brotli' compresses no commit log"),
        ("- raw: 0g", "expected hexadecimal digits"),
        ("- corrupt: {entry: 3}", "there is no entry 3"),
        ("- corrupt: {section: 0, part: tail}", "there is no section 0 with tail"),
        ("- corrupt: {enrty: 3}", "corrupt has no enrty"),
        ("- corrupt: {byte: 900}", "the file has no byte 900"),
        ("- corrupt: {put: x}", "put is hexadecimal"),
        ("- segment: {compression: LZ4Compressor}\n- corrupt: {entry: 0}", "not wrapped"),
        (f"- {{{INSERT}, ttl: x}}", "a member is of the wrong kind: "),
        (f"- {{{INSERT}, timestamp: soon}}", "a member is of the wrong kind: "),
    ],
)
def test_mistakes_have_a_place(tmp_path: Path, script: str, message: str) -> None:
    """The file and the step, or the line and column."""
    with pytest.raises(ScriptError) as caught:
        forge(script, tmp_path)
    assert message in str(caught.value)
