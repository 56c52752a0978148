"""Reads commit log segments as values: the public way, for programs of your own.

Any binary stream will do: a file, a socket, `io.BytesIO`. A stream is read once, from its start,
in windows; it need not be seekable. For directories that nodes still write to, see the source.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from headrace.sources.cassandra import codes
from headrace.sources.cassandra.changes import Mutation, MutationDecoder
from headrace.sources.cassandra.errors import (
    END_OFFSET,
    BadMutationError,
    CorruptSegmentError,
    UnknownTableError,
)
from headrace.sources.cassandra.frame import Framer
from headrace.sources.cassandra.keys import KeyOptions, Keys
from headrace.sources.cassandra.opening import open_segment
from headrace.sources.cassandra.schema import Schema

_SKIP_BYTES: Final = 64 * 1024


class BinaryStream(Protocol):
    """What a log is read from; `read` may return fewer bytes, none only at the end."""

    def read(self, size: int, /) -> bytes:
        """Return at most *size* bytes."""


class Span(NamedTuple):
    """Part of a segment: the entries that end after *after*, and at *until* or before."""

    after: int = 0
    until: int = END_OFFSET


WHOLE: Final = Span()


class LogHandler:
    """What `read_log` calls, in log order. Subclass it; the methods here do the safe thing."""

    def on_mutation(self, mutation: Mutation) -> None:
        """Take one mutation."""

    def on_unknown_table(self, error: UnknownTableError) -> None:
        """Learn of a mutation passed over: system tables, dropped ones, ones newer than the schema.

        `error.place` says where, `error.table_id` which. The rest of the log goes on.
        """

    def on_bad_mutation(self, error: BadMutationError) -> None:
        """Decide about an entry that does not fit the schema: raise to stop, return to go on."""
        raise error

    def on_damage(self, error: CorruptSegmentError) -> None:
        """Decide about a damaged entry, section or rest: raise to stop, return to go on behind it.

        `error.place` says where, `error.begin` and `error.end` which logical positions are lost.
        """
        raise error


class LogEntries:
    """The raw entries of one segment in a stream; iterating gives their mutation bytes."""

    def __init__(
        self,
        stream: BinaryStream,
        *,
        place: str = "stream",
        limit: int = -1,
        span: Span = WHOLE,
        keys: Keys | None = None,
    ) -> None:
        """Read the header; *place* names the stream in errors.

        *limit* is a logical position (that of an index file) to stop at; -1 reads to the end of
        what is valid. Entries that end outside *span* are passed over. *keys* open encrypted
        segments. A compressed or encrypted segment takes memory for one section at a time.

        Raises:
            CorruptSegmentError: the header is damaged.
            UnsupportedSegmentError: another version, compressor or cipher.
            SegmentKeyError: it is encrypted, and *keys* have none for it.

        """
        self._stream = stream
        self._place = place
        self._until = span.until
        self._read = 0
        self._framer = Framer()
        self.descriptor, _ = open_segment(
            self._framer,
            self._read_into,
            keys=keys or Keys(KeyOptions()),
            place=place,
            resume=span.after,
        )
        self._framer.allow(limit)

    @property
    def position(self) -> int:
        """The logical end of the entry that iterating gave last."""
        return int(self._framer.at)

    def __iter__(self) -> Iterator[bytes]:
        """Yield each entry's raw mutation.

        Raises:
            CorruptSegmentError: a checksum is wrong; what came before is good. After `go_on`
                iterate anew for what comes behind.
            WrongKeyError: the key opens nothing of it.

        """
        while self._framer.next_entry() == codes.ENTRY and self.position <= self._until:
            yield self._framer.entry()

    def go_on(self, error: CorruptSegmentError) -> None:
        """Leave what *error* says is unusable."""
        self._framer.go_on(error)

    def _exactly(self, size: int) -> bytes:
        """Read *size* bytes, fewer only at the end of the stream."""
        parts = []
        while size > 0:
            part = self._stream.read(size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
            self._read += len(part)
        return b"".join(parts)

    def _read_into(self, offset: int, room: memoryview) -> int:
        """Fill *room* from file byte *offset*, which is never before what was read."""
        while self._read < offset:
            if not self._exactly(min(_SKIP_BYTES, offset - self._read)):
                return 0
        if self._read > offset:
            raise CorruptSegmentError("the sync markers lead backwards", place=self._place)
        part = self._exactly(len(room))
        room[: len(part)] = part
        return len(part)


def read_mutations(
    stream: BinaryStream,
    schema: Schema,
    *,
    place: str = "stream",
    limit: int = -1,
    keys: Keys | None = None,
) -> Iterator[Mutation]:
    """Yield the mutations of the segment in *stream*, in log order, to the end of its valid data.

    Mutations of tables that *schema* lacks are passed over; `read_log` reports them.

    Raises:
        CorruptSegmentError: a checksum is wrong; what was yielded before is good.
        UnsupportedSegmentError: another version, compressor or cipher.
        SegmentKeyError: it is encrypted, and *keys* do not open it.
        BadMutationError: an entry does not fit the schema.

    """
    decoder = MutationDecoder(schema)
    entries = LogEntries(stream, place=place, limit=limit, keys=keys)
    for raw in entries:
        try:
            yield _decode(decoder, entries, raw, place)
        except UnknownTableError:
            continue


def read_log(  # noqa: PLR0913 (what to read, and how far)
    stream: BinaryStream,
    schema: Schema,
    handler: LogHandler,
    *,
    place: str = "stream",
    limit: int = -1,
    span: Span = WHOLE,
    keys: Keys | None = None,
) -> None:
    """Read the segment in *stream* and call *handler* for all that is in it.

    Raises:
        CorruptSegmentError: the header is damaged, or what *handler* makes of other damage.
        UnsupportedSegmentError: another version, compressor or cipher.
        SegmentKeyError: it is encrypted, and *keys* do not open it.

    """
    decoder = MutationDecoder(schema)
    entries = LogEntries(stream, place=place, limit=limit, span=span, keys=keys)
    while True:
        try:
            for raw in entries:
                _handle(handler, decoder, entries, raw, place)
        except CorruptSegmentError as error:
            handler.on_damage(error)
            entries.go_on(error)
        else:
            return


def _handle(
    handler: LogHandler, decoder: MutationDecoder, entries: LogEntries, raw: bytes, place: str
) -> None:
    try:
        mutation = _decode(decoder, entries, raw, place)
    except UnknownTableError as error:
        handler.on_unknown_table(error)
    except BadMutationError as error:
        handler.on_bad_mutation(error)
    else:
        handler.on_mutation(mutation)


def _decode(decoder: MutationDecoder, entries: LogEntries, raw: bytes, place: str) -> Mutation:
    descriptor = entries.descriptor
    try:
        return decoder.decode(
            raw,
            messaging=descriptor.messaging,
            segment_id=descriptor.segment_id,
            position=entries.position,
        )
    except BadMutationError as error:
        error.place = f"{place}: entry that ends at {entries.position}: {error.place}"
        raise
