"""Reads from a message which change it contains: its table and its name.

The name is the id of its mutation, 16 bytes, and its index there. All copies of a change have the
same name, in each envelope and format, and however often it was sent.
"""

from base64 import b64decode
from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.connector.serde.conversion import piece_of
from headrace.connector.serde.decoding import Decoder, UndecodableError
from headrace.connector.serde.encoder import Encoder
from headrace.connector.serde.transcode.names import NameReader
from headrace.plugins import (
    NO_ORIGIN,
    BadRecordError,
    ConfigError,
    Encoding,
    Headers,
    Origin,
    Problem,
    RecordSchema,
    Stored,
)
from headrace.plugins.records.codecs import (
    CLAIM_HEADER,
    CONTROL_HEADER,
    RUN_HEADER,
    SCHEMA_ID_HEADER,
)
from headrace.plugins.records.record import MUTATION_ID_BYTES

_FLAT: Final = "flat"
_FORMATS: Final = ("avro", "json")
_FIELDS: Final = ("mutation", "index")
_FLAT_FIELDS: Final = ("__mutation", "__index")
_INDEX_BYTES: Final = 4
NAME_BYTES: Final = MUTATION_ID_BYTES + _INDEX_BYTES
_HASH_BYTES: Final = 8
_HASH_MASK: Final = (1 << 64) - 1
_INDEX_FACTOR: Final = 0x9E3779B97F4A7C15  # Spreads small numbers over 64 bits.
_HEADERS_MAX: Final = 1_000  # The number of different headers to cache.
_NO_CHANGES: Final = frozenset({CONTROL_HEADER, RUN_HEADER})


ChangeName = tuple[str, bytes]
"""The table of a change, and its name: 20 bytes."""


def name_of(mutation: bytes, index: int) -> bytes:
    """Return the name of one change: its mutation and its index there."""
    return mutation + index.to_bytes(_INDEX_BYTES, "big")


def hash_of(name: bytes) -> int:
    """Return 64 bits of a name, which is already a hash except for the index."""
    index = int.from_bytes(name[MUTATION_ID_BYTES:], "big")
    return int.from_bytes(name[:_HASH_BYTES], "big") ^ (index * _INDEX_FACTOR & _HASH_MASK)


class _Document(msgspec.Struct, rename="camel"):
    """The fields that identify a change in JSON."""

    mutation: str
    index: int
    table: str = ""
    source_keyspace: str = ""
    source_table: str = ""


class _Row(msgspec.Struct, rename="__{}".format):
    """The same for the envelope `flat`, whose other fields are the columns of the table."""

    mutation: str
    index: int
    table: str = ""
    source_keyspace: str = ""
    source_table: str = ""


class ChangeNames:
    """Reads the names of changes sent by one job. For one thread."""

    def __init__(
        self,
        wanted: Encoding,
        encoder: Encoder,
        schemas: Iterable[RecordSchema],
        decoder: Decoder,
        *,
        origin: Origin = NO_ORIGIN,
    ) -> None:
        """*schemas* are known to the job; *encoder* and *decoder* are for its sink.

        *origin* is that of its source.

        Raises:
            ConfigError: the job's messages do not identify their changes.

        """
        if wanted.codec not in _FORMATS:
            hint = "messages in other formats cannot be read back"
            message = f"expected {' or '.join(_FORMATS)}, found {wanted.codec}"
            raise ConfigError([Problem("sink.format", message, hint)])
        self._decoder = decoder
        self._tables: dict[bytes, str] = {}
        self._readers: dict[bytes, tuple[str, NameReader]] = {}
        # By all headers of a message: few differ.
        self._whole: dict[Headers, tuple[str, NameReader]] = {}
        fields = _FLAT_FIELDS if wanted.envelope == _FLAT else _FIELDS
        is_avro = wanted.codec == _FORMATS[0]
        for schema in schemas:
            try:
                shaped = encoder.schema(schema)
            except BadRecordError:  # Its records are dead-lettered.
                continue
            names = [field["name"] for field in shaped.value.get("fields", ())]
            if not set(fields) <= set(names):
                hint = "the envelopes cep44 and flat have them, unless a transform removes them"
                message = f"messages of {schema.table} have no {' and '.join(fields)}"
                raise ConfigError([Problem("sink", message, hint)])
            self._tables[schema.schema_id] = schema.table
            if is_avro:
                mutation, index = map(names.index, fields)
                pieces = piece_of(shaped.value).parts
                reader = NameReader(pieces, mutation=mutation, index=index)
                self._readers[schema.schema_id] = schema.table, reader
        # Without headers, these fields show that a row was read from a table.
        prefix = "__" if wanted.envelope == _FLAT else ""
        self._of_table = {f"{prefix}{name}": each for name, each in origin.of_table.items()}
        kind = _Row if wanted.envelope == _FLAT else _Document
        self._json: msgspec.json.Decoder[_Row | _Document] | None = None
        if not is_avro:
            self._json = msgspec.json.Decoder(kind)

    def of(self, stored: Stored) -> ChangeName | None:
        """Return the name of a message's change.

        It is None for a tombstone, a control record, and a message of a replay or a snapshot.

        Raises:
            BadRecordError: this job cannot have sent it.

        """
        value = stored.value
        if value is None:
            return None
        known = self._whole.get(stored.headers)
        if known is not None:
            table, reader = known
            return table, reader.of(value, self._decoder.prefix_bytes)
        headers = dict(stored.headers)
        if not _NO_CHANGES.isdisjoint(headers):
            return None
        content = self._decoder.content(stored, value, headers)
        schema_id = headers.get(SCHEMA_ID_HEADER, b"")
        if self._json is not None:
            if not headers and self._is_of_table(content):
                return None
            return self._of_json(content, stored, self._tables.get(schema_id, ""))
        found = self._readers.get(schema_id)
        if found is None:
            message = f"the job has no schema with the id {schema_id.hex()!r}"
            raise UndecodableError(message, place=f"message {stored.place}")
        if CLAIM_HEADER not in headers:
            if len(self._whole) >= _HEADERS_MAX:
                self._whole.clear()
            self._whole[stored.headers] = found
        table, reader = found
        return table, reader.of(content, 0)

    def _is_of_table(self, content: bytes) -> bool:
        """Return whether a change was read from a table, which only JSON can show."""
        expected = self._of_table
        try:
            document: object = msgspec.json.decode(content) if expected else None
        except msgspec.DecodeError:
            return False
        if not isinstance(document, dict):
            return False
        return all(document.get(name) == each for name, each in expected.items())

    def _of_json(self, content: bytes, stored: Stored, table: str) -> ChangeName:
        assert self._json is not None  # noqa: S101 (called for JSON only)
        try:
            found = self._json.decode(content)
            text = found.mutation
            is_hex = len(text) == 2 * MUTATION_ID_BYTES
            mutation = bytes.fromhex(text) if is_hex else b64decode(text, validate=True)
            name = name_of(mutation, found.index)
        except (msgspec.DecodeError, ValueError, OverflowError) as error:
            said = f"{type(error).__name__}: {error}"
            raise UndecodableError(said, place=f"message {stored.place}") from error
        table = table or found.table
        if not table and found.source_table:
            table = f"{found.source_keyspace}.{found.source_table}"
        if not table:
            said = "neither a header nor a field names its table"
            raise UndecodableError(said, place=f"message {stored.place}")
        return table, name
