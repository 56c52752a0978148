"""The name of a change is read from its bytes as a decoder of Avro reads it."""

from io import BytesIO
from typing import Any

import fastavro
import pytest

from headrace.connector.serde import Encoder
from headrace.connector.serde.conversion import piece_of
from headrace.connector.serde.transcode.names import NameReader
from headrace.connector.serde.transcode.walk import BadAvroError
from headrace.plugins import Encoding, RecordSchema
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.recordings.batches import recorded_batches

pytestmark = pytest.mark.hot

FIELDS = {"cep44": ("mutation", "index"), "flat": ("__mutation", "__index")}


@pytest.mark.parametrize("envelope", FIELDS)
@pytest.mark.parametrize("recording", ["5.0-types", "4.1-ops"])
def test_names_are_those_of_the_decoded_values(recording: str, envelope: str) -> None:
    """Mutation and index are those that fastavro decodes; a value that is cut is an error."""
    encoder = Encoder(Encoding(codec="avro", envelope=envelope), ORIGIN)
    mutation, index = FIELDS[envelope]
    schemas: dict[bytes, RecordSchema] = {}
    parsed: dict[bytes, Any] = {}  # Any: fastavro's form of a schema.
    readers: dict[bytes, NameReader] = {}
    count = 0
    for batch in recorded_batches(recording):
        schemas |= {schema.schema_id: encoder.schema(schema) for schema in batch.schemas()}
        parsed |= {
            each: fastavro.parse_schema(dict(schema.value), named_schemas={})
            for each, schema in schemas.items()
        }
        encoded = encoder.encode(batch, token=1)
        for value, headers in zip(encoded.values, encoded.headers, strict=True):
            schema_id = headers[0][1]
            if schema_id not in readers:
                schema = schemas[schema_id].value
                names = [field["name"] for field in schema["fields"]]
                places = {"mutation": names.index(mutation), "index": names.index(index)}
                readers[schema_id] = NameReader(piece_of(schema).parts, **places)
            reader, known = readers[schema_id], parsed[schema_id]
            document = fastavro.schemaless_reader(BytesIO(value), known, None)
            assert isinstance(document, dict)
            expected = document[mutation] + document[index].to_bytes(4, "big")
            assert expected == reader.of(value, 0) == reader.of(b"framing" + value, 7)
            with pytest.raises(BadAvroError):
                reader.of(value[: len(value) // 3], 0)
            count += 1
    assert 50 < count


def test_a_value_that_is_cut_anywhere_is_an_error() -> None:
    """A change of which only a beginning is there is never taken for a whole one."""
    encoder = Encoder(Encoding(codec="avro", envelope="cep44"), ORIGIN)
    (batch, *_) = recorded_batches("5.0-types")
    encoded = encoder.encode(batch, token=1)
    schema_id = encoded.headers[0][0][1]
    (schema,) = [each.value for each in batch.schemas() if each.schema_id == schema_id]
    names = [field["name"] for field in schema["fields"]]
    reader = NameReader(
        piece_of(schema).parts, mutation=names.index("mutation"), index=len(names) - 1
    )
    value = encoded.values[0]
    for size in range(len(value)):
        with pytest.raises(BadAvroError):
            reader.of(value[:size], 0)
