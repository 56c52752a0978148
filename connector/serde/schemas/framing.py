"""Frames messages: puts the number of the schema in a schema store before key and value.

Also handles records whose schema the store refused. For the data thread.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.serde.codecs.records import origin_of
from headrace.connector.serde.schemas.publishing import (
    Publisher,
    SchemaIncompatibleError,
    incompatible,
)
from headrace.connector.stores import Publication
from headrace.plugins import EncodedRecords, FatalError, Headers, Quarantined, RecordSchema

_PREFIX: Final = struct.Struct(">bI")  # A zero byte, and the number.
_GUID: Final = b"\x01"
_STAGE: Final = "VALUE_CONVERTER"


class NoGuidError(FatalError):
    """`confluent-headers` needs a guid for each schema, but the schema store has none."""

    code = "schema_guid"


class Framing:
    """Publishes schemas, and frames messages in the *form* given."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        form: str,
        on_incompatible: str,
        parts: Sequence[str],
    ) -> None:
        """*parts* are the parts in Avro: `key`, `value`, or both. Only these are framed."""
        self._publisher = publisher
        self._form = form
        self._on_incompatible = on_incompatible
        self._parts = parts
        self._prefixes: dict[tuple[bytes, str], bytes] = {}
        self._headers: dict[bytes, Headers] = {}

    def announce(self, schemas: Sequence[RecordSchema]) -> None:
        """Queue schemas for publishing."""
        self._publisher.announce(schemas, self._parts)

    def close(self) -> None:
        """Stop publishing; queued schemas stay queued."""
        self._publisher.close()

    def apply(self, encoded: EncodedRecords) -> EncodedRecords:
        """Return *encoded* framed.

        Raises:
            SchemaUnpublishedError: a schema has no number yet; try again.
            NoGuidError: the store has no guids.

        """
        if self._form == "confluent":
            return self._prefixed(encoded)
        if self._form == "confluent-headers":
            return self._headed(encoded)
        return encoded

    def accepted(self, encoded: EncodedRecords) -> EncodedRecords:
        """Return *encoded*, in its batch's encoding, without records whose schema was refused.

        Raises:
            SchemaIncompatibleError: a schema was refused, and the options say to stop.
            SchemaUnpublishedError: a schema was refused before a restart, and the store is asked
                again.

        """
        schema_ids = {headers[0][1] for headers in encoded.headers}
        refused = {i: why for i in schema_ids if (why := self._publisher.refusal(i))}
        return self._without(encoded, refused) if refused else encoded

    def _without(
        self, encoded: EncodedRecords, refused: Mapping[bytes, Publication]
    ) -> EncodedRecords:
        if self._on_incompatible != "dlq":
            index = next(i for i, headers in enumerate(encoded.headers) if headers[0][1] in refused)
            raise incompatible(encoded.tables[index], refused[encoded.headers[index][0][1]])
        keep = [i for i, headers in enumerate(encoded.headers) if headers[0][1] not in refused]
        kept = set(keep)
        sums = encoded.sums()
        lost = [
            Quarantined(
                place=encoded.tables[index],
                code=SchemaIncompatibleError.code,
                message=refused[encoded.headers[index][0][1]].problem,
                content=encoded.values[index],
                stage=_STAGE,
                origin=origin_of(
                    encoded.tables[index], encoded.headers[index][0][1], encoded.keys[index]
                ),
                checksum=sums[index],
            )
            for index in range(len(encoded))
            if index not in kept
        ]
        return msgspec.structs.replace(
            encoded.chosen(keep), quarantined=[*encoded.quarantined, *lost]
        )

    def _prefixed(self, encoded: EncodedRecords) -> EncodedRecords:
        keys: list[bytes | None] = list(encoded.keys)
        values = list(encoded.values)
        before: Headers | None = None
        key_prefix = value_prefix = b""
        for index, headers in enumerate(encoded.headers):
            if headers is not before:
                before = headers
                schema_id = headers[0][1]
                key_prefix = self._prefix(schema_id, "key")
                value_prefix = self._prefix(schema_id, "value")
            key = keys[index]
            if key is not None:
                keys[index] = key_prefix + key
            values[index] = value_prefix + values[index]
        return msgspec.structs.replace(encoded, keys=keys, values=values)

    def _prefix(self, schema_id: bytes, part: str) -> bytes:
        prefix = self._prefixes.get((schema_id, part))
        if prefix is None:
            prefix = b""
            if part in self._parts:
                outcome = self._publisher.outcome(schema_id, part)
                if outcome is None or outcome.number is None:
                    raise self._publisher.unpublished(schema_id)
                prefix = _PREFIX.pack(0, outcome.number)
            self._prefixes[schema_id, part] = prefix
        return prefix

    def _headed(self, encoded: EncodedRecords) -> EncodedRecords:
        given: list[Headers] = []
        before: Headers | None = None
        made: Headers = ()
        for headers in encoded.headers:
            if headers is not before:
                before = headers
                made = headers + self._guids(headers[0][1])
            given.append(made)
        return msgspec.structs.replace(encoded, headers=given)

    def _guids(self, schema_id: bytes) -> Headers:
        made = self._headers.get(schema_id)
        if made is None:
            named = []
            for part in self._parts:
                outcome = self._publisher.outcome(schema_id, part)
                if outcome is None:
                    raise self._publisher.unpublished(schema_id)
                if outcome.guid is None:
                    hint = "choose schema.framing: confluent"
                    raise NoGuidError("the schema store gives no guid", hint=hint)
                named.append((f"__{part}_schema_id", _GUID + outcome.guid))
            made = self._headers[schema_id] = tuple(named)
        return made
