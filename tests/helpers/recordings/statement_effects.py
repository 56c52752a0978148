"""The effects of the statements that a recording has in `truth.jsonl`."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import ColumnKind, Schema, TableSchema
from headrace.sources.cassandra.schema.types import CqlType
from helpers.recordings.effects import EMPTY, STATIC, Effect, member, select_json, text
from helpers.recordings.merged_batches import Batch

_DEFAULT_TTL: Final = re.compile(r"CREATE TABLE \w+\.(\w+) .*default_time_to_live = (\d+)")


def stated_effects(folder: Path) -> list[Effect]:
    """Return the effects of the statements of the recording in *folder* on its log."""
    ddl = (folder / "schema.cql").read_text()
    schema = parse_schema(ddl)
    ttls = {name: int(seconds) for name, seconds in _DEFAULT_TTL.findall(ddl)}
    stated = Stated(schema, ttls)
    effects: list[Effect] = []
    batches: dict[tuple[object, ...], list[Effect]] = defaultdict(list)
    for line in (folder / "truth.jsonl").read_text().splitlines():
        statement = json.loads(line)
        for effect in stated.effects(statement):
            if "batch" in statement:
                batches[statement["batch"], effect.table, effect.key].append(effect)
            else:
                effects.append(effect)
    tables = {table.qualified: table for table in schema.tables.values()}
    for (_batch, table, _key), together in batches.items():
        effects += Batch(tables[str(table)], together).left(stated.positions)
    return effects


class Stated:
    """The effects of recorded statements."""

    def __init__(self, schema: Schema, default_ttls: Mapping[str, int]) -> None:
        """Take types from *schema*; *default_ttls* has the default TTLs of tables, by name."""
        tables = {t.name: t for t in schema.tables.values() if not t.is_dropped}
        self._tables: Mapping[str, TableSchema] = tables
        self._default_ttls = default_ttls
        self.positions: dict[str, Sequence[bytes]] = {}

    def effects(self, statement: Mapping[str, Any]) -> list[Effect]:
        """Return the effects of a statement; none of DDL and of what Cassandra did not apply."""
        operation = statement["op"]
        if operation in {"ddl", "truncate", "counter"} or statement.get("applied") is False:
            return []
        return list(getattr(self, f"_{operation}")(statement))

    def _place(self, statement: Mapping[str, Any]) -> tuple[TableSchema, Effect]:
        table = self._tables[statement["table"]]
        given = statement["key"]
        key, clustering = (
            {c.name: self._value(c.type, given[c.name]) for c in columns if c.name in given}
            for columns in (table.partition_key, table.clustering)
        )
        place = Effect("", table.qualified, text(key), text(clustering), (), statement["ts"])
        self._remember(table, given, list(clustering.values()), ())
        return table, place

    def _remember(
        self,
        table: TableSchema,
        given: Mapping[str, Any],
        values: Sequence[object],
        more: Sequence[Mapping[str, Any]],
    ) -> None:
        named = [given[c.name] for c in table.clustering if c.name in given]
        raws = [bytes.fromhex(value["hex"]) for value in (*named, *more)]
        self.positions[table.qualified + text(values)] = raws

    @staticmethod
    def _value(cql_type: CqlType, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        return select_json(cql_type, given["value"])

    def _insert(self, statement: Mapping[str, Any]) -> Iterator[Effect]:
        table, place = self._place(statement)
        if not table.clustering or set(statement["key"]) > {c.name for c in table.partition_key}:
            yield place._replace(kind="row", ttl_s=self._ttl(statement))
        yield from self._update(statement)

    def _ttl(self, statement: Mapping[str, Any]) -> int | None:
        ttl = statement.get("ttl")
        if ttl is None:
            ttl = self._default_ttls.get(statement["table"])
        return ttl or None

    def _update(self, statement: Mapping[str, Any]) -> Iterator[Effect]:
        table, place = self._place(statement)
        columns = {column.name: column for column in table.columns}
        ttl_s = self._ttl(statement)

        def at(name: str) -> Effect:
            static = columns[name].kind is ColumnKind.STATIC
            where = place._replace(clustering=STATIC) if static else place
            return where._replace(at=(name,), ttl_s=ttl_s)

        for name, given in (statement.get("set") or {}).items():
            yield from self._set(at(name), columns[name].type, given["value"])
        for name, large in (statement.get("large") or {}).items():
            yield at(name)._replace(kind="cell", value=text(large["sha256"]))
        for change in statement.get("change") or ():
            yield from self._changed(at(change["column"]), columns[change["column"]].type, change)

    @staticmethod
    def _set(at: Effect, cql_type: CqlType, value: Any) -> Iterator[Effect]:  # noqa: ANN401 (JSON)
        if not cql_type.is_complex:
            empty = value == EMPTY and select_json(cql_type, value) is None
            shown = text(EMPTY if empty else select_json(cql_type, value))
            yield at._replace(kind="cell", value=shown, ttl_s=None if value is None else at.ttl_s)
            return
        yield at._replace(kind="clear", timestamp_us=_before(at.timestamp_us), ttl_s=None)
        yield from _elements(at, cql_type, value)

    @staticmethod
    def _changed(at: Effect, cql_type: CqlType, change: Mapping[str, Any]) -> Iterator[Effect]:
        how, value = change["how"], change["value"]
        is_list = cql_type.name == "list" and not cql_type.is_udt
        if how in {"append", "prepend"}:
            yield from _elements(at, cql_type, value)
        elif how == "remove" and is_list:
            for item in value:
                gone = text(select_json(cql_type.arguments[0], item))
                yield at._replace(kind="list-removed", ttl_s=None, value=gone)
        elif how == "remove":
            for item in value:
                key = member(select_json(cql_type.arguments[0], item))
                yield at._replace(kind="removed", at=(*at.at, key), ttl_s=None)
        elif how == "put" and is_list:
            item = text(select_json(cql_type.arguments[0], value))
            yield at._replace(kind="list-put", value=item)
        elif how == "put":
            key = member(select_json(cql_type.arguments[0], change["key"]))
            yield _element(at, key, cql_type.arguments[1], value)
        elif how == "field":
            inner = dict(cql_type.fields)[change["field"]]
            yield _element(at, change["field"], inner, value)
        else:
            raise AssertionError(how)

    def _delete_columns(self, statement: Mapping[str, Any]) -> Iterator[Effect]:
        table, place = self._place(statement)
        columns = {column.name: column for column in table.columns}
        for given in statement["columns"]:
            name, _, item = given.partition("[")
            name, _, one = name.partition(".")
            column = columns[name]
            static = column.kind is ColumnKind.STATIC
            at = (place._replace(clustering=STATIC) if static else place)._replace(at=(name,))
            item = one or item.rstrip("]").strip("'")
            if item:
                yield at._replace(kind="removed", at=(name, item))
            elif column.is_complex:
                yield at._replace(kind="clear")
            else:
                yield at._replace(kind="cell", value="null")

    def _delete_row(self, statement: Mapping[str, Any]) -> Iterator[Effect]:
        yield self._place(statement)[1]._replace(kind="delete")

    def _delete_partition(self, statement: Mapping[str, Any]) -> Iterator[Effect]:
        yield self._place(statement)[1]._replace(kind="partition", clustering="")

    def _delete_range(self, statement: Mapping[str, Any]) -> Iterator[Effect]:
        table, place = self._place(statement)
        prefix = [
            self._value(c.type, statement["key"][c.name])
            for c in table.clustering
            if c.name in statement["key"]
        ]
        whole = {"values": prefix, "inclusive": True} if prefix else None
        sides = [whole, whole]
        for name, relation, given in statement["bounds"]:
            column = table.clustering[len(prefix)]
            assert name == column.name
            is_end = (relation[0] == "<") != column.descending
            values = [*prefix, self._value(column.type, given)]
            sides[is_end] = {"values": values, "inclusive": relation.endswith("=")}
            self._remember(table, statement["key"], values, [given])
        yield place._replace(kind="range", clustering="", at=(text(sides[0]), text(sides[1])))

    def _delete_in(self, statement: Mapping[str, Any]) -> Iterator[Effect]:
        table, place = self._place(statement)
        assert statement["column"] == table.clustering[0].name
        for value in statement["values"]:
            side = text({"values": [value], "inclusive": True})
            yield place._replace(kind="range", clustering="", at=(side, side))


def _before(timestamp_us: int | None) -> int | None:
    return None if timestamp_us is None else timestamp_us - 1


def _elements(at: Effect, cql_type: CqlType, value: Any) -> Iterator[Effect]:  # noqa: ANN401 (JSON)
    if value is None:
        return
    if cql_type.is_udt:
        for name, inner in cql_type.fields:
            if value.get(name) is not None:
                yield _element(at, name, inner, value[name])
    elif cql_type.name == "list":
        for item in value:
            found = text(select_json(cql_type.arguments[0], item))
            yield at._replace(kind="list-added", value=found)
    elif cql_type.name == "set":
        for item in value:
            key = member(select_json(cql_type.arguments[0], item))
            yield at._replace(kind="element", at=(*at.at, key))
    else:
        for key, item in value:
            shown = member(select_json(cql_type.arguments[0], key))
            yield _element(at, shown, cql_type.arguments[1], item)


def _element(at: Effect, key: str, cql_type: CqlType, value: Any) -> Effect:  # noqa: ANN401 (JSON)
    where = at._replace(at=(*at.at, key))
    if value is None:
        return where._replace(kind="removed", ttl_s=None)
    shown = select_json(cql_type, value)
    empty = value == EMPTY and shown is None
    return where._replace(kind="element", value=text(EMPTY if empty else shown))
