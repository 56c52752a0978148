"""The effects that change documents have."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from headrace.sources.cassandra.schema.tables import Schema
from helpers.recordings.effects import EMPTY, LARGE, STATIC, Effect, member, text


class ChangeEffects:
    """The effects that change documents have.

    Elements of lists are identified by ids, so it remembers the value of each one.
    """

    def __init__(self, schema: Schema) -> None:
        """Take the types of complex columns from *schema*."""
        self._types = {
            (table.qualified, column.name): column.type
            for table in schema.tables.values()
            for column in table.columns
        }
        self._elements: dict[tuple[str, ...], str] = {}

    def effects(self, change: Mapping[str, Any]) -> Iterator[Effect]:
        """Yield the effects of one document; call it in the order of the log."""
        clustering = STATIC if change.get("static") else text(change["clustering"])
        table, key, at_us = change["table"], text(change["key"]), change["timestamp"]
        if change["op"] == "DELETE_RANGE":
            sides = text(change["range"]["start"]), text(change["range"]["end"])
            yield Effect("range", table, key, "", sides, at_us)
        elif change["op"] == "DELETE_PARTITION":
            yield Effect("partition", table, key, "", (), at_us)
        elif change["op"] == "DELETE":
            yield Effect("delete", table, key, clustering, (), at_us)
        elif change["op"] == "INSERT":
            yield Effect("row", table, key, clustering, (), at_us, change.get("ttl"))
        for name, column in change.get("columns", {}).items():
            effects = self._column(
                change, Effect("", table, key, clustering, (name,), None), column
            )
            yield from effects

    def _column(
        self, change: Mapping[str, Any], at: Effect, column: Mapping[str, Any]
    ) -> Iterator[Effect]:
        if "mode" not in column:
            yield _cell(change, at._replace(kind="cell"), column)
            return
        if column["mode"] == "replace":
            yield at._replace(kind="clear", timestamp_us=column["deletedAt"])
        if "cells" in column:
            for cell in column["cells"]:
                yield self._element(change, at, cell, removed=cell["key"] in column["removed"])
            return
        alike = {name: column[name] for name in ("ts", "ttl", "empty") if name in column}
        for key in column["value"] or ():
            cell = alike | ({"value": column["value"][key]} if _is_object(column) else {})
            yield _cell(change, at._replace(kind="element", at=(*at.at, member(key))), cell)

    def _element(
        self, change: Mapping[str, Any], at: Effect, cell: Mapping[str, Any], *, removed: bool
    ) -> Effect:
        where = (*at[1:4], *at.at, member(cell["key"]))
        cql_type = self._types[at.table, at.at[0]]
        if cql_type.name != "list" or cql_type.is_udt:
            kind = "removed" if removed else "element"
            return _cell(change, at._replace(kind=kind, at=(*at.at, where[-1])), cell)
        if removed:
            gone = self._elements.get(where, "an unknown element")
            return at._replace(kind="list-removed", timestamp_us=cell["ts"], value=gone)
        kind = "list-put" if where in self._elements else "list-added"
        self._elements[where] = text(cell["value"])
        return _cell(change, at._replace(kind=kind), cell)


def _is_object(column: Mapping[str, Any]) -> bool:
    return isinstance(column["value"], dict)


def _cell(change: Mapping[str, Any], at: Effect, cell: Mapping[str, Any]) -> Effect:
    """Complete *at* with the time, TTL and value of a cell; its TTL is the row's or its own."""
    value = text(cell["value"]) if "value" in cell else ""
    if len(value) > LARGE:
        value = text(sha256(bytes.fromhex(cell["value"][2:])).hexdigest())
    if cell.get("empty"):
        value = text(EMPTY)
    null = at.kind == "removed" or (at.kind == "cell" and value == "null")
    ttl = None if null else cell.get("ttl", change.get("ttl"))
    return at._replace(timestamp_us=cell["ts"], ttl_s=ttl, value=value)
