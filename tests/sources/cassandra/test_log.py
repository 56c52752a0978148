"""Any binary stream is read as mutations, and damage is a named error, never a wrong mutation."""

import io
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.commitlog.heads import first_write_us, partition_key
from headrace.sources.cassandra.errors import CorruptSegmentError, NoKeyError, SegmentError
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.log import (
    BinaryStream,
    LogEntries,
    LogHandler,
    read_log,
    read_mutations,
)
from headrace.sources.cassandra.mutation.changes import Mutation, MutationDecoder
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.native.constants import MESSAGING_60
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import Schema
from helpers.logs.forged import NOW_US, TABLE, insert, mutation
from helpers.logs.sample_log import (
    MUTATIONS,
    SEGMENT,
    SEGMENT_ID,
    sample_mutation,
    sample_schema,
    segments,
)
from helpers.recordings.corpora import recording

OTHER = parse_schema("CREATE KEYSPACE shop;")
WRONG = parse_schema(
    "CREATE TABLE shop.users (id int PRIMARY KEY, age int)"
    " WITH ID = 6f0c2f80-3b1e-11ef-9d2b-0f1e2d3c4b5a"
)
# The INSERT and the range deletion of sample_log, and an empty section.
LZ4 = bytes.fromhex(
    "000000070000018bcfe56800003f7b22636f6d7072657373696f6e436c617373223a224c5a34436f6d70726573736f"
    "72222c22636f6d7072657373696f6e506172616d6574657273223a7b7d7dd74abc95000000acdcb1f92b0000004949"
    "000000f03a0000003d792c930d016f0c2f803b1e11ef9d2b0f1e2d3c4b5a040000000710fce9d96a43c00000000203"
    "616765046e616d650124000000000100080000001e0803416e6e011549fac2000001041fbd778a0000004848000000"
    "f12a0000003c0e2ba39b016f0c2f803b1e11ef9d2b0f1e2d3c4b5a040000000710fce9d96a43c000ef535700000000"
    "0201000100000000010000020600a00000050000014feb107b00000115deab6d11000000000000000000"
)
# The INSERT, and an empty section, under the key 00 01 … 0f.
AES = bytes.fromhex(
    "000000080000018bcfe5680000697b22656e63436970686572223a224145532f4342432f504b43533550616464696e"
    "67222c22656e634956223a223130313131323133313431353136313731383139316131623163316431653166222c22"
    "656e634b6579416c696173223a2274657374696e673a31227d9a5c9466000000ef070a30fd00000049000000600000"
    "0053263d31015d23d921931c0ce127772b4acd178ed0e8e6aac09e7610db2c63c0cb26ecf38d9f99297e2f8bec959f"
    "bbcd806f039a1cd8d1f193a06857a562a29ae0cbb2b8d0a2c1e431bac5394685519bcea8221785e83c033e9170153c"
    "d45f617c000000fbf06867a000000000"
)


class Dribble:
    """A stream that gives one byte at a time and cannot seek."""

    def __init__(self, content: bytes) -> None:
        """Give *content*."""
        self._stream = io.BytesIO(content)

    def read(self, size: int, /) -> bytes:
        """Return the next byte."""
        return self._stream.read(min(size, 1))


class Notes(LogHandler):
    """Keeps everything it is called with; *lenient* continues after bad mutations."""

    def __init__(self, *, lenient: bool = False) -> None:
        """Start with nothing."""
        self.lenient = lenient
        self.mutations: list[Mutation] = []
        self.unknown: list[UnknownTableError] = []
        self.bad: list[BadMutationError] = []
        self.damage: list[CorruptSegmentError] = []

    def on_mutation(self, mutation: Mutation) -> None:
        """Keep it."""
        self.mutations.append(mutation)

    def on_unknown_table(self, error: UnknownTableError) -> None:
        """Keep it."""
        self.unknown.append(error)

    def on_bad_mutation(self, error: BadMutationError) -> None:
        """Keep it if lenient."""
        if not self.lenient:
            super().on_bad_mutation(error)
        self.bad.append(error)

    def on_damage(self, error: CorruptSegmentError) -> None:
        """Keep it if lenient."""
        if not self.lenient:
            super().on_damage(error)
        self.damage.append(error)


def read(content: bytes, schema: Schema | None = None) -> list[Mutation]:
    """Return the mutations in *content*."""
    return list(read_mutations(io.BytesIO(content), schema or sample_schema()))


def test_a_segment_is_its_mutations() -> None:
    """The segment made by hand holds one mutation, whose position is the end of its entry."""
    (mutation,) = read(SEGMENT)
    assert sample_mutation("insert") == mutation
    assert (SEGMENT_ID, 101, 12) == (mutation.segment_id, mutation.position, mutation.messaging)


def test_streams_need_not_seek() -> None:
    """A stream that gives a byte at a time reads like a file."""
    assert read(SEGMENT) == list(read_mutations(Dribble(SEGMENT), sample_schema()))


def test_bytes_after_the_end_do_not_matter() -> None:
    """What stands after the last sync marker is not read as data."""
    assert read(SEGMENT) == read(SEGMENT + bytes(4096))
    assert read(SEGMENT) == read(SEGMENT + b"\xff" * 100)


@pytest.mark.parametrize("length", range(len(SEGMENT)))
def test_every_truncation_is_safe(length: int) -> None:
    """A segment cut anywhere has the mutation, or nothing, or is a named error."""
    with suppress(SegmentError):
        assert read(SEGMENT[:length]) in ([], read(SEGMENT))


@given(st.integers(0, 8 * len(SEGMENT) - 1))
def test_every_bit_flip_is_safe(bit: int) -> None:
    """A flipped bit never gives another mutation."""
    damaged = bytearray(SEGMENT)
    damaged[bit // 8] ^= 1 << bit % 8
    with suppress(SegmentError):
        assert read(bytes(damaged)) in ([], read(SEGMENT))


def test_what_came_before_damage_is_good() -> None:
    """Mutations before a damaged entry are yielded, then the error is raised."""
    path = segments(recording("4.0-ops") / "segments")[0]
    schema = parse_schema((recording("4.0-ops") / "schema.cql").read_text())
    content = bytearray(path.read_bytes())
    whole = list(read_mutations(io.BytesIO(content), schema))
    content[whole[100].position - 8] ^= 1
    found: list[Mutation] = []
    with pytest.raises(CorruptSegmentError, match="checksum"):
        found.extend(read_mutations(io.BytesIO(content), schema))
    assert whole[:100] == found


def test_damage_is_the_handlers_choice() -> None:
    """It stops the log, unless the handler continues; then all but the damaged part is read."""
    path = segments(recording("4.0-ops") / "segments")[0]
    schema = parse_schema((recording("4.0-ops") / "schema.cql").read_text())
    content = bytearray(path.read_bytes())
    whole = list(read_mutations(io.BytesIO(content), schema))
    content[whole[100].position - 8] ^= 1
    content[whole[300].position - 8] ^= 1
    lenient = Notes(lenient=True)

    read_log(io.BytesIO(content), schema, lenient, place="a.log")
    with pytest.raises(CorruptSegmentError, match="checksum"):
        read_log(io.BytesIO(content), schema, LogHandler())

    assert [m for n, m in enumerate(whole) if n not in {100, 300}] == lenient.mutations
    ends = [whole[n].position for n in (100, 300)]
    assert ends == [error.end for error in lenient.damage]
    assert [f"a.log: byte {error.begin}" for error in lenient.damage] == [
        error.place for error in lenient.damage
    ]


def test_a_limit_is_obeyed() -> None:
    """Nothing beyond the limit is read: entries are durable section by section."""
    assert [] == list(read_mutations(io.BytesIO(SEGMENT), sample_schema(), limit=100))
    assert read(SEGMENT) == list(read_mutations(io.BytesIO(SEGMENT), sample_schema(), limit=101))


def test_unknown_tables_are_passed_over() -> None:
    """A table that the schema is missing is reported to the handler and does not stop the log."""
    notes = Notes()
    read_log(io.BytesIO(SEGMENT), OTHER, notes, place="a.log")
    assert [] == notes.mutations
    assert ["a.log: entry that ends at 101: byte 1"] == [error.place for error in notes.unknown]
    assert [] == read(SEGMENT, OTHER)
    read_log(io.BytesIO(SEGMENT), OTHER, LogHandler())


def test_bad_mutations_are_the_handlers_choice() -> None:
    """An entry that does not fit the schema stops the log unless the handler continues."""
    lenient = Notes(lenient=True)
    read_log(io.BytesIO(SEGMENT), WRONG, lenient, place="a.log")
    assert 1 == len(lenient.bad)
    assert lenient.bad[0].place.startswith("a.log: entry that ends at 101: byte ")
    with pytest.raises(BadMutationError, match="column b'name' is not in the schema"):
        read_log(io.BytesIO(SEGMENT), WRONG, Notes())
    with pytest.raises(BadMutationError, match="column b'name'"):
        read(SEGMENT, WRONG)


def test_the_handler_gets_every_mutation() -> None:
    """The default handler takes mutations and does nothing; a subclass gets them in order."""
    notes = Notes()
    read_log(io.BytesIO(SEGMENT), sample_schema(), notes)
    read_log(io.BytesIO(SEGMENT), sample_schema(), LogHandler())
    assert read(SEGMENT) == notes.mutations


@pytest.mark.parametrize(
    ("content", "expected"),
    [(LZ4, [("insert", 162), ("range", 242)]), (AES, [("insert", 204)])],
    ids=["LZ4", "AES"],
)
@pytest.mark.parametrize("stream", [io.BytesIO, Dribble])
def test_wrapped_segments_are_read(
    content: bytes, expected: list[tuple[str, int]], stream: Callable[[bytes], BinaryStream]
) -> None:
    """What is compressed or encrypted comes out with its logical positions, from any stream."""
    entries = LogEntries(stream(content), keys=Keys(KeyOptions(raw_key=bytes(range(16)).hex())))

    assert [(MUTATIONS[name], at) for name, at in expected] == [
        (raw, entries.position) for raw in entries
    ]


def test_encrypted_segments_need_a_key() -> None:
    """Without one the error names the key, and the place is the header's."""
    with pytest.raises(NoKeyError, match="called 'testing:1'") as no:
        LogEntries(io.BytesIO(AES), place="a.log")

    assert "a.log: byte 14" == no.value.place


def test_raw_entries_need_no_schema() -> None:
    """The entries of a segment are the raw bytes of its mutations."""
    entries = LogEntries(io.BytesIO(SEGMENT), place="a.log")
    assert [MUTATIONS["insert"]] == list(entries)
    assert (7, SEGMENT_ID, 101) == (
        entries.descriptor.version,
        entries.descriptor.segment_id,
        entries.position - 8,
    )


@pytest.mark.parametrize("name", ["4.0-ops", "6.0-v9-ops"])
def test_the_head_of_a_mutation_is_read_without_its_schema(name: str) -> None:
    """Key and first write time: flags and schema epoch of 6.0 before them, a key of any length."""
    folder = recording(name)
    schema = parse_schema((folder / "schema.cql").read_text())
    decoder, cutter = MutationDecoder(Catalogue(schema)), Cutter(Catalogue(schema))
    seen = timed = 0
    for path in segments(folder / "segments"):
        entries = LogEntries(io.BytesIO(path.read_bytes()))
        for raw in entries:
            messaging = entries.descriptor.messaging
            with suppress(BadMutationError):
                decoded = decoder.decode(raw, messaging=messaging, segment_id=0, position=0)
                assert decoded.updates[0].key == partition_key(raw, messaging)
                seen += 1
                cutter.cut(raw, 0, len(raw), messaging)
                cutter.span()
                if len(decoded.updates) == 1 and cutter.oldest <= cutter.newest:
                    assert cutter.oldest == first_write_us(raw, messaging)
                    timed += 1
    assert seen > 700
    assert timed > 600


def test_a_write_time_before_times_count() -> None:
    """It is before 2015 if a client says so; an update without rows has none."""
    assert -5 == first_write_us(insert(b"k", b"v", at_us=-NOW_US - 5), 12)
    assert NOW_US == first_write_us(insert(b"k", b"v", messaging=MESSAGING_60), MESSAGING_60)
    assert first_write_us(mutation(TABLE.bytes + b"\1k\1"), 12) is None
