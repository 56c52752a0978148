"""The changes of a recording, as bytes."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.connector.serde import Encoder
from headrace.plugins import Encoding, RecordSchema
from helpers.recordings.batches import recorded_batches

Written = Mapping[str, Any]  # Any: a change, decoded.


class RecordedChange(NamedTuple):
    """A change in the envelope `cep44`, in Avro."""

    schema: RecordSchema
    content: bytes


def recorded_changes(name: str) -> Iterator[RecordedChange]:
    """Yield all changes of a recording, in its order."""
    schemas: dict[bytes, RecordSchema] = {}
    for batch in recorded_batches(name):
        encoded = Encoder(Encoding(codec="avro", envelope="cep44")).encode(batch, token=1)
        schemas |= {each.schema_id: each for each in batch.schemas()}
        for content, headers in zip(encoded.values, encoded.headers, strict=True):
            yield RecordedChange(schemas[dict(headers)["schemaId"]], content)
