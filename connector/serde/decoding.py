"""Decodes stored messages to documents, by the schema that their header names."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro

from headrace.connector.serde.large import ClaimLostError, resolved
from headrace.connector.serde.schemas.lookup import SchemaUnknownError
from headrace.plugins import BadRecordError, Document, Stored
from headrace.plugins.records.codecs import CLAIM_HEADER, SCHEMA_ID_HEADER


class UndecodableError(BadRecordError):
    """A stored message does not fit its schema."""

    code = "undecodable"


class Decoder:
    """Decodes the values of messages; has the schemas, as parsed Avro schemas by id."""

    def __init__(
        self,
        schemas: Mapping[bytes, Document],
        *,
        codec: str,
        prefix_bytes: int = 0,
        claims: Path | None = None,
    ) -> None:
        """*codec* is `avro` or `json`, the format of values after a prefix of some bytes.

        *claims* is the folder of the claim store.
        """
        self._claims = claims
        self._prefix_bytes = prefix_bytes
        self._given = schemas
        self._codec = codec
        self._parsed: dict[bytes, Any] = {}  # Any: fastavro's form.

    def value(self, stored: Stored) -> Document | None:
        """Return a message's value; None for a tombstone.

        Raises:
            SchemaUnknownError: its schema is not among those given.
            UndecodableError: it does not fit its schema, or a claim store has it that is not read.

        """
        if stored.value is None:
            return None
        headers = dict(stored.headers)
        value = self._resolved(stored, stored.value, headers)[self._prefix_bytes :]
        try:
            if self._codec == "json":
                document: Document = json.loads(value)
                return document
            return self._avro(value, headers.get(SCHEMA_ID_HEADER, b""))
        except (ValueError, EOFError, IndexError, TypeError, StopIteration) as error:
            raise UndecodableError(
                f"{type(error).__name__}: {error}", place=f"message {stored.place}"
            ) from error

    def _resolved(self, stored: Stored, value: bytes, headers: Mapping[str, bytes]) -> bytes:
        """Return the value of a message, also if it is in a claim store."""
        if CLAIM_HEADER not in headers:
            return value
        place = f"message {stored.place}"
        if self._claims is None:
            raise UndecodableError("is kept in a claim store that is not read back", place=place)
        try:
            return resolved(value, headers, self._claims)
        except ClaimLostError as error:
            raise UndecodableError(str(error), place=place) from error

    def _avro(self, value: bytes, schema_id: bytes) -> Document:
        parsed = self._parsed.get(schema_id)
        if parsed is None:
            if schema_id not in self._given:
                hint = "give the job that wrote the message, with its state"
                raise SchemaUnknownError(f"no schema has the id {schema_id.hex()!r}", hint=hint)
            # All versions of a table use the same names, so each schema has its own namespace.
            parsed = fastavro.parse_schema(dict(self._given[schema_id]), named_schemas={})
            self._parsed[schema_id] = parsed
        content = io.BytesIO(value)
        document: dict[str, Any] = fastavro.schemaless_reader(content, parsed, None)  # type: ignore[assignment]  # A record's.
        return document
