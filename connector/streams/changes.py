"""Reads changes from messages: joined, unframed, decoded, with columns as typed objects.

Needs no stream processor: a program passes the parts of each message to `ChangeReader.read`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from msgspec.structs import replace

from headrace.connector.foundation.sink_stores import schema_store_of
from headrace.connector.serde import Encoder
from headrace.connector.serde.avro_types import definitions, opened
from headrace.connector.serde.codecs.records import whole_reader_of
from headrace.connector.serde.decoding import Decoder, UndecodableError, prefixes_of
from headrace.connector.serde.large import Reassembler
from headrace.connector.serde.schemas.lookup import JobSchemas, MessageSchemas, Named, StoreSchemas
from headrace.connector.serde.transforms.chain import Chain
from headrace.connector.streams.columns import Columns
from headrace.connector.streams.envelopes import ENVELOPES, OWN, Name
from headrace.connector.streams.job_sink import WrittenSink, sink_of
from headrace.connector.streams.json_documents import document_reader_of
from headrace.plugins import (
    NO_ORIGIN,
    ConfigError,
    Context,
    Document,
    Operation,
    Problem,
    RecordSchema,
    Sink,
    SinkOptions,
)
from headrace.plugins.discovery import load
from headrace.plugins.records.codecs import CHUNK_ID_HEADER, CONTROL_HEADER

GivenHeaders = Mapping[str, bytes] | Iterable[tuple[str, Any]] | None
"""Headers as clients of Kafka have them."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row, a range or a partition.

    `key` and `payload` are objects with an attribute for each column. In `payload` a column that
    was not written is None, and so is one that was set to null: `written` contains the attributes
    that were written, without those of the key. `key` is None if the message's key is text.
    `before` and `after` are the row before and after the change, in the messages of a history; None
    if there was no row, and for other jobs. In `debezium`, which has no field for it, `after` is
    what was written if the message has no image. `mutation` and `index` identify the change: its
    messages have the same, however often it was sent. They are None if neither the envelope nor a
    header has them. `document` is the whole envelope, and `schema` describes it. `message` has the
    bytes: the joined value, without prefixes of framing. Its offset is that of the last part.
    """

    topic: str
    partition: int
    table: str
    operation: Operation
    timestamp_us: int
    key: Any  # Any: of a class made for the table.
    payload: Any  # Any: as above.
    written: frozenset[str]
    before: Any  # Any: as above.
    after: Any  # Any: as above.
    mutation: bytes | None
    index: int | None
    document: Document = field(repr=False)
    schema: RecordSchema = field(repr=False)
    message: Named = field(repr=False)


_AVRO: Final = "avro"
_READERS: Final[Mapping[str, Callable[[Document], Callable[[bytes], Any]]]] = {
    _AVRO: whole_reader_of,
    "json": document_reader_of,
}


class ChangeReader:
    """Reads the changes of a job's topics. For one thread."""

    def __init__(self, sink: Sink, schemas: MessageSchemas, *, folder: Path | None = None) -> None:
        """Read messages of a job's *sink*; its relative paths are relative to *folder*.

        Raises:
            ConfigError: its messages are neither in Avro nor in JSON.

        """
        wanted = sink.encoding()
        if wanted.codec not in _READERS:
            found = f"typed changes need Avro or JSON, found {wanted.codec}"
            raise ConfigError([Problem("format", found, "the plugin of a format reads it")])
        self.sink = sink
        self._envelope = wanted.envelope or OWN
        self._codecs = wanted.key_codec or wanted.codec, wanted.codec
        self._schemas = schemas
        self._decoder = Decoder.of(sink, {}, folder or Path())
        self._key_prefix, self._value_prefix = prefixes_of(sink)
        self._joiners: dict[tuple[str, int], Reassembler] = {}
        self._shapes: dict[int, _Shape] = {}

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any],
        *,
        state: str | Path | None = None,
        source: str | None = None,
        folder: Path | None = None,
    ) -> Self:
        """Return a reader for a job whose sink has these *options*.

        They are the options of the section `sink` of the job file. Schemas are in its schema store,
        or in *state*, the job's state file. For the envelopes `flat` and `debezium`, a state file
        also needs the name of the *source* plugin. A relative path of a claim store is relative to
        *folder*.

        Raises:
            ConfigError: with all mistakes found, each under its key.
            SecretUnavailableError: the target of a reference to a secret does not exist here.

        """
        sink, context = sink_of(options)
        return cls(sink, _schemas_of(sink, context, state, source), folder=folder)

    @classmethod
    def of_job(cls, path: str | Path) -> Self:
        """Return a reader for the job of a job file, which contains the sink.

        Schemas are in the sink's schema store, or in the job's state file. Raises as `of`.
        """
        job = WrittenSink.of_job(path)
        return cls.of(job.options, state=job.state, source=job.source, folder=job.folder)

    def read(  # noqa: PLR0913 (what a message has)
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: GivenHeaders,
        *,
        offset: int = -1,
    ) -> Change | None:
        """Return the change of a message.

        Returns None for a tombstone, a control record, or a part of a value whose other parts have
        not arrived. Raises as `joined` and `decoded`.
        """
        message = self.joined(topic, partition, key, value, headers, offset=offset)
        return None if message is None else self.decoded(message)

    def joined(  # noqa: PLR0913 (what a message has)
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: GivenHeaders,
        *,
        offset: int = -1,
    ) -> Named | None:
        """Return a whole message, with the parts of its value joined; None as for `read`.

        Raises:
            BrokenChunkError: the headers of a part are incomplete.

        """
        given = headers_of(headers)
        if value is None or CONTROL_HEADER in given:
            return None
        if CHUNK_ID_HEADER in given:
            joiner = self._joiners.setdefault((topic, partition), Reassembler())
            value = joiner.add(value, given)
        return None if value is None else Named(topic, partition, key, value, given, offset)

    def decoded(self, message: Named) -> Change:
        """Return the change of a whole message; after some errors a new attempt may succeed.

        Raises:
            SchemaUnknownError: its schema does not exist, or is not published yet.
            UndecodableError: it does not fit its schema, or its claim store is not read.
            ClaimLostError: the claim store does not have its value, or cannot be read.
            RetriableError: the schema store does not answer.

        """
        place = f"topic {message.topic}, partition {message.partition}"
        value = self._decoder.whole(message.value, message.headers, place)
        schema = self._schemas.find(replace(message, value=value))
        shape = self._shapes.get(id(schema))  # It keeps the schema, so that the id stays unique.
        if shape is None:
            shape = self._shapes[id(schema)] = _Shape(schema, self._envelope, *self._codecs)
        key = None if message.key is None else message.key[self._key_prefix :]
        return shape.change(replace(message, key=key, value=value[self._value_prefix :]), place)

    def waiting(self, topic: str, partition: int) -> frozenset[bytes]:
        """Return the ids of a partition's values of which parts are still missing."""
        joiner = self._joiners.get((topic, partition))
        return frozenset() if joiner is None else joiner.waiting

    def close(self) -> None:
        """Close the connections."""
        self._schemas.close()


def headers_of(given: GivenHeaders) -> dict[str, bytes]:
    """Return headers by name; null becomes empty."""
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    return {name: content or b"" for name, content in pairs}


def _schemas_of(
    sink: Sink, context: Context, state: str | Path | None, source: str | None
) -> MessageSchemas:
    options = sink.config
    assert isinstance(options, SinkOptions)  # noqa: S101 (the Kafka sink's are)
    encoding = sink.encoding()
    if state is not None:
        if source is None and encoding.envelope not in ("", OWN):
            found = f"{encoding.envelope} from a state file needs the name of the source's plugin"
            raise ConfigError([Problem("source", found, "as in the job file: source.plugin")])
        origin = NO_ORIGIN if source is None else load("sources", source).origin
        chain = Chain(options)
        return JobSchemas(state, Encoder(encoding, origin, chain=chain, topic_of=sink.topic_of))
    if encoding.codec != _AVRO:
        found = "messages in JSON have no types without the job's state file"
        hint = "give the state file: schema stores have schemas of messages in Avro only"
        raise ConfigError([Problem("format", found, hint)])
    store = schema_store_of(options)
    if store is None:
        hint = "give the job's schema.store with its options, or its state file"
        raise ConfigError([Problem("schema.store", "is required without a state file", hint)])
    plugin, config = store
    place = f"schema.store {options.schema_store}"
    return StoreSchemas(plugin(config, context), framing=options.schema_framing, place=place)


class _Shape:
    """Reads the messages of one schema."""

    def __init__(
        self, schema: RecordSchema, envelope: str, key_codec: str, value_codec: str
    ) -> None:
        self._schema = schema
        self._read_value = _READERS[value_codec](schema.value)
        key_reader = _READERS.get(key_codec) if schema.key else None
        self._read_key = None if key_reader is None else key_reader(schema.key)
        self._key = Columns(schema.key) if schema.key else None
        self._keys = {each["name"] for each in schema.key.get("fields", ())}
        whole = opened(schema.value, definitions(schema.value))
        self._facts = ENVELOPES[envelope](whole)
        name = schema.table.rpartition(".")[2]
        self._columns = Columns({**self._facts.row, "name": re.sub(r"\W", "_", name) or "Row"})

    def change(self, message: Named, place: str) -> Change:
        """Return the change of a message without prefixes. Raises UndecodableError."""
        key = message.key
        try:
            document = self._read_value(message.value)
            operation, written_us, row, written = self._facts.of(document)
            written = set(written)
            columns = self._columns.make(row)
            before, after = (
                None if image is None else self._columns.make(image)
                for image in self._facts.images(document)
            )
            mutation, index = self._facts.name_of(document)
            if mutation is None or index is None:
                mutation, index = _name_in(message.headers)
            own_key = None
            if key is not None and self._read_key is not None and self._key is not None:
                own_key = self._key.make(self._read_key(key))
        except (ValueError, EOFError, LookupError, TypeError, StopIteration) as error:
            # Without the message of the error, which may have a row's values.
            said = f"does not fit the schema of {self._schema.table} ({type(error).__name__})"
            hint = "are envelope, types, transforms and schema.framing those of the job?"
            raise UndecodableError(said, place=place, hint=hint) from error
        attributes = self._columns.attributes
        return Change(
            topic=message.topic,
            partition=message.partition,
            table=self._facts.table_of(document) or self._schema.table,
            operation=operation,
            timestamp_us=written_us,
            key=own_key,
            payload=columns,
            written=frozenset(
                attributes[name] for name in (attributes.keys() & written) - self._keys
            ),
            before=before,
            after=after,
            mutation=mutation,
            index=index,
            document=document,
            schema=self._schema,
            message=message,
        )


def _name_in(headers: Mapping[str, bytes]) -> Name:
    """Return the change's name from the headers of its message."""
    mutation, index = headers.get("mutation"), headers.get("index")
    if mutation is None or index is None:
        return None, None
    return bytes.fromhex(mutation.decode()), int(index)
