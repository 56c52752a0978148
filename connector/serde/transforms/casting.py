"""The transform Cast: gives fields other types, by the rules of Kafka Connect's transform.

A value in Avro becomes a number, a string or bytes in Python, which is cast. Transforms of bytes
and of objects share the cast, so the results are the same.
"""

import math
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from headrace.connector.serde.avro_types import AvroType, definitions
from headrace.connector.serde.conversion import (
    DIGITS_MAX,
    decimal_text,
    whole_decimal,
    whole_text,
    wrapped,
)
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transforms.fields import edited, edited_schema, field_at
from headrace.connector.serde.transforms.parts import PartTransform, TransformError
from headrace.plugins import ConfigError, Document, Problem, Record, RecordSchema, option

Datum = Any  # Any: a field's value.
Call = Callable[[Datum], Datum]

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_AVRO: Final = {
    **{target: "long" if bits > 32 else "int" for target, bits in _BITS.items()},  # noqa: PLR2004
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
}
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_REAL: Final = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|Infinity)")
# Casts without Python objects, by kind and target.
_CONVERSIONS: Final = {
    ("int", "int32"): octets.SAME,
    ("int", "int64"): octets.SAME,
    ("int", "string"): octets.DIGITS,
    ("long", "int32"): octets.WRAPPED,
    ("long", "int64"): octets.SAME,
    ("long", "string"): octets.DIGITS,
    ("float", "float32"): octets.SAME,
    ("float", "int64"): octets.WHOLE,
    ("double", "float64"): octets.SAME,
    ("double", "int64"): octets.WHOLE,
    ("boolean", "boolean"): octets.SAME,
    ("string", "string"): octets.SAME,
    ("Decimal", "string"): octets.DECIMAL,
}
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


@dataclass(frozen=True, slots=True, kw_only=True)
class CastConfig:
    """Options of Cast."""

    spec: tuple[str, ...] = option(
        "Fields with their new types, field:type; dotted paths address nested fields. Types are"
        " int8, int16, int32, int64, float32, float64, boolean and string."
    )

    def __post_init__(self) -> None:
        """Check the types."""
        for each in self.spec:
            path, colon, target = each.rpartition(":")
            if not (path and colon):
                hint = "keys and values are records, so a type needs a field"
                raise ConfigError([Problem("spec", f"expected field:type, found {each!r}", hint)])
            if target not in _AVRO:
                found = f"expected one of {', '.join(_AVRO)}, found {target!r}"
                raise ConfigError([Problem("spec", found)])


class Cast(PartTransform):
    """Gives fields other types."""

    config_class = CastConfig
    config: CastConfig

    def __init__(self, config: CastConfig, part: str) -> None:
        """Parse the specification."""
        super().__init__(config, part)
        self.targets = {each.rpartition(":")[0]: each.rpartition(":")[2] for each in config.spec}
        self._known: dict[bytes, Mapping[str, Call]] = {}

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Give the fields their types."""
        del whole
        known = definitions(schema)
        for path, target in self.targets.items():
            schema = edited_schema(schema, path.split("."), partial(_field, target, known, path))
        return schema

    def part_data(self, data: Document, record: Record) -> Document:
        """Cast the values; null stays null."""
        casts = self._known.get(record.schema.schema_id)
        if casts is None:
            schema = record.schema.key if self.part == "key" else record.schema.value
            casts = self._known[record.schema.schema_id] = self._casts(schema)
        for path, call in casts.items():
            data = edited(data, path.split("."), call)
        return data

    def _casts(self, schema: Document) -> Mapping[str, Call]:
        known = definitions(schema)
        casts = {}
        for path, target in self.targets.items():
            field = field_at(schema, path.split("."), known)
            if field is not None:
                casts[path] = cast_of(field["type"], target, known, path).of_value
        return casts


def _field(target: str, known: Mapping[str, Document], path: str, field: Document) -> Document:
    made = cast_of(field["type"], target, known, path).avro_type
    return {**field, "type": ["null", made] if isinstance(field["type"], list) else made}


class FieldCast(msgspec.Struct, frozen=True):
    """The cast of one field to `avro_type`.

    `never_fails` says that it accepts every value. `becomes` is the conversion in `octets` that
    casts bytes, or CALLED.
    """

    avro_type: str
    never_fails: bool
    becomes: int
    _read: Callable[[bytes], Datum]  # From Avro.
    _python: Call  # From the result of an Avro reader.
    _cast: Call

    def of_value(self, value: Datum) -> Datum:
        """Cast a value from an Avro reader; null stays null."""
        return None if value is None else self._cast(self._python(value))

    def of_bytes(self, raw: bytes) -> bytes:
        """Cast a value in Avro that is not null."""
        return _WRITERS[self.avro_type](self._cast(self._python(self._read(raw))))


def cast_of(
    avro_type: AvroType, target: str, known: Mapping[str, Document], path: str
) -> FieldCast:
    """Return the cast of a field of *avro_type*, which may be nullable, to *target*.

    *known* are the named types of the whole schema; *path* is the field's path, for errors.

    Raises:
        TransformError: such a type cannot be cast, or not to *target*.

    """
    if isinstance(avro_type, list):
        avro_type = avro_type[-1]
    if isinstance(avro_type, str):
        avro_type = known.get(avro_type, {"type": avro_type})
    kind = avro_type["name"] if avro_type["type"] == "record" else avro_type["type"]
    kind = avro_type["cqlType"] if avro_type.get("cqlType") == "varint" else kind
    is_bytes = kind in ("bytes", "fixed")
    if kind not in _READERS or (is_bytes and target != "string"):
        only = ", which are cast to string only" if is_bytes else ""
        raise TransformError(
            f"cannot cast a field of type {kind} to {target}{only}",
            place=path,
            hint="numbers, booleans, strings and bytes are cast",
        )
    read: Callable[[bytes], Datum] = _READERS[kind]
    if kind == "enum":
        read = partial(_symbol, avro_type["symbols"])
    if target in _BITS:
        cast: Call = partial(_whole, path, _BITS[target])
    else:
        cast = {"boolean": _boolean, "string": _text}.get(target) or partial(_real, path, target)
    is_parsed = kind in ("string", "enum") and target not in ("string", "boolean")
    becomes = _CONVERSIONS.get((kind, target), octets.CALLED)
    return FieldCast(_AVRO[target], not is_parsed, becomes, read, _PYTHON.get(kind, _same), cast)


# ---- input of casts: a bool, int, float, decimal, str or bytes ----


class _Scaled(NamedTuple):
    """A decimal."""

    unscaled: int
    scale: int

    def real(self) -> float:
        """Return the nearest double."""
        if 0 <= self.scale <= DIGITS_MAX:
            real: float = self.unscaled / 10**self.scale
            return real
        sign, digits, _ = Decimal(self.unscaled).as_tuple()
        return float(Decimal((sign, digits, -self.scale)))


def _whole(path: str, bits: int, value: Datum) -> int:
    half: int = 1 << bits - 1
    if isinstance(value, str):
        number: int = int(value) if _WHOLE.fullmatch(value) else half
        if not -half <= number < half:
            raise TransformError(f"expected a whole number of {bits} bits", place=path)
        return number
    if isinstance(value, float):  # Like Java: to at least 32 bits, at most the greatest.
        most = (1 << max(bits, 32) - 1) - 1
        value = 0 if math.isnan(value) else max(min(value, most), -most - 1)
    elif isinstance(value, _Scaled):
        value = whole_decimal(*value)
    return wrapped(int(value), bits)


def _real(path: str, target: str, value: Datum) -> float:
    if isinstance(value, str) and not _REAL.fullmatch(value):
        raise TransformError("expected a number", place=path)
    try:
        number = value.real() if isinstance(value, _Scaled) else float(value)
        return number if target == "float64" else float(_FLOAT.unpack(_FLOAT.pack(number))[0])
    except OverflowError:
        return math.copysign(math.inf, value.unscaled if isinstance(value, _Scaled) else value)


def _boolean(value: Datum) -> bool:
    return value.lower() == "true" if isinstance(value, str) else _whole("", 64, value) != 0


def _text(value: Datum) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, _Scaled):
        return decimal_text(*value)
    if isinstance(value, float):
        if math.isfinite(value):
            return msgspec.json.encode(value).decode()
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return whole_text(value) if isinstance(value, int) else value


# ---- from Avro readers to the input of casts ----


def _same(value: Datum) -> Datum:
    return value


def _varint(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _decimal(value: Mapping[str, Any]) -> _Scaled:
    return _Scaled(_varint(value["unscaled"]), value["scale"])


_PYTHON: Final[Mapping[str, Call]] = {"varint": _varint, "Decimal": _decimal}


# ---- from and to Avro ----


def _long(raw: bytes) -> int:
    return octets.long_at(raw, 0)[0]


def _sized(raw: bytes) -> bytes:
    return raw[octets.long_at(raw, 0)[1] :]


def _symbol(symbols: list[str], raw: bytes) -> str:
    return symbols[_long(raw)]


def _decimal_record(raw: bytes) -> Mapping[str, Any]:
    scale, at = octets.long_at(raw, 0)
    return {"scale": scale, "unscaled": _sized(raw[at:])}


_READERS: Final[Mapping[str, Callable[[bytes], Datum]]] = {
    "int": _long,
    "long": _long,
    "float": lambda raw: _FLOAT.unpack(raw)[0],
    "double": lambda raw: _DOUBLE.unpack(raw)[0],
    "boolean": lambda raw: raw != b"\0",
    "string": lambda raw: _sized(raw).decode(),
    "bytes": _sized,
    "fixed": _same,
    "enum": _long,
    "varint": _sized,
    "Decimal": _decimal_record,
}
_WRITERS: Final[Mapping[str, Callable[[Datum], bytes]]] = {
    "int": octets.long_bytes,
    "long": octets.long_bytes,
    "float": _FLOAT.pack,
    "double": _DOUBLE.pack,
    "boolean": lambda value: b"\1" if value else b"\0",
    "string": lambda value: octets.sized(value.encode()),
}
