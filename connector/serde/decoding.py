"""Decodes stored messages to documents, with the schema that their header names."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import fastavro

from headrace.connector.foundation.sink_stores import read_claim_store_of
from headrace.connector.serde.large import ClaimLostError, claimed
from headrace.connector.serde.schemas.lookup import SchemaUnknownError
from headrace.plugins import BadRecordError, ClaimStore, Document, Sink, SinkOptions, Stored
from headrace.plugins.records.codecs import CLAIM_HEADER, SCHEMA_ID_HEADER

CONFLUENT_PREFIX_BYTES: Final = 5


class UndecodableError(BadRecordError):
    """A stored message does not fit its schema."""

    code = "undecodable"


class Decoder:
    """Decodes the values of messages with parsed Avro schemas, by id."""

    def __init__(
        self,
        schemas: Mapping[bytes, Document],
        *,
        codec: str,
        prefix_bytes: int = 0,
        claims: ClaimStore | None = None,
    ) -> None:
        """*codec* is the values' format, `avro` or `json`, after a prefix of some bytes.

        *claims* is the claim store, if it is read.
        """
        self._claims = claims
        self.prefix_bytes = prefix_bytes
        """The bytes of framing before a value."""
        self._given = schemas
        self._codec = codec
        self._parsed: dict[bytes, Any] = {}  # Any: fastavro's form.

    @classmethod
    def of(cls, sink: Sink, schemas: Mapping[bytes, Document], folder: Path) -> Self:
        """Return a decoder for the output of *sink*; its paths are relative to *folder*."""
        options = sink.config if hasattr(sink, "config") else None
        claims = read_claim_store_of(options, folder) if isinstance(options, SinkOptions) else None
        _, prefix_bytes = prefixes_of(sink)
        codec = sink.encoding().codec
        return cls(schemas, codec=codec, prefix_bytes=prefix_bytes, claims=claims)

    def value(self, stored: Stored) -> Document | None:
        """Return a message's value, or None for a tombstone.

        Raises:
            SchemaUnknownError: its schema is not among those given.
            UndecodableError: it does not fit its schema, or its claim store is not read.

        """
        if stored.value is None:
            return None
        headers = dict(stored.headers)
        value = self.content(stored, stored.value, headers)
        try:
            if self._codec == "json":
                document: Document = json.loads(value)
                return document
            return self._avro(value, headers.get(SCHEMA_ID_HEADER, b""))
        except (ValueError, EOFError, IndexError, TypeError, StopIteration) as error:
            raise UndecodableError(
                f"{type(error).__name__}: {error}", place=f"message {stored.place}"
            ) from error

    def content(self, stored: Stored, value: bytes, headers: Mapping[str, bytes]) -> bytes:
        """Return a message's value without prefix, even if it is in a claim store.

        Raises:
            UndecodableError: its claim store is not read.

        """
        if CLAIM_HEADER not in headers:
            return value[self.prefix_bytes :] if self.prefix_bytes else value
        place = f"message {stored.place}"
        try:
            return self.whole(value, headers, place)[self.prefix_bytes :]
        except ClaimLostError as error:
            raise UndecodableError(str(error), place=place) from error

    def whole(self, value: bytes, headers: Mapping[str, bytes], place: str) -> bytes:
        """Return a message's value with its prefix, even from a claim store.

        Raises:
            UndecodableError: the claim store was not named.
            ClaimLostError: the claim store does not have it; or another RetriableError from a
                plugin's store.
            MissingRequirementError: the claim store of a plugin cannot be read.

        """
        if CLAIM_HEADER not in headers:
            return value
        if self._claims is None:
            raise UndecodableError("is kept in a claim store that is not read back", place=place)
        return claimed(value, self._claims)

    def _avro(self, value: bytes, schema_id: bytes) -> Document:
        parsed = self._parsed.get(schema_id)
        if parsed is None:
            if schema_id not in self._given:
                hint = "give the job that wrote the message, with its state"
                raise SchemaUnknownError(f"no schema has the id {schema_id.hex()!r}", hint=hint)
            # All versions of a table have the same names, so each schema has its own namespace.
            parsed = fastavro.parse_schema(dict(self._given[schema_id]), named_schemas={})
            self._parsed[schema_id] = parsed
        content = io.BytesIO(value)
        document: dict[str, Any] = fastavro.schemaless_reader(content, parsed, None)  # type: ignore[assignment]  # A record's.
        return document


def prefixes_of(sink: Sink) -> tuple[int, int]:
    """Return the number of bytes of framing before keys and before values."""
    options = sink.config if hasattr(sink, "config") else None
    if not isinstance(options, SinkOptions) or options.schema_framing != "confluent":
        return 0, 0
    wanted = sink.encoding()
    formats = (wanted.key_codec or wanted.codec, wanted.codec)
    key, value = (CONFLUENT_PREFIX_BYTES if name == "avro" else 0 for name in formats)
    return key, value
