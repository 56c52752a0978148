"""What stands around a change, from the envelope `cep44` that sources give.

An envelope is made once per schema; it has the value's schema, and makes the value of each record.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace import __version__
from headrace.connector.serde.avro_types import AvroType, definitions, field_of, standalone
from headrace.connector.serde.conversion import (
    CepTypes,
    Conversion,
    Convert,
    DebeziumTypes,
    Lossless,
)
from headrace.plugins import Document, Operation, Record, RecordSchema

TYPES: Final = ("lossless", "cep44")
_JSON: Final = msgspec.json.Encoder()
_MS_US: Final = 1_000
_S_US: Final = 1_000_000
_LONG: Final = 1 << 63
_ROLES: Final = ("partitionKey", "clustering", "static")


class Columns:
    """The payload of one schema: its columns, by the names they have in Avro."""

    def __init__(self, schema: RecordSchema) -> None:
        """Take them from the payload of the envelope `cep44`."""
        payload = field_of(schema.value, "payload")
        assert payload is not None  # noqa: S101 (only changes have envelopes)
        self.payload: AvroType = payload["type"]
        self.fields: Sequence[Document] = self.payload["fields"]
        self.names = [field["name"] for field in self.fields]
        self.key = [*self.payload.get("partitionKey", ()), *self.payload.get("clustering", ())]
        self.namespace: str = schema.value.get("namespace", "")
        self.known = definitions(schema.value)

    def converted(self, conversion: Conversion) -> list[tuple[Document, Convert]]:
        """Return each column's field and function under *conversion*."""
        found: list[tuple[Document, Convert]] = []
        for field in self.fields:
            made, convert = conversion.optional(field["type"])
            found.append(({**field, "type": made}, convert))
        return found

    def unused(self, name: str) -> str:
        """Return *name*, or what no column is called."""
        while name in self.names:
            name += "_"
        return name


class Envelope:
    """The record's own: `cep44`, with the types asked for."""

    def __init__(self, schema: RecordSchema, types: str) -> None:
        """Prepare for records of *schema*."""
        self.schema: Document = schema.value
        self._converts: list[tuple[str, Convert]] = []
        if types == "cep44":
            columns = Columns(schema)
            conversion = CepTypes(columns.known)
            made = columns.converted(conversion)
            self._converts = [(field["name"], convert) for field, convert in made]
            payload = {**columns.payload, "fields": [field for field, _ in made]}
            defined = set(definitions(payload))
            self.schema = {
                **schema.value,
                "fields": [
                    {**f, "type": payload}
                    if f["name"] == "payload"
                    else {**f, "type": standalone(f["type"], columns.known, defined)}
                    for f in schema.value["fields"]
                ],
            }

    def of(self, record: Record) -> Document:
        """Return the value."""
        if not self._converts:
            return record.value
        payload = record.value["payload"]
        return {
            **record.value,
            "payload": {name: convert(payload[name]) for name, convert in self._converts},
        }


class Flat(Envelope):
    """One column, one field; what else is known of the change stands in fields that begin with __.

    A column that was not written and one that was set to null are both null: `__written` has the
    written ones.
    """

    _TAKEN: Final = {
        "__op": "operationType",
        "__timestamp": "timestampMicros",
        "__static": "isStatic",
        "__ttl": "ttl",
        "__expires": "expires",
        "__written": "updateFields",
        "__truncated": "truncatedFields",
        "__cells": "cells",
        "__range": "range",
        "__mutation": "mutation",
        "__index": "index",
        "__of": "of",
        "__copies": "copies",
        "__node": "node",
        "__segment": "segment",
        "__position": "position",
    }

    def __init__(self, schema: RecordSchema, types: str) -> None:
        """Prepare for records of *schema*."""
        columns = Columns(schema)
        kinds: dict[str, type[Conversion]] = {"lossless": Lossless, "cep44": CepTypes}
        made = columns.converted(kinds[types](columns.known))
        self._columns = [(field["name"], convert) for field, convert in made]
        self._facts = {columns.unused(name): fact for name, fact in self._TAKEN.items()}
        fields = [field for field, _ in made]
        defined = set(definitions({"type": "record", "name": "", "fields": fields}))
        for name, fact in self._facts.items():
            field = field_of(schema.value, fact)
            assert field is not None  # noqa: S101 (the envelope has it)
            fields.append(
                {**field, "name": name, "type": standalone(field["type"], columns.known, defined)}
            )
        self.schema = {
            "type": "record",
            "name": "Row",
            "namespace": columns.namespace,
            "fields": fields,
            **{role: columns.payload[role] for role in _ROLES if role in columns.payload},
        }

    def of(self, record: Record) -> Document:
        """Return columns and facts."""
        value = record.value
        payload = value["payload"]
        row = {name: convert(payload[name]) for name, convert in self._columns}
        return row | {name: value[fact] for name, fact in self._facts.items()}


class Debezium(Envelope):
    """That of Debezium's connector for Cassandra: op, source, after with a struct for each column.

    Times of processing are those of the write, so that a message that comes twice is the same.
    """

    def __init__(self, schema: RecordSchema, types: str) -> None:
        """Prepare for records of *schema*; its types are Debezium's, whatever *types* says."""
        del types
        self._names = columns = Columns(schema)
        made = columns.converted(DebeziumTypes(columns.known))
        self._columns = [(field["name"], convert) for field, convert in made]
        self._range = [
            (name, _inner(field["type"]))
            for name in columns.payload.get("clustering", ())
            if (field := field_of(columns.payload, name))
        ]
        self._start, self._end = columns.unused("_range_start"), columns.unused("_range_end")
        after = [_cell_field(field) for field, _ in made]
        bound = _record("RangeBound", {"method": "string", "values": _list_of(_BOUND_VALUE)})
        after += [_optional(self._start, bound), _optional(self._end, "RangeBound")]
        fields = [
            {"name": "ts_ms", "type": "long"},
            {"name": "op", "type": "string"},
            {"name": "source", "type": _SOURCE},
            _optional("after", {"type": "record", "name": "Value", "fields": after}),
        ]
        self.schema = {
            "type": "record",
            "name": "Envelope",
            "namespace": columns.namespace,
            "fields": fields,
        }

    def of(self, record: Record) -> Document:
        """Return the envelope."""
        value = record.value
        milliseconds = value["timestampMicros"] // _MS_US
        nanoseconds = value["timestampMicros"] * _MS_US
        return {
            "ts_ms": milliseconds,
            "op": _OPS[record.operation],
            "source": {
                "version": __version__,
                "connector": "cassandra",
                "name": value["node"],
                "ts_ms": milliseconds,
                "snapshot": "false",
                "db": "NULL",
                "sequence": f"[{value['index']},{value['of']}]",
                "ts_us": value["timestampMicros"],
                "ts_ns": nanoseconds if abs(nanoseconds) < _LONG else None,
                "cluster": "",
                "file": str(value["segment"]),
                "pos": value["position"],
                "keyspace": value["sourceKeyspace"],
                "table": value["sourceTable"],
            },
            "after": self._after(value),
        }

    def _after(self, value: Document) -> Document:
        payload, notes = value["payload"], {note["field"]: note for note in value["cells"]}
        written = set(value["updateFields"])
        key = {name for name in self._names.key if payload[name] is not None}
        after: dict[str, Any] = {}
        for name, convert in self._columns:
            if name not in written and name not in key:
                after[name] = None
                continue
            given = payload[name]
            expires = notes.get(name, value)["expires"] if name in written else None
            after[name] = {
                "value": None if given is None else convert(given),
                "deletion_ts": None if expires is None else expires * _S_US,
                "set": True,
            }
        deleted = value["range"] or {"start": None, "end": None}
        after[self._start] = self._bound(deleted["start"], "START")
        after[self._end] = self._bound(deleted["end"], "END")
        return after

    def _bound(self, bound: Document | None, side: str) -> Document | None:
        if bound is None:
            return None
        kind = "INCL" if bound["inclusive"] else "EXCL"
        return {
            "method": f"{kind}_{side}_BOUND",
            "values": [
                {"name": name, "value": _text(bound["values"][name]), "type": type_name}
                for name, type_name in self._range[: bound["count"]]
            ],
        }


ENVELOPES: Final[Mapping[str, Callable[[RecordSchema, str], Envelope]]] = {
    "": Envelope,
    "cep44": Envelope,
    "debezium": Debezium,
    "flat": Flat,
}
_OPS: Final = {
    Operation.INSERT: "i",
    Operation.UPDATE: "u",
    Operation.DELETE: "d",
    Operation.DELETE_PARTITION: "d",
    Operation.DELETE_RANGE: "r",
}


def _record(name: str, fields: Mapping[str, AvroType], **rest: str) -> Document:
    listed = [{"name": field, "type": avro_type} for field, avro_type in fields.items()]
    return {"type": "record", "name": name, **rest, "fields": listed}


def _list_of(items: AvroType) -> Document:
    return {"type": "array", "items": items}


def _optional(name: str, avro_type: AvroType) -> Document:
    return {"name": name, "type": ["null", avro_type], "default": None}


def _cell_field(field: Document) -> Document:
    """Return the field of a column in `after`: null where it was not written."""
    fields = [
        {"name": "value", "type": field["type"], "default": None},
        _optional("deletion_ts", "long"),
        {"name": "set", "type": "boolean"},
    ]
    cell = {"type": "record", "name": f"cell_{field['name']}", "fields": fields}
    return {**field, "type": ["null", cell]}


def _inner(union: AvroType) -> str:
    inner = union[1]
    if isinstance(inner, str):
        return inner
    return str(inner.get("cqlType") or inner.get("logicalType") or inner.get("name", inner["type"]))


def _text(value: Any) -> str:  # noqa: ANN401 (a clustering value)
    return value if isinstance(value, str) else _JSON.encode(value).decode()


_BOUND_VALUE: Final = _record("BoundValue", dict.fromkeys(("name", "value", "type"), "string"))
_SOURCE: Final = _record(
    "Source",
    {
        "version": "string",
        "connector": "string",
        "name": "string",
        "ts_ms": "long",
        "snapshot": "string",
        "db": "string",
        "sequence": ["null", "string"],
        "ts_us": ["null", "long"],
        "ts_ns": ["null", "long"],
        "cluster": "string",
        "file": "string",
        "pos": "long",
        "keyspace": "string",
        "table": "string",
    },
    namespace="io.debezium.connector.cassandra",
)
