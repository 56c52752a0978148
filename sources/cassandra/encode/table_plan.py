"""Tables prepared for the Avro encoder: flat arrays by column, and what all messages share.

Separate from the encoder because it is made once per table from the schema. Must not do I/O.
"""

from array import array
from collections.abc import Iterable, Mapping
from typing import Protocol

from headrace.plugins import Headers
from headrace.sources.cassandra.encode.avro_bytes import ValuePlan
from headrace.sources.cassandra.encode.avro_schema import avro_names, payload_columns
from headrace.sources.cassandra.mutation.errors import UnknownTableError
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import ColumnKind, ColumnSchema, TableSchema
from headrace.sources.cassandra.schema.types import CqlType

_NEVER = -(1 << 63)
_FOREVER = (1 << 63) - 1


class TablePlan:
    """One table, ready for encoding. Arrays are by index into `TableSchema.columns`."""

    def __init__(self, table: TableSchema, headers: Headers, *, delivered: bool) -> None:
        """Derive what all messages share. Changes of a table not *delivered* are only counted."""
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
        names = [avro_string(alias) for alias in avro_names(tuple(c.name for c in payload))]
        self.names = names + [b""] * (len(columns) - len(names))
        self.payload_count = len(payload)
        names_of_table = avro_string(table.keyspace) + avro_string(table.name)
        # No version, partial, nothing truncated.
        self.constant = names_of_table + table.schema_id + b"\x00\x01\x00"
        kinds = [column.kind for column in payload]
        self.key_count = kinds.count(ColumnKind.PARTITION_KEY)
        self.first_cell = self.key_count + kinds.count(ColumnKind.CLUSTERING)
        self.values = [ValuePlan(column.type) for column in columns]
        self.codes = memoryview(array("i", [plan.code for plan in self.values]))
        self.empties = memoryview(array("i", [int(plan.allows_empty) for plan in self.values]))
        self.complex = memoryview(array("i", [int(column.is_complex) for column in columns]))
        self.kind = memoryview(array("i", [_complex_kind(column.type) for column in columns]))
        self.paths = self.values[:]  # Other types in complex columns only.
        self.cells = self.values[:]
        for i, column in enumerate(columns):
            if self.complex[i]:
                self.paths[i] = ValuePlan(column.type.path_type)
                self.cells[i] = ValuePlan(_cell_type(column.type))
        forms = [self._form(i, column) for i, column in enumerate(columns)]
        numbers = [number for form in forms for number in form]
        fields_count = 0
        for i, column in enumerate(columns):
            if column.is_complex and self.kind[i] == constants.COMPLEX_UDT:
                numbers[i * constants.FORM_WIDTH + constants.FORM_PATH] = constants.BY_NAME
                numbers[i * constants.FORM_WIDTH + constants.FORM_CELL] = len(numbers)
                numbers += [self.values[i].count, *(field.code for field in self.values[i].inner)]
                fields_count += self.values[i].count
        self.forms = memoryview(array("i", numbers))
        self.fields_of = memoryview(array("i", [0] * (len(columns) + 1)))
        self.keep_fields([])
        # The most bytes that a change takes, besides those of its values.
        self.fixed_bytes = sum(map(len, self.names)) + constants.COLUMN_BYTES * (len(columns) + 8)
        self.fixed_bytes += fields_count

    def _form(self, index: int, column: ColumnSchema) -> tuple[int, int, int, int]:
        """Return the form of a column: see `native.constants`."""
        fixed = column.type.fixed_length
        path = self.paths[index].code if column.is_complex else 0
        has_values = path and self.kind[index] != constants.COMPLEX_SET
        cell = self.cells[index].code if has_values else 0
        return self.codes[index], -1 if fixed is None else fixed, path, cell

    def keep_fields(self, columns: list[int]) -> None:
        """Keep the updateFields of these columns for later rows that mention the same ones."""
        for i, column in enumerate(columns):
            self.fields_of[i] = column
        self.fields = self.fields_avro(columns)
        self.fields_count = len(columns)

    def fields_avro(self, columns: list[int]) -> bytes:
        """Return the updateFields of these columns as Avro."""
        names = b"".join([self.names[column] for column in columns])
        return (avro_long(len(columns)) if columns else b"") + names + b"\x00"


class EpochPlans:
    """What the encoder needs of one epoch."""

    def __init__(self, catalogue: Catalogue, delivered: Mapping[TableSchema, TablePlan]) -> None:
        """Take the plans of the tables that are *delivered*, and make those of all others."""
        self.cutter = Cutter(catalogue)
        kept = {id(table): plan for table, plan in delivered.items()}
        self.plans = [
            kept.get(id(table)) or TablePlan(table, (), delivered=False)
            for table in catalogue.tables
        ]
        self.columns_max = max([len(table.columns) for table in catalogue.tables], default=0)


class EpochSource(Protocol):
    """Gives the encoder the plans of the epochs that mutations were logged in."""

    def plans_of(self, epoch: int) -> EpochPlans:
        """Return the plans of an epoch; called when the epoch changes."""

    def others(self, epoch: int) -> Iterable[int]:
        """Return other epochs for a mutation that does not fit this one, the most likely first."""

    def hides(self, epoch: int, raw: bytes) -> bool:
        """Return whether a delivered table can follow an unknown one in a mutation."""

    def pass_over(self, error: UnknownTableError) -> None:
        """Record an unknown table in a mutation whose other updates were delivered."""


def avro_string(text: str) -> bytes:
    """Return *text* as Avro writes a string."""
    raw = text.encode()
    return avro_long(len(raw)) + raw


def avro_long(number: int) -> bytes:
    """Return a number that is not negative as Avro writes a long."""
    rest = 2 * number
    made = bytearray()
    while rest >= constants.VINT_MORE:
        made.append(rest % constants.VINT_MORE + constants.VINT_MORE)
        rest //= constants.VINT_MORE
    made.append(rest)
    return bytes(made)


def _cell_type(cql_type: CqlType) -> CqlType:
    """Return the type of a list's or map's values."""
    return cql_type.arguments[len(cql_type.arguments) - 1] if cql_type.arguments else cql_type


def _complex_kind(cql_type: CqlType) -> int:
    if cql_type.is_udt:
        return constants.COMPLEX_UDT
    return constants.COMPLEX_SET if cql_type.name == "set" else constants.COMPLEX_OTHER
