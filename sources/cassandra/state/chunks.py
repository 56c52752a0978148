"""Chunks: the immutable, sealed parts of a stored state, and which of them hold a split's records.

Sealed layout: 4 bytes magic, 2 bytes version, 4 bytes CRC-32 of the rest, 4 bytes length, then a
zstd frame. A chunk is named after its content and is written once. Small content is stored in a
frame without compression: compressing a kilobyte takes longer than all other work on it.
"""

import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from threading import local
from typing import Final

import cramjam

from headrace.plugins import EncodedPosition
from headrace.sources.cassandra.agreement.rules import PIECE_WORDS, Agreement
from headrace.sources.cassandra.errors import StateError

VERSION: Final = 1
CONTENT_BYTES_MAX: Final = 64 * 1024 * 1024  # More is refused without decompressing.
CHUNK_BYTES_MAX: Final = 256 * 1024  # The largest stored item; larger chunks lie in pieces.
HEAD_BYTES_MAX: Final = 64 * 1024  # The largest compare-and-set; larger heads lie in pieces.
CHUNKS_PER_PART_MAX: Final = 40  # More remain from rounds that crashes interrupted.
ROUND: Final = 32  # Each commit with changes also stores one of this number of parts of the rest.
_FRESH_BYTES_MAX: Final = 1 << 20  # A split's rows between two commits; half of it when sealed.
_CHUNK: Final = b"HRSC"
_PREFIX_BYTES: Final = 14  # Magic, version, CRC, length.
_LEVEL: Final = -3  # Two thirds of the time of level 1, for 10 % more bytes.
_FRAME_BYTES: Final = 128  # More than a zstd frame adds to incompressible content.
_RAW_BYTES_MAX: Final = 2 * 1024  # The largest content that is not compressed.
# A frame of one segment, whose length follows in 4 bytes; then its only block, uncompressed.
_RAW_FRAME: Final = b"\x28\xb5\x2f\xfd\xa0"
_WORD_BYTES: Final = 8


class Chunk:
    """Rows of records as `Agreement.changed_rows` returns them, or of a schema.

    Sealed when it is stored, or before. It keeps only one form, because the rows of all chunks are
    about as large as the records in memory; and none once the store has it (`kept`).
    """

    __slots__ = ("_name", "_rows", "_sealed", "kept")

    def __init__(self, rows: bytes = b"", *, sealed: bytes = b"", name: str = "") -> None:
        """Take *rows*, or what `sealed` returned, which is decompressed only when needed.

        *name* is the name of *sealed*, if it was verified.

        Raises:
            StateError: *sealed* is damaged, or of a newer version.

        """
        self._rows: bytes | None = rows
        self._sealed = sealed
        self._name = ""
        self.kept: tuple[str, ...] = ()
        """The pieces in the store, if only the name of the chunk is left."""
        if sealed:
            self._name = name or _chunk_name(sealed)
            _check(_CHUNK, sealed, f"chunk {self._name}")
            self._rows = None

    @property
    def rows(self) -> bytes:
        """The rows.

        Raises:
            StateError: only the store has them.

        """
        if self.kept:
            raise damaged(f"chunk {self._name}", "its name", "its rows, which only the store has")
        if self._rows is None:
            return unseal(_CHUNK, self._sealed, f"chunk {self._name}")
        return self._rows

    @property
    def words(self) -> memoryview:
        """The rows as 64-bit words.

        Raises:
            StateError: they are not.

        """
        rows = self.rows
        if len(rows) % _WORD_BYTES:
            raise damaged(f"chunk {self.name}", f"{len(rows)} bytes")
        return memoryview(rows).cast("Q")

    def seal(self) -> None:
        """Change to the stored form, which is smaller."""
        if self._rows is not None:
            self._sealed = seal(_CHUNK, self._rows)
            self._name = _chunk_name(self._sealed)
            self._rows = None

    def forget(self) -> None:
        """Keep the name only: the store has the rest."""
        if not self.kept:
            self.kept = tuple(name for name, _ in pieces_of(self.sealed, self._name))
            self._sealed = b""

    @property
    def sealed(self) -> bytes:
        """The bytes that are stored."""
        self.seal()
        return self._sealed

    @property
    def name(self) -> str:
        """Its name: equal content has the same name everywhere."""
        if self._rows is not None:
            self.seal()
        return self._name

    @property
    def size_bytes(self) -> int:
        """The memory that it takes."""
        return len(self._sealed if self._rows is None else self._rows)

    def __eq__(self, other: object) -> bool:
        """Compare the rows."""
        return isinstance(other, Chunk) and self.rows == other.rows

    def __hash__(self) -> int:
        """Hash the rows."""
        return hash(self.rows)


class RecordChunks:
    """The chunks that hold a split's records; loading applies them in order.

    Each commit adds the changed records, and one part of the unchanged ones in turn. After a
    complete round, older chunks are obsolete. So no commit writes everything, and the chunks hold
    only a small multiple of the records.
    """

    def __init__(self, chunks: Sequence[Chunk], *, parts: int = ROUND) -> None:
        """Continue from *chunks*; a round takes about *parts* commits."""
        self.chunks = tuple(chunks)
        self._round_begins = len(self.chunks)
        self._parts = parts
        self._next = 0  # The first record not yet stored in this round.
        self.fresh_bytes = 0
        """The size of rows that were taken and, as far as known, are in no store yet."""

    def take(self, records: Agreement) -> tuple[Chunk, ...]:
        """Return the chunks that hold the current *records*."""
        if records.has_changed():
            if self.fresh_bytes > _FRESH_BYTES_MAX:  # Not earlier: much of it is never stored.
                for chunk in self.chunks:
                    chunk.seal()
            is_long = len(self.chunks) > CHUNKS_PER_PART_MAX * self._parts
            self._next = records.touch(self._next, 1 if is_long else self._parts)
            pieces = records.changed_pieces(PIECE_WORDS)
            self.chunks = (*self.chunks, *map(Chunk, pieces))
            if self._next == 0:
                self.chunks = self.chunks[self._round_begins :]
                self._round_begins = len(self.chunks)
            self.fresh_bytes += sum(map(len, pieces))
        return self.chunks

    def stored(self, chunks: Sequence[Chunk]) -> None:
        """Keep only the names of *chunks*, which the store has."""
        for chunk in chunks:
            if not chunk.kept:
                chunk.forget()
        self.fresh_bytes = sum(chunk.size_bytes for chunk in self.chunks if not chunk.kept)


def pieces_of(sealed: bytes, name: str = "") -> list[tuple[str, bytes]]:
    """Return the pieces of *sealed*, each of at most CHUNK_BYTES_MAX bytes, with their names.

    *name* is the name of a single piece, if it is known.
    """
    if name and len(sealed) <= CHUNK_BYTES_MAX:
        return [(name, sealed)]
    cuts = range(0, len(sealed), CHUNK_BYTES_MAX)
    pieces = [sealed[at : at + CHUNK_BYTES_MAX] for at in cuts]
    return [(_chunk_name(piece), piece) for piece in pieces]


def whole_of(encoded: EncodedPosition, names: Sequence[str], what: str) -> bytes:
    """Return the content of these pieces; *what* names it in errors.

    Raises:
        StateError: one does not exist, or has other bytes.

    """
    pieces = [encoded.chunks.get(name, b"") for name in names]
    for name, piece in zip(names, pieces, strict=True):
        if _chunk_name(piece) != name:
            raise damaged(what, f"a piece {name} of {len(piece)} bytes")
    return b"".join(pieces)


def chunk_in(encoded: EncodedPosition, name: str, parted: Mapping[str, Sequence[str]]) -> Chunk:
    """Return a chunk that a head lists; *parted* has the pieces of large chunks.

    Raises:
        StateError: it does not exist, or has other bytes.

    """
    pieces = parted.get(name, (name,))
    if pieces == (name,) and name not in encoded.chunks:
        raise damaged(f"chunk {name}", "nothing")
    sealed = whole_of(encoded, pieces, f"chunk {name}")
    if len(pieces) > 1 and _chunk_name(sealed) != name:
        raise damaged(f"chunk {name}", f"{len(sealed)} bytes of another name")
    return Chunk(sealed=sealed, name=name)


def _chunk_name(sealed: bytes) -> str:
    return sha256(sealed).hexdigest()[:32]


def seal(magic: bytes, content: bytes, version: int = VERSION) -> bytes:
    """Return the sealed form of *content*; *magic* says what it is, *version* its format."""
    if len(content) <= _RAW_BYTES_MAX:
        block = (len(content) << 3 | 1).to_bytes(3, "little")
        frame_length = len(content).to_bytes(4, "little")
        head = len(content).to_bytes(4, "big") + _RAW_FRAME + frame_length + block
        crc = zlib.crc32(content, zlib.crc32(head))
        return b"".join((magic, version.to_bytes(2, "big"), crc.to_bytes(4, "big"), head, content))
    size = _sealed_bytes_max(len(content))
    made = _scratch.room if size <= len(_scratch.room) else bytearray(size)
    frame = memoryview(made)[_PREFIX_BYTES:]
    end = _PREFIX_BYTES + cramjam.zstd.compress_into(content, frame, level=_LEVEL)
    made[10:14] = len(content).to_bytes(4, "big")
    whole = memoryview(made)[:end]
    made[:10] = magic + version.to_bytes(2, "big") + zlib.crc32(whole[10:]).to_bytes(4, "big")
    return bytes(whole)


def _sealed_bytes_max(length: int) -> int:
    """Return the maximum sealed size of a content of *length*."""
    return _PREFIX_BYTES + length + length // 128 + _FRAME_BYTES


class _Scratch(local):
    """A reused buffer for one sealed piece of records: new pages cost more than their use."""

    def __init__(self) -> None:
        """Allocate it, on the first call of a thread."""
        self.room = bytearray(_sealed_bytes_max(PIECE_WORDS * _WORD_BYTES))


_scratch: Final = _Scratch()


def version_of(sealed: bytes) -> int:
    """Return the format version of *sealed*."""
    return int.from_bytes(sealed[4:6], "big")


def unseal(magic: bytes, sealed: bytes, what: str, newest: int = VERSION) -> bytes:
    """Return the content of *sealed*, of the *newest* version or an older one.

    *what* names it in errors.

    Raises:
        StateError: it is damaged, or of a newer version.

    """
    content = bytearray(_check(magic, sealed, what, newest))
    try:
        written = cramjam.zstd.decompress_into(memoryview(sealed)[_PREFIX_BYTES:], content)
    except cramjam.DecompressionError as error:
        raise damaged(what, "content that cannot be decompressed") from error
    if written != len(content):
        raise damaged(what, f"{written} bytes of content instead of {len(content)}")
    return bytes(content)


def _check(magic: bytes, sealed: bytes, what: str, newest: int = VERSION) -> int:
    """Return the length of the sealed content; see `unseal`."""
    if len(sealed) < _PREFIX_BYTES or sealed[:4] != magic:
        raise damaged(what, f"{len(sealed)} bytes that begin {sealed[:4]!r}")
    version = version_of(sealed)
    if not 0 < version <= newest:
        raise StateError(
            f"version {version}; this release reads up to {newest}",
            place=f"CDC state, {what}",
            hint="run the release that wrote it, or a newer one",
        )
    if zlib.crc32(memoryview(sealed)[10:]) != int.from_bytes(sealed[6:10], "big"):
        raise damaged(what, "a wrong checksum")
    length = int.from_bytes(sealed[10:14], "big")
    if length > CONTENT_BYTES_MAX:
        raise damaged(what, f"a content of {length} bytes")
    return length


def damaged(what: str, found: str, expected: str = "a CDC state") -> StateError:
    """Return the error for what was *found* instead of a part of a state."""
    return StateError(
        f"expected {expected}, found {found}",
        place=f"CDC state, {what}",
        hint="restore the store from a backup, or start the job under a new name",
    )
