"""Shapes a record for sending: its envelope, its key, its headers, its tombstone.

A plan is made once per schema. `reshape` shapes changes, which have the envelope `cep44`, in Avro.
Any other record is sent without an envelope, as its own document in JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.serde.avro_types import definitions, field_of, standalone
from headrace.connector.serde.codecs.records import ShapedRecord, ShapedSchema, origin_of
from headrace.connector.serde.conversion import CepTypes, Lossless
from headrace.connector.serde.envelopes import ENVELOPES, FACTS, TYPES, Columns, is_change
from headrace.connector.serde.headers import RecordHeaders
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.reshape import Reshaper, Shape, runs
from headrace.plugins import (
    NO_ORIGIN,
    BadRecordError,
    Batch,
    ConfigError,
    Document,
    EncodedRecords,
    Encoding,
    Operation,
    Origin,
    Problem,
    Quarantined,
    Record,
    RecordSchema,
)
from headrace.plugins.records.codecs import record_headers

KEYS: Final = ("partition", "primary")
_STAGE: Final = "VALUE_CONVERTER"
# Headers other than plain fields of the change, and their numbers in `reshape`.
_HEADERS: Final = {
    "mutation": octets.MUTATION,
    "op": octets.OPERATION,
    "traceparent": octets.TRACE,
}
_FIELDS: Final = {"timestamp": "timestampMicros"}


class DocumentRecord(Record):
    """A record without an envelope, which makes its own JSON document.

    A transform cannot change this document, so changes to the record are refused.
    """

    __slots__ = ("_given", "_original", "tombstone", "topic")

    def __init__(self, original: Record) -> None:
        """Copy everything from *original*."""
        super().__init__(
            key=original.key,
            value=original.value,
            operation=original.operation,
            timestamp_us=original.timestamp_us,
            schema=original.schema,
            headers=original.headers,
            origin=original.origin,
            checksum=original.checksum,
        )
        self._original = original
        self._given = self.key, self.value
        self.tombstone = False
        self.topic: str | None = None

    def key_document(self) -> Document | None:
        """Return the original's document."""
        self._check()
        return self._original.key_document()

    def document(self) -> Document:
        """Return the original's document."""
        self._check()
        return self._original.document()

    def _check(self) -> None:
        key, value = self._given
        if self.key is not key or self.value is not value:
            raise BadRecordError(
                "a transform changed the key or the value of a record without an envelope",
                place=self.schema.table,
                hint="choose an `envelope`, or a sink that has them; filters are possible",
            )


class _Plan(msgspec.Struct):
    schema: RecordSchema
    operations: Sequence[Operation] = ()
    readers: ShapedSchema | None = None


class Shaper:
    """Shapes records according to *wanted*; for one thread."""

    def __init__(self, wanted: Encoding, origin: Origin = NO_ORIGIN) -> None:
        """Start without plans; *origin* is that of the source of the records.

        Raises:
            ConfigError: the envelope or the key is unknown.

        """
        problems = [
            Problem(option, f"expected one of {', '.join(filter(None, known))}, found {found!r}")
            for option, found, known in (
                ("envelope", wanted.envelope, ENVELOPES),
                ("key", wanted.key, KEYS),
                ("types", wanted.types, TYPES),
            )
            if found not in known
        ]
        if problems:
            raise ConfigError(problems)
        self._wanted = wanted
        # In JSON, a change without an envelope is its own document.
        self._enveloped = bool(wanted.envelope) or wanted.codec != "json"
        self._origin = origin
        self._headers = RecordHeaders(wanted.headers, origin)
        self._reshaper = Reshaper()
        self._plans: dict[bytes, _Plan] = {}
        self._shapes: dict[bytes, Shape] = {}  # Of changes.

    @property
    def encoding(self) -> str:
        """The encoding in which a batch needs no shaping, or "" if there is none.

        It is Avro, or without an envelope that of the codec; see `Batch.encode` for the names.
        """
        wanted = self._wanted
        is_lossless = wanted.types == TYPES[0] and wanted.envelope != "debezium"
        if not is_lossless or wanted.tombstones or self._headers:
            return ""
        envelope = f"avro.{wanted.envelope}".removesuffix(".cep44") if wanted.envelope else ""
        return (envelope or wanted.codec) + (".primary" if wanted.key == KEYS[1] else "")

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Return *schema* in the form of its encoded records, with the same id."""
        return self._plan(schema).schema

    @property
    def schemas(self) -> Mapping[bytes, RecordSchema]:
        """The schemas of all records so far, in their encoded form, by id."""
        return {schema_id: plan.schema for schema_id, plan in self._plans.items()}

    @property
    def timestamps(self) -> Sequence[int]:
        """The write times of the most recently shaped records, in µs."""
        return self._reshaper.timestamps()

    def shapes(self, schema: RecordSchema) -> bool:
        """Return whether records of *schema* are shaped in Avro."""
        self._plan(schema)
        return schema.schema_id in self._shapes

    def knows(self, batch: Batch, encoded: EncodedRecords) -> bool:
        """Return whether all records in *encoded*, which *batch* encoded, can be shaped."""
        ids = {schema_id for _, _, schema_id in runs(list(encoded.headers))}
        for schema in batch.schemas():
            self._plan(schema)
        if not ids <= self._plans.keys():  # Their schemas were announced to another encoder.
            for record in batch.records():
                self._plan(record.schema)
        return ids <= self._shapes.keys()

    def reshape(self, given: EncodedRecords) -> EncodedRecords:
        """Return changes in the wanted form, in Avro; dead-letter records that are not changes."""
        done = self._done(given)
        checksums = given.checksums
        if done.failed and checksums is not None:
            checksums = checksums.chosen(done.kept)
        return EncodedRecords(
            done.keys,
            done.values,
            done.headers,
            [given.tables[index] for index in done.kept] if done.failed else given.tables,
            self._lost(given),
            done.tombstones if self._wanted.tombstones else (),
            facts=None if done.failed else given.facts,
            checksums=checksums,
            omitted=given.omitted,
        )

    def records(self, given: EncodedRecords) -> tuple[list[ShapedRecord], Sequence[Quarantined]]:
        """Return changes as records in the wanted form, and the dead-lettered ones."""
        done = self._done(given)
        made: list[ShapedRecord] = []
        sums = given.sums()
        for key, value, headers, index, operation, timestamp_us in zip(
            done.keys,
            done.values,
            done.headers,
            done.kept,
            done.operations,
            done.timestamps(),
            strict=True,
        ):
            plan = self._plans[headers[0][1]]
            if plan.readers is None:
                plan.readers = ShapedSchema(plan.schema)
            record = ShapedRecord(
                plan.readers,
                key,
                value,
                operation=plan.operations[operation],
                timestamp_us=timestamp_us,
                headers=headers[1:],
                original=(given.keys[index], given.values[index]),
                checksum=sums[index],
            )
            made.append(record)
        for index in done.tombstones if self._wanted.tombstones else ():
            made[index].tombstone = True
        return made, self._lost(given)

    def document(self, record: Record) -> DocumentRecord:
        """Return a record that is its own document, with headers and tombstone."""
        made = DocumentRecord(record)
        made.headers = record.headers + self._headers.of(record)
        buried = _buried(record.schema, self._wanted.key)
        made.tombstone = self._wanted.tombstones and record.operation in buried
        return made

    def _done(self, given: EncodedRecords) -> Reshaper:
        self._reshaper.apply(self._shapes, given.keys, given.values, given.headers, given.starts)
        return self._reshaper

    def _lost(self, given: EncodedRecords) -> list[Quarantined]:
        if not self._reshaper.failed:
            return []
        sums = given.sums()
        return [
            Quarantined(
                place=error.place,
                code=error.code,
                message=error.message,
                content=given.values[index],
                stage=_STAGE,
                origin=origin_of(
                    given.tables[index], given.headers[index][0][1], given.keys[index]
                ),
                checksum=sums[index],
            )
            for index, error in self._reshaper.failed
        ]

    def _plan(self, schema: RecordSchema) -> _Plan:
        plan = self._plans.get(schema.schema_id)
        if plan is None:
            plan = _Plan(schema)
            if self._enveloped and is_change(schema):
                plan, self._shapes[schema.schema_id] = _planned(schema, self._wanted, self._origin)
            self._plans[schema.schema_id] = plan
        return plan


def _planned(schema: RecordSchema, wanted: Encoding, origin: Origin) -> tuple[_Plan, Shape]:
    """Return the plan for changes of *schema*."""
    columns = Columns(schema)
    envelope = ENVELOPES[wanted.envelope](schema, wanted.types, origin)
    clustering: Sequence[str] = ()
    key = schema.key
    if wanted.key == "primary":
        clustering = columns.payload.get("clustering", ())
        key = _with_clustering(schema, columns, clustering)
    known = {**columns.known, **definitions(key)}
    keeps = wanted.types == TYPES[0] or wanted.envelope == "debezium"  # The same as for its values.
    made_key, key_piece = (Lossless if keeps else CepTypes)(known).of(key)
    count = len(schema.key["fields"])
    fields = schema.value["fields"]
    symbols = field_of(schema.value, "operationType")["type"]["symbols"]  # type: ignore[index]
    operations = [Operation(symbol) for symbol in symbols]
    buried = _buried(schema, wanted.key)
    lossless = Lossless(columns.known)
    shape = Shape(
        fields=[lossless.of(field["type"])[1] for field in fields],
        payload=[field["name"] for field in fields].index("payload"),
        facts={FACTS[f["name"]]: i for i, f in enumerate(fields) if f["name"] in FACTS},
        operations=symbols,
        key=key_piece.parts[:count],
        clustering=[columns.names.index(name) for name in clustering],
        clustering_pieces=key_piece.parts[count:],
        headers=_header_places(schema, wanted.headers, origin),
        buried=[number for number, operation in enumerate(operations) if operation in buried],
        **envelope.plan(operations),
    )
    made = RecordSchema(schema.table, schema.text, schema.schema_id, made_key, envelope.schema)
    return _Plan(made, operations), shape


def _header_places(
    schema: RecordSchema, wanted: Sequence[str], origin: Origin
) -> Sequence[tuple[str, int, int]]:
    """Return the headers of a change: name, number of the fact in `reshape`, and field."""
    made = []
    places = {field["name"]: place for place, field in enumerate(schema.value["fields"])}
    for name in record_headers(origin):
        place = places.get(_FIELDS.get(name, name), -1)
        if name not in wanted or (place < 0 and name not in _HEADERS):
            continue
        is_text = origin.fields.get(name) == "string"
        made.append((name, _HEADERS.get(name, octets.TEXT if is_text else octets.NUMBER), place))
    return made


def _with_clustering(schema: RecordSchema, columns: Columns, clustering: Sequence[str]) -> Document:
    """Return the schema of keys that include the clustering columns."""
    defined = set(definitions(schema.key))
    fields = [
        {**field, "type": standalone(field["type"], columns.known, defined)}
        for name in clustering
        if (field := field_of(columns.payload, name))
    ]
    return {**schema.key, "fields": [*schema.key["fields"], *fields]}


def _buried(schema: RecordSchema, key: str) -> frozenset[Operation]:
    """Return the operations that delete everything under one key."""
    payload = field_of(schema.value, "payload")
    primary = key == "primary"
    clustered = payload is not None and bool(payload["type"].get("clustering"))
    found = set()
    if primary or (payload is not None and not clustered):
        found.add(Operation.DELETE)
    if not (primary and clustered):
        found.add(Operation.DELETE_PARTITION)
    return frozenset(found)
