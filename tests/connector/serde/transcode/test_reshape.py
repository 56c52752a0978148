"""Changes from envelope to envelope, with generated schemas; real ones are in test_envelopes."""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.serde import Encoder, codec
from headrace.connector.serde.avro_types import definitions, standalone
from headrace.connector.serde.codecs.records import reader_of, writer_of
from headrace.connector.serde.shaping import Shaper
from headrace.plugins import (
    ConfigError,
    DebeziumSource,
    EncodedRecords,
    Encoding,
    NumberPosition,
    Operation,
    Origin,
    Record,
    RecordBatch,
    RecordSchema,
    SourceField,
)
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.model.envelopes import key_of, value_of

pytestmark = pytest.mark.hot

LONG = ["null", "long"]
CELL: Any = {
    "type": "record",
    "name": "col_m_cell",
    "fields": [
        {"name": "key", "type": "string"},
        {"name": "value", "type": ["null", "Decimal"]},
        {"name": "removed", "type": "boolean"},
        {"name": "timestampMicros", "type": "long"},
        {"name": "ttl", "type": ["null", "int"]},
        {"name": "expires", "type": LONG},
    ],
}
DECIMAL = {
    "type": "record",
    "name": "Decimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "unscaled", "type": "bytes"}],
}
MODE = {"type": "enum", "name": "CollectionMode", "symbols": ["replace", "merge"]}
MAP = {
    "type": "record",
    "name": "col_m",
    "cqlType": "map<text, decimal>",
    "fields": [
        {"name": "mode", "type": MODE},
        {"name": "deletedAt", "type": LONG},
        {"name": "cells", "type": {"type": "array", "items": CELL}},
    ],
}


def udt_cell(name: str, kind: Any) -> Any:  # noqa: ANN401 (Avro)
    """Return the type of a field of an unfrozen UDT."""
    fields = [{"name": "value", "type": ["null", kind]}, *CELL["fields"][2:]]
    return ["null", {"type": "record", "name": name, "fields": fields}]


UDT_FIELDS: Any = {
    "type": "record",
    "name": "col_u_fields",
    "fields": [
        {"name": "amount", "type": udt_cell("col_u_amount_cell", "Decimal")},
        {"name": "mode", "type": udt_cell("col_u_mode_cell", "float")},
    ],
}
UDT = {
    "type": "record",
    "name": "col_u",
    "cqlType": "money",
    "fields": [
        {"name": "mode", "type": "CollectionMode"},
        {"name": "deletedAt", "type": LONG},
        {"name": "fields", "type": UDT_FIELDS},
    ],
}
# A frozen UDT whose fields have the names of what is written cell by cell.
FROZEN = {
    "type": "record",
    "name": "col_z",
    "fields": [{"name": "mode", "type": ["null", "float"]}, {"name": "cells", "type": LONG}],
}
PAYLOAD = {
    "type": "record",
    "name": "Payload",
    "partitionKey": ["id"],
    "clustering": [],
    "static": [],
    "fields": [
        {"name": "id", "type": ["null", "int"]},
        {"name": "d", "type": ["null", DECIMAL]},
        {"name": "m", "type": ["null", MAP]},
        {"name": "r", "type": ["null", {"type": "array", "items": ["null", "double"]}]},
        {"name": "f", "type": ["null", "float"]},
        {"name": "u", "type": ["null", UDT]},
        {"name": "z", "type": ["null", FROZEN]},
    ],
}
NOTE = {
    "type": "record",
    "name": "CellNote",
    "fields": [
        {"name": "field", "type": "string"},
        {"name": "timestampMicros", "type": LONG},
        {"name": "ttl", "type": ["null", "int"]},
        {"name": "expires", "type": LONG},
        {"name": "isEmpty", "type": "boolean"},
    ],
}
BOUND = {
    "type": "record",
    "name": "Bound",
    "fields": [
        {"name": "values", "type": {"type": "record", "name": "Prefix", "fields": []}},
        {"name": "count", "type": "int"},
        {"name": "inclusive", "type": "boolean"},
    ],
}
RANGE = {
    "type": "record",
    "name": "Range",
    "fields": [
        {"name": "start", "type": ["null", BOUND]},
        {"name": "end", "type": ["null", "Bound"]},
    ],
}
OPERATIONS = [operation.value for operation in Operation]
FIELDS: dict[str, Any] = {
    "timestampMicros": "long",
    "operationType": {"type": "enum", "name": "OperationType", "symbols": OPERATIONS},
    "sourceKeyspace": "string",
    "sourceTable": "string",
    "truncatedFields": {"type": "array", "items": "string"},
    "isStatic": "boolean",
    "ttl": ["null", "int"],
    "expires": LONG,
    "updateFields": {"type": "array", "items": "string"},
    "payload": PAYLOAD,
    "cells": {"type": "array", "items": NOTE},
    "range": ["null", RANGE],
    "mutation": {"type": "fixed", "name": "MutationId", "size": 16},
    "index": "int",
    "of": "int",
    "copies": "int",
    "node": "string",
    "segment": "long",
    "position": "long",
}
SCHEMA = RecordSchema.of(
    "ks.t",
    "CREATE TABLE ks.t (…)",
    key={"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]},
    value={
        "type": "record",
        "name": "Change",
        "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
    },
)
IMAGE_SETS = ((), ("pre",), ("post",), ("pre", "post"))


@lru_cache
def imaged(*images: str) -> RecordSchema:
    """Return the schema of changes with these images behind their other fields."""
    image = {
        "type": "record",
        "name": "Image",
        "fields": [
            {"name": "payload", "type": "Payload"},
            {"name": "knownFields", "type": {"type": "array", "items": "string"}},
            {"name": "expires", "type": {"type": "array", "items": LONG}},
        ],
    }
    types = [image, "Image"]
    own = [{"name": n, "type": ["null", types[i]]} for i, n in enumerate(images)]
    value = {**SCHEMA.value, "fields": [*SCHEMA.value["fields"], *own]}
    return RecordSchema.of("ks.t", f"{SCHEMA.text} {images}", key=SCHEMA.key, value=value)


times = st.integers(-(2**63), 2**63 - 1)
decimals = st.builds(
    lambda scale, unscaled: {"scale": scale, "unscaled": unscaled},
    st.integers(-5, 25) | st.sampled_from([1_000, 2_000, -(2**31)]),
    st.binary(min_size=1, max_size=12),
)
cells = st.builds(
    lambda key, value, removed: {
        "key": key,
        "value": None if removed else value,
        "removed": removed,
        "timestampMicros": 5,
        "ttl": None,
        "expires": None,
    },
    st.text(max_size=3),
    st.none() | decimals,
    st.booleans(),
)

reals = st.floats() | st.sampled_from([2.0**63, -(2.0**63), 2.0**63 - 1024, -0.5, 1e300])
cell_lists = st.lists(cells, max_size=4, unique_by=lambda cell: cell["key"])
floats = st.floats(width=32)


def written_fields(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return cells of a UDT's field, or None where it was not written."""
    made = st.builds(lambda cell, value: {**cell, "value": cell["value"] and value}, cells, values)
    return st.none() | made.map(lambda cell: {k: v for k, v in cell.items() if k != "key"})


udts = st.fixed_dictionaries({
    "mode": st.sampled_from(["merge", "replace"]),
    "deletedAt": st.none() | times,
    "fields": st.fixed_dictionaries({
        "amount": written_fields(st.none() | decimals),
        "mode": written_fields(st.none() | floats),
    }),
})  # fmt: skip


columns_of_images = st.fixed_dictionaries({
    "d": st.none() | decimals,
    "m": st.none() | cell_lists.map(lambda c: {"mode": "replace", "deletedAt": None, "cells": c}),
    "r": st.none() | st.lists(st.none() | reals, max_size=4),
    "f": st.none() | floats,
    "u": st.none() | udts,
    "z": st.none() | st.builds(lambda f, n: {"mode": f, "cells": n}, floats, times),
})  # fmt: skip


@st.composite
def images_of(draw: st.DrawFn, key: int) -> Any:  # noqa: ANN401 (a document)
    """Return an image of a row, or None."""
    if draw(st.booleans()):
        return None
    known = draw(st.lists(st.sampled_from(["d", "m", "r", "f", "u", "z"]), unique=True))
    ends = [draw(st.none() | st.integers(1, 2**40)) for _ in known]
    payload = {"id": key} | draw(columns_of_images)
    return {"payload": payload, "knownFields": known, "expires": ends}


@st.composite
def changes(draw: st.DrawFn, images: Sequence[str] = ()) -> Record:
    """Return a change with any combination of features, and with these images."""
    written = draw(st.lists(st.sampled_from(["d", "m", "r", "f", "u", "z"]), unique=True))
    columns = {
        "d": draw(st.none() | decimals),
        "m": {"mode": "merge", "deletedAt": None, "cells": draw(cell_lists)},
        "r": draw(st.lists(st.none() | reals, max_size=4)) * draw(st.sampled_from([1, 500])),
        "f": draw(st.none() | st.floats(width=32)),
        "u": draw(udts),
        "z": draw(st.none() | st.builds(lambda f, n: {"mode": f, "cells": n}, floats, times)),
    }
    noted = draw(st.lists(st.sampled_from(written), unique=True)) if written else []
    lives = st.none() | st.integers(1, 2**40)
    timestamp = draw(times)
    key = draw(st.integers(-(2**31), 2**31 - 1))
    value = {
        "timestampMicros": timestamp,
        "operationType": draw(st.sampled_from(OPERATIONS)),
        "sourceKeyspace": "ks",
        "sourceTable": "t",
        "truncatedFields": [],
        "isStatic": draw(st.booleans()),
        "ttl": None,
        "expires": draw(lives),
        "updateFields": written,
        "payload": {"id": key, **{n: columns[n] if n in written else None for n in columns}},
        "cells": [
            {
                "field": name,
                "timestampMicros": draw(st.none() | times),
                "ttl": None,
                "expires": draw(lives),
                "isEmpty": False,
            }
            for name in noted
        ],
        "range": None,
        "mutation": draw(st.binary(min_size=16, max_size=16)),
        "index": draw(st.integers(0, 2**31 - 1)),
        "of": draw(st.integers(0, 2**31 - 1)),
        "copies": draw(st.integers(0, 9)),
        "node": draw(st.text(max_size=3)),
        "segment": draw(st.integers(0, 2**63 - 1)),
        "position": draw(st.integers(0, 2**63 - 1)),
        **{name: draw(images_of(key)) for name in images},
    }
    return Record(
        key={"id": key},
        value=value,
        operation=Operation(str(value["operationType"])),
        timestamp_us=timestamp,
        schema=imaged(*images),
    )


def batch_of(*records: Record) -> RecordBatch:
    """Return a batch."""
    return RecordBatch("all", NumberPosition(0), 0, list(records))


@given(
    made=st.sampled_from(IMAGE_SETS).flatmap(
        lambda images: st.lists(changes(images), min_size=1, max_size=3)
    ),
    envelope=st.sampled_from(["cep44", "flat", "debezium"]),
    types=st.sampled_from(["lossless", "cep44"]),
)
def test_any_change_is_what_the_model_says(made: list[Record], envelope: str, types: str) -> None:
    """The result is, byte for byte, what fastavro writes of the model's dictionaries."""
    types = "lossless" if envelope == "debezium" else types
    wanted = Encoding(codec="avro", envelope=envelope, types=types, key="primary")
    schema = Shaper(wanted, ORIGIN).schema(made[0].schema)

    found = Encoder(wanted, ORIGIN).encode(batch_of(*made), token=1)

    assert () == tuple(found.quarantined)
    for key, value, record in zip(found.keys, found.values, made, strict=True):
        assert written(schema.key, key_of(record, wanted)) == key
        assert written(schema.value, value_of(record, wanted)) == value


def written(schema: Any, datum: Any) -> bytes:  # noqa: ANN401 (any Avro)
    """Return what fastavro writes."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema), {}), datum)
    return out.getvalue()


@given(
    record=st.sampled_from(IMAGE_SETS).flatmap(changes),
    envelope=st.sampled_from(["flat", "debezium"]),
    data=st.data(),
)
def test_damaged_bytes_are_quarantined_alone(
    record: Record, envelope: str, data: st.DataObject
) -> None:
    """Damaged bytes give an error or other bytes, and affect no other record."""
    shaper = Shaper(Encoding(codec="avro", envelope=envelope, tombstones=True), ORIGIN)
    shaper.schema(record.schema)
    whole = codec("avro").encode(batch_of(record, record))
    value = whole.values[0]
    cut = value[: data.draw(st.integers(0, len(value) - 1))]
    place = data.draw(st.integers(0, len(value) - 1))
    other = value[:place] + data.draw(st.binary(min_size=1, max_size=9)) + value[place + 1 :]
    for bad in (cut, other, value + b"\0"):
        given_back = type(whole)(whole.keys, [bad, value], whole.headers, whole.tables)
        found = shaper.reshape(given_back)
        assert 2 == len(found) + len(found.quarantined)
        assert found.values[-1] == shaper.reshape(whole).values[0]
        assert {"bad_avro"} >= {lost.code for lost in found.quarantined}
    lost = shaper.reshape(type(whole)(whole.keys, [cut, value], whole.headers, whole.tables))
    assert [cut] == [each.content for each in lost.quarantined]


@given(
    record=st.sampled_from(IMAGE_SETS).flatmap(changes),
    envelope=st.sampled_from(["cep44", "flat", "debezium"]),
    data=st.data(),
)
def test_columns_begin_where_the_source_says(
    record: Record, envelope: str, data: st.DataObject
) -> None:
    """With starts of columns messages are the same; wrong ones affect no other change."""
    types = "lossless" if envelope == "debezium" else "cep44"
    wanted = Encoding(codec="avro", envelope=envelope, types=types, key="primary")
    shaper = Shaper(wanted, ORIGIN)
    shaper.schema(record.schema)
    whole = codec("avro").encode(batch_of(record, record))
    starts = starts_of(record)
    unknown = [-1] * len(starts)
    wrong = list(starts)
    place = data.draw(st.integers(0, len(wrong) - 1))
    wrong[place] = data.draw(st.integers(0, 2 * len(whole.values[0])))

    def shaped(*given: list[int]) -> EncodedRecords:
        column = memoryview(array("i", [start for each in given for start in each]))
        return shaper.reshape(msgspec.structs.replace(whole, starts=column))

    assert shaper.reshape(whole) == shaped(starts, unknown) == shaped(unknown, starts)
    found = shaped(wrong, starts)
    assert found.values[-1] == shaped(starts, starts).values[1]
    assert {"bad_avro"} >= {lost.code for lost in found.quarantined}


def starts_of(record: Record) -> list[int]:
    """Return where fastavro writes the columns of a change, and where the last ends."""
    known = definitions(record.schema.value)
    starts, at = [], 0
    for field in record.schema.value["fields"]:
        kind = field["type"]
        if field["name"] != "payload":
            at += len(writer_of(standalone(kind, known, set()))(record.value[field["name"]]))
            continue
        for column in kind["fields"]:
            starts.append(at)
            write = writer_of(standalone(column["type"], known, set()))
            at += len(write(record.value["payload"][column["name"]]))
        return [*starts, at]
    raise AssertionError("a change has a payload")


def test_readers_return_strings_for_uuids() -> None:
    """Readers return a UUID as a string, which every format can have."""
    schema = {"type": "string", "logicalType": "uuid"}
    text = "0e0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a"

    assert text == reader_of(schema)(b"\x48" + text.encode())


@given(record=changes(), size=st.sampled_from([0, 3, 5_000]))
def test_a_source_says_what_debezium_has_of_it(record: Record, size: int) -> None:
    """Debezium's `source` fields are copied, also twice, or written as digits, or are empty."""
    record = record.changed(value={**record.value, "node": "n" * size})
    again = [SourceField(name=f"again{number}", of="node") for number in range(9)]
    reported = DebeziumSource(
        connector="toy",
        db="d",
        name="segment",
        fields=(
            SourceField(name="written", of="timestampMicros", as_text=True),
            *again,
            SourceField(name="pos", of="position"),
            SourceField(name="nothing"),
        ),
    )
    wanted = Encoding(codec="avro", envelope="debezium")
    origin = Origin(debezium=reported)
    encoder, shaper = Encoder(wanted, origin), Shaper(wanted, origin)
    (made,) = encoder.encode(batch_of(record), token=1).values
    schema: Any = fastavro.parse_schema(dict(shaper.schema(SCHEMA).value), {})
    found: Any = fastavro.schemaless_reader(BytesIO(made), schema, None)

    source, value = found["source"], record.value
    assert ("toy", str(value["segment"]), "d") == (
        source["connector"],
        source["name"],
        source["db"],
    )
    assert str(value["timestampMicros"]) == source["written"]
    assert {"n" * size} == {source[each.name] for each in again}
    assert (value["position"], "") == (source["pos"], source["nothing"])


def test_a_field_that_changes_do_not_have_is_refused() -> None:
    """If Debezium's `source` needs a field that changes do not have, the plugin is refused."""
    reported = DebeziumSource(fields=(SourceField(name="pos", of="place"),))
    shaper = Shaper(Encoding(codec="avro", envelope="debezium"), Origin(debezium=reported))

    with pytest.raises(ConfigError, match="wants 'place' in 'pos'"):
        shaper.schema(SCHEMA)
