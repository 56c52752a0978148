"""Reads commit log segments as values: the public way, for programs of your own.

Any binary stream will do: a file, a socket, `io.BytesIO`. A stream is read once, from its start,
in windows; it need not be seekable. For directories that nodes still write to, see the source.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from headrace.sources.cassandra import codes, schema_tables
from headrace.sources.cassandra.changes import Mutation
from headrace.sources.cassandra.errors import (
    END_OFFSET,
    BadMutationError,
    CorruptSegmentError,
    UnknownTableError,
)
from headrace.sources.cassandra.frame import Framer
from headrace.sources.cassandra.keys import KeyOptions, Keys
from headrace.sources.cassandra.log_schema import LogSchema
from headrace.sources.cassandra.opening import open_segment
from headrace.sources.cassandra.schema import Schema
from headrace.sources.cassandra.values import BadValueError

_MESSAGING_60: Final = 14
_TABLE_ID_BYTES: Final = 16
_PIECE_BYTES: Final = 1024 * 1024  # Read from a stream at once.


class BinaryStream(Protocol):
    """What a log is read from; `read` may return fewer bytes, none only at the end."""

    def read(self, size: int, /) -> bytes:
        """Return at most *size* bytes."""


class Span(NamedTuple):
    """Part of a segment: the entries that end after *after*, and at *until* or before."""

    after: int = 0
    until: int = END_OFFSET


WHOLE: Final = Span()
NOTHING: Final = Span(END_OFFSET, END_OFFSET)


class LogHandler:
    """What `read_log` calls, in log order. Subclass it; the methods here do the safe thing."""

    def on_mutation(self, mutation: Mutation) -> None:
        """Take one mutation."""

    def on_schema_change(self, mutation: Mutation) -> None:
        """Learn of a change of tables or types; what follows in the log is read with it."""

    def on_unknown_table(self, error: UnknownTableError) -> None:
        """Learn of a mutation passed over: system tables, dropped ones, ones newer than the schema.

        `error.place` says where, `error.table_id` which. What stood before it in the mutation,
        `error.known`, was handed to `on_mutation`; what stands behind it cannot be told. The rest
        of the log goes on.
        """

    def on_bad_mutation(self, error: BadMutationError) -> None:
        """Decide about an entry that does not fit the schema: raise to stop, return to go on."""
        raise error

    def on_damage(self, error: CorruptSegmentError) -> None:
        """Decide about a damaged entry, section or rest: raise to stop, return to go on behind it.

        `error.place` says where, `error.begin` and `error.end` which logical positions are lost.
        """
        raise error


class _StreamBytes:
    """Reads a stream by byte offsets that never go back."""

    def __init__(self, stream: BinaryStream, place: str) -> None:
        self._stream = stream
        self._place = place
        self._read = 0

    def read_into(self, offset: int, room: memoryview) -> int:
        """Fill *room* from byte *offset*, or the first part of it; return how many bytes came."""
        while self._read < offset:
            if not self._next(offset - self._read):
                return 0
        if self._read > offset:
            raise CorruptSegmentError("the sync markers lead backwards", place=self._place)
        part = self._next(len(room))
        room[: len(part)] = part
        return len(part)

    def _next(self, size: int) -> bytes:
        part = self._stream.read(min(size, _PIECE_BYTES))
        self._read += len(part)
        return part


class LogEntries:
    """The raw entries of one segment in a stream; iterating gives their mutation bytes."""

    def __init__(  # noqa: PLR0913 (what to read, and how far)
        self,
        stream: BinaryStream,
        *,
        place: str = "stream",
        segment_id: int | None = None,
        limit: int = -1,
        told: int = 0,
        span: Span = WHOLE,
        keys: Keys | None = None,
    ) -> None:
        """Read the header, of segment *segment_id* if given; *place* names the stream in errors.

        *limit* is a logical position (that of an index file) to stop at; -1 reads to the end of
        what is valid. A segment whose sections end before the position *told* is damaged. Entries
        that end outside *span* are passed over. *keys* open encrypted segments. A compressed or
        encrypted segment takes memory for one section at a time.

        Raises:
            CorruptSegmentError: the header is damaged, or of another segment.
            UnsupportedSegmentError: another version, compressor or cipher.
            SegmentKeyError: it is encrypted, and *keys* have none for it.

        """
        self._until = span.until
        self._framer = Framer()
        self.descriptor, _ = open_segment(
            self._framer,
            _StreamBytes(stream, place).read_into,
            keys=keys or Keys(KeyOptions()),
            place=place,
            resume=span.after,
            segment_id=segment_id,
        )
        self._framer.allow(limit, told=told)

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


def read_mutations(
    stream: BinaryStream,
    schema: Schema | LogSchema,
    *,
    place: str = "stream",
    limit: int = -1,
    keys: Keys | None = None,
) -> Iterator[Mutation]:
    """Yield the mutations of the segment in *stream*, in log order, to the end of its valid data.

    Each is decoded with the schema of its place: what the log itself says of tables moves the
    *schema* on; give a `LogSchema` to go on with it in the next segment of the same log. Mutations
    of tables that nothing tells of are passed over, and those of `system_schema`; what stands
    before an unknown table in the same mutation is yielded. `read_log` reports all of them.

    Raises:
        CorruptSegmentError: a checksum is wrong; what was yielded before is good.
        UnsupportedSegmentError: another version, compressor or cipher.
        SegmentKeyError: it is encrypted, and *keys* do not open it.
        BadMutationError: an entry does not fit the schema.

    """
    tables = schema if isinstance(schema, LogSchema) else LogSchema(schema)
    entries = LogEntries(stream, place=place, limit=limit, keys=keys)
    for read in _decoded(entries, tables, place, WHOLE):
        if isinstance(read, UnknownTableError):
            if read.known is not None:
                yield read.known
        elif isinstance(read, BadMutationError):
            raise read
        elif not is_schema_change(read):
            yield read


def read_log(  # noqa: PLR0913 (what to read, and how far)
    stream: BinaryStream,
    schema: Schema | LogSchema,
    handler: LogHandler,
    *,
    place: str = "stream",
    segment_id: int | None = None,
    limit: int = -1,
    told: int = 0,
    span: Span = WHOLE,
    keys: Keys | None = None,
) -> None:
    """Read the segment in *stream* and call *handler* for all that is in it and in *span*.

    Of *schema*, see `read_mutations`; of what describes the segment, `LogEntries`. What lies before
    *span* is looked at for changes of the schema.

    Raises:
        CorruptSegmentError: the header is damaged, or what *handler* makes of other damage.
        UnsupportedSegmentError: another version, compressor or cipher.
        SegmentKeyError: it is encrypted, and *keys* do not open it.

    """
    tables = schema if isinstance(schema, LogSchema) else LogSchema(schema)
    entries = LogEntries(
        stream,
        place=place,
        segment_id=segment_id,
        limit=limit,
        told=told,
        span=Span(0, span.until),
        keys=keys,
    )
    while True:
        try:
            for read in _decoded(entries, tables, place, span):
                _hand_over(read, handler)
        except CorruptSegmentError as error:
            if error.end > span.after and error.begin < span.until:
                handler.on_damage(error)
            entries.go_on(error)
        else:
            return


def _hand_over(read: Mutation | BadMutationError, handler: LogHandler) -> None:
    if isinstance(read, UnknownTableError):
        if read.known is not None:
            handler.on_mutation(read.known)
        handler.on_unknown_table(read)
    elif isinstance(read, BadMutationError):
        handler.on_bad_mutation(read)
    elif is_schema_change(read):
        handler.on_schema_change(read)
    else:
        handler.on_mutation(read)


def is_schema_change(mutation: Mutation) -> bool:
    """Say whether *mutation* is of Cassandra's own tables of the schema."""
    return mutation.keyspace == schema_tables.KEYSPACE


def _decoded(
    entries: LogEntries, tables: LogSchema, place: str, span: Span
) -> Iterator[Mutation | BadMutationError]:
    """Yield what each entry in *span* is, or why it cannot be told; move *tables* on."""
    messaging = entries.descriptor.messaging
    for raw in entries:
        is_change = first_table_id(raw, messaging) in schema_tables.IDS
        if entries.position <= span.after and not is_change:
            continue
        try:
            mutation = tables.epoch.decoder.decode(
                raw,
                messaging=messaging,
                segment_id=entries.descriptor.segment_id,
                position=entries.position,
            )
            if is_change:
                tables.apply(mutation)
        except (BadMutationError, BadValueError) as error:
            found: BadMutationError | BadValueError = error
            if is_change:  # That does not fit: it is of a release to come.
                found = UnknownTableError(first_table_id(raw, messaging))
            if not isinstance(found, BadMutationError):
                raise
            found.place = f"{place}: entry that ends at {entries.position}: {error.place}"
            yield found
            continue
        if entries.position > span.after:
            yield mutation


def first_table_id(raw: bytes, messaging: int) -> bytes:
    """Return the id of the table of a raw mutation's first update."""
    at = _first_update(raw, messaging)
    return raw[at : at + _TABLE_ID_BYTES]


def partition_key(raw: bytes, messaging: int) -> bytes:
    """Return the partition key of a raw mutation, which all of its updates share."""
    at = _first_update(raw, messaging) + _TABLE_ID_BYTES
    if messaging >= _MESSAGING_60:
        at += 1 + _extra(raw, at)  # The schema epoch.
    begin = at + 1 + _extra(raw, at)
    length = int.from_bytes(raw[at:begin], "big") & (1 << 7 * (begin - at)) - 1
    return raw[begin : begin + length]


def _first_update(raw: bytes, messaging: int) -> int:
    at = 1 if messaging >= _MESSAGING_60 else 0  # Flags.
    return at + 1 + _extra(raw, at)  # How many updates there are.


def _extra(raw: bytes, at: int) -> int:
    """Return how many bytes follow the first one of the vint at *at*: its leading ones."""
    return 8 - (raw[at] ^ 0xFF).bit_length() if at < len(raw) else 0
