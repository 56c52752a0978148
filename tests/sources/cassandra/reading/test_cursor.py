"""Damage to one node's log: a lost copy, kept with its bytes, and no reason to stop (I8)."""

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.connector.runtime.books.equations import SplitBooks, differences
from headrace.plugins import Batch, Demand, Position, Quarantined, Reader
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.errors import END_OFFSET, LogUnreadableError
from headrace.sources.cassandra.forge.segments import (
    SEGMENT_ID,
    SegmentWriter,
    segment,
    write_segment,
)
from headrace.sources.cassandra.forge.wire import entry
from headrace.sources.cassandra.forge.wrapping import PLAIN, compression, encryption
from headrace.sources.cassandra.logs.directory import SegmentFile
from headrace.sources.cassandra.reading.cursor import DAMAGED_MAX, PIECE_BYTES
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from helpers.logs.forged import header, insert
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.settings.filled import filled

NODES = ("n1", "n2", "n3")
ROWS = [insert(b"k%d" % n, b"%c" % n) for n in range(60)]
SECTIONS = [ROWS[:20], ROWS[20:40], ROWS[40:]]
MADE = segment(SECTIONS)
ALL = [f"0x{n:02x}" for n in range(60)]

# What is damaged, and the rows that node 1's log does not have then.
DAMAGE: Mapping[str, tuple[Callable[[bytes], bytes], range]] = {
    "body": (lambda c: changed(c, MADE.ends[3] - 9, b"?"), range(3, 4)),
    "two bodies": (
        lambda c: changed(changed(c, MADE.ends[3] - 9, b"?"), MADE.ends[4] - 9, b"?"),
        range(3, 5),
    ),
    "size": (lambda c: changed(c, MADE.ends[2], b"\x7f"), range(3, 20)),
    "size and sum": (
        lambda c: changed(c, MADE.ends[2], signed(b"\x7f\xff\xff\xff")),
        range(3, 20),
    ),
    "zeros": (lambda c: changed(c, MADE.ends[22], bytes(50)), range(23, 40)),
    "marker": (lambda c: changed(c, MADE.section_ends[0] + 5, b"\xff"), range(20, 60)),
    "pointer": (lambda c: changed(c, MADE.section_ends[1], b"\0\0\0\0"), range(40, 60)),
    "header": (lambda c: header(flip=1) + c[20:], range(60)),
    "another id": (lambda c: header(7, 5) + c[20:], range(60)),
    "no header": (lambda c: c[:9], range(60)),
    "nothing": (lambda _: b"", range(60)),
    "cut off": (lambda c: c[: MADE.ends[49] + 5], range(50, 60)),
}


def changed(content: bytes, at: int, to: bytes) -> bytes:
    """Return *content* with other bytes at *at*."""
    return content[:at] + to + content[at + len(to) :]


def signed(size: bytes) -> bytes:
    """Return an entry's size with a checksum that is right."""
    return size + struct.pack(">I", zlib.crc32(size))


def nodes(folder: Path, first: bytes, **more: object) -> dict[str, object]:
    """Return the options of three nodes, the first of which has the segment *first*."""
    options = forged_nodes(folder, dict.fromkeys(NODES, ()))
    write_segment(folder / "n1", first)
    for node in NODES[1:]:
        write_segment(folder / node, MADE.content)
    return {**options, "splits": 2, **more}


def published(found: Sequence[Batch]) -> list[str]:
    """Return the values of the inserted rows, in any order."""
    records = [record for batch in found for record in batch.records()]
    return sorted(record.document()["columns"]["v"]["value"] for record in records)


def lost(found: Sequence[Batch]) -> list[Quarantined]:
    """Return what was quarantined."""
    return [item for batch in found for item in batch.quarantined()]


def books(found: Sequence[Batch]) -> Counter[str]:
    """Return the books of all splits, which must balance."""
    ends = {batch.split: batch.end for batch in found}
    total: Counter[str] = Counter()
    for split, end in ends.items():
        assert [] == differences(SplitBooks(split, end.books(), {}, BOOKKEEPING))
        total.update(end.books())
    return total


def ends_of(found: Sequence[Batch]) -> dict[str, Position]:
    """Return where each split is."""
    return {batch.split: batch.end for batch in found}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_copy_does_not_matter(tmp_path: Path, name: str) -> None:
    """G05, G06: the copies of two other nodes agree; the books say what node 1 lost."""
    spoil, missing = DAMAGE[name]
    found = list(batches(open_all(source(nodes(tmp_path, spoil(MADE.content)))).values()))

    assert ALL == published(found)
    counted = books(found)
    places = 2 if name == "two bodies" else 1
    assert places == counted["entries.n1.damaged"] == len(lost(found))
    assert 60 - len(missing) + places == counted["entries.n1.read"]
    for end in filled(ends_of(found).values()):
        reported = {at["node"]: offset["position"] for at, offset in end.describe()}
        assert dict.fromkeys(NODES, END_OFFSET) == reported


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_is_kept_with_its_bytes(tmp_path: Path, name: str) -> None:
    """G05, G06: all that is not zero lies in the quarantine, with node, segment and byte."""
    spoil, missing = DAMAGE[name]
    content = spoil(MADE.content)
    found = list(batches(open_all(source(nodes(tmp_path, content))).values()))

    for item in lost(found):
        assert item.place.startswith(f"node n1: CommitLog-7-{SEGMENT_ID}.log: byte ")
        assert item.content in content
    kept = b"".join(item.content for item in lost(found))
    assert name == "zeros" or all(ROWS[n][:-9] in kept for n in missing if ROWS[n] in content)


def test_only_what_other_nodes_lack_is_missing(tmp_path: Path) -> None:
    """Where one node's copy is damaged and only one is left, the mutation waits."""
    options = nodes(tmp_path, DAMAGE["body"][0](MADE.content))
    write_segment(tmp_path / "n2", segment([[]]).content)
    found = list(batches(open_all(source(options)).values()))

    assert [v for v in ALL if v != "0x03"] == published(found)
    assert 1 == books(found)["mutations.pending"]


def test_damage_is_booked_once_by_one_split(tmp_path: Path) -> None:
    """It has no key, so one split of the ring keeps its books, on any worker."""
    made = source(nodes(tmp_path, DAMAGE["size"][0](MADE.content)))
    first, second = made.plan()

    others = list(batches([made.open(second, None)]))
    found = list(batches([made.open(first, None)]))

    assert [] == lost(others)
    assert 1 == len(lost(found))
    assert 0 == books(others)["entries.n1.damaged"]
    assert 1 == books(found)["entries.n1.damaged"]


def test_damage_is_not_booked_again(tmp_path: Path) -> None:
    """What a committed position has passed is passed over, and what came before it counts on."""
    options = nodes(tmp_path, DAMAGE["body"][0](MADE.content))
    found = list(batches(open_all(source(options)).values()))
    more = segment([[insert(b"more")]], segment_id=SEGMENT_ID + 1)
    for node in NODES:
        write_segment(tmp_path / node, more.content, segment_id=SEGMENT_ID + 1)

    again = list(batches(open_all(source(options), ends_of(found)).values()))

    assert [] == lost(again)
    assert 1 == books([*found, *again])["entries.n1.damaged"]


@pytest.mark.parametrize("name", DAMAGE)
def test_the_segments_behind_a_damaged_one_are_read(tmp_path: Path, name: str) -> None:
    """In the same run, also where the rest of a segment is lost."""
    spoil, _ = DAMAGE[name]
    options = nodes(tmp_path, spoil(MADE.content), consistency="THREE")
    number = SEGMENT_ID + 1
    more = segment([[insert(b"more", b"more")]], segment_id=number)
    for node in NODES:
        write_segment(tmp_path / node, more.content, segment_id=number)

    assert "0x" + b"more".hex() in published(list(batches(open_all(source(options)).values())))


@pytest.mark.parametrize("name", ["body", "size"])
def test_a_live_segment_goes_on_at_once(tmp_path: Path, name: str) -> None:
    """Below the durable offset damage is damage, and what follows it is read."""
    spoil, missing = DAMAGE[name]
    options = nodes(tmp_path, spoil(MADE.content))
    write_segment(tmp_path / "n1", spoil(MADE.content), index=str(MADE.section_ends[-1]))
    found = list(batches(open_all(source(options)).values()))

    assert ALL == published(found)
    assert 60 - len(missing) + 1 == books(found)["entries.n1.read"]


@pytest.mark.parametrize("name", ["marker", "pointer", "header"])
def test_the_rest_of_a_live_segment_waits_until_it_is_all_there(tmp_path: Path, name: str) -> None:
    """Other logs continue meanwhile; then it is kept once, and the next segment is read."""
    spoil, missing = DAMAGE[name]
    clock = DrivenClock()
    options = nodes(tmp_path, spoil(MADE.content), consistency="THREE")
    write_segment(tmp_path / "n1", spoil(MADE.content), index=str(MADE.section_ends[-1]))
    readers = open_all(source(options, clock))
    live = list(batches(readers.values()))
    assert sorted(set(ALL) - {ALL[n] for n in missing}) == published(live)
    assert [] == lost(live)

    write_segment(tmp_path / "n1", spoil(MADE.content), index="1\nCOMPLETED")
    clock.advance(100)
    rest = list(batches(readers.values()))

    assert 1 == len(lost(rest))
    assert 1 == books([*live, *rest])["entries.n1.damaged"]


def test_large_damage_is_kept_whole(tmp_path: Path) -> None:
    """But for the zeros that a preallocated file ends with."""
    noise = bytes(range(1, 251)) * (3 * PIECE_BYTES // 250)
    content = MADE.content[:20] + b"\xff" * 8 + noise + bytes(9 * PIECE_BYTES)
    found = list(batches(open_all(source(nodes(tmp_path, content))).values()))

    (kept,) = lost(found)
    assert content.rstrip(b"\0")[20:] == kept.content.rstrip(b"\0")
    assert len(kept.content) <= 4 * PIECE_BYTES
    assert 1 == books(found)["entries.n1.damaged"]


def test_an_entry_whose_key_is_cut_short_is_a_lost_copy(tmp_path: Path) -> None:
    """Its checksum is right, but nothing says whose it is; the others continue."""
    cut = ROWS[5][:17] + b"\x7f" + ROWS[5][18:]
    content = segment([[*ROWS[:5], cut, *ROWS[6:]]]).content
    found = list(batches(open_all(source(nodes(tmp_path, content))).values()))

    assert ALL == published(found)
    (item,) = lost(found)
    assert ("bad_mutation", cut) == (item.code, item.content)
    assert 1 == books(found)["entries.n1.damaged"]


def test_every_entry_damaged_is_read_through(tmp_path: Path) -> None:
    """However many there are, each is booked."""
    spoilt = bytearray(MADE.content)
    for end in MADE.ends:
        spoilt[end - 1] ^= 1
    found = list(batches(open_all(source(nodes(tmp_path, bytes(spoilt)))).values()))

    assert ALL == published(found)
    assert 60 == books(found)["entries.n1.damaged"] == len(lost(found))


def test_a_section_with_much_damage_is_left_at_last(tmp_path: Path) -> None:
    """One by one it would take too long; the bytes of the rest are kept as one place."""
    rows = [insert(b"k%d" % n, b"%c" % (n % 60)) for n in range(DAMAGED_MAX + 40)]
    after = [insert(b"z%d" % n, b"z") for n in range(3)]
    made = segment([rows, after])
    spoilt = bytearray(made.content)
    for end in made.ends[: len(rows)]:
        spoilt[end - 1] ^= 1
    options = nodes(tmp_path, bytes(spoilt), consistency="ONE", gaps="expire")
    for node in NODES[1:]:
        write_segment(tmp_path / node, made.content)
    found = list(batches(open_all(source(options)).values()))

    items = lost(found)
    assert DAMAGED_MAX + 1 == len(items) == books(found)["entries.n1.damaged"]
    assert items[-1].content == bytes(spoilt[made.ends[DAMAGED_MAX - 1] : made.section_ends[0]])
    assert len(rows) + len(after) == len(published(found))


def test_a_disk_that_fails_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read now is read later, and nothing of it is lost or counted twice."""
    readers = open_all(source(nodes(tmp_path, DAMAGE["size"][0](MADE.content))))
    true_read, fails = SegmentFile.read_into, Counter[str]()

    def read_into(self: SegmentFile, offset: int, buffer: memoryview) -> int:
        fails["n"] += 1
        if fails["n"] % 3 == 0:
            raise LogUnreadableError("the disk says no")
        return true_read(self, offset, buffer)

    monkeypatch.setattr(SegmentFile, "read_into", read_into)
    found = through_errors(readers)

    assert ALL == published(found)
    assert 1 == books(found)["entries.n1.damaged"]


def through_errors(readers: Mapping[str, Reader]) -> list[Batch]:
    """Read all, however often it fails for now."""
    found: list[Batch] = []
    for _ in range(200):
        for reader in readers.values():
            with suppress(LogUnreadableError):
                came = reader.read(Demand(linger_ms=1 << 30))
                found += [came] if isinstance(came, Batch) else []
    return found


WRAPPINGS = {
    "lz4": compression("LZ4Compressor"),
    "snappy": compression("SnappyCompressor"),
    "deflate": compression("DeflateCompressor"),
    "zstd": compression("ZstdCompressor"),
    "aes": encryption(bytes(range(16)), "testing:1", bytes(16)),
}
KEY: dict[str, object] = {"raw_key": bytes(range(16)).hex()}


@pytest.mark.parametrize("name", WRAPPINGS)
def test_a_wrong_entry_in_a_wrapped_section_is_kept_alone(tmp_path: Path, name: str) -> None:
    """The section unpacks, the entry's checksum does not: what follows in the section is read."""
    writer = SegmentWriter(wrapping=WRAPPINGS[name])
    for number, row in enumerate(ROWS):
        framed = entry(row)
        writer.add_entry(framed if number != 7 else framed[:-1] + b"?")
        if number % 20 == 19:
            writer.sync()
    options = nodes(tmp_path, writer.forged().content, **_key(name))
    found = list(batches(open_all(source(options)).values()))

    assert ALL == published(found)
    (item,) = lost(found)
    assert entry(ROWS[7])[:-1] + b"?" == item.content
    assert 60 == books(found)["entries.n1.read"]


@pytest.mark.parametrize("name", WRAPPINGS)
def test_any_wrong_byte_of_a_wrapped_segment_costs_copies_only(tmp_path: Path, name: str) -> None:
    """Other nodes' copies count, what is lost is booked, and nothing stops."""
    made = segment(SECTIONS, wrapping=WRAPPINGS[name])
    options = nodes(tmp_path, made.content, **_key(name))
    for at in [*range(made.header_bytes, len(made.content), 61), *made.file_ends[:-1]]:
        write_segment(tmp_path / "n1", changed(made.content, at, bytes([made.content[at] ^ 0x10])))
        found = list(batches(open_all(source(options)).values()))
        assert ALL == published(found)
        assert books(found)["entries.n1.damaged"] == len(lost(found)) > 0


@pytest.mark.parametrize("name", WRAPPINGS)
def test_a_byte_more_in_a_sections_head_costs_copies_only(tmp_path: Path, name: str) -> None:
    """A section then says that it is short; its bytes show what is wrong with its length."""
    made = segment(SECTIONS, wrapping=WRAPPINGS[name])
    options = nodes(tmp_path, made.content, **_key(name))
    for at in range(made.file_ends[0], made.file_ends[0] + 16):
        write_segment(tmp_path / "n1", made.content[:at] + b"\0" + made.content[at:])
        found = list(batches(open_all(source(options)).values()))
        assert ALL == published(found)
        assert books(found)["entries.n1.damaged"] == len(lost(found)) > 0


# What becomes of a segment from a sync marker on, and whether anything is left to keep.
ENDED: Mapping[str, tuple[Callable[[bytes, int], bytes], bool]] = {
    "zero marker": (lambda c, at: changed(c, at, bytes(8)), True),
    "zeros": (lambda c, at: c[:at] + bytes(len(c) - at), False),
    "cut off": (lambda c, at: c[:at], False),
}
INDEXES = ("{}\nCOMPLETED", "{}")


@pytest.mark.parametrize("name", ["plain", *WRAPPINGS])
@pytest.mark.parametrize("ended", ENDED)
@pytest.mark.parametrize("index", INDEXES)
def test_sections_that_the_index_tells_of_are_missed(
    tmp_path: Path, name: str, ended: str, index: str
) -> None:
    """A final segment that ends at any of its markers has lost the rest: booked, and kept."""
    spoil, left = ENDED[ended]
    made = segment(SECTIONS, wrapping=WRAPPINGS.get(name, PLAIN))
    options = nodes(tmp_path, made.content, **_key(name))
    write_segment(
        tmp_path / "n1", segment([[]], segment_id=SEGMENT_ID + 1).content, segment_id=SEGMENT_ID + 1
    )
    starts = [made.header_bytes, *made.section_ends[:-1]]
    for at, start in zip([made.header_bytes, *made.file_ends[:-1]], starts, strict=True):
        write_segment(tmp_path / "n1", spoil(made.content, at), index=index.format(made.durable))
        found = list(batches(open_all(source(options)).values()))
        assert ALL == published(found)
        (item,) = lost(found)
        assert 1 == books(found)["entries.n1.damaged"]
        assert item.place.startswith(f"node n1: CommitLog-7-{SEGMENT_ID}.log")
        assert item.place.endswith(f": byte {at}")
        assert f"{made.durable - start} bytes more" in item.message
        assert left == bool(item.content)


@pytest.mark.parametrize("name", ["plain", "lz4"])
def test_an_index_that_a_replay_wrote_tells_nothing_of_the_sections(
    tmp_path: Path, name: str
) -> None:
    """Its offset is the file's length, behind the last section or amid of them."""
    made = segment(SECTIONS, wrapping=WRAPPINGS.get(name, PLAIN))
    options = nodes(tmp_path, made.content)
    for content in (made.content, made.content[: made.file_ends[1]]):
        write_segment(tmp_path / "n1", content, index=f"{len(content)}\nCOMPLETED")
        found = list(batches(open_all(source(options)).values()))
        assert ALL == published(found)
        assert [] == lost(found)


def _key(name: str) -> dict[str, object]:
    return KEY if name == "aes" else {}
