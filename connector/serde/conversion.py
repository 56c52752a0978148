"""Types of columns as other formats have them: a schema and a function for each Avro type.

The Avro types are those of the envelope `cep44`; nothing here knows more of a database than their
`cqlType` says.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.connector.serde.avro_types import AvroType, field_of
from headrace.plugins import Document

Value = Any  # Any: what an Avro type has for a value.
Convert = Callable[[Value], Value]
Converted = tuple[AvroType, Convert]

_INT_BITS: Final = 32
_LONG_BITS: Final = 64
_DAY_NS: Final = 86_400_000_000_000
_MONTH_DAYS: Final = 30


def is_complex(avro_type: AvroType) -> bool:
    """Say whether a column's type is a collection or UDT that is written cell by cell."""
    return field_of(avro_type, "mode") is not None


class Conversion(ABC):
    """Walks types; a subclass says what becomes of the leaves and the shapes it changes."""

    def __init__(self, known: Mapping[str, Document]) -> None:
        """*known* are the named types that may be referred to."""
        self._known = known
        self._defined: set[str] = set()

    def optional(self, avro_type: AvroType) -> Converted:
        """Convert a union of null and a type."""
        _, inner = avro_type
        made, convert = self.of(inner)
        return ["null", made], lambda value: None if value is None else convert(value)

    def of(self, avro_type: AvroType) -> Converted:
        """Convert a type."""
        if isinstance(avro_type, str) and avro_type in self._known:
            avro_type = self._known[avro_type]
        leaf = self.leaf(avro_type)
        if leaf is not None:
            return leaf
        if isinstance(avro_type, str) or "logicalType" in avro_type:
            return avro_type, _same
        match avro_type["type"]:
            case "array":
                return self.array(avro_type["items"])
            case "record" if is_complex(avro_type):
                return self.complex(avro_type)
            case "record":
                return self.record(avro_type)
        return avro_type, _same

    @abstractmethod
    def leaf(self, avro_type: AvroType) -> Converted | None:
        """Convert a type that is one piece, or return None to have its parts converted."""

    def array(self, items: AvroType) -> Converted:
        """Convert a frozen list, set or map."""
        if isinstance(items, list):
            made, convert = self.optional(items)
        else:
            made, convert = self.of(items)
        return {"type": "array", "items": made}, lambda values: [convert(v) for v in values]

    def record(self, avro_type: AvroType) -> Converted:
        """Convert a tuple, a UDT, or an entry of a map, field by field."""
        fields = []
        parts: list[tuple[str, Convert]] = []
        for field in avro_type["fields"]:
            given = field["type"]
            made, convert = self.optional(given) if isinstance(given, list) else self.of(given)
            fields.append({**field, "type": made})
            parts.append((field["name"], convert))

        def converted(value: Value) -> Value:
            return {name: convert(value[name]) for name, convert in parts}

        return self.named({**avro_type, "fields": fields}), converted

    def complex(self, avro_type: AvroType) -> Converted:
        """Convert a column that is written cell by cell: the keys and values of its cells."""
        cells = field_of(avro_type, "cells")
        assert cells is not None  # noqa: S101 (`is_complex` says so)
        cell = cells["type"]["items"]
        key_type, key_of = self.of(_field_type(cell, "key"))
        types = {"key": key_type}
        value_of: Convert = _same
        if field_of(cell, "value") is not None:
            types["value"], value_of = self.optional(_field_type(cell, "value"))
        made = self.named(
            {
                **cell,
                "fields": [{**f, "type": types.get(f["name"], f["type"])} for f in _fields(cell)],
            }
        )
        mode = _field_type(avro_type, "mode")
        types = {"cells": {"type": "array", "items": made}, "mode": self.named(mode)}
        outer = {
            **avro_type,
            "fields": [{**f, "type": types.get(f["name"], f["type"])} for f in _fields(avro_type)],
        }

        def converted(value: Value) -> Value:
            return {
                **value,
                "cells": [
                    {**each, "key": key_of(each["key"])}
                    | ({"value": value_of(each["value"])} if "value" in each else {})
                    for each in value["cells"]
                ],
            }

        return self.named(outer), converted

    def named(self, made: AvroType) -> AvroType:
        """Return a definition the first time, and its name from then on."""
        if isinstance(made, str):
            made = self._known[made]
        if made["name"] in self._defined:
            return made["name"]
        self._defined.add(made["name"])
        return made


class Lossless(Conversion):
    """Leaves everything as it is, with every named type defined where it comes first."""

    def leaf(self, avro_type: AvroType) -> Converted | None:
        """Leave all pieces to their parts."""
        del avro_type
        return None


class CepTypes(Conversion):
    """The table of types in CEP-44's text. It loses values; see the page on Kafka."""

    def leaf(self, avro_type: AvroType) -> Converted | None:
        """Cut numbers down as the table says."""
        if avro_type == "long":
            return "int", lambda value: _wrapped(value, _INT_BITS)
        if avro_type in ("float", "double"):
            return "long", _whole
        if isinstance(avro_type, Mapping):
            if avro_type.get("cqlType") == "varint":
                return "int", lambda value: _wrapped(int_of(value), _INT_BITS)
            if _is(avro_type, "Decimal"):
                return "long", lambda value: _wrapped(_floor(value), _LONG_BITS)
            if _is(avro_type, "Duration"):
                return "long", lambda value: _wrapped(_nanoseconds(value), _LONG_BITS)
        return None


class DebeziumTypes(Conversion):
    """Debezium's types, with the modes of its own that lose nothing: numbers as texts."""

    def leaf(self, avro_type: AvroType) -> Converted | None:
        """Name times as Debezium does, and write long numbers as texts."""
        if not isinstance(avro_type, Mapping):
            return None
        semantic = _SEMANTIC.get(avro_type.get("cqlType") or avro_type.get("logicalType") or "")
        if semantic is not None:
            base = {"type": avro_type["type"], "connect.version": 1, "connect.name": semantic}
            return base, _same
        if avro_type.get("cqlType") == "varint":
            return "string", lambda value: str(int_of(value))
        if _is(avro_type, "Decimal"):
            return "string", decimal_text
        if _is(avro_type, "Duration"):
            return "string", duration_text
        return None

    def array(self, items: AvroType) -> Converted:
        """Make a map of a frozen map whose keys are texts."""
        inner: AvroType = items
        if isinstance(items, str):
            inner = self._known.get(items, items)
        if field_of(inner, "key") is not None and field_of(inner, "value") is not None:
            return self._mapping(_field_type(inner, "key"), _field_type(inner, "value"), inner)
        return super().array(items)

    def complex(self, avro_type: AvroType) -> Converted:
        """Make a plain collection of the cells that were written."""
        cells = field_of(avro_type, "cells")
        assert cells is not None  # noqa: S101 (`is_complex` says so)
        cell = cells["type"]["items"]
        key = _field_type(cell, "key")
        if field_of(cell, "value") is None:
            made, convert = self.of(key)
            set_type = {"type": "array", "items": ["null", made]}
            return set_type, lambda value: [convert(c["key"]) for c in _written(value)]
        if isinstance(key, Mapping) and key.get("logicalType") == "uuid" and _is_list(avro_type):
            made, convert = self.optional(_field_type(cell, "value"))
            list_type = {"type": "array", "items": made}
            return list_type, lambda value: [convert(c["value"]) for c in _written(value)]
        name = f"{avro_type['name']}_entry"
        made, convert = self._mapping(key, _field_type(cell, "value"), {"name": name})
        return made, lambda value: convert(_written(value))

    def _mapping(self, key: AvroType, value: AvroType, named: Document) -> Converted:
        made, convert = self.optional(value)
        if key == "string":
            return {"type": "map", "values": made}, lambda entries: {
                each["key"]: convert(each["value"]) for each in entries
            }
        key_type, key_of = self.of(key)
        entry = {
            "type": "record",
            "name": named["name"],
            "fields": [{"name": "key", "type": key_type}, {"name": "value", "type": made}],
        }
        return {"type": "array", "items": self.named(entry)}, lambda entries: [
            {"key": key_of(each["key"]), "value": convert(each["value"])} for each in entries
        ]


_SEMANTIC: Final = {
    "timestamp": "io.debezium.time.Timestamp",
    "date": "io.debezium.time.Date",
    "time": "io.debezium.time.NanoTime",
    "uuid": "io.debezium.data.Uuid",
}


def int_of(stored: bytes) -> int:
    """Return the number whose two's complement is *stored*."""
    return int.from_bytes(stored, "big", signed=True)


def decimal_text(value: Document) -> str:
    """Return a decimal's digits, without an exponent unless its scale is negative."""
    unscaled, scale = int_of(value["unscaled"]), value["scale"]
    if scale <= 0:
        return f"{unscaled}E{-scale}" if scale else str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0") if scale < _DIGITS_MAX else ""
    if not digits:
        return f"{unscaled}E-{scale}"
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


_DIGITS_MAX: Final = 1_000  # A scale beyond it is written as an exponent.


def duration_text(value: Document) -> str:
    """Return a duration as CQL writes it."""
    parts = ((value["months"], "mo"), (value["days"], "d"), (value["nanoseconds"], "ns"))
    text = "".join(f"{abs(amount)}{unit}" for amount, unit in parts if amount)
    return ("-" if any(amount < 0 for amount, _ in parts) else "") + (text or "0ns")


def _same(value: Value) -> Value:
    return value


def _fields(record: AvroType) -> list[Document]:
    fields: list[Document] = record["fields"]
    return fields


def _field_type(record: AvroType, name: str) -> AvroType:
    field = field_of(record, name)
    assert field is not None  # noqa: S101 (the shape of a collection's type)
    return field["type"]


def _is(avro_type: Mapping[str, Any], name: str) -> bool:
    return avro_type.get("type") == "record" and avro_type.get("name") == name


def _is_list(avro_type: AvroType) -> bool:
    return str(avro_type.get("cqlType")).startswith("list<")


def _written(value: Document) -> list[Document]:
    return [cell for cell in value["cells"] if not cell["removed"]]


def _wrapped(number: int, bits: int) -> int:
    """Keep the lower bits, as a cast in Java does."""
    half = 1 << bits - 1
    return (number + half) % (1 << bits) - half


def _whole(number: float) -> int:
    """Cut a float to a long as Java does: what is no number is 0, what is too large the largest."""
    if number != number:  # noqa: PLR0124 (only what is no number differs from itself)
        return 0
    limit = 1 << _LONG_BITS - 1
    return max(-limit, min(limit - 1, int(max(-1e300, min(1e300, number)))))


def _floor(value: Document) -> int:
    unscaled, scale = int_of(value["unscaled"]), value["scale"]
    if scale > _DIGITS_MAX or scale < -_DIGITS_MAX:
        return 0
    sign = -1 if unscaled < 0 else 1
    return int(sign * (abs(unscaled) // 10**scale if scale > 0 else abs(unscaled) * 10**-scale))


def _nanoseconds(value: Document) -> int:
    days = value["months"] * _MONTH_DAYS + value["days"]
    return int(days * _DAY_NS + value["nanoseconds"])
