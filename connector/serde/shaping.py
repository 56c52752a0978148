"""What a record becomes before it is encoded: its envelope, its key, its headers, its tombstone.

A plan is made once per schema. A record that is not a change as the envelope `cep44` describes it
has no envelope: in JSON it is its own document.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.connector.serde.avro_types import definitions, field_of, standalone
from headrace.connector.serde.conversion import CepTypes, Convert
from headrace.connector.serde.envelopes import ENVELOPES, TYPES, Envelope
from headrace.connector.serde.headers import RecordHeaders
from headrace.plugins import (
    ConfigError,
    Document,
    Encoding,
    Operation,
    Problem,
    Record,
    RecordSchema,
)

KEYS: Final = ("partition", "primary")


class ShapedRecord(Record):
    """A record in the form that is encoded. Without an envelope its document is the original's."""

    __slots__ = ("_documented", "tombstone", "topic")

    def __init__(
        self,
        original: Record,
        schema: RecordSchema,
        key: Document | None,
        value: Document,
        *,
        enveloped: bool,
    ) -> None:
        """Take from *original* what does not change."""
        super().__init__(
            key=key,
            value=value,
            operation=original.operation,
            timestamp_us=original.timestamp_us,
            schema=schema,
            headers=original.headers,
            origin=original.origin,
        )
        self.tombstone = False
        self.topic: str | None = None
        self._documented = None if enveloped else original

    def key_document(self) -> Document | None:
        """Return the key as JSON has it."""
        return self.key if self._documented is None else self._documented.key_document()

    def document(self) -> Document:
        """Return the value as JSON has it."""
        return self.value if self._documented is None else self._documented.document()


class KeyPlan:
    """The key of one schema's records: the columns of the partition key, or all of the row's."""

    def __init__(self, schema: RecordSchema, mode: str, types: str) -> None:
        """Find the clustering columns where *mode* is `primary`; convert as *types* says."""
        payload = field_of(schema.value, "payload")
        self._convert: Convert | None = None
        self.clustering: tuple[str, ...] = ()
        self.schema = schema.key
        if payload is None:
            self.whole = mode == "primary"
            return
        columns = payload["type"].get("clustering", ())
        self.whole = mode == "primary" or not columns
        if mode == "primary" and columns:
            self.clustering = tuple(columns)
            self.schema = _with_clustering(schema, payload["type"], columns)
        if types == "cep44":
            self._convert_all(definitions(schema.value))

    def _convert_all(self, known: Mapping[str, Document]) -> None:
        made, convert = CepTypes({**known, **definitions(self.schema)}).record(self.schema)
        self.schema, self._convert = made, convert

    def of(self, record: Record) -> Document | None:
        """Return the key of *record*; of what is no single row, clustering columns are null."""
        key = record.key
        if key is not None and self.clustering:
            payload = record.value["payload"]
            key = {**key, **{name: payload[name] for name in self.clustering}}
        return key if key is None or self._convert is None else self._convert(key)

    def is_buried(self, record: Record) -> bool:
        """Say whether *record* deletes all that is under its key."""
        if record.operation is Operation.DELETE_PARTITION:
            return not self.clustering
        return record.operation is Operation.DELETE and self.whole


def _with_clustering(schema: RecordSchema, payload: Document, columns: list[str]) -> Document:
    known = definitions(schema.value)
    defined = set(definitions(schema.key))
    fields = [
        {**field, "type": standalone(field["type"], known, defined)}
        for name in columns
        if (field := field_of(payload, name))
    ]
    return {**schema.key, "fields": [*schema.key["fields"], *fields]}


@dataclass(frozen=True, slots=True)
class _Plan:
    schema: RecordSchema
    key: KeyPlan
    envelope: Envelope
    is_change: bool


class Shaper:
    """Makes records into what *wanted* asks for; for one thread."""

    def __init__(self, wanted: Encoding) -> None:
        """Make no plan yet.

        Raises:
            ConfigError: there is no such envelope, or no such key.

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
        self._headers = RecordHeaders(wanted.headers)
        self._plans: dict[bytes, _Plan] = {}

    @property
    def idle(self) -> bool:
        """Whether the records' own form is wanted."""
        wanted = self._wanted
        own = not wanted.envelope or (wanted.envelope == "cep44" and wanted.codec == "avro")
        own = own and wanted.types == "lossless"
        return own and wanted.key == "partition" and not wanted.tombstones and not self._headers

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Return *schema* as its records are encoded; its id stays."""
        return self._plan(schema).schema

    def shape(self, record: Record) -> Record:
        """Return *record* in the wanted form."""
        plan = self._plan(record.schema)
        shaped = ShapedRecord(
            record,
            plan.schema,
            plan.key.of(record),
            plan.envelope.of(record),
            enveloped=bool(self._wanted.envelope) and plan.is_change,
        )
        shaped.headers = record.headers + self._headers.of(record)
        shaped.tombstone = self._wanted.tombstones and plan.key.is_buried(record)
        return shaped

    def _plan(self, schema: RecordSchema) -> _Plan:
        plan = self._plans.get(schema.schema_id)
        if plan is None:
            plan = self._plans[schema.schema_id] = self._made(schema)
        return plan

    def _made(self, schema: RecordSchema) -> _Plan:
        wanted = self._wanted
        is_change = field_of(schema.value, "payload") is not None
        key = KeyPlan(schema, wanted.key, wanted.types if is_change else TYPES[0])
        if is_change:
            envelope = ENVELOPES[wanted.envelope](schema, wanted.types)
        else:
            envelope = Envelope(schema, TYPES[0])
        made = RecordSchema(
            schema.table, schema.text, schema.schema_id, key.schema, envelope.schema
        )
        return _Plan(made, key, envelope, is_change)
