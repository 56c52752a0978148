"""Prepares the schemas of changes in the envelope `cep44` for `byte_folding`."""

import struct
from typing import Any, Final

import msgspec

from headrace.connector.rows import kinds
from headrace.connector.rows.byte_folding import Plan
from headrace.connector.rows.message_pack import BadStateError, Form
from headrace.connector.serde.avro_types import AvroType, definitions, field_of, is_complex, opened
from headrace.connector.serde.codecs.records import UnfitRecordError
from headrace.connector.serde.conversion import plain
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece
from headrace.plugins import Document, RecordSchema
from headrace.plugins.records.record import OPERATIONS

_LAST: Final = "range"  # The fields after it do not matter to rows.
_SORTED: Final = msgspec.msgpack.Encoder(order="deterministic")
_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder()


def plan_of(schema: RecordSchema) -> Plan:
    """Return a schema in the form for folding its changes."""
    whole = opened(schema.value, definitions(schema.value))
    symbols = _part(whole, "operationType")["symbols"]
    if symbols != [*OPERATIONS]:
        what = f"the operations of {schema.table} are {', '.join(symbols)}"
        raise UnfitRecordError(f"{what}; expected {', '.join(OPERATIONS)}")
    pieces: list[Piece] = []
    places: dict[str, int] = {}
    columns: list[Form] = []
    fields: list[Form] = []
    for field in whole["fields"]:
        places[field["name"]] = len(pieces)
        fields.append(_form(field["type"], by_cell=False))
        if field["name"] == "payload":
            columns = [_form(each["type"]) for each in field["type"]["fields"]]
            pieces += [column.piece for column in columns]
        else:
            pieces.append(_form(field["type"]).piece)
        if field["name"] == _LAST:
            break
    payload, note = _part(whole, "payload"), _part(whole, "cells")["items"]
    names = [field["name"] for field in payload["fields"]]
    return Plan(
        pieces,
        columns,
        [name.encode() for name in names],
        _labels(names),
        places=places,
        note=[_form(field["type"]).piece for field in note["fields"][1:]],
        bound=_form(_part(_part(whole, _LAST)[1], "start")),
        fields=fields,
        field_labels=_labels([field["name"] for field in whole["fields"][: len(fields)]]),
        clustering=[names.index(name) for name in payload["clustering"]],
        is_less=_is_less,
    )


def _form(kind: AvroType, *, by_cell: bool = True) -> Form:
    """Return the form of an opened type.

    Unless it is *by_cell*, a column written cell by cell is treated as an ordinary record.
    """
    if isinstance(kind, list):
        _, inner = kind  # A union of null and this type.
        form = _form(inner, by_cell=by_cell)
        return Form(Piece(octets.OPTION, form.piece), form, way=form.way)
    match kind if isinstance(kind, str) else kind["type"]:
        case "record":
            return _written(kind) if by_cell and is_complex(kind) else _record(kind, by_cell)
        case "array":
            item = _form(kind["items"], by_cell=by_cell)
            return Form(Piece(octets.ARRAY, item.piece), item)
        case "map":
            value = _form(kind["values"])
            entry = Form(Piece(octets.RECORD, Piece(octets.STRING), value.piece), value, value)
            return Form(Piece(octets.MAP, entry.piece), entry)
        case "enum":
            return Form(plain(kind), labels=_labels(kind["symbols"]))
    return Form(plain(kind))


def _record(kind: Document, by_cell: bool) -> Form:  # noqa: FBT001 (of `_form`)
    parts = [_form(field["type"], by_cell=by_cell) for field in kind["fields"]]
    names = [field["name"] for field in kind["fields"]]
    order = sorted(range(len(names)), key=lambda number: names[number])
    piece = Piece(octets.RECORD, *(part.piece for part in parts))
    return Form(piece, *parts, labels=_labels(names), order=order)


def _written(kind: Document) -> Form:
    """Return the form of a collection or UDT that is written cell by cell."""
    mode, deleted, written = (_form(field["type"]).piece for field in kind["fields"])
    piece = Piece(octets.RECORD, mode, deleted, written)
    fields = field_of(kind, "fields")
    if fields is not None:
        cells = [each["type"][1] for each in fields["type"]["fields"]]
        labels = _labels([each["name"] for each in fields["type"]["fields"]])
        values = [_form(_part(cell, "value")) for cell in cells]
        return Form(piece, *values, labels=labels, way=kinds.FIELDS)
    cell = _part(kind, "cells")["items"]
    names = ("key", "value") if field_of(cell, "value") else ("key",)
    return Form(piece, *(_form(_part(cell, name)) for name in names), way=kinds.CELLS)


def _part(record: AvroType, name: str) -> AvroType:
    field = field_of(record, name)
    assert field is not None  # noqa: S101 (the shape of the envelope)
    return field["type"]


def _labels(names: list[str]) -> list[bytes]:
    return [_PACK.encode(name) for name in names]


def _is_less(content: bytes, cell: bytes) -> bool:
    """Return whether the value in one cell's content is less than another cell's value."""
    try:
        known, made = _UNPACK.decode(content), _UNPACK.decode(cell)[2]
        return _stored(known[1]) < _stored(made[1])
    except (ValueError, TypeError, IndexError) as error:
        raise BadStateError(f"a value in the state of a row is damaged: {error}") from error


def _stored(value: Any) -> bytes:  # noqa: ANN401 (by type)
    """Return bytes with the order of Cassandra's bytes for values of one column."""
    if isinstance(value, bool) or value is None:
        return bytes([bool(value)])
    if isinstance(value, int):
        return (value & (1 << 64) - 1).to_bytes(8, "big")
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _SORTED.encode(value)
