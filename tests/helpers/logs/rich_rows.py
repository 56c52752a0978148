"""Rows with columns of many types: some that are encoded in one pass, and some of UDTs."""

from uuid import UUID

from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.logs.forged import SCHEMA

AT_US = 1_700_000_000_000_000
PLAIN_TABLE = UUID("3f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
PLAIN = f"""
CREATE TABLE forged.plain (j int, k text, c int, d timestamp, b boolean, e inet, n int,
    s set<text>, t text, z map<text, int>, PRIMARY KEY ((k, j), c, d))
    WITH cdc = true AND ID = {PLAIN_TABLE};
"""
PLAIN_KEY = b"\0\4text\0\0\4\0\0\0\7\0"


def plain_row(  # noqa: PLR0913 (what a row can be)
    simple: str,
    *,
    replaces: bool = True,
    text: bytes = b"text",
    key: bytes = PLAIN_KEY,
    version: int = 7,
    kind: str = "insert",
    late: str = "",
    is_complex: bool = True,
) -> bytes:
    """Return a mutation of one row: two clustering columns, these *simple* ones, a set, a map.

    What the set had before is gone, if it *replaces* it. *text* is in the column t and in the set.
    *kind* is insert, update or expiring, which is an insert with a TTL. Simple columns in *late*
    are written a microsecond later than the others. Without *is_complex* there are only these.
    """
    life = _life(kind)
    raws = {"b": "01", "e": "7f000001", "n": "0000002a", "t": text.hex()}
    columns: dict[str, object] = {
        c: life | {"ts": AT_US + (c in late), "value": raws[c]} for c in simple
    }
    before = {"deletion": {"ts": AT_US - 1, "ldt": AT_US // 1_000_000}} if replaces else {}
    if is_complex:
        columns["s"] = before | {"cells": [life | {"path": p} for p in ("61", raws["t"])]}
        columns["z"] = {"cells": [life | {"path": "63", "value": "0000002b"}]}
    row: dict[str, object] = {"clustering": ["00000001", f"{1:016x}"], "columns": columns}
    if kind != "update":
        row["liveness"] = life
    made = {"id": str(PLAIN_TABLE), "key": key.hex(), "epoch": 500, "items": [row]}
    return encode_mutation({"updates": [made]}, parse_schema(SCHEMA + PLAIN), MESSAGING[version])


UDT_TABLE = UUID("3f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5b")
UDT = f"""
CREATE TYPE forged.money (amount int, name text, at timestamp, place frozen<tuple<int, text>>);
CREATE TABLE forged.priced (k text PRIMARY KEY, n int, m money, o int, w money)
    WITH cdc = true AND ID = {UDT_TABLE};
"""
UDT_VALUES = {0: "0000002a", 1: "4c", 2: "0000018bcfe56800", 3: "00000004000000070000000161"}


def udt_row(
    *cells: tuple[int, str | None],
    at_us: int = AT_US,
    replaces: bool = False,
    column: str = "m",
    kind: str = "insert",
) -> bytes:
    """Return a mutation of a row whose column *column* has cells at these positions.

    *kind* is as for `plain_row`.
    """
    life = _life(kind)
    written: list[dict[str, object]] = []
    for position, value in cells:
        removed = {"tombstone": True, "ldt": AT_US // 1_000_000}
        made = removed if value is None else life | {"value": value}
        written.append(made | {"ts": at_us, "path": f"{position:04x}"})
    before = {"deletion": {"ts": AT_US - 1, "ldt": AT_US // 1_000_000}} if replaces else {}
    columns: dict[str, object] = {column: before | {"cells": written}}
    columns["o"] = life | {"value": "00000001"}
    row: dict[str, object] = {"clustering": [], "columns": columns}
    if kind != "update":
        row["liveness"] = life
    update = {
        "id": str(UDT_TABLE),
        "key": f"ke{column}".encode().hex(),
        "epoch": 500,
        "items": [row],
    }
    return encode_mutation({"updates": [update]}, parse_schema(SCHEMA + UDT), MESSAGING[7])


def _life(kind: str) -> dict[str, object]:
    """Return the times of a row and its cells."""
    expiry = {"ttl": 86_400, "ldt": AT_US // 1_000_000 + 86_400} if kind == "expiring" else {}
    return {"ts": AT_US, **expiry}
