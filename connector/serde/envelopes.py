"""Envelopes of changes, planned once per schema from the envelope `cep44` of sources.

An envelope has the schema of its values, and the plan with which `reshape` makes them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace import __version__
from headrace.connector.serde.avro_types import (
    AvroType,
    definitions,
    field_of,
    optional,
    standalone,
)
from headrace.connector.serde.codecs.records import reader_of, writer_of
from headrace.connector.serde.conversion import CepTypes, Conversion, DebeziumTypes, Lossless
from headrace.connector.serde.image_fields import POST, PRE, images_in
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import BadAvroError, Piece
from headrace.plugins import (
    ConfigError,
    DebeziumSource,
    Document,
    Operation,
    Origin,
    Problem,
    RecordSchema,
    SourceField,
)

TYPES: Final = ("lossless", "cep44")
_JSON: Final = msgspec.json.Encoder()
_ROLES: Final = ("partitionKey", "clustering", "static")
# The fields of a change that contain facts, and their numbers in `reshape`.
FACTS: Final = {
    "timestampMicros": octets.TIMESTAMP,
    "operationType": octets.OPERATION,
    "expires": octets.EXPIRES,
    "updateFields": octets.UPDATED,
    "cells": octets.NOTES,
    "range": octets.RANGE,
    "mutation": octets.MUTATION,
    "index": octets.INDEX,
    "of": octets.OF,
}
_SIMPLE: Final = ("int", "long", "string")
_ALWAYS: Final = ("payload", "sourceKeyspace", "sourceTable", *FACTS)


def is_change(schema: RecordSchema) -> bool:
    """Return whether records of *schema* are changes in the envelope `cep44`."""
    return all(field_of(schema.value, name) for name in _ALWAYS)


class Columns:
    """The payload of one schema: its columns, by Avro name."""

    def __init__(self, schema: RecordSchema) -> None:
        """Read the columns from the payload of the envelope `cep44`."""
        payload = field_of(schema.value, "payload")
        assert payload is not None  # noqa: S101 (only changes have envelopes)
        self.payload: AvroType = payload["type"]
        self.fields: Sequence[Document] = self.payload["fields"]
        self.names = [field["name"] for field in self.fields]
        self.key = [*self.payload.get("partitionKey", ()), *self.payload.get("clustering", ())]
        self.namespace: str = schema.value.get("namespace", "")
        self.known = definitions(schema.value)
        self.places = images_in(schema)

    def converted(self, conversion: Conversion) -> tuple[list[Document], list[Piece]]:
        """Return the columns' fields after *conversion*, and the pieces for the values."""
        made = [(field, *conversion.of(field["type"])) for field in self.fields]
        return [{**field, "type": kind} for field, kind, _ in made], [piece for _, _, piece in made]

    def images(self, conversion: Conversion) -> tuple[Mapping[str, AvroType], list[Piece]]:
        """Return the images' types after *conversion*, by name, and their pieces."""
        made = [(name, *conversion.image(self.payload["name"])) for name, _ in self.places]
        return {name: kind for name, kind, _ in made}, [piece for _, _, piece in made]

    def unused(self, name: str) -> str:
        """Return *name*, or a similar name that is not a column's."""
        while name in self.names:
            name += "_"
        return name


class Envelope:
    """The envelope of the source, `cep44`, with the wanted types."""

    number = octets.OWN

    def __init__(self, schema: RecordSchema, types: str, origin: Origin) -> None:
        """Prepare for changes of *schema*, which also have the fields of *origin*."""
        del origin  # Its fields stay in place.
        columns = Columns(schema)
        conversion = _KINDS[types](columns.known)
        fields, self.pieces = columns.converted(conversion)
        conversion.define(columns.payload["name"])
        images, self.images = columns.images(conversion)
        self.schema: Document = schema.value
        if types != TYPES[0]:
            payload = {**columns.payload, "fields": fields}
            converted = {"payload": payload, **images}
            defined = set(definitions(payload))
            self.schema = {
                **schema.value,
                "fields": [
                    {**f, "type": converted[f["name"]]}
                    if f["name"] in converted
                    else {**f, "type": standalone(f["type"], columns.known, defined)}
                    for f in schema.value["fields"]
                ],
            }

    def plan(self, operations: Sequence[Operation]) -> dict[str, Any]:  # Any: as for a Shape.
        """Return this envelope's part of a plan for `reshape`.

        *operations* are in the order of the enum of the source's schema.
        """
        del operations
        return {"envelope": self.number, "columns": self.pieces, "images": self.images}


class Flat(Envelope):
    """One field per column; fields with other facts of the change start with `__`.

    A column that was not written and one that was set to null are both null: `__written` lists the
    written ones.
    """

    number = octets.FLAT
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
    }

    def __init__(self, schema: RecordSchema, types: str, origin: Origin) -> None:
        """Prepare for changes of *schema*, which also have the fields of *origin*."""
        columns = Columns(schema)
        conversion = _KINDS[types](columns.known)
        fields, self.pieces = columns.converted(conversion)
        defined = set(definitions({"type": "record", "name": "", "fields": fields}))
        places = {field["name"]: i for i, field in enumerate(schema.value["fields"])}
        self._runs: list[tuple[int, int]] = []
        own = {f"__{name}": name for name in origin.fields if name in places}
        for name, fact in {**self._TAKEN, **own}.items():
            place = places[fact]
            field = schema.value["fields"][place]
            made = standalone(field["type"], columns.known, defined)
            fields.append({**field, "name": columns.unused(name), "type": made})
            if self._runs and self._runs[-1][1] == place:  # It follows the one before.
                place = self._runs.pop()[0]
            self._runs.append((place, places[fact] + 1))
        images, self.images = columns.images(conversion)
        fields += [
            {"name": columns.unused(f"__{name}"), "type": kind, "default": None}
            for name, kind in images.items()
        ]
        self.schema = {
            "type": "record",
            "name": "Row",
            "namespace": columns.namespace,
            "fields": fields,
            **{role: columns.payload[role] for role in _ROLES if role in columns.payload},
        }

    def plan(self, operations: Sequence[Operation]) -> dict[str, Any]:  # Any: as for a Shape.
        """Return the fields that follow the columns."""
        return super().plan(operations) | {"runs": self._runs}


class Debezium(Envelope):
    """Debezium's Cassandra envelope: op, source, and after with a struct per column.

    With images there is also `before`, and both are the whole row.

    Times of processing are the write times, so that repeated messages are equal.
    """

    number = octets.DEBEZIUM

    def __init__(self, schema: RecordSchema, types: str, origin: Origin) -> None:
        """Prepare for changes of *schema*; the types are Debezium's for all *types*."""
        del types
        self._database = origin.debezium
        named = SourceField(name="name", of=self._database.name, as_text=True)
        taken = [_taken(schema, field) for field in (named, *self._database.fields)]
        self._taken = [(place, digits) for place, digits, _ in taken]
        kinds = [kind for _, _, kind in taken[1:]]
        self._columns = columns = Columns(schema)
        made, self.pieces = columns.converted(DebeziumTypes(columns.known))
        self.images = []  # Images have their own forms here.
        self._range = _RangeTexts(schema, columns)
        after = [_cell_field(field) for field in made]
        bound = _record("RangeBound", {"method": "string", "values": _list_of(_BOUND_VALUE)})
        after.append(optional(columns.unused("_range_start"), bound))
        after.append(optional(columns.unused("_range_end"), "RangeBound"))
        fields = [
            {"name": "ts_ms", "type": "long"},
            {"name": "op", "type": "string"},
            {"name": "source", "type": _source_record(self._database, kinds)},
        ]
        value: AvroType = {"type": "record", "name": "Value", "fields": after}
        self._images = dict(columns.places)
        if PRE in self._images:
            fields.append(optional("before", value))
            value = value["name"]
        fields.append(optional("after", value))
        self.schema = {
            "type": "record",
            "name": "Envelope",
            "namespace": columns.namespace,
            "fields": fields,
        }

    def plan(self, operations: Sequence[Operation]) -> dict[str, Any]:  # Any: as for a Shape.
        """Return the columns that are always written, and the constants of all messages."""
        names = self._columns.names
        database = self._database
        return super().plan(operations) | {
            "names": names,
            "key_columns": [names.index(name) for name in self._columns.key],
            # The last byte of the second marks `sequence` as not null.
            "constants": [
                _strings(__version__, database.connector),
                _strings("true" if database.snapshot else "false", database.db)
                + octets.long_bytes(1),
            ],
            "marks": [
                _strings(_OF_SNAPSHOT if database.snapshot else _OPS[operation])
                for operation in operations
            ],
            "range_of": self._range.bounds,
            "source": self._taken,
            "before": self._images.get(PRE, -1),
            "after": self._images.get(POST, -1),
            "wide": [n for n, operation in enumerate(operations) if self._is_wide(operation)],
        }

    def _is_wide(self, operation: Operation) -> bool:
        """Return whether an operation affects many rows."""
        is_partition = operation is Operation.DELETE_PARTITION
        is_clustered = bool(self._columns.payload.get("clustering"))
        return operation is Operation.DELETE_RANGE or (is_partition and is_clustered)


def _taken(schema: RecordSchema, field: SourceField) -> tuple[int, bool, str]:
    """Return the change's field for a `source` field, whether as digits, and its type."""
    if not field.of:
        return -1, False, "string"
    for place, given in enumerate(schema.value["fields"]):
        kind = given["type"]
        if given["name"] == field.of and kind in _SIMPLE:
            is_digits = field.as_text and kind != "string"
            return place, is_digits, "string" if is_digits else kind
    said = f"the source wants {field.of!r} in {field.name!r}, which its changes do not have"
    hint = f"a field that is {', '.join(_SIMPLE)}"
    raise ConfigError([Problem("envelope", said, hint)], place=schema.table)


class _RangeTexts:
    """The bounds of deleted ranges, as strings; rarely needed."""

    def __init__(self, schema: RecordSchema, columns: Columns) -> None:
        field = field_of(schema.value, "range")
        assert field is not None  # noqa: S101 (every change has it)
        made = standalone(field["type"], columns.known, set())
        self._read = reader_of(made)
        bound = _record("RangeBound", {"method": "string", "values": _list_of(_BOUND_VALUE)})
        fields = [optional("start", bound), optional("end", "RangeBound")]
        self._write = writer_of({"type": "record", "name": "Both", "fields": fields})
        self._columns = [
            (name, _inner(field["type"]))
            for name in columns.payload.get("clustering", ())
            if (field := field_of(columns.payload, name))
        ]

    def bounds(self, content: bytes) -> bytes:
        """Return both bounds of a range."""
        try:
            given = self._read(content)
        except (EOFError, ValueError, LookupError) as error:
            raise BadAvroError("a range does not fit its schema") from error
        start, end = self._bound(given["start"], "START"), self._bound(given["end"], "END")
        return self._write({"start": start, "end": end})

    def _bound(self, bound: Document | None, side: str) -> Document | None:
        if bound is None:
            return None
        kind = "INCL" if bound["inclusive"] else "EXCL"
        return {
            "method": f"{kind}_{side}_BOUND",
            "values": [
                {"name": name, "value": _text(bound["values"][name]), "type": type_name}
                for name, type_name in self._columns[: bound["count"]]
            ],
        }


_KINDS: Final[Mapping[str, type[Conversion]]] = {"lossless": Lossless, "cep44": CepTypes}
ENVELOPES: Final[Mapping[str, Callable[[RecordSchema, str, Origin], Envelope]]] = {
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
_OF_SNAPSHOT: Final = "r"


def _strings(*strings: str) -> bytes:
    return b"".join(octets.sized(text.encode()) for text in strings)


def _record(name: str, fields: Mapping[str, AvroType], **rest: str) -> Document:
    listed = [{"name": field, "type": avro_type} for field, avro_type in fields.items()]
    return {"type": "record", "name": name, **rest, "fields": listed}


def _list_of(items: AvroType) -> Document:
    return {"type": "array", "items": items}


def _cell_field(field: Document) -> Document:
    """Return the field of a column in `after`, which is null if it was not written."""
    fields = [
        {"name": "value", "type": field["type"], "default": None},
        optional("deletion_ts", "long"),
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
# The fields of `source` that every connector has.
_SOURCE: Final[Mapping[str, AvroType]] = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "long",
    "snapshot": "string",
    "db": "string",
    "sequence": ["null", "string"],
    "ts_us": ["null", "long"],
    "ts_ns": ["null", "long"],
}


def _source_record(database: DebeziumSource, kinds: Sequence[str]) -> Document:
    own = {field.name: kind for field, kind in zip(database.fields, kinds, strict=True)}
    fields = {**_SOURCE, **own}
    return _record("Source", fields, namespace=f"io.debezium.connector.{database.connector}")
