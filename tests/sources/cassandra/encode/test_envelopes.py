"""Changes of real nodes in every envelope: Avro, JSON and a third format say the same."""

import base64
import json
import math
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest

from headrace.connector.serde import Encoder
from headrace.connector.serde.shaping import Shaper
from headrace.plugins import Codec, Document, EncodedRecords, Encoding, Record
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.model.envelopes import is_buried, key_of, value_of
from helpers.recordings.batches import recorded_batches
from helpers.settings.filled import filled
from helpers.settings.pairs import pairs
from helpers.settings.seeds import soaked

RECORDINGS = ("4.1-ops", "5.0-types")
ENVELOPES = ("cep44", "debezium", "flat")
FORMS = (*(f"{each} lossless" for each in ENVELOPES), "cep44 cep44", "flat cep44")
FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
ENTRY_POINTS = "[headrace.codecs]\nmsgpack = test_envelopes_codec:PackCodec\n"
MODULE = '''
import msgspec
from headrace.plugins import BadRecordError, Codec


class PackCodec(Codec):
    """MessagePack, as somebody else would write it."""

    def key(self, record):
        return None if record.key is None else msgspec.msgpack.encode(record.key)

    def value(self, record):
        return msgspec.msgpack.encode(record.value)
'''
Json = Any


def from_json(schema: Json, datum: Json, known: dict[str, Json]) -> Json:
    """Decode JSON as a reader with the schema does."""
    if isinstance(schema, list):
        return None if datum is None else from_json(schema[1], datum, known)
    kind = schema if isinstance(schema, str) else schema["type"]
    schema = known.get(kind, schema)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(schema, dict) and "name" in schema:
        known[schema["name"]] = schema
    match kind:
        case "bytes" | "fixed":
            datum = base64.b64decode(datum)
        case "float" | "double":
            datum = FLOATS.get(datum, datum)
        case "array":
            datum = [from_json(schema["items"], each, known) for each in datum]
        case "map":
            datum = {k: from_json(schema["values"], each, known) for k, each in datum.items()}
        case "record":
            fields = [(f["name"], f["type"]) for f in schema["fields"]]
            datum = {name: from_json(part, datum[name], known) for name, part in fields}
    return datum


def from_avro(schema: Document, content: bytes) -> Json:
    """Return what an Avro reader makes of bytes, with strings for uuids."""
    return plain(fastavro.schemaless_reader(BytesIO(content), dict(schema), None))


def plain(value: Json) -> Json:
    """Return a datum in which NaN equals itself."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    return value if value is None or isinstance(value, int | bytes) else str(value)


def encoded(name: str, **wanted: Any) -> tuple[EncodedRecords, list[Record]]:  # noqa: ANN401
    """Return a recording's records in the wanted form, and as they were."""
    encoder = Encoder(Encoding(**wanted), ORIGIN)
    (batch,) = recorded_batches(name)
    return encoder.encode(batch, token=1), list(filled(batch.records()))


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_fields_of_an_unfrozen_udt_come_by_name(envelope: str) -> None:
    """A node's `ud` (int, text, list<int>) is in Avro and JSON what change JSON has of it."""
    avro, records = encoded("5.0-ops", codec="avro", envelope=envelope)
    texts, _ = encoded("5.0-ops", codec="json", envelope=envelope)
    shaper = Shaper(Encoding(codec="avro", envelope=envelope), ORIGIN)
    reported = 0
    for value, text, record in zip(avro.values, texts.values, records, strict=True):
        column = record.document().get("columns", {}).get("ud")
        if column is None:
            continue
        found = from_avro(shaper.schema(record.schema).value, value)
        for message in (found, json.loads(text)):
            row = (
                message["after" if envelope == "debezium" else "payload"]
                if (envelope != "flat")
                else message
            )
            assert (column["value"] or {}) == written_of(row["ud"])
        reported += bool(column["value"])
    assert reported > 3


def written_of(udt: Json) -> Json:
    """Return the fields that a message gives values, by name."""
    if "value" in udt:  # Debezium's
        return {name: each for name, each in (udt["value"] or {}).items() if each is not None}
    cells = udt["fields"].items()
    return {name: cell["value"] for name, cell in cells if cell and not cell["removed"]}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "envelope", "types"),
    [
        *(("5.0-types", envelope, "lossless") for envelope in ENVELOPES),
        ("5.0-types", "flat", "cep44"),
        ("4.1-ops", "cep44", "lossless"),
        *soaked(
            ("4.1-ops", "debezium", "lossless"),
            ("4.1-ops", "flat", "lossless"),
            ("5.0-types", "cep44", "cep44"),
        ),
    ],
)
def test_avro_and_json_have_equal_content(name: str, envelope: str, types: str) -> None:
    """O05: key and value of every change are the same data in both, and fit their schemas."""
    form: dict[str, Any] = {"envelope": envelope, "types": types, "key": "primary"}
    avro, records = encoded(name, codec="avro", **form)
    texts, _ = encoded(name, codec="json", **form)
    shaper = Shaper(Encoding(codec="avro", **form), ORIGIN)

    assert len(records) == len(avro) == len(texts) > 40
    assert () == tuple(avro.quarantined) == tuple(texts.quarantined)
    for index, record in enumerate(records):
        schema = shaper.schema(record.schema)
        for part, left, right in (
            (schema.key, avro.keys[index], texts.keys[index]),
            (schema.value, avro.values[index], texts.values[index]),
        ):
            assert left is not None
            assert right is not None
            floats = from_json(part, json.loads(right), {})
            single = from_avro(part, left)
            assert rounded(single) == rounded(plain(floats))


def rounded(value: Json) -> Json:
    """Return a datum whose numbers have the digits that the shortest text of a float has."""
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return f"{value:.6g}" if isinstance(value, float) else value


@pytest.mark.soak
@pytest.mark.parametrize(
    ("form", "key", "name"), pairs(FORMS, ("partition", "primary"), RECORDINGS)
)
def test_what_is_made_of_bytes_is_what_is_made_of_dictionaries(
    form: str, key: str, name: str
) -> None:
    """Keys, values and tombstones are those of the model, encoded by fastavro, byte for byte."""
    envelope, types = form.split()
    given: dict[str, Any] = {"envelope": envelope, "types": types, "key": key, "tombstones": True}
    wanted = Encoding(codec="avro", **given)
    avro, records = encoded(name, codec="avro", **given)
    shaper = Shaper(wanted, ORIGIN)
    parsed: dict[int, tuple[Json, Json]] = {}  # By the id of a schema that `records` keeps.

    for index, record in enumerate(records):
        if id(record.schema) not in parsed:
            schema = shaper.schema(record.schema)
            parsed[id(record.schema)] = parse(schema.key), parse(schema.value)
        of_key, of_value = parsed[id(record.schema)]
        assert written(of_key, key_of(record, wanted)) == avro.keys[index]
        assert written(of_value, value_of(record, wanted)) == avro.values[index]
    buried = [index for index, record in enumerate(records) if is_buried(record, wanted)]
    assert buried == list(avro.tombstones)


def parse(schema: Document) -> Json:
    """Return a schema as fastavro wants it."""
    return fastavro.parse_schema(dict(schema), {})


def written(schema: Json, datum: Document) -> bytes:
    """Return what fastavro writes with a parsed schema."""
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    return out.getvalue()


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_third_format_is_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, envelope: str
) -> None:
    """A codec that an installed distribution brings gets the same keys and values."""
    metadata = tmp_path / "pack-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: pack\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "test_envelopes_codec.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    packed, records = encoded("4.1-ops", codec="msgpack", envelope=envelope)
    wanted = Encoding(codec="msgpack", envelope=envelope)

    for key, value, record in zip(packed.keys, packed.values, records, strict=True):
        assert key is not None
        assert plain(key_of(record, wanted)) == plain(msgspec.msgpack.decode(key))
        assert plain(value_of(record, wanted)) == plain(msgspec.msgpack.decode(value))
    assert issubclass(type(Encoder(Encoding(codec="msgpack"))._codec), Codec)  # noqa: SLF001


def test_flat_rows_have_columns_as_fields() -> None:
    """Each column is what the payload has; the rest begins with two underscores."""
    made, records = encoded("4.1-ops", codec="json", envelope="flat")
    for text, record in zip(made.values, records, strict=True):
        row, value = json.loads(text), record.value
        columns = {name: each for name, each in row.items() if not name.startswith("__")}

        assert columns.keys() == value["payload"].keys()
        assert (row["__op"], row["__timestamp"], row["__written"]) == (
            value["operationType"],
            value["timestampMicros"],
            value["updateFields"],
        )


def test_debezium_says_what_its_connector_says() -> None:
    """O04: i, u, d and r; written columns are structs, others null; ranges have bounds."""
    made, records = encoded("4.1-ops", codec="json", envelope="debezium", key="primary")
    ops = {
        "INSERT": "i",
        "UPDATE": "u",
        "DELETE": "d",
        "DELETE_PARTITION": "d",
        "DELETE_RANGE": "r",
    }
    seen = set()
    for text, record in zip(made.values, records, strict=True):
        message, value = json.loads(text), record.value
        seen.add(message["op"])
        after = message["after"]
        start, end = after.pop("_range_start"), after.pop("_range_end")
        written = {name for name, cell in after.items() if cell is not None}
        payload = value["payload"]
        keys = {*record.key, *record.schema.value["fields"][12]["type"]["clustering"]}  # type: ignore[misc]

        assert {"ts_ms", "op", "source", "after"} == message.keys()
        assert ops[value["operationType"]] == message["op"]
        assert written == {*value["updateFields"], *(k for k in keys if payload[k] is not None)}
        assert all(after[name]["set"] for name in written)
        assert value["timestampMicros"] // 1000 == message["source"]["ts_ms"]
        if message["op"] == "r":
            sides = (value["range"]["start"], value["range"]["end"])
            assert [side and side["count"] for side in sides] == [
                bound and len(bound["values"]) for bound in (start, end)
            ]
        else:
            assert (None, None) == (start, end)
    assert {"i", "u", "d", "r"} == seen


def test_debeziums_keys_are_lossless_as_its_values_are() -> None:
    """CEP-44's types are for the other envelopes: a shorter key would be another row's."""
    lossless, _ = encoded("5.0-types", codec="json", envelope="debezium", key="primary")
    made, _ = encoded("5.0-types", codec="json", envelope="debezium", key="primary", types="cep44")

    assert (lossless.keys, lossless.values) == (made.keys, made.values)


def test_a_ttl_is_when_debeziums_cell_is_deleted() -> None:
    """In microseconds, as its connector has it."""
    made, records = encoded("4.1-ops", codec="json", envelope="debezium")
    expiring = 0
    for text, record in zip(made.values, records, strict=True):
        notes = {note["field"]: note["expires"] for note in record.value["cells"]}
        for name in record.value["updateFields"]:
            expires = notes.get(name, record.value["expires"])
            cell = json.loads(text)["after"][name]
            assert cell["deletion_ts"] == (None if expires is None else expires * 1_000_000)
            expiring += expires is not None
    assert expiring > 0
