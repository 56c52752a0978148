"""`headrace forge-ring`: logs of three nodes that receive writes until standard input ends."""

import json
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from headrace.plugins import ConfigError, Problem
from headrace.plugins.config.arguments import CommandParser
from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.forge.segments import COMPLETED, SegmentWriter
from headrace.sources.cassandra.forge.statements import Statements
from headrace.sources.cassandra.forge.wire import entry
from headrace.sources.cassandra.schema.ddl import parse_schema

SCHEMA_FILE: Final = "schema.cql"
WRITES_FILE: Final = "writes.jsonl"
NODES: Final = ("node1", "node2", "node3")
SCHEMA: Final = """\
CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '3'};
CREATE TABLE shop.orders (
    order_id int PRIMARY KEY, customer text, item text, amount int, state text
) WITH cdc = true AND ID = 5b6962dd-3f90-4c93-8f61-eabfa4a803e2;
"""
_TABLE: Final = "shop.orders"
_VERSION: Final = 7
_SYNC_SECONDS: Final = 0.2
_SEGMENT_BYTES_MAX: Final = 64 * 1024
_VERBS: Final = ("stop", "start", "damage")
_FOUND_CHARS_MAX: Final = 80
_RATE_MAX: Final = 100_000.0
_LINE_BYTES_MAX: Final = 4096
_CUSTOMERS: Final = ("Ada", "Ben", "Chloe", "Deniz", "Emil", "Fatima", "Goran", "Hana")
_ITEMS: Final = ("book", "lamp", "chair", "kettle", "bicycle", "violin")
_NEW_SHARE: Final = 0.4  # The share of inserts.
_STATES: Final = ("paid", "packed", "sent")

Json = Mapping[str, Any]  # Any: JSON.


class Node:
    """The log of one node: its writes, synced periodically."""

    def __init__(self, folder: Path, first_id: int) -> None:
        """Start the first segment."""
        self.folder = folder
        self.hints: list[bytes] | None = None
        """The mutations that the node missed while it is down; None while it is up."""
        self.is_next_damaged = False
        folder.mkdir(parents=True)
        self._begin(first_id)

    def _begin(self, segment_id: int) -> None:
        self._writer = SegmentWriter(version=_VERSION, segment_id=segment_id)
        self._path = self.folder / f"CommitLog-{_VERSION}-{segment_id}.log"
        self._written = 0
        self._flush(f"{self._writer.forged().durable}")

    def write(self, mutation: bytes) -> None:
        """Append a mutation, or keep it as a hint while the node is down."""
        if self.hints is not None:
            self.hints.append(mutation)
            return
        framed = bytearray(entry(mutation))
        if self.is_next_damaged:
            framed[len(framed) // 2] ^= 0xFF
            self.is_next_damaged = False
        self._writer.add_entry(bytes(framed))

    def sync(self, *, is_last: bool = False) -> None:
        """Sync the appended entries; start the next segment when this one is full."""
        if self._writer.unsynced:
            self._writer.sync()
            self._flush(f"{self._writer.forged().durable}")
        if is_last or self._writer.file_bytes > _SEGMENT_BYTES_MAX:
            self._flush(f"{self._writer.forged().durable}\n{COMPLETED}")
            if not is_last:
                self._begin(self._writer.segment_id + 1)

    def _flush(self, index: str) -> None:
        """Write the new part of the segment, and then its index, as a node does."""
        content = self._writer.forged().content
        with self._path.open("ab") as file:
            file.write(content[self._written :])
        self._written = len(content)
        self._path.with_name(f"{self._path.stem}_cdc.idx").write_text(index)


class Shop:
    """Generates the writes: orders are placed, change their state, and are deleted."""

    def __init__(self, seed: int) -> None:
        """Seed the random choices."""
        self._random = Random(seed)  # noqa: S311 (made-up orders)
        self._open: dict[int, int] = {}
        self._last = 0

    def statement(self) -> Json:
        """Return the next write as a statement of a script."""
        random = self._random
        if not self._open or random.random() < _NEW_SHARE:
            self._last += 1
            self._open[self._last] = 0
            values = {
                "order_id": self._last,
                "customer": random.choice(_CUSTOMERS),
                "item": random.choice(_ITEMS),
                "amount": random.randint(1, 9),
                "state": "new",
            }
            return {"insert": _TABLE, "values": values}
        order = random.choice(list(self._open))
        step = self._open[order]
        if step == len(_STATES):
            del self._open[order]
            return {"delete": _TABLE, "key": {"order_id": order}}
        self._open[order] = step + 1
        return {"update": _TABLE, "key": {"order_id": order}, "set": {"state": _STATES[step]}}


class Ring:
    """Three replicas of every row, and the list of the writes to them."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Write the schema to *folder*, and start the logs there."""
        self._schema = parse_schema(SCHEMA)
        self._statements = Statements(self._schema)
        self._shop = Shop(seed)
        self._last_us = 0
        self._list = (folder / WRITES_FILE).open("w", encoding="utf-8")
        (folder / SCHEMA_FILE).write_text(SCHEMA, encoding="utf-8")
        first_id = time.time_ns() // 1_000_000
        self.nodes = {name: Node(folder / name, first_id) for name in NODES}

    def write(self) -> None:
        """Send one write to all nodes; a node that is down gets it later."""
        self._last_us = max(self._last_us + 1, time.time_ns() // 1_000)
        statement = {**self._shop.statement(), "timestamp": self._last_us}
        document = self._statements.document([statement])
        mutation = encode_mutation(document, self._schema, MESSAGING[_VERSION])
        # Listed before any log has it, so every received write is in the list.
        self._list.write(json.dumps(reported(statement)) + "\n")
        self._list.flush()
        for node in self.nodes.values():
            node.write(mutation)

    def order(self, words: Sequence[str]) -> str:
        """Execute a line of standard input. Return a sentence about its effect."""
        verb, name = words if len(words) == len(("verb", "node")) else ("", "")
        if verb not in _VERBS or name not in self.nodes:
            found = " ".join(words)[:_FOUND_CHARS_MAX]
            return (
                f"expected {', '.join(_VERBS)} and one of {', '.join(self.nodes)}, found {found!r}"
            )
        node = self.nodes[name]
        match verb:
            case "stop":
                node.hints = []
                return f"{name} is down. The other nodes take the writes, and keep hints for it."
            case "start":
                hints, node.hints = node.hints or [], None
                for mutation in hints:
                    node.write(mutation)
                return (
                    f"{name} is up again, and gets {len(hints)} hints: the writes that it missed."
                )
            case _:
                node.is_next_damaged = True
                return f"In the segment that {name} writes, a byte of the next entry is flipped."

    def close(self) -> None:
        """End all logs, including the writes that nodes missed."""
        for name, node in self.nodes.items():
            if node.hints is not None:
                self.order(("start", name))
            node.sync(is_last=True)
        self._list.close()


def reported(statement: Json) -> Json:
    """Return a write as a consumer would receive it."""
    verb = next(verb for verb in ("insert", "update", "delete") if verb in statement)
    key = statement.get("key", {})
    values = {**statement.get("values", {}), **key, **statement.get("set", {})}
    return {
        "table": _TABLE,
        "operation": verb.upper() if verb != "delete" else "DELETE_PARTITION",
        "key": {"order_id": values["order_id"]},
        "timestampMicros": statement["timestamp"],
        "values": values,
    }


def main(arguments: Sequence[str]) -> int:
    """Write the logs of three nodes that take writes, until standard input ends.

    Returns 0.

    Example: headrace forge-ring ring

    Raises:
        ConfigError: the folder has something in it, or cannot be made.

    """
    parser = CommandParser(
        prog="headrace forge-ring",
        description="Write the commit logs of three nodes with replication factor 3, which take "
        f"writes until standard input ends. The folder gets node1 to node3, {SCHEMA_FILE}, and "
        f"{WRITES_FILE}, a line for each write. Lines of standard input are orders: "
        "stop NODE, start NODE, damage NODE.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="is empty, or made")
    parser.add_argument("--per-second", type=_rate, default=10.0, metavar="N", help="writes (10)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the writes (1)")
    given = parser.parse_args(arguments)
    try:
        given.folder.mkdir(parents=True, exist_ok=True)
        is_used = any(given.folder.iterdir())
    except OSError as error:
        raise ConfigError([Problem("FOLDER", f"{given.folder}: {error.strerror}")]) from error
    if is_used:
        raise ConfigError([Problem("FOLDER", f"{given.folder} is not empty", "name a new one")])
    ring = Ring(given.folder, given.seed)
    _say("ready")
    _take_writes(ring, given.per_second)
    ring.close()
    return 0


def _rate(text: str) -> float:
    if not 0 < (found := float(text)) <= _RATE_MAX:
        raise ValueError
    return found


def _take_writes(ring: Ring, per_second: float) -> None:
    """Write *per_second* times a second, and sync each node in turn, until standard input ends."""
    begun_s = time.monotonic()
    written = 0
    due_s = {name: begun_s + _SYNC_SECONDS * n / len(NODES) for n, name in enumerate(NODES)}
    orders = Orders()
    while not orders.is_over:
        next_s = min(begun_s + written / per_second, *due_s.values())
        for line in orders.lines(max(0.0, next_s - time.monotonic())):
            _say(ring.order(line.split()))
        now_s = time.monotonic()
        while begun_s + written / per_second <= now_s:
            ring.write()
            written += 1
        for name, node in ring.nodes.items():
            if due_s[name] <= now_s:
                node.sync()
                due_s[name] = now_s + _SYNC_SECONDS


class Orders:
    """The lines of standard input."""

    def __init__(self) -> None:
        """Start with no input."""
        self._rest = b""
        self.is_over = False

    def lines(self, seconds: float) -> Sequence[str]:
        """Return the available lines. Blocks up to *seconds* for input."""
        if not select.select([0], [], [], seconds)[0]:
            return ()
        more = os.read(0, _LINE_BYTES_MAX)
        self.is_over = not more
        *lines, self._rest = (self._rest + more).split(b"\n")
        return [line.decode() for line in lines]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
