"""Chunks: the immutable parts of a stored state, sealed, and which of them hold a split's records.

Layout of what is sealed: 4 bytes magic, 2 bytes version, 4 bytes CRC-32 of the rest, 4 bytes
length, then a zstd frame. A chunk is named after its content and is written once.
"""

import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from threading import local
from typing import Final, Protocol

import cramjam

from headrace.plugins import EncodedPosition
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.record_rows import PIECE_WORDS

VERSION: Final = 1
CONTENT_BYTES_MAX: Final = 64 * 1024 * 1024  # More is refused before it is decompressed.
CHUNK_BYTES_MAX: Final = 256 * 1024  # Of what a store keeps as one; larger chunks lie in pieces.
HEAD_BYTES_MAX: Final = 64 * 1024  # Of what is compared and set; a larger head lies in pieces.
CHUNKS_PER_PART_MAX: Final = 40  # More of them are the remains of rounds that crashes ended.
ROUND: Final = 32  # A commit with changes also stores so many parts less of what did not change.
_FRESH_BYTES_MAX: Final = 1 << 20  # Of a split's rows between two commits; sealed they are half.
_CHUNK: Final = b"HRSC"
_PREFIX_BYTES: Final = 14  # Magic, version, CRC, length.
_LEVEL: Final = -3  # Two thirds of the time of 1, for a tenth more bytes.
_FRAME_BYTES: Final = 128  # More than a zstd frame adds to what cannot be compressed.
_WORD_BYTES: Final = 8


class Chunk:
    """Rows of records as `Agreement.changed_rows` makes them, or of a schema.

    Sealed when it is stored, or before. Keeps one form only, since the rows of all chunks are about
    as large as the records in memory; and none once the store has it (`kept`).
    """

    __slots__ = ("_name", "_rows", "_sealed", "kept")

    def __init__(self, rows: bytes = b"", *, sealed: bytes = b"", name: str = "") -> None:
        """Take *rows*, or what `sealed` returned, whose rows are decompressed only when needed.

        *name* is that of *sealed*, if it was compared.

        Raises:
            StateError: *sealed* is damaged, or of a newer version.

        """
        self._rows: bytes | None = rows
        self._sealed = sealed
        self._name = ""
        self.kept: tuple[str, ...] = ()
        """The pieces that the store has, of a chunk of which only the name is left."""
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
            StateError: they are something else.

        """
        rows = self.rows
        if len(rows) % _WORD_BYTES:
            raise damaged(f"chunk {self.name}", f"{len(rows)} bytes")
        return memoryview(rows).cast("Q")

    def seal(self) -> None:
        """Go over to the form that is stored, which is smaller."""
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
        """Its name: the same content has the same name everywhere."""
        self.seal()
        return self._name

    @property
    def size_bytes(self) -> int:
        """So much memory it takes."""
        return len(self._sealed if self._rows is None else self._rows)

    def __eq__(self, other: object) -> bool:
        """Compare the rows."""
        return isinstance(other, Chunk) and self.rows == other.rows

    def __hash__(self) -> int:
        """Hash the rows."""
        return hash(self.rows)


class Changing(Protocol):
    """The records of a split."""

    def has_changed(self) -> bool:
        """Say whether they changed since they were last taken."""

    def touch(self, first: int, parts: int) -> int:
        """Take a part of them as changed from *first* on; return where the next begins, or 0."""

    def changed_pieces(self, words_max: int) -> list[bytes]:
        """Return what changed."""


class RecordChunks:
    """The chunks that hold a split's records; loading applies them in order.

    Each commit adds what changed, and a part of what did not, by turns. When a round is complete,
    chunks from before it say nothing any more. So no commit writes everything, and yet the chunks
    hold a small multiple of the records.
    """

    def __init__(self, chunks: Sequence[Chunk], *, parts: int = ROUND) -> None:
        """Go on from *chunks*; a round takes about *parts* commits."""
        self.chunks = tuple(chunks)
        self._round_begins = len(self.chunks)
        self._parts = parts
        self._next = 0  # The first record that this round has not stored.
        self.fresh_bytes = 0
        """Of rows that were taken and that, as far as is known here, no store has yet."""

    def take(self, records: Changing) -> tuple[Chunk, ...]:
        """Return the chunks that hold *records* as they are now."""
        if records.has_changed():
            if self.fresh_bytes > _FRESH_BYTES_MAX:  # Not before: much of it is never stored.
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
        """Keep of *chunks*, which the store has, the names only."""
        for chunk in chunks:
            chunk.forget()
        self.fresh_bytes = sum(chunk.size_bytes for chunk in self.chunks)


def pieces_of(sealed: bytes, name: str = "") -> list[tuple[str, bytes]]:
    """Return what is sealed in pieces of CHUNK_BYTES_MAX at most, each with its name.

    Of what is one piece, *name* is the name, if it is known.
    """
    if name and len(sealed) <= CHUNK_BYTES_MAX:
        return [(name, sealed)]
    cuts = range(0, len(sealed), CHUNK_BYTES_MAX)
    pieces = [sealed[at : at + CHUNK_BYTES_MAX] for at in cuts]
    return [(_chunk_name(piece), piece) for piece in pieces]


def whole_of(encoded: EncodedPosition, names: Sequence[str], what: str) -> bytes:
    """Return what lies in these pieces; *what* names it in errors.

    Raises:
        StateError: one is not there, or has other bytes.

    """
    pieces = [encoded.chunks.get(name, b"") for name in names]
    for name, piece in zip(names, pieces, strict=True):
        if _chunk_name(piece) != name:
            raise damaged(what, f"a piece {name} of {len(piece)} bytes")
    return b"".join(pieces)


def chunk_in(encoded: EncodedPosition, name: str, parted: Mapping[str, Sequence[str]]) -> Chunk:
    """Return a chunk that a head lists; *parted* has the pieces of those that are large.

    Raises:
        StateError: it is not there, or has other bytes.

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
    """Return what is stored of *content*; *magic* says what it is, *version* of which form."""
    size = _sealed_bytes_max(len(content))
    made = _scratch.room if size <= len(_scratch.room) else bytearray(size)
    frame = memoryview(made)[_PREFIX_BYTES:]
    end = _PREFIX_BYTES + cramjam.zstd.compress_into(content, frame, level=_LEVEL)
    made[10:14] = len(content).to_bytes(4, "big")
    whole = memoryview(made)[:end]
    made[:10] = magic + version.to_bytes(2, "big") + zlib.crc32(whole[10:]).to_bytes(4, "big")
    return bytes(whole)


def _sealed_bytes_max(length: int) -> int:
    """Return the most that a content of *length* takes when it is sealed."""
    return _PREFIX_BYTES + length + length // 128 + _FRAME_BYTES


class _Scratch(local):
    """Room for one sealed piece of records, kept: new pages cost more than their use."""

    def __init__(self) -> None:
        """Take it, on the thread that seals first."""
        self.room = bytearray(_sealed_bytes_max(PIECE_WORDS * _WORD_BYTES))


_scratch: Final = _Scratch()


def version_of(sealed: bytes) -> int:
    """Return the version that is said of what is sealed."""
    return int.from_bytes(sealed[4:6], "big")


def unseal(magic: bytes, sealed: bytes, what: str, newest: int = VERSION) -> bytes:
    """Return the content of what `seal` made, of the *newest* version or an older one.

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
    """Return the length of the content of what is sealed; see `unseal`."""
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
    """Return the error that says what was *found* in place of a part of a state."""
    return StateError(
        f"expected {expected}, found {found}",
        place=f"CDC state, {what}",
        hint="restore the store from a backup, or start the job under a new name",
    )
