"""Reads commit log segments as values: the public API, for your own programs.

Any binary stream works: a file, a socket, `io.BytesIO`. A stream is read once, from its start,
in windows; it need not be seekable. For directories that nodes still write to, see the source.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.heads import first_table_id
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.errors import END_OFFSET, CorruptSegmentError
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.mutation.changes import Mutation
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.mutation.values import BadValueError
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema import system_schema
from headrace.sources.cassandra.schema.tables import Schema
from headrace.sources.cassandra.schema_versions.log_schema import LogSchema

_PIECE_BYTES: Final = 1024 * 1024  # Read from a stream in one call.


class BinaryStream(Protocol):
    """A stream with a log; `read` may return fewer bytes, but none only at the end."""

    def read(self, size: int, /) -> bytes:
        """Return at most *size* bytes."""


class Span(NamedTuple):
    """Part of a segment: the entries that end after *after* and not after *until*."""

    after: int = 0
    until: int = END_OFFSET


WHOLE: Final = Span()
NOTHING: Final = Span(END_OFFSET, END_OFFSET)


class LogHandler:
    """The callbacks of `read_log`, in log order. Subclass it; the defaults are safe."""

    def on_mutation(self, mutation: Mutation) -> None:
        """Handle one mutation."""

    def on_schema_change(self, mutation: Mutation) -> None:
        """Handle a change of tables or types; the rest of the log is read with it."""

    def on_unknown_table(self, error: UnknownTableError) -> None:
        """Handle a skipped mutation: of a system table, a dropped one, one newer than the schema.

        `error.place` says where, `error.table_id` which table. The part of the mutation before it,
        `error.known`, was passed to `on_mutation`; the part after it cannot be parsed. Reading
        continues with the next mutation.
        """

    def on_bad_mutation(self, error: BadMutationError) -> None:
        """Decide about an entry that does not fit the schema: raise to stop, return to continue."""
        raise error

    def on_damage(self, error: CorruptSegmentError) -> None:
        """Decide about a damaged entry, section or rest: raise to stop, return to skip it.

        `error.place` says where, `error.begin` and `error.end` which logical positions are lost.
        """
        raise error


class _StreamBytes:
    """Reads a stream by ascending byte offsets."""

    def __init__(self, stream: BinaryStream, place: str) -> None:
        self._stream = stream
        self._place = place
        self._read = 0

    def read_into(self, offset: int, room: memoryview) -> int:
        """Fill *room* from byte *offset*, at least in part. Return the number of bytes."""
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
    """The raw entries of one segment in a stream; iterating yields their mutation bytes."""

    def __init__(  # noqa: PLR0913 (the input, and its limits)
        self,
        stream: BinaryStream,
        *,
        place: str = "stream",
        segment_id: int | None = None,
        limit: int = -1,
        indexed: int = 0,
        span: Span = WHOLE,
        keys: Keys | None = None,
    ) -> None:
        """Read the header, of segment *segment_id* if given; *place* names the stream in errors.

        *limit* is a logical position (that of an index file) to stop at; -1 reads to the end of the
        valid data. A segment whose sections end before the position *indexed* is damaged. Entries
        that end outside *span* are skipped. *keys* decrypt segments. A compressed or encrypted
        segment needs memory for one section at a time.

        Raises:
            CorruptSegmentError: the header is damaged, or of another segment.
            UnsupportedSegmentError: another version, compressor or cipher.
            SegmentKeyError: it is encrypted, and *keys* have no key for it.

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
        self._framer.allow(limit, indexed=indexed)

    @property
    def position(self) -> int:
        """The logical end of the last entry yielded."""
        return int(self._framer.at)

    def __iter__(self) -> Iterator[bytes]:
        """Yield each entry's raw mutation.

        Raises:
            CorruptSegmentError: a checksum is wrong; earlier entries are valid. Call `go_on`
                and iterate again for the following ones.
            WrongKeyError: the key decrypts no part of it.

        """
        while self._framer.next_entry() == constants.ENTRY and self.position <= self._until:
            yield self._framer.entry()

    def go_on(self, error: CorruptSegmentError) -> None:
        """Skip the damage in *error*."""
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

    Each is decoded with the schema in force at its position: schema changes in the log update
    *schema*. Pass a `LogSchema` to continue with it in the next segment of the same log. Mutations
    of unknown tables and of `system_schema` are skipped; the part of a mutation before an unknown
    table is yielded. `read_log` reports all of them.

    Raises:
        CorruptSegmentError: a checksum is wrong; mutations yielded before are valid.
        UnsupportedSegmentError: another version, compressor or cipher.
        SegmentKeyError: it is encrypted, and *keys* do not decrypt it.
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


def read_log(  # noqa: PLR0913 (the input, and its limits)
    stream: BinaryStream,
    schema: Schema | LogSchema,
    handler: LogHandler,
    *,
    place: str = "stream",
    segment_id: int | None = None,
    limit: int = -1,
    indexed: int = 0,
    span: Span = WHOLE,
    keys: Keys | None = None,
) -> None:
    """Read the segment in *stream* and call *handler* for everything in *span*.

    For *schema*, see `read_mutations`; for the description of the segment, `LogEntries`. The part
    before *span* is searched for schema changes.

    Raises:
        CorruptSegmentError: the header is damaged, or *handler* raised for other damage.
        UnsupportedSegmentError: another version, compressor or cipher.
        SegmentKeyError: it is encrypted, and *keys* do not decrypt it.

    """
    tables = schema if isinstance(schema, LogSchema) else LogSchema(schema)
    entries = LogEntries(
        stream,
        place=place,
        segment_id=segment_id,
        limit=limit,
        indexed=indexed,
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
    """Return whether *mutation* is of Cassandra's own schema tables."""
    return mutation.keyspace == system_schema.KEYSPACE


def _decoded(
    entries: LogEntries, tables: LogSchema, place: str, span: Span
) -> Iterator[Mutation | BadMutationError]:
    """Yield each entry in *span* decoded, or the error; update *tables*."""
    messaging = entries.descriptor.messaging
    for raw in entries:
        is_change = first_table_id(raw, messaging) in system_schema.IDS
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
            if is_change:  # It does not fit: a later release wrote it.
                found = UnknownTableError(first_table_id(raw, messaging))
            if not isinstance(found, BadMutationError):
                raise
            found.place = f"{place}: entry that ends at {entries.position}: {error.place}"
            yield found
            continue
        if entries.position > span.after:
            yield mutation
