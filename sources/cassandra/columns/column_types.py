"""Maps CQL types to the types of columns for bulk work. Pure.

Types without their own column type: uuid, timeuuid and inet are text, time is nanoseconds of the
day, duration a struct of months, days and nanoseconds, a vector a list, a tuple a struct of `_1`,
`_2` and so on; an unknown type is bytes. Columns that are written cell by cell have the type of
frozen ones.
"""

from collections.abc import Iterable
from typing import Final

from headrace.plugins import ConfigError, Problem
from headrace.plugins.records.columns import ColumnKind, ColumnType, TableType, bounds_type
from headrace.sources.cassandra.mutation.values import decimal_parts, varint
from headrace.sources.cassandra.schema.tables import TableSchema
from headrace.sources.cassandra.schema.types import CqlType

DECIMAL_SCALE: Final = 18
DIGITS_MAX: Final = 38
_DIGITS_OF_A_BYTE_MAX: Final = 3
_NUMBER_BYTES: Final = 16
_KINDS: Final = {
    "ascii": ColumnKind.TEXT,
    "text": ColumnKind.TEXT,
    "uuid": ColumnKind.TEXT,
    "timeuuid": ColumnKind.TEXT,
    "inet": ColumnKind.TEXT,
    "boolean": ColumnKind.BOOLEAN,
    "tinyint": ColumnKind.INT8,
    "smallint": ColumnKind.INT16,
    "int": ColumnKind.INT32,
    "bigint": ColumnKind.INT64,
    "counter": ColumnKind.INT64,
    "time": ColumnKind.INT64,
    "float": ColumnKind.FLOAT,
    "double": ColumnKind.DOUBLE,
    "decimal": ColumnKind.DECIMAL,
    "varint": ColumnKind.DECIMAL,
    "date": ColumnKind.DATE,
    "timestamp": ColumnKind.TIMESTAMP,
}
_DURATION: Final = ColumnType(
    ColumnKind.STRUCT,
    (
        ("months", ColumnType(ColumnKind.INT32)),
        ("days", ColumnType(ColumnKind.INT32)),
        ("nanoseconds", ColumnType(ColumnKind.INT64)),
    ),
)


def column_type(cql_type: CqlType) -> ColumnType:
    """Return the type of a column with values of *cql_type*."""
    if cql_type.is_udt:
        return _struct((name, column_type(inner)) for name, inner in cql_type.fields)
    inner = [column_type(argument) for argument in cql_type.arguments]
    match cql_type.name:
        case "tuple":
            return _struct((f"_{number}", each) for number, each in enumerate(inner, start=1))
        case "list" | "set" | "vector":
            return ColumnType(ColumnKind.LIST, (("element", inner[0]),))
        case "map":
            return ColumnType(ColumnKind.MAP, (("key", inner[0]), ("value", inner[1])))
        case "duration":
            return _DURATION
        case name:
            scale = DECIMAL_SCALE if name == "decimal" else 0
            return ColumnType(_KINDS.get(name, ColumnKind.BYTES), scale=scale)


def table_type(table: TableSchema) -> TableType:
    """Return the types of the changes of *table*; dropped columns are left out.

    Raises:
        ConfigError: the table has counters, whose totals are not in changes.

    """
    if table.is_counter:
        raise ConfigError([Problem("table", f"{table.qualified} holds counters")])
    columns = [(c.name, column_type(c.type)) for c in table.columns if not c.is_dropped]
    clustering = [(c.name, column_type(c.type)) for c in table.clustering]
    return TableType(table.qualified, _struct(columns), bounds_type(clustering))


def _struct(fields: Iterable[tuple[str, ColumnType]]) -> ColumnType:
    return ColumnType(ColumnKind.STRUCT, tuple(fields))


def scaled_number(raw: bytes, scale: int, *, has_scale: bool) -> bytes | None:
    """Return a decimal, or without scale a varint, as the 128 bits of a column with *scale*.

    Returns None for a number with more than 38 digits at that scale, or that would lose digits.

    Raises:
        ValueError: the bytes are not such a number.

    """
    own, unscaled = decimal_parts(raw) if has_scale else (0, raw)
    number = scaled(own, unscaled, scale)
    return None if number is None else number.to_bytes(_NUMBER_BYTES, "little", signed=True)


def scaled(own: int, unscaled: bytes, scale: int) -> int | None:
    """Convert a number from the scale *own* to *scale*; None as in `scaled_number`."""
    number = varint(unscaled)
    more = scale - own
    if number and (more > DIGITS_MAX or -more > _DIGITS_OF_A_BYTE_MAX * len(unscaled)):
        return None  # It is too large, or digits would be lost.
    if number and more > 0:
        number *= power_of_ten(more)
    elif number and more < 0:
        number, rest = divmod(number, power_of_ten(-more))
        if rest:
            return None
    return None if abs(number) >= power_of_ten(DIGITS_MAX) else number


def power_of_ten(exponent: int) -> int:
    """Return a power of ten."""
    return int("1" + "0" * exponent)
