"""What agreement costs for an entry while many mutations are remembered, without framing them.

The loop of the live path reads one log of distinct mutations three times, as three nodes have it:
each becomes a record, is published at its second copy, and known at its third. The same loop over
as many entries that are all one mutation does everything but find and keep records.
"""

import time
from collections.abc import Sequence
from random import Random
from typing import Final
from uuid import UUID

from headrace.sources.cassandra.agreement.intake import Intake, Routes
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.forge.mutations import encode_mutation
from headrace.sources.cassandra.forge.segments import segment
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.ring.topology import Node, replica_groups
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue

NODES: Final = 3
_KEY: Final = bytes(range(16))
_TABLE: Final = UUID("5f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
_DDL: Final = f"""
CREATE KEYSPACE ks
WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '{NODES}'}};
CREATE TABLE ks.t (k bigint PRIMARY KEY, v blob) WITH cdc = true AND ID = {_TABLE};
"""
_KEY_BYTES: Final = 8
_MESSAGING: Final = 12  # Of Cassandra 4.0.
_RUN_BYTES: Final = 1024 * 1024
_NO_BOUND: Final = 1 << 40


def per_entry_ns(records: int) -> tuple[float, float]:
    """Return the CPU of an entry with so many records, and that of one without any agreement."""
    same, distinct = _mutations(records)
    return _loop_ns([distinct] * NODES), _loop_ns([same] * NODES)


def look_up_ns(records: int) -> tuple[float, float]:
    """Return the CPU of an entry that is one of so many pending ones, and that of one without.

    One node's log is read, and then the same entries again, in an order of their own: each is
    found among the others, and does not count again.
    """
    same, distinct = _mutations(records)
    shuffled = list(distinct)
    Random(7).shuffle(shuffled)  # noqa: S311 (an order)
    return _loop_ns([distinct, shuffled], again=True), _loop_ns([same, same], again=True)


def _mutations(count: int) -> tuple[list[bytes], list[bytes]]:
    """Return one mutation so many times, and as many that differ in their keys."""
    base = _mutation()
    at = base.index(bytes(_KEY_BYTES))
    before, behind = base[:at], base[at + _KEY_BYTES :]
    distinct = [before + i.to_bytes(_KEY_BYTES, "big") + behind for i in range(1, count + 1)]
    return [base] * count, distinct


def _mutation() -> bytes:
    row = {"clustering": [], "liveness": {"ts": 1}, "columns": {"v": {"ts": 1, "value": "77" * 40}}}
    update = {"id": str(_TABLE), "key": bytes(_KEY_BYTES).hex(), "items": [row]}
    return encode_mutation({"updates": [update]}, parse_schema(_DDL), _MESSAGING)


def _loop_ns(logs: Sequence[Sequence[bytes]], *, again: bool = False) -> float:
    """Return the CPU of an entry when each log is another node's.

    With *again* they are all the first node's, and only the last one counts.
    """
    schema = parse_schema(_DDL)
    (keyspace,) = schema.keyspaces.values()
    groups = replica_groups([Node(str(n)) for n in range(NODES)], [keyspace], "QUORUM")
    feed = Intake(NODES, _KEY, 1)
    feed.own(0, Agreement(groups))
    for host in range(NODES):
        feed.assign(0, host, host)
    routes = Routes(Catalogue(schema), 0)
    routes.treat(0, constants.SELECTED, 0)
    each = [
        _feed_ns(feed, routes, 0 if again else host, memoryview(segment([raws]).content))
        for host, raws in enumerate(logs)
    ]
    read = sum(feed.read_of(0, host) for host in range(NODES))
    return each[-1] / len(logs[-1]) if again else sum(each) / read


def _feed_ns(feed: Intake, routes: Routes, host: int, content: memoryview) -> int:
    def read_into(offset: int, buffer: memoryview) -> int:
        part = content[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    cpu_ns = 0
    framer = Framer()
    open_segment(framer, read_into, keys=Keys(KeyOptions()), place="bench")
    found = constants.ENTRY
    while found == constants.ENTRY:
        started = time.process_time_ns()
        found = feed.run(framer, host, routes, _RUN_BYTES, _NO_BOUND, _NO_BOUND)
        cpu_ns += time.process_time_ns() - started
        feed.give_back(feed.take(0))
    return cpu_ns
