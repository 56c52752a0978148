"""The CDC state as bytes: what is damaged is refused, what is newer is refused by its version."""

import zlib
from dataclasses import replace
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins import EncodedPosition
from headrace.plugins.positions import OPEN
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.ring.splits import Arc
from headrace.sources.cassandra.state.cdc_state import (
    HEAD_VERSION,
    PIECES_VERSION,
    Ahead,
    CdcState,
    Marker,
    StoredGap,
    StoredTopology,
    StoredVersion,
)
from headrace.sources.cassandra.state.chunks import (
    CHUNK_BYTES_MAX,
    HEAD_BYTES_MAX,
    VERSION,
    Chunk,
    seal,
    unseal,
    version_of,
)
from headrace.sources.cassandra.state.unavailable_logs import Absence
from helpers.settings.filled import filled

names = st.text(max_size=8)
counts = st.integers(0, (1 << 63) - 1)
markers = st.builds(Marker, counts, st.integers(0, (1 << 31) - 1))
runs = st.lists(st.integers(0, (1 << 48) - 1), max_size=4).map(tuple)
manifests = st.lists(st.tuples(st.integers(0, 9), runs), max_size=3).map(tuple)
states = st.builds(
    CdcState,
    split_time_ms=counts,
    number=counts,
    hosts=st.lists(names, max_size=3).map(tuple),
    keyspaces=st.lists(names, max_size=3).map(tuple),
    markers=st.dictionaries(names, markers, max_size=3),
    counters=st.dictionaries(names, st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
    chunks=st.lists(st.binary(max_size=200).map(Chunk), max_size=3).map(tuple),
    manifests=st.dictionaries(names, manifests, max_size=3),
    absences=st.dictionaries(names, st.builds(Absence, counts, counts), max_size=3),
)


def sample() -> CdcState:
    """Return a state with two chunks."""
    return CdcState(
        split_time_ms=5,
        number=7,
        hosts=("node1", "node2"),
        keyspaces=("shop",),
        markers={"node1": Marker(3, 100), "node2": Marker(4, 0)},
        counters={"mutations.agreed": 6},
        chunks=(Chunk(bytes(range(80))), Chunk(b"second" * 20)),
    )


@given(state=states)
def test_what_is_encoded_is_read_back(state: CdcState) -> None:
    """Every state survives; equal states have equal bytes."""
    encoded = state.encode()

    assert state == CdcState.decode(encoded)
    assert encoded == CdcState.decode(encoded).encode()


def test_a_chunk_is_named_after_its_content() -> None:
    """Equal rows are stored once, however they were made; other rows have another name."""
    assert Chunk(b"rows").name == Chunk(b"".join([b"ro", b"ws"])).name
    assert Chunk(b"rows").name != Chunk(b"rows2").name
    assert {c.name for c in sample().chunks} == sample().encode().chunks.keys()


def test_what_was_released_is_named_only() -> None:
    """A chunk that the store has is in the head, and its bytes are not given again."""
    large = Chunk(Random(6).randbytes(3 * CHUNK_BYTES_MAX))  # noqa: S311 (a test's dice)
    state = replace(sample(), chunks=(*sample().chunks, large))
    whole = state.encode()
    for chunk in state.chunks[1:]:
        chunk.forget()
        chunk.forget()
    named = state.encode()

    assert (whole.head, set(whole.names)) == (named.head, set(named.names))
    assert set(whole.names) - named.chunks.keys() == named.kept
    assert 1 + 4 == len(named.kept)  # The large one lies in pieces.
    assert state.chunks[0].name in named.chunks
    assert [0, 0] == [chunk.size_bytes for chunk in state.chunks[1:]]
    with pytest.raises(StateError, match="expected its rows, which only the store has"):
        _ = state.chunks[1].words
    restored = {name: whole.chunks[name] for name in named.names}
    assert CdcState.decode(EncodedPosition(named.head, restored)).encode() == whole


def test_every_flipped_bit_of_the_head_is_refused() -> None:
    """One wrong bit anywhere is a named error."""
    encoded = sample().encode()

    for bit in range(8 * len(encoded.head)):
        head = bytearray(encoded.head)
        head[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StateError):
            CdcState.decode(EncodedPosition(bytes(head), encoded.chunks))


def test_every_flipped_bit_of_a_chunk_is_refused() -> None:
    """One wrong bit anywhere is a named error, which says in which chunk."""
    encoded = sample().encode()
    name = sample().chunks[1].name

    for bit in range(8 * len(encoded.chunks[name])):
        damaged = bytearray(encoded.chunks[name])
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StateError, match=name):
            CdcState.decode(EncodedPosition(encoded.head, {**encoded.chunks, name: bytes(damaged)}))


def test_every_truncation_is_refused() -> None:
    """A head or a chunk that is cut off anywhere is a named error."""
    encoded = sample().encode()
    name, content = next(iter(encoded.chunks.items()))

    for length in range(len(encoded.head)):
        with pytest.raises(StateError, match="head"):
            CdcState.decode(EncodedPosition(encoded.head[:length], encoded.chunks))
    for length in range(len(content)):
        with pytest.raises(StateError, match=name):
            CdcState.decode(
                EncodedPosition(encoded.head, {**encoded.chunks, name: content[:length]})
            )


def test_chunks_cannot_be_exchanged() -> None:
    """A whole chunk under another's name is damage."""
    encoded = sample().encode()
    first, second = encoded.chunks
    exchanged = {first: encoded.chunks[second], second: encoded.chunks[first]}

    with pytest.raises(StateError, match=f"chunk {first}"):
        CdcState.decode(EncodedPosition(encoded.head, exchanged))


def test_a_missing_chunk_is_refused() -> None:
    """A head that lists a missing chunk is not a state."""
    encoded = sample().encode()
    left = dict(list(encoded.chunks.items())[1:])

    with pytest.raises(StateError, match="found nothing"):
        CdcState.decode(EncodedPosition(encoded.head, left))


def test_a_chunk_is_no_head() -> None:
    """Bytes of the one are not taken for the other."""
    encoded = sample().encode()

    with pytest.raises(StateError, match="head"):
        CdcState.decode(EncodedPosition(next(iter(encoded.chunks.values())), encoded.chunks))


def test_a_newer_version_is_refused_by_its_number() -> None:
    """A state of a later release is not guessed at; the hint says which release reads it."""
    encoded = sample().encode()
    newer = PIECES_VERSION + 1
    head = encoded.head[:4] + newer.to_bytes(2, "big") + encoded.head[6:]

    with pytest.raises(StateError, match=f"version {newer}; this release reads up to {newer - 1}"):
        CdcState.decode(EncodedPosition(head, encoded.chunks))


def test_the_version_before_manifests_is_read() -> None:
    """Its segments were numbered by their ids, as those of the first log generation are."""
    encoded = sample().encode()
    fields = msgspec.msgpack.decode(unseal(b"HRSH", encoded.head, "head", HEAD_VERSION))
    del fields["manifests"]
    head = seal(b"HRSH", msgspec.msgpack.encode(fields), 1)

    assert sample() == CdcState.decode(EncodedPosition(head, encoded.chunks))


def test_a_content_that_claims_to_be_huge_is_refused() -> None:
    """A length is checked before memory is taken for it."""
    body = (1 << 31).to_bytes(4, "big") + bytes(20)
    head = b"HRSH" + VERSION.to_bytes(2, "big") + zlib.crc32(body).to_bytes(4, "big") + body

    with pytest.raises(StateError, match=f"a content of {1 << 31} bytes"):
        CdcState.decode(EncodedPosition(head, {}))


def large() -> CdcState:
    """Return a state whose head and one of whose chunks exceed their bounds."""
    random = Random(7)  # noqa: S311 (bytes that do not compress)
    unread = {f"n{host}": tuple(random.sample(range(1 << 40), 1_000)) for host in range(64)}
    topology = StoredTopology(Chunk(random.randbytes(3 * CHUNK_BYTES_MAX)), None)
    return replace(sample(), unread=unread, topologies=(topology,))


def test_a_large_head_lies_in_pieces() -> None:
    """Line 29: what is compared and set has 64 KiB at most, all else 256 KiB; nothing is lost."""
    state = large()
    encoded = state.encode()

    assert len(encoded.head) <= HEAD_BYTES_MAX
    assert CHUNK_BYTES_MAX == max(map(len, encoded.chunks.values()))
    assert state == CdcState.decode(encoded)
    assert encoded == CdcState.decode(encoded).encode()
    assert PIECES_VERSION == version_of(encoded.head)
    assert HEAD_VERSION == version_of(sample().encode().head)  # As former releases have it.


def test_every_piece_is_needed_as_it_is() -> None:
    """One that is missing, exchanged or changed is refused by name."""
    encoded = large().encode()
    for name, piece in filled(encoded.chunks.items()):
        others = {other: content for other, content in encoded.chunks.items() if other != name}
        flipped = bytes([piece[0] ^ 1]) + piece[1:]
        for spoilt in ({}, {name: b""}, {name: piece[:-1]}, {name: flipped}):
            with pytest.raises(StateError, match=r"CDC state, (head|chunk)"):
                CdcState.decode(EncodedPosition(encoded.head, others | spoilt))


def test_markers_are_shown_as_offsets() -> None:
    """Each node's marker is a partition and an offset, as Connect shows them."""
    assert [
        ({"node": "node1"}, {"segment_id": 3, "position": 100}),
        ({"node": "node2"}, {"segment_id": 4, "position": 0}),
    ] == list(sample().describe())
    assert {"mutations.agreed": 6} == sample().books()


@pytest.mark.parametrize(
    ("position", "expected"), [(99, [0]), (100, [0, 100]), (101, [0, 100]), (300, [0, 100, 200])]
)
def test_a_moved_log_has_the_schemas_up_to_its_marker(position: int, expected: list[int]) -> None:
    """One is in force from the end of its entry on: also at a marker that is just that place."""
    versions = tuple(
        StoredVersion(Marker(3, offset), Chunk(b"%d" % offset)) for offset in (0, 100, 200)
    )
    state = replace(sample(), schemas={"node1": versions, "node2": versions})
    moved = state.moved({"node": "node1"}, {"segment_id": 3, "position": position})

    assert expected == [version.since.offset for version in moved.schemas["node1"]]
    assert versions == moved.schemas["node2"]


def test_a_moved_log_leaves_the_others_where_they_are() -> None:
    """Only its own marker, start and absence change."""
    places = {"node1": Marker(3, 7), "node2": Marker(4, 0)}
    absences = {"node1": Absence(9, 1), "node2": Absence(9, 2)}
    state = replace(sample(), markers=places, starts=places, absences=absences)
    moved = state.moved({"node": "node1"}, {"segment_id": 3, "position": 100})
    reset = state.moved({"node": "node1"}, None)

    there = {"node1": Marker(3, 100), "node2": Marker(4, 0)}
    assert (there, there) == (moved.markers, moved.starts)
    assert {"node2": Marker(4, 0)} == reset.markers == reset.starts
    assert {"node2": Absence(9, 2)} == moved.absences == reset.absences


@pytest.mark.parametrize("position", [1, 50, 900])
def test_a_moved_log_is_ahead_nowhere(position: int) -> None:
    """All of it is read again from the new marker, also if some tokens had read further before."""
    further = {"node1": Marker(5, 0), "node2": Marker(6, 0)}
    state = replace(sample(), ahead=(Ahead(Arc(0, 9), further), Ahead(Arc(9, 12), further)))
    moved = state.moved({"node": "node1"}, {"segment_id": 3, "position": position})

    assert Marker(3, position) == moved.furthest("node1")
    assert Marker(6, 0) == moved.furthest("node2")
    assert [Arc(0, 9), Arc(9, 12)] == [each.arc for each in moved.ahead]


def test_an_accepted_gap_ends_the_absence_of_its_log() -> None:
    """Else what its node logs before the split starts again would be a gap of its own."""
    gap = StoredGap("node1", Marker(3, 100), Marker(7, 0), "returned", OPEN)
    absences = {"node1": Absence(9, 1), "node2": Absence(9, 2)}
    state = replace(sample(), met_gaps=(gap,), absences=absences)

    assert {"node2": Absence(9, 2)} == state.without_gaps([gap.name], "expire").absences
    assert absences == state.without_gaps(["node2:7:7"], "expire").absences
