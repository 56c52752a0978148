"""Inserts with columns of many types: one that is encoded in one pass, and one of UDTs."""

from uuid import UUID

from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.logs.forged import SCHEMA

PLAIN_TABLE = UUID("3f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
PLAIN = f"""
CREATE TABLE forged.plain (j int, k text, c int, d timestamp, b boolean, e inet, n int,
    s set<text>, t text, z map<text, int>, PRIMARY KEY ((k, j), c, d))
    WITH cdc = true AND ID = {PLAIN_TABLE};
"""
PLAIN_KEY = b"\0\4text\0\0\4\0\0\0\7\0"


def plain_insert(
    simple: str,
    *,
    replaces: bool = True,
    text: bytes = b"text",
    key: bytes = PLAIN_KEY,
    version: int = 7,
) -> bytes:
    """Return an insert of one row: two clustering columns, these *simple* ones, a set, a map.

    What the set had before is gone, if it *replaces* it. *text* is in the column t and in the set.
    """
    ts = 1_700_000_000_000_000
    raws = {"b": "01", "e": "7f000001", "n": "0000002a", "t": text.hex()}
    columns: dict[str, object] = {c: {"ts": ts, "value": raws[c]} for c in simple}
    before = {"deletion": {"ts": ts - 1, "ldt": ts // 1_000_000}} if replaces else {}
    columns["s"] = before | {"cells": [{"ts": ts, "path": p} for p in ("61", raws["t"])]}
    columns["z"] = {"cells": [{"ts": ts, "path": "63", "value": "0000002b"}]}
    row = {"clustering": ["00000001", f"{1:016x}"], "liveness": {"ts": ts}, "columns": columns}
    made = {"id": str(PLAIN_TABLE), "key": key.hex(), "epoch": 500, "items": [row]}
    return encode_mutation({"updates": [made]}, parse_schema(SCHEMA + PLAIN), MESSAGING[version])


UDT_TABLE = UUID("3f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5b")
UDT = f"""
CREATE TYPE forged.money (amount int, name text, at timestamp, place frozen<tuple<int, text>>);
CREATE TABLE forged.priced (k text PRIMARY KEY, n int, m money, o int, w money)
    WITH cdc = true AND ID = {UDT_TABLE};
"""
UDT_VALUES = {0: "0000002a", 1: "4c", 2: "0000018bcfe56800", 3: "00000004000000070000000161"}
AT_US = 1_700_000_000_000_000


def udt_insert(
    *cells: tuple[int, str | None], at_us: int = AT_US, replaces: bool = False, column: str = "m"
) -> bytes:
    """Return an insert of a row whose column *column* has cells at these positions."""
    written: list[dict[str, object]] = []
    for position, value in cells:
        life = {"tombstone": True, "ldt": AT_US // 1_000_000} if value is None else {"value": value}
        written.append({"ts": at_us, "path": f"{position:04x}", **life})
    before = {"deletion": {"ts": AT_US - 1, "ldt": AT_US // 1_000_000}} if replaces else {}
    columns: dict[str, object] = {column: before | {"cells": written}}
    columns["o"] = {"ts": AT_US, "value": "00000001"}
    row = {"clustering": [], "liveness": {"ts": AT_US}, "columns": columns}
    made = {"id": str(UDT_TABLE), "key": f"ke{column}".encode().hex(), "epoch": 500, "items": [row]}
    return encode_mutation({"updates": [made]}, parse_schema(SCHEMA + UDT), MESSAGING[7])
