"""Reads messages in JSON as documents like Avro's, by the Avro schema of the table.

In JSON, bytes are strings in base64, and special numbers are strings, too; only the schema
identifies them.
"""

import struct
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headrace.connector.serde.avro_types import NAMED, AvroType, definitions
from headrace.plugins import Document

Convert = Callable[[Any], Any]  # Any: the JSON value and the Avro value.

_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
_FLOAT: Final = struct.Struct("<f")


def document_reader_of(schema: Document) -> Callable[[bytes], Document]:
    """Return a reader of messages of *schema*; it raises ValueError for a mismatch."""
    convert = _Conversion(schema).of(schema)

    def read(content: bytes) -> Document:
        found: Document = convert(msgspec.json.decode(content))
        return found

    return read


class _Conversion:
    """Conversions of the types of one schema, which may refer to one another."""

    def __init__(self, schema: Document) -> None:
        self._known = definitions(schema)
        self._made: dict[str, Convert] = {}

    def of(self, kind: AvroType) -> Convert:
        """Return the converter for values of a type."""
        if isinstance(kind, list):
            return self._union(kind)
        if isinstance(kind, str):
            return self._named(kind) if kind in self._known else _PLAIN[kind]
        name = kind["type"]
        if name in NAMED:
            return self._named(kind["name"])
        if name == "array":
            item = self.of(kind["items"])
            return lambda values: [item(value) for value in _typed(values, list)]
        if name == "map":
            item = self.of(kind["values"])
            return lambda values: {key: item(v) for key, v in _typed(values, dict).items()}
        return self.of(name)

    def _named(self, name: str) -> Convert:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._definition(self._known[name])
        return made

    def _definition(self, kind: Document) -> Convert:
        if kind["type"] == "enum":
            symbols = frozenset(kind["symbols"])
            return lambda value: _one_of(value, symbols)
        if kind["type"] == "fixed":
            return lambda value: _bytes(value, kind["size"])
        parts = {field["name"]: self.of(field["type"]) for field in kind["fields"]}

        def convert(value: Any) -> Document:  # noqa: ANN401 (JSON)
            given: Mapping[str, Any] = _typed(value, dict)
            if given.keys() != parts.keys():
                raise ValueError("other fields than the schema has")
            return {name: part(given[name]) for name, part in parts.items()}

        return convert

    def _union(self, kinds: list[AvroType]) -> Convert:
        branches = [self.of(kind) for kind in kinds if kind != "null"]
        if len(branches) != 1:  # A foreign schema: JSON does not identify the branch of a value.
            return lambda value: value
        (only,) = branches
        return lambda value: None if value is None else only(value)


def _typed(value: Any, kind: type) -> Any:  # noqa: ANN401 (JSON)
    if type(value) is not kind:  # A boolean is not a number here.
        raise ValueError(f"found {type(value).__name__}, expected {kind.__name__}")
    return value


def _one_of(value: Any, symbols: frozenset[str]) -> str:  # noqa: ANN401 (JSON)
    if value not in symbols:
        raise ValueError("found another symbol than the schema has")
    return str(value)


def _bytes(value: Any, size: int | None = None) -> bytes:  # noqa: ANN401 (JSON)
    content = b64decode(_typed(value, str), validate=True)
    if size is not None and len(content) != size:
        raise ValueError(f"found {len(content)} bytes, expected {size}")
    return content


def _double(value: Any) -> float:  # noqa: ANN401 (JSON)
    if type(value) in {int, float} or value in _NO_NUMBERS:
        return float(value)
    raise ValueError(f"found {type(value).__name__}, expected a number")


def _float(value: Any) -> float:  # noqa: ANN401 (JSON)
    """Return the 32-bit number that JSON writes with as few digits as possible."""
    (found,) = _FLOAT.unpack(_FLOAT.pack(_double(value)))
    return float(found)


def _null(value: Any) -> None:  # noqa: ANN401 (JSON)
    if value is not None:
        raise ValueError("expected null")


_PLAIN: Final[Mapping[str, Convert]] = {
    "boolean": lambda value: _typed(value, bool),
    "bytes": _bytes,
    "double": _double,
    "float": _float,
    "int": lambda value: _typed(value, int),
    "long": lambda value: _typed(value, int),
    "null": _null,
    "string": lambda value: _typed(value, str),
}
