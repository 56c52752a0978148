"""Typed columns hold what the changes say."""

import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.plugins import Batch, ConfigError
from headrace.plugins.records.columns import (
    ColumnBuffers,
    ColumnKind,
    Pieces,
    TableType,
    TypedColumn,
)
from headrace.sources.cassandra.columns.column_types import column_type, table_type
from headrace.sources.cassandra.columns.value_columns import ValueColumn
from headrace.sources.cassandra.encode.change_record import ChangeRecord
from headrace.sources.cassandra.mutation.changes import Change, Column
from headrace.sources.cassandra.mutation.values import (
    INTEGERS,
    BadValueError,
    Form,
    Value,
    ascii_text,
    boolean,
    date_days,
    decimal,
    decode,
    duration,
    inet_text,
    long,
    real,
    text,
    uuid,
    varint,
)
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.types import CqlType, parse_type
from helpers.logs.forged import OTHER, SCHEMA, insert, mutation, update
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.recordings.corpora import recording
from helpers.settings.native_modules import is_compiled
from helpers.settings.native_modules import long as long_running

pytestmark = pytest.mark.hot

COMPILED = is_compiled("headrace.sources.cassandra.columns.writer")
RECORDINGS = ("4.0-types", "5.0-ops", "5.0-types", "6.0-v9-types", "5.0-compact", "4.1-random")
MISFITS: Final[list[object]] = []
ONE_COPY = {"consistency": "ONE", "splits": 1}
NUMBERS: Final = {
    ColumnKind.INT8: "b",
    ColumnKind.INT16: "h",
    ColumnKind.INT32: "i",
    ColumnKind.INT64: "q",
    ColumnKind.FLOAT: "f",
    ColumnKind.DOUBLE: "d",
    ColumnKind.DATE: "i",
    ColumnKind.TIMESTAMP: "q",
}


@pytest.mark.parametrize("name", RECORDINGS if COMPILED else RECORDINGS[:2])
def test_rows_are_what_changes_say(name: str) -> None:
    """Each field of a row is the value that the decoder finds, in every table of a recording."""
    made = 0
    for batch, target, wanted in typed(name):
        found = batch.typed(target, with_messages=False)
        reported = zip(values_in(found.row), values_in(found.unfit), strict=True)
        for change, (row, unfit) in zip(wanted, reported, strict=True):
            assert expected(change, target) == (row, unfit)
            made += 1

    assert 10 < made


def test_messages_are_those_of_the_table() -> None:
    """With messages, each change has the key and the value that the batch encodes for it."""
    seen = 0
    for batch, target, _ in typed("5.0-ops"):
        whole = batch.encode("avro")
        wanted = [
            (key, value)
            for table, key, value in zip(whole.tables, whole.keys, whole.values, strict=True)
            if table == target.table
        ]
        made = batch.typed(target, with_messages=True)
        assert made.encoded is not None

        assert wanted == list(zip(made.encoded.keys, made.encoded.values, strict=True))
        assert len(wanted) == len(made)
        seen += len(made)

    assert seen


@pytest.mark.parametrize("name", ["5.0-ops", long_running("4.1-random")])
def test_joined_messages_are_those_that_are_made_one_by_one(name: str) -> None:
    """Keys and values that lie side by side are what the batch encodes, with the same facts."""
    made = 0
    for batch, _, _ in typed(name):
        wanted, found = batch.encode("avro"), batch.joined("avro")

        assert (list(wanted.keys), list(wanted.values)) == (list(found.keys), found.values[:])
        assert (wanted.headers, wanted.tables) == (found.headers, found.tables)
        assert wanted.facts == found.facts
        assert isinstance(found.values, Pieces)
        assert sum(map(len, wanted.values)) == found.values.size_bytes
        made += len(found)

    assert 10 < made


def test_what_does_not_fit_its_schema_leaves_nothing(tmp_path: Path) -> None:
    """A mutation that cannot be cut to its end leaves no row behind, and others stay."""
    half = mutation(update(b"2"), update(b"2", b"y"))[:-1]
    options = forged_nodes(tmp_path, {"node1": [insert(b"1", b"x"), half, insert(b"3")]}, SCHEMA)
    made = source(options | ONE_COPY)
    target = made.table_type("forged.t")
    (batch,) = batches(open_all(made).values())

    found = batch.typed(target, with_messages=True)

    assert [{"k": b"1", "v": b"x"}, {"k": b"3", "v": b""}] == values_in(found.row)
    assert found.encoded is not None
    assert list(batch.encode("avro").values) == list(found.encoded.values)
    assert len(batch.quarantined()) == len(found.encoded.quarantined) == 1
    made.close()


@pytest.mark.parametrize(
    ("cql", "raw", "value"),
    [
        ("decimal", b"\0\0\0\2" + (-314).to_bytes(2, "big", signed=True), Decimal("-3.14")),
        ("decimal", b"\0\0\0\x12" + (1 << 62).to_bytes(8, "big"), Decimal(1 << 62).scaleb(-18)),
        ("decimal", b"\xff\xff\xff\xfe\7", Decimal(700)),
        ("decimal", b"\0\0\0\x13\x0a", Decimal(1).scaleb(-18)),
        ("decimal", b"\0\0\0\x13\x0b", None),
        ("decimal", b"\0\0\0\0" + (10**20).to_bytes(9, "big"), None),
        ("varint", (-(10**38) + 1).to_bytes(16, "big", signed=True), Decimal(1 - 10**38)),
        ("varint", (-(1 << 63)).to_bytes(8, "big", signed=True), Decimal(-(1 << 63))),
        ("varint", (10**38).to_bytes(16, "big"), None),
        ("timestamp", (1 << 62).to_bytes(8, "big"), None),
        ("timestamp", (-1).to_bytes(8, "big", signed=True), -1000),
        ("smallint", b"\xff\xfe", -2),
        ("tinyint", b"\x80", -128),
        ("int", b"", None),
    ],
)
def test_bounds_of_types(cql: str, raw: bytes, value: object) -> None:
    """A value that does not fit its column is null and reported; others are exact."""
    kind = parse_type(cql)
    column = ValueColumn(column_type(kind))
    column.bind(kind)

    unfit = put(column, raw)

    assert (value is None and raw != b"") == bool(unfit)
    assert [value] == values_in(column.buffers())


def test_a_type_that_changed_is_not_guessed() -> None:
    """Values of another type than planned are null and reported; new UDT fields are omitted."""
    column = ValueColumn(column_type(parse_type("int")))
    column.bind(parse_type("text"))
    old = CqlType("u", fields=(("a", CqlType("int")),), keyspace="ks", frozen=True)
    new = CqlType("u", fields=(*old.fields, ("b", CqlType("text"))), keyspace="ks", frozen=True)
    part = ValueColumn(column_type(old))
    part.bind(new)

    assert 1 == put(column, b"x")
    assert 0 == put(part, b"\0\0\0\4\0\0\0\7\0\0\0\1z")
    assert [{"a": 7}] == values_in(part.buffers())


@pytest.mark.parametrize(
    ("cql", "raw"),
    [
        ("int", b"\0"),
        ("text", b"\xff"),
        ("ascii", "ä".encode()),
        ("frozen<list<int>>", b"\0\0\0\2\0\0\0\4\0\0\0\1"),
        ("frozen<list<int>>", b"\0\0\0\0\0"),
        ("tuple<int>", b"\0\0\0\4\0\0\0\1\0"),
        ("vector<text, 2>", b"\1a\5b"),
        ("inet", b"\1\2\3"),
        ("duration", b"\1"),
    ],
)
def test_bytes_that_are_no_value(cql: str, raw: bytes) -> None:
    """Bytes that are not a value of their type are refused."""
    kind = parse_type(cql)
    column = ValueColumn(column_type(kind))
    column.bind(kind)

    with pytest.raises(BadValueError):
        put(column, raw)


def test_counters_have_no_columns() -> None:
    """A table of counters is refused."""
    statement = f"CREATE TABLE ks.c (id int PRIMARY KEY, n counter) WITH ID = {OTHER};"
    table = parse_schema(statement).table("ks.c")
    assert table is not None

    with pytest.raises(ConfigError, match="counters"):
        table_type(table)


# ---- what is compared ----


def put(column: ValueColumn, raw: bytes) -> int:
    """Append a value that lies alone."""
    column.attach(raw)
    return column.value(0, len(raw))


def typed(name: str) -> Sequence[tuple[Batch, TableType, Sequence[Change]]]:
    """Return every batch of a recording with each table that it has changes of, and these."""
    folder = recording(name)
    options = {"nodes": {"node1": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    made = source(options | ONE_COPY)
    found = []
    for batch in batches(open_all(made).values()):
        of_table: dict[str, list[Change]] = {}
        for record in batch.records():
            assert isinstance(record, ChangeRecord)
            of_table.setdefault(record.schema.table, []).append(record.change)
        found += [(batch, made.table_type(table), each) for table, each in of_table.items()]
    made.close()
    return found


def values_in(column: TypedColumn) -> list[Any]:
    """Read a column as the layout of Arrow is defined."""
    assert isinstance(column, ColumnBuffers)
    count, kind = column.count, column.type.kind
    parts: list[Any]
    if kind is ColumnKind.STRUCT:
        names = [name for name, _ in column.type.fields]
        fields = [values_in(child) for child in column.children]
        parts = [dict(zip(names, each, strict=True)) for each in zip(*fields, strict=True)]
    elif column.offsets is not None:
        ends = column.offsets.cast("i").tolist()
        inner: Any = column.values
        if kind is ColumnKind.MAP:
            inner = list(zip(*map(values_in, column.children), strict=True))
        elif kind is ColumnKind.LIST:
            inner = values_in(column.children[0])
        parts = [inner[low:high] for low, high in pairwise(ends)]
        if kind in (ColumnKind.TEXT, ColumnKind.BYTES):
            parts = [bytes(each) for each in parts]
        if kind is ColumnKind.TEXT:
            parts = [each.decode() for each in parts]
    else:
        assert column.values is not None
        parts = list(_fixed(kind, column.type.scale, column.values))
    valid = [bool(column.valid[i >> 3] >> (i & 7) & 1) for i in range(count)]
    return [part if known else None for part, known in zip(parts, valid, strict=False)]


def _fixed(kind: ColumnKind, scale: int, raw: memoryview) -> Iterator[object]:
    if kind is ColumnKind.BOOLEAN:
        yield from (bool(byte >> bit & 1) for byte in raw for bit in range(8))
    elif kind is ColumnKind.DECIMAL:
        for at in range(0, len(raw) // 16 * 16, 16):
            number = int.from_bytes(raw[at : at + 16], "little", signed=True)
            yield scaled(number, scale)
    else:
        size = struct.calcsize(NUMBERS[kind])
        for (each,) in struct.iter_unpack(NUMBERS[kind], raw[: len(raw) // size * size]):
            yield repr(each) if kind in (ColumnKind.FLOAT, ColumnKind.DOUBLE) else each


def scaled(number: int, scale: int) -> Decimal:
    """Return an exact decimal."""
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -scale))


# ---- what is expected, from the decoder that makes Python's values ----


def expected(change: Change, target: TableType) -> tuple[dict[str, object], list[str]]:
    """Return the row of a change, and the columns that cannot hold what it says."""
    keys = (*change.table.partition_key, *change.table.clustering)
    cells = {
        c.name: (c.type, raw)
        for c, raw in zip(keys, (*change.key, *(change.clustering or ())), strict=False)
    }
    written = {column.name: column for column in change.columns}
    row, unfit = {}, []
    names = [name for name, _ in target.row.fields]
    for column in change.table.columns:
        if column.name in names:
            MISFITS.clear()
            if column.name in written:
                row[column.name] = of_column(written[column.name])
            else:
                row[column.name] = of_value(*cells.get(column.name, (column.type, None)))
            unfit += [column.name] * bool(MISFITS)
    return {name: row.get(name) for name in names}, unfit


def of_value(cql_type: CqlType, raw: bytes | None) -> Value:
    """Return one value."""
    return None if raw is None else decode(cql_type, raw, ARROW)


def of_column(column: Column) -> Value:
    """Return what lives of a column."""
    kind = column.schema.type
    if not column.schema.is_complex:
        return of_value(kind, column.cells[0].raw)
    live = [cell for cell in column.cells if cell.raw is not None]
    if not live:
        return None
    keys = [of_value(kind.path_type, cell.path) for cell in live]
    values = [of_value(cell.value_type, cell.raw) for cell in live]
    if kind.is_udt:
        given = dict(zip(keys, values, strict=True))
        return {name: given.get(place) for place, (name, _) in enumerate(kind.fields)}
    if kind.name == "map":
        return _mapping(kind, list(zip(keys, values, strict=True)))
    return keys if kind.name == "set" else values


def _decimal(raw: bytes) -> Value:
    number = decimal(raw)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + 18
    unscaled = int("".join(map(str, digits)))
    if shift < 0 and unscaled % 10**-shift:
        return misfit(number)
    unscaled = unscaled * 10**shift if shift >= 0 else unscaled // 10**-shift
    return _bounded(-unscaled if sign else unscaled, 18)


def _bounded(number: int, scale: int) -> Value:
    if abs(number) >= 10**38:
        return misfit(number)
    return scaled(number, scale)


def _moment(raw: bytes) -> Value:
    moment = 1000 * long(raw)
    if not -(1 << 63) <= moment < 1 << 63:
        return misfit(moment)
    return moment


def _sequence(_type: CqlType, items: list[Value]) -> Value:
    return items


def _mapping(_type: CqlType, pairs: list[tuple[Value, Value]]) -> Value:
    return misfit(pairs) if any(key is None for key, _ in pairs) else pairs


def misfit(value: object) -> Value:
    """Note a value that no column can hold; it is null."""
    MISFITS.append(value)
    return None


def _float(code: str) -> Callable[[bytes], str]:
    return lambda raw: repr(real(code)(raw))  # Not a number equals nothing.


def _product(cql_type: CqlType, items: list[Value]) -> Value:
    names = [n for n, _ in cql_type.fields] or [f"_{n}" for n in range(1, len(items) + 1)]
    return dict(zip(names, items, strict=True))


ARROW: Final = Form(
    natives={
        **INTEGERS,
        "ascii": ascii_text,
        "blob": bytes,
        "boolean": boolean,
        "date": date_days,
        "decimal": _decimal,
        "double": _float(">d"),
        "duration": lambda raw: duration(raw)._asdict(),
        "empty": bytes,
        "float": _float(">f"),
        "inet": inet_text,
        "text": text,
        "timestamp": _moment,
        "timeuuid": lambda raw: str(uuid(raw)),
        "uuid": lambda raw: str(uuid(raw)),
        "varint": lambda raw: _bounded(varint(raw), 0),
    },
    opaque=bytes,
    sequence=_sequence,
    mapping=_mapping,
    product=_product,
)
