"""Tables prepared for the Avro encoder: flat arrays by column, and common parts of messages.

Separate from the encoder because it is made once per table from the schema. Must not do I/O.
"""

from array import array
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Protocol

import msgspec

from headrace.plugins import Headers
from headrace.sources.cassandra.encode.avro_bytes import ValuePlan
from headrace.sources.cassandra.encode.avro_schema import avro_names, payload_columns
from headrace.sources.cassandra.mutation.errors import UnknownTableError
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import ColumnKind, TableSchema
from headrace.sources.cassandra.schema.types import CqlType

_NEVER = -(1 << 63)
_FOREVER = (1 << 63) - 1


class _ColumnPlan(msgspec.Struct, frozen=True):
    """The parts of a column's type that encoding needs; for `form` see `native.constants`."""

    value: ValuePlan
    path: ValuePlan  # Differs from `value` only in complex columns, like `cell`.
    cell: ValuePlan
    is_complex: int
    kind: int
    allows_empty: int
    form: tuple[int, int, int, int]


class TablePlan:
    """One table, ready for encoding. Arrays are by index into `TableSchema.columns`."""

    def __init__(self, table: TableSchema, headers: Headers, *, delivered: bool) -> None:
        """Derive the common parts of messages. A table not *delivered* is only counted."""
        self.delivered = int(delivered)
        # Cells written at or before this time are ignored.
        drops = [_NEVER if c.dropped_us is None else c.dropped_us for c in table.columns]
        gone = [
            _FOREVER if c.is_dropped else us for c, us in zip(table.columns, drops, strict=True)
        ]
        self.dropped = memoryview(array("q", gone))
        # Whether a plain row is encoded in one pass: see `transcode`.
        self.is_plain = int(delivered and set(gone) == {_NEVER})
        if delivered:
            self._prepare(table, headers)

    def _prepare(self, table: TableSchema, headers: Headers) -> None:
        self.table_name = table.qualified
        self.headers = headers
        columns = table.columns
        payload = payload_columns(table)
        names = [_name(alias) for alias in avro_names(tuple([c.name for c in payload]))]
        self.names = names + [b""] * (len(columns) - len(names))
        self.payload_count = len(payload)
        names_of_table = avro_string(table.keyspace) + avro_string(table.name)
        # No version, partial, nothing truncated.
        self.constant = names_of_table + table.schema_id + b"\x00\x01\x00"
        kinds = [column.kind for column in payload]
        self.key_count = kinds.count(ColumnKind.PARTITION_KEY)
        self.first_cell = self.key_count + kinds.count(ColumnKind.CLUSTERING)
        plans = [_planned(column.type, column.is_complex) for column in columns]
        self.values = [plan.value for plan in plans]
        self.paths = [plan.path for plan in plans]
        self.cells = [plan.cell for plan in plans]
        self.codes = memoryview(array("i", [plan.form[0] for plan in plans]))
        self.empties = memoryview(array("i", [plan.allows_empty for plan in plans]))
        self.complex = memoryview(array("i", [plan.is_complex for plan in plans]))
        self.kind = memoryview(array("i", [plan.kind for plan in plans]))
        numbers = [number for plan in plans for number in plan.form]
        fields_count = 0
        for i, plan in enumerate(plans):
            if plan.is_complex and plan.kind == constants.COMPLEX_UDT:
                numbers[i * constants.FORM_WIDTH + constants.FORM_PATH] = constants.BY_NAME
                numbers[i * constants.FORM_WIDTH + constants.FORM_CELL] = len(numbers)
                numbers += [self.values[i].count, *(field.code for field in self.values[i].inner)]
                fields_count += self.values[i].count
        self.forms = memoryview(array("i", numbers))
        self.fields_of = memoryview(array("i", [0] * (len(columns) + 1)))
        self.keep_fields([])
        # The maximum size of a change, besides its values.
        self.fixed_bytes = sum(map(len, self.names)) + constants.COLUMN_BYTES * (len(columns) + 8)
        self.fixed_bytes += fields_count

    def keep_fields(self, columns: list[int]) -> None:
        """Keep the updateFields of these columns for later rows with the same ones."""
        for i, column in enumerate(columns):
            self.fields_of[i] = column
        self.fields = self.fields_avro(columns)
        self.fields_count = len(columns)

    def fields_avro(self, columns: list[int]) -> bytes:
        """Return the updateFields of these columns in Avro."""
        names = b"".join([self.names[column] for column in columns])
        return (avro_long(len(columns)) if columns else b"") + names + b"\x00"


class EpochPlans:
    """The plans of one epoch for the encoder."""

    def __init__(self, catalogue: Catalogue, delivered: Mapping[TableSchema, TablePlan]) -> None:
        """Use the plans of the tables that are *delivered*, and make those of all others."""
        self.cutter = Cutter(catalogue)
        kept = {id(table): plan for table, plan in delivered.items()}
        self.plans = [
            kept.get(id(table)) or TablePlan(table, (), delivered=False)
            for table in catalogue.tables
        ]
        self.columns_max = max([len(table.columns) for table in catalogue.tables], default=0)


class EpochSource(Protocol):
    """Returns the plans of epochs to the encoder."""

    def plans_of(self, epoch: int) -> EpochPlans:
        """Return the plans of an epoch; called when the epoch changes."""

    def others(self, epoch: int) -> Iterable[int]:
        """Return other epochs for a mutation that does not fit this one, the most likely first."""

    def hides(self, epoch: int, raw: bytes) -> bool:
        """Return whether a delivered table can follow an unknown one in a mutation."""

    def pass_over(self, error: UnknownTableError) -> None:
        """Record an unknown table in a mutation whose other updates were delivered."""


def avro_string(text: str) -> bytes:
    """Return *text* as an Avro string."""
    raw = text.encode()
    return avro_long(len(raw)) + raw


def avro_long(number: int) -> bytes:
    """Return a non-negative number as an Avro long."""
    rest = 2 * number
    made = bytearray()
    while rest >= constants.VINT_MORE:
        made.append(rest % constants.VINT_MORE + constants.VINT_MORE)
        rest //= constants.VINT_MORE
    made.append(rest)
    return bytes(made)


@lru_cache(maxsize=4096)
def _name(alias: str) -> bytes:
    """Return an Avro string; many tables have columns of the same name."""
    return avro_string(alias)


@lru_cache(maxsize=4096)
def _planned(cql_type: CqlType, is_complex: bool) -> _ColumnPlan:  # noqa: FBT001 (called by column)
    """Return the plan of a column; many columns have the same."""
    value = path = cell = ValuePlan(cql_type)
    kind = _complex_kind(cql_type)
    fixed = cql_type.fixed_length
    path_code = cell_code = 0
    if is_complex:
        path, cell = ValuePlan(cql_type.path_type), ValuePlan(_cell_type(cql_type))
        path_code = path.code
        cell_code = cell.code if path_code and kind != constants.COMPLEX_SET else 0
    form = value.code, -1 if fixed is None else fixed, path_code, cell_code
    return _ColumnPlan(value, path, cell, int(is_complex), kind, int(value.allows_empty), form)


def _cell_type(cql_type: CqlType) -> CqlType:
    """Return the type of a list's or map's values."""
    return cql_type.arguments[len(cql_type.arguments) - 1] if cql_type.arguments else cql_type


def _complex_kind(cql_type: CqlType) -> int:
    if cql_type.is_udt:
        return constants.COMPLEX_UDT
    return constants.COMPLEX_SET if cql_type.name == "set" else constants.COMPLEX_OTHER
