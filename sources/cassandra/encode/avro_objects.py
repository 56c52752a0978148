"""Changes as Avro: the values that fit the schemas of `avro_schema`, and the rules of both.

This is the default envelope, named cep44. Any Avro library encodes what `avro_key` and
`avro_value` return; the compiled encoder of this source gives the same bytes without them, so
every rule it needs is stated here.

Names. A name that Avro allows (letters, digits, `_`, not a digit first) stays. In any other name,
each forbidden character becomes `_`, a leading digit gets `_` before it, and `_` with the first
eight hex digits of the name's MD5 follows; while another field of the record has that name, `_` is
appended. The field's property `cqlName` then holds the CQL name. The namespace is
`headrace.<keyspace>.<table>`, made the same way. A named type inside a column is named after its
path: `col_` and the field's name in the payload, `key_` in the key, `bound_` in a range's bounds;
then `_entry`, `_item`, `_field_0` and so on inwards; a name that is taken gets `_2`, `_3`, ….

The key record `Key` has the partition key columns, by position, each of its plain type. An empty
value of a type that has no empty value in Avro is refused there (BadValueError).

The value record `Change`, in this order:

==================  ==========================================================================
timestampMicros     long: of the row's liveness or of the deletion, else of the newest cell
operationType       INSERT, UPDATE, DELETE, DELETE_RANGE or DELETE_PARTITION
sourceKeyspace      string
sourceTable         string
schemaUuid          fixed SchemaUuid of 16 bytes: the schema id
version             null: no source of headrace has one
isPartial           boolean, true: what was not written is absent
truncatedFields     array of string: names of the payload's fields whose values were cut off
isStatic            boolean
ttl                 null or int: seconds, of the row's liveness
expires             null or long: seconds since 1970, of the row's liveness
updateFields        array of string: names of the payload's static and regular fields that the
                    mutation mentions in this row, in the order they are logged in
payload             record Payload: every column that was not dropped, in the schema's order, each
                    null or its type. Null is "absent", "set to null" or "an empty value":
                    updateFields and cells distinguish them. Of a range or partition deletion only
                    the partition key is there, of a static row no clustering column
cells               array of record CellNote, for a simple column whose cell says more than its
                    value: it was written at another time than timestampMicros, or has not the
                    row's ttl and expires, or is an empty value (`values.is_empty_value`); in
                    the order of updateFields:
                    field string, timestampMicros null or long (null: the record's), ttl null or
                    int, expires null or long (the cell's own; both null: it never expires),
                    isEmpty boolean
range               null or record Range: start and end, each null (an open side) or record Bound:
                    values record ClusteringPrefix (every clustering column, null or its type),
                    count int (how many values are given), inclusive boolean
mutation            fixed MutationId of 16 bytes
index, of           int: the place among the changes of the mutation, from 0, and their number
copies              int: distinct nodes counted when it was published
node                string: where it was read,
segment, position   long
==================  ==========================================================================

Changes and their order are those of `changes.changes_of`: a complex column with neither deletion
nor cells is not mentioned. Types:

* ascii, text: string. blob, custom types, `empty`: bytes. boolean, float, double: the same.
  tinyint, smallint, int: int. bigint, counter (the total of the context): long
* timestamp: long, ms since 1970, `cqlType` timestamp. date: int, days since 1970, `cqlType` date.
  Neither has a logical type: readers fail beyond the year 9999, and CQL goes further. time: long,
  nanoseconds, `cqlType` time
* uuid, timeuuid: string, logical type uuid. inet: string, `cqlType` inet, as
  `values.inet_text` has it
* varint: bytes, two's complement as stored, `cqlType` varint. decimal: record Decimal (scale int,
  unscaled bytes). duration: record Duration (months int, days int, nanoseconds long)
* list, set, vector inside a frozen type or frozen: array of null or the element. map: array of
  record (key, value null or its type). tuple: record of field_0, field_1, …, UDT: record of its
  fields, each null or its type. A null, a missing trailing field and an empty value are all null
* a list, set or map that is not frozen: record of mode (enum CollectionMode: replace when
  there is a deletion of the whole column, else merge), deletedAt null or long (that deletion, µs),
  cells array of record: key, value null or its type, removed boolean, timestampMicros long, ttl
  null or int, expires null or long. The key is a list's time-uuid (string, logical type uuid), a
  set's element (there is no field `value` then), a map's key. A removed cell has
  null for value, ttl and expires; timestampMicros is always the cell's own
* a UDT that is not frozen: record of mode and deletedAt, as above, and fields, a record of the
  UDT's fields by name, each null where it was not written, or else a record of value, removed,
  timestampMicros, ttl and expires, as above. Cells of fields that the schema does not have, or
  that are not in the order of the fields, are refused (BadValueError)
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from headrace.sources.cassandra.encode.avro_schema import (
    Json,
    avro_names,
    payload_columns,
    tuple_fields,
)
from headrace.sources.cassandra.mutation.changes import Bound, Cell, Change, Column, RangeDeletion
from headrace.sources.cassandra.mutation.values import (
    INTEGERS,
    BadValueError,
    Form,
    Value,
    ascii_text,
    boolean,
    date_days,
    decimal_parts,
    decode,
    duration,
    inet_text,
    is_empty_value,
    long,
    real,
    text,
)
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.tables import TableSchema
from headrace.sources.cassandra.schema.types import CqlType


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a change in an envelope, besides its content."""

    mutation_id: bytes
    index: int
    of: int
    copies: int
    node: str
    segment_id: int
    position: int
    fate: str = ""
    is_read: bool = False
    """Whether its lists are those of the table, not only what the log has of them."""
    checksum: int = 0


def avro_key(change: Change) -> Json:
    """Return the key of *change*'s message.

    Raises:
        BadValueError: a key column does not fit its type, or is empty where Avro has no empty.

    """
    columns = change.table.partition_key
    return {
        alias: _required(column.type, raw)
        for alias, column, raw in zip(_aliases(change.table), columns, change.key, strict=False)
    }


def avro_value(change: Change, provenance: Provenance) -> Json:
    """Return the value of *change*'s message.

    Raises:
        BadValueError: a value does not fit its type.

    """
    columns = payload_columns(change.table)
    names = _aliases(change.table)
    aliases = {column.name: alias for column, alias in zip(columns, names, strict=True)}
    payload: Json = dict.fromkeys(aliases.values())
    keys = (*change.table.partition_key, *change.table.clustering)
    for column, raw in zip(keys, (*change.key, *(change.clustering or ())), strict=False):
        payload[aliases[column.name]] = _value(column.type, raw)
    for written in change.columns:
        payload[aliases[written.name]] = _column(written)
    return {
        "timestampMicros": change.timestamp_us,
        "operationType": change.operation.value,
        "sourceKeyspace": change.table.keyspace,
        "sourceTable": change.table.name,
        "schemaUuid": change.table.schema_id,
        "version": None,
        "isPartial": True,
        "truncatedFields": [],
        "isStatic": change.is_static,
        "ttl": change.ttl_s,
        "expires": change.expires_s,
        "updateFields": [aliases[column.name] for column in change.columns],
        "payload": payload,
        "cells": list(_cell_notes(change, aliases)),
        "range": None if change.range is None else _range(change.table, change.range),
        "mutation": provenance.mutation_id,
        "index": provenance.index,
        "of": provenance.of,
        "copies": provenance.copies,
        "node": provenance.node,
        "segment": provenance.segment_id,
        "position": provenance.position,
    }


def _aliases(table: TableSchema) -> tuple[str, ...]:
    return avro_names(tuple(column.name for column in payload_columns(table)))


def _value(cql_type: CqlType, raw: bytes | None) -> Value:
    return None if raw is None else decode(cql_type, raw, AVRO)


def _required(cql_type: CqlType, raw: bytes) -> Value:
    value = decode(cql_type, raw, AVRO)
    if value is None:
        raise BadValueError(f"an empty {cql_type} as a key has no form in Avro")
    return value


def _column(column: Column) -> Value:
    cql_type = column.schema.type
    if not column.schema.is_complex:
        return _value(cql_type, column.cells[0].raw)
    return {
        "mode": "merge" if column.deletion is None else "replace",
        "deletedAt": None if column.deletion is None else column.deletion.timestamp_us,
        **_written(cql_type, column.cells),
    }


def _written(cql_type: CqlType, cells: Sequence[Cell]) -> Json:
    if cql_type.is_udt:
        return {"fields": _fields(cql_type, cells)}
    keys = [_required(cql_type.path_type, cell.path or b"") for cell in cells]
    is_set = cql_type.name == "set"
    return {
        "cells": [
            {"key": key} | _cell(cell, has_value=not is_set)
            for key, cell in zip(keys, cells, strict=True)
        ]
    }


def _fields(cql_type: CqlType, cells: Iterable[Cell]) -> Json:
    """Return a UDT's fields by name, with the cells that were written."""
    names = avro_names(tuple(name for name, _ in cql_type.fields))
    fields: Json = dict.fromkeys(names)
    after = -1
    for cell in cells:
        path = cell.path or b""
        position = int.from_bytes(path, "big") if len(path) == constants.POSITION_BYTES else after
        if not after < position < len(names):
            raise BadValueError(
                f"the cells of a {cql_type} do not fit its {len(names)} fields",
                hint="give the schema that the writer had",
            )
        fields[names[position]] = _cell(cell, has_value=True)
        after = position
    return fields


def _cell(cell: Cell, *, has_value: bool) -> Json:
    document: Json = {"value": _value(cell.value_type, cell.raw)} if has_value else {}
    return document | {
        "removed": cell.raw is None,
        "timestampMicros": cell.timestamp_us,
        "ttl": cell.ttl_s,
        "expires": cell.expires_s,
    }


def _cell_notes(change: Change, aliases: Mapping[str, str]) -> Iterable[Json]:
    for column in change.columns:
        if column.schema.is_complex:
            continue
        (cell,) = column.cells
        same_time = cell.timestamp_us == change.timestamp_us
        same_life = (cell.ttl_s, cell.expires_s) == (change.ttl_s, change.expires_s)
        empty = cell.raw is not None and is_empty_value(cell.value_type, cell.raw)
        if not same_time or not same_life or empty:
            yield {
                "field": aliases[column.name],
                "timestampMicros": None if same_time else cell.timestamp_us,
                "ttl": cell.ttl_s,
                "expires": cell.expires_s,
                "isEmpty": empty,
            }


def _range(table: TableSchema, deleted: RangeDeletion) -> Json:
    return {"start": _bound(table, deleted.start), "end": _bound(table, deleted.end)}


def _bound(table: TableSchema, bound: Bound | None) -> Value:
    if bound is None:
        return None
    aliases = _aliases(table)[len(table.partition_key) :]
    columns = table.clustering
    given = [_value(c.type, raw) for c, raw in zip(columns, bound.values, strict=False)]
    given += [None] * (len(columns) - len(given))
    return {
        "values": dict(zip(aliases, given, strict=False)),
        "count": len(bound.values),
        "inclusive": bound.inclusive,
    }


def _sequence(_type: CqlType, items: list[Value]) -> Value:
    return items


def _mapping(cql_type: CqlType, pairs: list[tuple[Value, Value]]) -> Value:
    if any(key is None for key, _value in pairs):
        raise BadValueError(f"an empty key in a {cql_type} has no form in Avro")
    return [{"key": key, "value": value} for key, value in pairs]


def _product(cql_type: CqlType, items: list[Value]) -> Value:
    names = tuple(name for name, _type in cql_type.fields) or tuple_fields(len(items))
    return dict(zip(avro_names(names), items, strict=True))


def _decimal(raw: bytes) -> Value:
    scale, unscaled = decimal_parts(raw)
    return {"scale": scale, "unscaled": unscaled}


def _duration(raw: bytes) -> Value:
    return duration(raw)._asdict()


def _uuid_text(raw: bytes) -> Value:
    return str(UUID(bytes=raw))


AVRO: Final = Form(
    natives={
        **INTEGERS,
        "ascii": ascii_text,
        "blob": bytes,
        "boolean": boolean,
        "date": date_days,
        "decimal": _decimal,
        "double": real(">d"),
        "duration": _duration,
        "empty": bytes,
        "float": real(">f"),
        "inet": inet_text,
        "text": text,
        "timestamp": long,
        "timeuuid": _uuid_text,
        "uuid": _uuid_text,
        "varint": bytes,
    },
    opaque=bytes,
    sequence=_sequence,
    mapping=_mapping,
    product=_product,
)
