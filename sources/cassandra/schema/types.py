"""CQL types: the meaning of a column's bytes, parsed from the text of DDL and system tables.

Everything inside a frozen type, a collection, a tuple or a vector is frozen, even if the text does
not say so: two spellings of one type are equal. This module does not decode values.
"""

from collections.abc import Callable
from functools import cache
from typing import Final

import msgspec
from msgspec.structs import replace

from headrace.plugins.cql_text import TokenKind, quote_name
from headrace.sources.cassandra.schema.cursor import Cursor

VALUE_BYTES_MAX: Final = 0x7FFF_FFFF  # Cassandra's bound for one value.
_DIGITS_MAX: Final = 11
TYPE_DEPTH_MAX: Final = 64  # Deeper types are rejected: no recursion over a type can overflow.

COLLECTION_ARITY: Final = {"list": 1, "set": 1, "map": 2}
# docs/commit-log.md 5.5: only these have no length prefix. Tinyint and date have one.
_FIXED_LENGTHS: Final = {
    "empty": 0,
    "boolean": 1,
    "int": 4,
    "float": 4,
    "bigint": 8,
    "double": 8,
    "timestamp": 8,
    "uuid": 16,
    "timeuuid": 16,
}
_SYNONYMS: Final = {"varchar": "text"}
_CLASS_PREFIX: Final = "org.apache.cassandra.db.marshal."
# Cassandra's classes as custom type names, and the CQL types with the same bytes.
_NATIVE_OF_CLASS: Final = {
    "AsciiType": "ascii",
    "LongType": "bigint",
    "BytesType": "blob",
    "BooleanType": "boolean",
    "CounterColumnType": "counter",
    "SimpleDateType": "date",
    "DecimalType": "decimal",
    "DoubleType": "double",
    "DurationType": "duration",
    "EmptyType": "empty",
    "FloatType": "float",
    "InetAddressType": "inet",
    "Int32Type": "int",
    "ShortType": "smallint",
    "UTF8Type": "text",
    "TimeType": "time",
    "TimestampType": "timestamp",
    "DateType": "timestamp",
    "TimeUUIDType": "timeuuid",
    "ByteType": "tinyint",
    "UUIDType": "uuid",
    "LexicalUUIDType": "uuid",
    "IntegerType": "varint",
}
NATIVE_NAMES: Final = frozenset(_NATIVE_OF_CLASS.values())
_WRAPPER_CLASSES: Final = frozenset({"ReversedType", "FrozenType"})
_GENERIC_OF_CLASS: Final = {
    "ListType": "list",
    "SetType": "set",
    "MapType": "map",
    "TupleType": "tuple",
    "VectorType": "vector",
}


class CqlType(msgspec.Struct, frozen=True):
    """A CQL type.

    `name` is the native type's, or list, set, map, tuple, vector; for a UDT its own name, with
    `keyspace` set; for a custom type its class name in single quotes. `fields` are a UDT's, in
    order; `dimension` is a vector's.
    """

    name: str
    arguments: tuple["CqlType", ...] = ()
    frozen: bool = False
    fields: tuple[tuple[str, "CqlType"], ...] = ()
    keyspace: str = ""
    dimension: int = 0

    @property
    def is_udt(self) -> bool:
        """Whether this is a user-defined type."""
        return bool(self.keyspace)

    @property
    def is_native(self) -> bool:
        """Whether it is made of no other types."""
        return not (self.keyspace or self.arguments)

    @property
    def is_custom(self) -> bool:
        """Whether this is an unknown class; its values are opaque bytes."""
        return self.name.startswith("'")

    @property
    def is_complex(self) -> bool:
        """Whether a static or regular column of this type is written cell by cell."""
        return not self.frozen and (self.is_udt or self.name in COLLECTION_ARITY)

    @property
    def path_type(self) -> "CqlType":
        """The type of a cell's path in a complex column; for a UDT, the field's position."""
        if self.is_udt:
            return CqlType("smallint")
        return CqlType("timeuuid") if self.name == "list" else self.arguments[0]

    def cell_type(self, path: bytes | None) -> "CqlType":
        """Return the type of a cell's value; *path* is None in a simple column.

        A set's cells have no value (`empty`); a field that is missing in this schema is a `blob`.
        """
        if path is None:
            return self
        if self.is_udt:
            position = int.from_bytes(path, "big")
            known = position < len(self.fields)
            return self.fields[position][1] if known else CqlType("blob")
        return CqlType("empty") if self.name == "set" else self.arguments[-1]

    @property
    def fixed_length(self) -> int | None:
        """The length of every value in the log, or None if each has a length prefix."""
        if self.name == "vector" and not self.is_udt:
            element = self.arguments[0].fixed_length
            return None if element is None else element * self.dimension
        return None if self.is_udt else _FIXED_LENGTHS.get(self.name)

    def freeze(self) -> "CqlType":
        """Return the type as it is inside another type; a native type is returned unchanged."""
        freezable = self.is_udt or self.name in COLLECTION_ARITY
        return replace(self, frozen=True) if freezable and not self.frozen else self

    def __str__(self) -> str:
        """Return the type as `system_schema.columns` spells it."""
        if self.name in NATIVE_NAMES and self.is_native:
            return self.name
        if self.is_udt:
            text = quote_name(self.name)
        elif self.name == "vector":
            text = f"vector<{self.arguments[0]}, {self.dimension}>"
        elif self.arguments or self.name == "tuple":
            text = f"{self.name}<{', '.join(map(str, self.arguments))}>"
        else:
            text = self.name
        return f"frozen<{text}>" if self.frozen or self.name == "tuple" else text


# Returns the UDT of a keyspace and a name, unfrozen, or None if it does not exist.
UdtLookup = Callable[[str, str], CqlType | None]


def parse_type(text: str, keyspace: str = "", lookup: UdtLookup | None = None) -> CqlType:
    """Parse one CQL type; a name that is not a native type is a UDT of *keyspace*.

    Raises:
        SchemaTextError: *text* is not a type, names an unknown UDT, or has more than TYPE_DEPTH_MAX
            levels.

    """
    if text in NATIVE_NAMES:
        return _native(text)
    cursor = Cursor(text)
    result = TypeReader(cursor, lookup or (lambda _keyspace, _name: None)).read(keyspace)
    if not cursor.at_end:
        cursor.fail("expected the end of the type")
    return result


@cache
def _native(name: str) -> CqlType:
    return CqlType(name)


class TypeReader:
    """Reads types at a cursor."""

    def __init__(self, cursor: Cursor, lookup: UdtLookup) -> None:
        """Read nothing yet."""
        self._cursor = cursor
        self._keyspace = ""
        self._lookup = lookup

    def read(self, keyspace: str) -> CqlType:
        """Read the type at the cursor; UDTs without a keyspace are of *keyspace*."""
        self._keyspace = keyspace
        return self._read(0)

    def _read(self, depth: int) -> CqlType:
        cursor = self._cursor
        if depth > TYPE_DEPTH_MAX:
            cursor.fail(f"types nest deeper than {TYPE_DEPTH_MAX}")
        if cursor.token.kind is TokenKind.STRING:
            token = cursor.advance()
            return parse_class_name(token.value) or CqlType(f"'{token.value}'")
        token = cursor.token
        name = cursor.name("a type")
        if token.kind is TokenKind.WORD:
            if cursor.token.keyword == "<":
                return self._generic(name, depth)
            native = _SYNONYMS.get(name, name)
            if native in NATIVE_NAMES and cursor.token.keyword != ".":
                return _native(native)
        return self._udt(name)

    def _generic(self, name: str, depth: int) -> CqlType:
        if name == "frozen":
            return self._arguments(name, 1, depth)[0]
        if name == "tuple":
            return CqlType(name, self._arguments(name, None, depth))
        if name == "vector":
            return self._vector(depth)
        if name not in COLLECTION_ARITY:
            self._cursor.fail(f"{name} takes no types")
        return CqlType(name, self._arguments(name, COLLECTION_ARITY[name], depth))

    def _arguments(self, name: str, count: int | None, depth: int) -> tuple[CqlType, ...]:
        cursor = self._cursor
        cursor.expect("<")
        arguments = [self._read(depth + 1).freeze()]
        while cursor.accept(","):
            arguments.append(self._read(depth + 1).freeze())
        if count is not None and len(arguments) != count:
            cursor.fail(f"{name} takes {count} type(s), not {len(arguments)}")
        cursor.expect(">")
        return tuple(arguments)

    def _vector(self, depth: int) -> CqlType:
        cursor = self._cursor
        cursor.expect("<")
        element = self._read(depth + 1).freeze()
        cursor.expect(",")
        token = cursor.token
        digits = token.value if token.kind is TokenKind.NUMBER else ""
        dimension = int(digits) if digits.isdecimal() and len(digits) < _DIGITS_MAX else 0
        vector = CqlType("vector", (element,), dimension=dimension)
        if not 0 < dimension * (element.fixed_length or 1) <= VALUE_BYTES_MAX:
            cursor.fail("expected the vector's dimension")
        cursor.advance()
        cursor.expect(">")
        return vector

    def _udt(self, name: str) -> CqlType:
        cursor = self._cursor
        keyspace = self._keyspace
        token = cursor.token
        if cursor.accept("."):
            keyspace, name = name, cursor.name("a type")
        found = self._lookup(keyspace, name)
        if found is None:
            hint = "CREATE TYPE comes before its use"
            cursor.fail(f"unknown type {keyspace}.{name}", at=token, hint=hint)
        return found


def parse_class_name(text: str) -> CqlType | None:
    """Return the type of a Cassandra class name; None if it is unknown.

    ReversedType and FrozenType return their inner type; they affect only order and freezing.
    """
    head, bracket, rest = text.strip().partition("(")
    simple = head.strip().removeprefix(_CLASS_PREFIX)
    if not bracket:
        native = _NATIVE_OF_CLASS.get(simple)
        return CqlType(native) if native else None
    if not rest.endswith(")") or text.count("(") > TYPE_DEPTH_MAX:
        return None
    parts = _split_arguments(rest[:-1])
    dimension = 0
    if simple == "VectorType" and parts[-1].strip().isdecimal():
        dimension = int(parts.pop()[:_DIGITS_MAX])
    arguments = tuple(inner for inner in map(parse_class_name, parts) if inner)
    return _parametrized(simple, arguments, dimension) if len(arguments) == len(parts) else None


def _parametrized(simple: str, arguments: tuple[CqlType, ...], dimension: int) -> CqlType | None:
    if simple in _WRAPPER_CLASSES and len(arguments) == 1:
        return arguments[0].freeze() if simple == "FrozenType" else arguments[0]
    name = _GENERIC_OF_CLASS.get(simple, "")
    arity = {"vector": 1, "tuple": len(arguments), **COLLECTION_ARITY}.get(name)
    if arity != len(arguments) or (name == "vector") != (dimension > 0):
        return None
    if dimension and dimension * (arguments[0].fixed_length or 1) > VALUE_BYTES_MAX:
        return None
    return CqlType(name, tuple(inner.freeze() for inner in arguments), dimension=dimension)


def _split_arguments(text: str) -> list[str]:
    parts = [""]
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
