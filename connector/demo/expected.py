"""The expected changes of a recording, computed from the output of Cassandra's own reader.

Shares no code with the decoder: it starts from hexadecimal values, and knows only the types that
the recorded rings use. A mutation is justified at QUORUM of three replicas when equal content is in
the logs of two distinct nodes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from headrace.connector.demo.recording import Recording, RecordingError

QUORUM: Final = 2
# Facts of the published copy alone, and the schema's id, which is checked separately.
PROVENANCE: Final = frozenset({"mutation", "copies", "node", "segment", "position", "schemaUuid"})

Json = dict[str, Any]  # Any: JSON.

_SEGMENT: Final = re.compile(r"CommitLog-\d+-(\d+)\.log")


def expected_changes(recording: Recording) -> "Counter[bytes]":
    """Return the canonical form of every change that must be published, once each."""
    tables = {table.name: table for table in recording_tables(recording)}
    return Counter(
        canonical(change["sourceKeyspace"] + "." + change["sourceTable"], key, change)
        for mutation in agreed_mutations(recording)
        for key, change in _changes(mutation["updates"], tables)
    )


def canonical(table: str, key: object, change: Mapping[str, object]) -> bytes:
    """Return equal bytes for equal changes, of any job: without provenance."""
    shown = {name: value for name, value in change.items() if name not in PROVENANCE}
    payload = change["payload"]
    assert isinstance(payload, Mapping)  # noqa: S101 (every change has one)
    shown["payload"] = {name: value for name, value in payload.items() if value is not None}
    return msgspec.json.encode([table, key, shown], order="deterministic")


def agreed_mutations(recording: Recording) -> Iterator[Json]:
    """Yield each content that enough nodes have, once."""
    nodes = _nodes_of_segments(recording.nodes)
    seen: defaultdict[bytes, set[str]] = defaultdict(set)
    with recording.oracle.open("rb") as lines:
        for line in lines:
            mutation = msgspec.json.decode(line)
            if not mutation["cdc"]:
                continue
            content = msgspec.json.encode(mutation["updates"], order="deterministic")
            node = nodes[mutation["segment"]]
            if node not in seen[content]:
                seen[content].add(node)
                if len(seen[content]) == QUORUM:
                    yield mutation


def _nodes_of_segments(nodes: Mapping[str, Path]) -> dict[int, str]:
    return {
        int(match[1]): node
        for node, folder in nodes.items()
        for path in folder.iterdir()
        if (match := _SEGMENT.fullmatch(path.name))
    }


class Table(msgspec.Struct, frozen=True):
    """A CDC table; each part of its columns maps a name to a type."""

    name: str
    partition_key: Mapping[str, str]
    clustering: Mapping[str, str]
    others: Mapping[str, str]


def recording_tables(recording: Recording) -> list[Table]:
    """Return the CDC tables from the recording."""
    described = msgspec.json.decode(recording.tables.read_bytes())["tables"]

    def types(table: Json, *kinds: str) -> dict[str, str]:
        found = [column for column in table["columns"] if column["kind"] in kinds]
        found.sort(key=lambda column: column["position"])
        return {column["name"]: column["type"] for column in found}

    return [
        Table(
            f"{table['keyspace']}.{table['table']}",
            types(table, "partition_key"),
            types(table, "clustering"),
            types(table, "static", "regular"),
        )
        for table in described
        if table["cdc"]
    ]


def _changes(updates: list[Json], tables: Mapping[str, Table]) -> Iterator[tuple[Json, Json]]:
    """Yield key and value of each change of one mutation, in log order."""
    found = [
        (_key(tables[update["table"]], update), change)
        for update in updates
        if update["table"] in tables
        for change in _update_changes(tables[update["table"]], update)
    ]
    for index, (key, change) in enumerate(found):
        yield key, change | {"index": index, "of": len(found)}


def _key(table: Table, update: Json) -> Json:
    """Return the partition key, of which the recorded tables have one column."""
    ((name, cql_type),) = table.partition_key.items()
    return {name: value_of(cql_type, update["key"])}


def _update_changes(table: Table, update: Json) -> Iterator[Json]:
    whole = partial(_change, table, _key(table, update))
    if deletion := update.get("partition_deletion"):
        yield whole("DELETE_PARTITION", deletion["ts"])
    rows = [update["static"]] if "static" in update else []
    start: Json | None = None
    for item in rows + update["items"]:
        if "marker" not in item:
            yield from _row_changes(table, whole, item)
            continue
        if "close" in item:
            assert start is not None  # noqa: S101 (the oracle's markers alternate)
            sides = {"start": _bound(table, start), "end": _bound(table, item)}
            yield whole("DELETE_RANGE", item["close"]["ts"], range=sides)
        start = item if "open" in item else None


def _row_changes(table: Table, whole: Callable[..., Json], row: Json) -> Iterator[Json]:
    is_static = row["clustering"] == "static"
    values = () if is_static else row["clustering"]
    clustering = {
        name: value_of(table.clustering[name], value)
        for name, value in zip(table.clustering, values, strict=False)
    }
    if "deletion" in row:
        yield whole("DELETE", row["deletion"]["ts"], payload=clustering)
    columns: Json = row.get("columns", {})
    liveness: Json = row.get("liveness", {})
    if not columns and not liveness:
        return
    cells = [cell for column in columns.values() for cell in column.get("cells", [column])]
    deletions = [column["deletion"] for column in columns.values() if "deletion" in column]
    timestamp = liveness.get("ts") or max(written["ts"] for written in cells or deletions)
    yield whole(
        "INSERT" if liveness else "UPDATE",
        timestamp,
        isStatic=is_static,
        ttl=liveness.get("ttl"),
        expires=liveness.get("ldt"),
        updateFields=list(columns),
        payload=clustering
        | {name: _column(table.others[name], column) for name, column in columns.items()},
        cells=[
            note
            for name, column in columns.items()
            if "cells" not in column and (note := _note(name, column, liveness, timestamp))
        ],
    )


def _change(table: Table, key: Json, operation: str, timestamp: int, **rest: object) -> Json:
    keyspace, name = table.name.split(".")
    columns = rest.pop("payload", {})
    assert isinstance(columns, dict)  # noqa: S101 (given above)
    return {
        "timestampMicros": timestamp,
        "operationType": operation,
        "sourceKeyspace": keyspace,
        "sourceTable": name,
        "version": None,
        "isPartial": True,
        "truncatedFields": [],
        "isStatic": False,
        "ttl": None,
        "expires": None,
        "updateFields": [],
        "payload": key | columns,
        "cells": [],
        "range": None,
        **rest,
    }


def _note(name: str, cell: Json, liveness: Json, timestamp: int) -> Json | None:
    """Return the times of a cell that differ from those of its row, or None."""
    same_time = cell["ts"] == timestamp
    expires = cell.get("ldt") if "ttl" in cell else None
    if same_time and (cell.get("ttl"), expires) == (liveness.get("ttl"), liveness.get("ldt")):
        return None
    return {
        "field": name,
        "timestampMicros": None if same_time else cell["ts"],
        "ttl": cell.get("ttl"),
        "expires": expires,
        "isEmpty": False,
    }


def _column(cql_type: str, column: Json) -> object:
    if "cells" not in column:
        return value_of(cql_type, column.get("value"))
    collection, _, inner = cql_type.removesuffix(">").partition("<")
    key_type, _, value_type = inner.partition(", ")
    cells = []
    for cell in column["cells"]:
        value = {} if collection == "set" else {"value": value_of(value_type, cell.get("value"))}
        cells.append(
            {
                "key": value_of(key_type, cell["path"]),
                **value,
                "removed": "tombstone" in cell,
                "timestampMicros": cell["ts"],
                "ttl": cell.get("ttl"),
                "expires": cell["ldt"] if "ttl" in cell else None,
            }
        )
    deleted = column.get("deletion")
    return {
        "mode": "replace" if deleted else "merge",
        "deletedAt": deleted["ts"] if deleted else None,
        "cells": cells,
    }


def _bound(table: Table, marker: Json) -> Json | None:
    kind, values = marker["marker"], marker["values"]
    if not values:
        return None
    given = dict.fromkeys(table.clustering) | {
        name: value_of(table.clustering[name], value)
        for name, value in zip(table.clustering, values, strict=False)
    }
    return {"values": given, "count": len(values), "inclusive": kind.startswith("INCL")}


def value_of(cql_type: str, text: str | None) -> object:
    """Return the value with the bytes *text*, in hexadecimal, in the form of Avro readers."""
    if text is None:
        return None
    if cql_type not in _VALUES:
        raise RecordingError(
            f"the demo's check does not know the type {cql_type}",
            hint="play a recording of the kind `ring`",
        )
    return _VALUES[cql_type](bytes.fromhex(text))


def _whole(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


_VALUES: Final[Mapping[str, Callable[[bytes], object]]] = {
    "bigint": _whole,
    "decimal": lambda raw: {"scale": _whole(raw[:4]), "unscaled": raw[4:]},
    "int": _whole,
    "text": bytes.decode,
    "timestamp": _whole,
    "uuid": lambda raw: UUID(bytes=raw),
}
