"""Converts types of columns to other formats: from each Avro type, a schema and a piece of a plan.

The Avro types are those of the envelope `cep44`; of the database, this module only knows their
`cqlType`. `reshape` converts the values, from bytes to bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from headrace.connector.serde.avro_types import AvroType, definitions, field_of, is_complex
from headrace.connector.serde.image_fields import image_type
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece
from headrace.plugins import Document

Converted = tuple[AvroType, Piece]
Call = Callable[[bytes], bytes]

_LONG_BITS: Final = 64
_LONG_MAX: Final = (1 << _LONG_BITS - 1) - 1
_DAY_NS: Final = 86_400_000_000_000
_MONTH_DAYS: Final = 30
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_KINDS: Final = {
    "int": octets.LONG,
    "long": octets.LONG,
    "enum": octets.ENUM,
    "bytes": octets.BYTES,
    "string": octets.STRING,
    "fixed": octets.FIXED,
    "null": octets.FIXED,
    "boolean": octets.BOOLEAN,
    "float": octets.REAL,
    "double": octets.REAL,
    "record": octets.RECORD,
}
_JSON: Final = msgspec.json.Encoder()


class Conversion(ABC):
    """Walks types; a subclass converts leaves and the compound types that it changes."""

    def __init__(self, known: Mapping[str, Document]) -> None:
        """*known* are the named types that may be referred to."""
        self._known = known
        self._defined: set[str] = set()

    def of(self, avro_type: AvroType) -> Converted:
        """Convert a type."""
        if isinstance(avro_type, list):
            _, inner = avro_type  # A union of null and this type.
            made, piece = self.of(inner)
            return ["null", made], Piece(octets.OPTION, piece)
        if isinstance(avro_type, str) and avro_type in self._known:
            avro_type = self._known[avro_type]
        return self.leaf(avro_type) or self._composed(avro_type)

    def _composed(self, avro_type: AvroType) -> Converted:
        match avro_type if isinstance(avro_type, str) else avro_type["type"]:
            case "array":
                return self.array(avro_type["items"])
            case "map":
                made, piece = self.of(avro_type["values"])
                entry = Piece(octets.RECORD, Piece(octets.STRING), piece)
                return {**avro_type, "values": made}, Piece(octets.MAP, entry)
            case "record":
                return (self.complex if is_complex(avro_type) else self.record)(avro_type)
            case "enum" | "fixed":
                return self.named(avro_type), plain(avro_type)
        return avro_type, plain(avro_type)

    def image(self, payload: AvroType) -> Converted:
        """Convert the type of an image, or null; its columns are those of *payload*."""
        made, piece = self.of(payload)
        known = Piece(octets.ARRAY, Piece(octets.STRING))
        expires = Piece(octets.ARRAY, Piece(octets.OPTION, Piece(octets.LONG)))
        record = Piece(octets.RECORD, piece, known, expires)
        return ["null", self.named(image_type(made))], Piece(octets.OPTION, record)

    def define(self, name: str) -> None:
        """Treat a type as defined, so that it is referred to by name."""
        self._defined.add(name)

    @abstractmethod
    def leaf(self, avro_type: AvroType) -> Converted | None:
        """Convert a type as a whole, or return None to convert its parts instead."""

    def array(self, items: AvroType) -> Converted:
        """Convert a frozen list, set or map."""
        made, piece = self.of(items)
        return {"type": "array", "items": made}, Piece(octets.ARRAY, piece)

    def record(self, avro_type: AvroType) -> Converted:
        """Convert a tuple, a UDT, an entry of a map or a similar type, field by field."""
        converted = [(field, *self.of(field["type"])) for field in avro_type["fields"]]
        fields = [{**field, "type": made} for field, made, _ in converted]
        pieces = [piece for _, _, piece in converted]
        piece = Piece(octets.RECORD, *pieces, labels=_labels([field["name"] for field in fields]))
        return self.named({**avro_type, "fields": fields}), piece

    def complex(self, avro_type: AvroType) -> Converted:
        """Convert a column that is written cell by cell."""
        return self.record(avro_type)

    def named(self, made: AvroType) -> AvroType:
        """Return the definition at the first use, and its name afterwards."""
        if made["name"] in self._defined:
            return made["name"]
        self._defined.add(made["name"])
        return made


class Lossless(Conversion):
    """Changes nothing; each named type is defined at its first use."""

    def leaf(self, avro_type: AvroType) -> Converted | None:
        """Return None, so that the parts are converted."""
        del avro_type
        return None


class CepTypes(Conversion):
    """The types of the table in CEP-44. They lose information; see the page on Kafka."""

    def leaf(self, avro_type: AvroType) -> Converted | None:
        """Narrow numbers as the table says."""
        if avro_type == "long":
            return "int", Piece(octets.LONG, becomes=octets.WRAPPED)
        if avro_type in ("float", "double"):
            return "long", Piece(octets.FIXED, size_bytes=_SIZES[avro_type], becomes=octets.WHOLE)
        if isinstance(avro_type, Mapping):
            if avro_type.get("cqlType") == "varint":
                return "int", plain(avro_type, _wrapped_varint)
            if _is(avro_type, "Decimal"):
                return "long", plain(avro_type, _whole_decimal)
            if _is(avro_type, "Duration"):
                return "long", plain(avro_type, _nanoseconds)
        return None

    def complex(self, avro_type: AvroType) -> Converted:
        """Convert the keys and values of its cells; the other fields are unchanged."""
        if field_of(avro_type, "fields") is not None:
            written = self._fields(_part(avro_type, "fields"))
            return self._outer(avro_type, {"fields": written})
        items = _part(avro_type, "cells")["items"]
        names = [name for name in ("key", "value") if field_of(items, name) is not None]
        cell, cell_piece = _replaced(items, {name: self.of(_part(items, name)) for name in names})
        array = {"type": "array", "items": self.named(cell)}, Piece(octets.ARRAY, cell_piece)
        return self._outer(avro_type, {"cells": array})

    def _fields(self, avro_type: AvroType) -> Converted:
        """Convert the values of a UDT's fields, each null or a cell."""
        converted = {}
        for field in avro_type["fields"]:
            _, cell = field["type"]
            made, piece = _replaced(cell, {"value": self.of(_part(cell, "value"))})
            converted[field["name"]] = ["null", self.named(made)], Piece(octets.OPTION, piece)
        fields, piece = _replaced(avro_type, converted)
        return self.named(fields), piece

    def _outer(self, avro_type: AvroType, converted: Mapping[str, Converted]) -> Converted:
        mode = _part(avro_type, "mode")
        mode = self._known[mode] if isinstance(mode, str) else mode
        outer, piece = _replaced(
            avro_type, {**converted, "mode": (self.named(mode), Piece(octets.LONG))}
        )
        return self.named(outer), piece


class DebeziumTypes(Conversion):
    """Debezium's types, in its lossless modes: numbers as strings."""

    def leaf(self, avro_type: AvroType) -> Converted | None:
        """Use Debezium's names of times, and write large numbers as strings."""
        if not isinstance(avro_type, Mapping):
            return None
        semantic = _SEMANTIC.get(avro_type.get("cqlType") or avro_type.get("logicalType") or "")
        if semantic is not None:
            base = {"type": avro_type["type"], "connect.version": 1, "connect.name": semantic}
            return base, plain(avro_type)
        if avro_type.get("cqlType") == "varint":
            return "string", plain(avro_type, lambda raw: _text(whole_text(_varint(raw))))
        if _is(avro_type, "Decimal"):
            parts = (Piece(octets.LONG), Piece(octets.BYTES))
            return "string", Piece(
                octets.RECORD,
                *parts,
                becomes=octets.DECIMAL,
                call=lambda raw: _text(decimal_text(*_decimal(raw))),
            )
        if _is(avro_type, "Duration"):
            return "string", plain(avro_type, lambda raw: _text(duration_text(*_numbers(raw))))
        return None

    def array(self, items: AvroType) -> Converted:
        """Convert a frozen map with string keys to a map."""
        inner: AvroType = items
        if isinstance(items, str):
            inner = self._known.get(items, items)
        if field_of(inner, "key") is None or field_of(inner, "value") is None:
            return super().array(items)
        key, value = self.of(_part(inner, "key")), self.of(_part(inner, "value"))
        made = self._mapping(key, value, inner["name"])
        return made, Piece(octets.ARRAY, Piece(octets.RECORD, key[1], value[1]))

    def complex(self, avro_type: AvroType) -> Converted:
        """Convert the written cells to a plain collection or UDT."""
        parts = (Piece(octets.LONG), Piece(octets.OPTION, Piece(octets.LONG)))
        if field_of(avro_type, "fields") is not None:
            record, fields = self._fields(_part(avro_type, "fields"), avro_type["name"])
            return record, Piece(octets.RECORD, *parts, fields, becomes=octets.WRITTEN_FIELDS)
        cell = _part(avro_type, "cells")["items"]
        key_type = _part(cell, "key")
        key = self.of(key_type)
        value = None if field_of(cell, "value") is None else self.of(_part(cell, "value"))
        is_list = isinstance(key_type, Mapping) and key_type.get("logicalType") == "uuid"
        made: AvroType
        if value is None:
            made, becomes = {"type": "array", "items": ["null", key[0]]}, octets.WRITTEN_SET
        elif is_list and str(avro_type.get("cqlType")).startswith("list<"):
            made, becomes = {"type": "array", "items": value[0]}, octets.WRITTEN_LIST
        else:
            made = self._mapping(key, value, f"{avro_type['name']}_entry")
            becomes = octets.WRITTEN_MAP
        converted = {"key": key} if value is None else {"key": key, "value": value}
        _, cell_piece = _replaced(cell, converted)
        array = Piece(octets.ARRAY, cell_piece)
        return made, Piece(octets.RECORD, *parts, array, becomes=becomes)

    def _fields(self, avro_type: AvroType, name: str) -> Converted:
        """Convert the fields' values to a UDT; fields that were not written are null."""
        fields = []
        pieces = []
        for field in avro_type["fields"]:
            _, cell = field["type"]
            value = self.of(_part(cell, "value"))
            fields.append({**field, "type": value[0]})
            pieces.append(Piece(octets.OPTION, _replaced(cell, {"value": value})[1]))
        made = self.named({"type": "record", "name": name, "fields": fields})
        return made, Piece(octets.RECORD, *pieces)

    def _mapping(self, key: Converted, value: Converted, name: str) -> AvroType:
        """Return the schema of a map; its bytes are the same as those of an array of entries."""
        if key[0] == "string":
            return {"type": "map", "values": value[0]}
        fields = [{"name": "key", "type": key[0]}, {"name": "value", "type": value[0]}]
        entry = {"type": "record", "name": name, "fields": fields}
        return {"type": "array", "items": self.named(entry)}


_SEMANTIC: Final = {
    "timestamp": "io.debezium.time.Timestamp",
    "date": "io.debezium.time.Date",
    "time": "io.debezium.time.NanoTime",
    "uuid": "io.debezium.data.Uuid",
}


def plain(avro_type: AvroType, call: Call | None = None) -> Piece:
    """Return the piece of a type without references; *call* may convert its bytes."""
    return converting(avro_type, octets.SAME if call is None else octets.CALLED, call)


def converting(avro_type: AvroType, becomes: int, call: Call | None) -> Piece:
    """Return the piece of a type without references that is converted as *becomes* says."""
    if isinstance(avro_type, str):
        avro_type = {"type": avro_type}
    kind = avro_type["type"]
    parts = [plain(field["type"]) for field in avro_type["fields"]] if kind == "record" else ()
    symbols = [_JSON.encode(symbol) for symbol in avro_type["symbols"]] if kind == "enum" else ()
    size = avro_type.get("size", _SIZES.get(kind, 0))
    number = _KINDS[kind]
    return Piece(number, *parts, labels=symbols, size_bytes=size, becomes=becomes, call=call)


def piece_of(schema: AvroType) -> Piece:
    """Return the piece of a whole schema without conversions."""
    return Lossless(definitions(schema)).of(schema)[1]


def _labels(names: Sequence[str]) -> Sequence[bytes]:
    """Return the text before each field of a record in JSON."""
    marks = [b"{", *[b","] * len(names)]
    return [m + _JSON.encode(name) + b":" for m, name in zip(marks, names, strict=False)]


def whole_text(number: int) -> str:
    """Return a number's digits; Python's `str` writes at most 4,300."""
    return str(number) if -_LONG_MAX <= number <= _LONG_MAX else str(Decimal(number))


def decimal_text(unscaled: int, scale: int) -> str:
    """Return a decimal's digits, without an exponent unless its scale is negative."""
    if scale <= 0:
        digits = whole_text(unscaled)
        return f"{digits}E{-scale}" if scale else digits
    digits = whole_text(abs(unscaled)).rjust(scale + 1, "0") if scale < DIGITS_MAX else ""
    if not digits:
        return f"{whole_text(unscaled)}E-{scale}"
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


DIGITS_MAX: Final = 1_000  # A scale beyond it is written as an exponent.


def wrapped(number: int, bits: int) -> int:
    """Keep the lower bits, as a cast in Java does."""
    half = 1 << bits - 1
    return (number + half) % (1 << bits) - half


def whole_decimal(unscaled: int, scale: int) -> int:
    """Return a decimal without its fraction; 0 for one with an extreme scale."""
    if abs(scale) > DIGITS_MAX:
        return 0
    power: int = 10 ** abs(scale)
    size = abs(unscaled) // power if scale > 0 else abs(unscaled) * power
    return -size if unscaled < 0 else size


def duration_text(months: int, days: int, nanoseconds: int) -> str:
    """Return a duration in CQL's notation."""
    parts = ((months, "mo"), (days, "d"), (nanoseconds, "ns"))
    text = "".join(f"{abs(amount)}{unit}" for amount, unit in parts if amount)
    return ("-" if any(amount < 0 for amount, _ in parts) else "") + (text or "0ns")


# Values as bytes.


def _text(text: str) -> bytes:
    return octets.sized(text.encode())


def _varint(raw: bytes) -> int:
    _, at = octets.long_at(raw, 0)
    return int.from_bytes(raw[at:], "big", signed=True)


def _decimal(raw: bytes) -> tuple[int, int]:
    """Return a decimal's unscaled number and its scale."""
    scale, at = octets.long_at(raw, 0)
    return _varint(raw[at:]), scale


def _numbers(raw: bytes) -> tuple[int, int, int]:
    """Return a duration's months, days and nanoseconds."""
    months, at = octets.long_at(raw, 0)
    days, at = octets.long_at(raw, at)
    return months, days, octets.long_at(raw, at)[0]


def _wrapped_varint(raw: bytes) -> bytes:
    return octets.long_bytes(wrapped(_varint(raw), _LONG_BITS // 2))


def _whole_decimal(raw: bytes) -> bytes:
    return octets.long_bytes(wrapped(whole_decimal(*_decimal(raw)), _LONG_BITS))


def _nanoseconds(raw: bytes) -> bytes:
    months, days, nanoseconds = _numbers(raw)
    whole = (months * _MONTH_DAYS + days) * _DAY_NS + nanoseconds
    return octets.long_bytes(wrapped(whole, _LONG_BITS))


def _replaced(record: AvroType, converted: Mapping[str, Converted]) -> Converted:
    """Return a record with some of its fields converted; the others are plain."""
    fields = []
    pieces = []
    for field in record["fields"]:
        made, piece = converted.get(field["name"]) or (field["type"], _simple(field["type"]))
        fields.append({**field, "type": made})
        pieces.append(piece)
    return {**record, "fields": fields}, Piece(octets.RECORD, *pieces)


def _simple(avro_type: AvroType) -> Piece:
    if isinstance(avro_type, list):
        return Piece(octets.OPTION, plain(avro_type[1]))
    return plain(avro_type)


def _part(record: AvroType, name: str) -> AvroType:
    field = field_of(record, name)
    assert field is not None  # noqa: S101 (the shape of a collection's type)
    return field["type"]


def _is(avro_type: Mapping[str, Any], name: str) -> bool:
    return avro_type.get("type") == "record" and avro_type.get("name") == name
