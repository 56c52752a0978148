"""What a large ring asks of workers and store, by the code that assigns and keeps leases.

`python -m bench.ring` makes a ring on paper, the splits that suit it, and all of its workers, by a
clock that is driven. The store counts what it is asked as `CassandraStore` asks Cassandra.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final, cast

import msgspec

from headrace.connector.runtime.splits.assignment import Part, assigned
from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.stores import LeaseRow, Owner, WorkerRow
from headrace.connector.stores.keyed.rows import BUCKETS
from headrace.plugins import Nearness
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.ring.locality import shares
from headrace.sources.cassandra.ring.splits import count_for, names
from headrace.sources.cassandra.ring.topology import Node, Topology
from headrace.sources.cassandra.schema.tables import KeyspaceSchema
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker, StoredTopology
from headrace.sources.cassandra.state.chunks import Chunk

if TYPE_CHECKING:
    from headrace.connector.stores.keyed.store import Store

KEYSPACE: Final = "ks"
COPIES: Final = 3
LEASE_MS, POLL_MS = 8_000, 1_000  # What `lease_seconds: 10` comes to.
STEP_MS: Final = 250
MUTATION_BYTES, CROSSING_BYTES, DIGEST_BYTES = 323, 386, 18  # As `make bench` measured.
_BOOKS: Final = ("read", "first", "counted", "surplus", "repeat", "damaged")


class Tallied:
    """The rows of leases and workers, and how often Cassandra would have been asked for them."""

    def __init__(self, splits: Mapping[str, int]) -> None:
        """Begin with free splits of these bytes a second."""
        self.rows = {
            s: LeaseRow(split=s, owner=None, token=0, beat=0, lease_ms=0, rate=r)
            for s, r in splits.items()
        }
        self.members: dict[str, WorkerRow] = {}
        self.asked: Counter[str] = Counter()

    def enroll(self, owner: Owner, places: Sequence[str] = ()) -> None:
        """See `Store.enroll`."""
        self.asked["writes"] += 1
        self.members[owner.worker] = WorkerRow(owner, 0, tuple(places))

    def offer(self, worker: str, handover_targets: Sequence[str]) -> None:
        """See `Store.offer`."""
        self.asked["writes"] += 1
        self.members[worker] = replace(
            self.members[worker], handover_targets=tuple(handover_targets)
        )

    def workers(self) -> Sequence[WorkerRow]:
        """See `Store.workers`."""
        self.asked["reads"] += 1
        self.asked["rows read"] += len(self.members)
        return list(self.members.values())

    def leases(self) -> Sequence[LeaseRow]:
        """See `Store.leases`."""
        self.asked["reads"] += BUCKETS
        self.asked["rows read"] += len(self.rows)
        return list(self.rows.values())

    def claim(self, owner: str, rows: Sequence[LeaseRow], lease_ms: int) -> Mapping[str, int]:
        """See `Store.claim`."""
        self._beat(owner)
        self.asked["reads"] += len(rows)
        self.asked["conditional writes"] += 2 * len(rows)
        taken = [row for row in rows if self.rows[row.split] == row]
        for row in taken:
            claimed = msgspec.structs.replace(
                row, owner=owner, token=row.token + 1, beat=row.beat + 1
            )
            self.rows[row.split] = msgspec.structs.replace(claimed, lease_ms=lease_ms)
        return {row.split: row.token + 1 for row in taken}

    def renew(
        self, owner: str, tokens: Mapping[str, int], rates: Mapping[str, int] | None = None
    ) -> frozenset[str]:
        """See `Store.renew`."""
        del rates  # Those of the ring on paper stay.
        self._beat(owner)
        self.asked["conditional writes"] += len(tokens)
        mine = {split for split, token in tokens.items() if self.rows[split].token == token}
        for split in mine:
            self.rows[split] = msgspec.structs.replace(
                self.rows[split], beat=self.rows[split].beat + 1
            )
        return frozenset(tokens.keys() - mine)

    def release(self, owner: str, split: str, token: int) -> None:
        """See `Store.release`."""
        self.asked["conditional writes"] += 1
        if (self.rows[split].owner, self.rows[split].token) == (owner, token):
            self.rows[split] = msgspec.structs.replace(self.rows[split], owner=None)

    def _beat(self, worker: str) -> None:
        self.asked["writes"] += 1
        row = self.members[worker]
        self.members[worker] = replace(row, beat=row.beat + 1)


class Ring:
    """A ring on paper, its splits, and a worker beside each of some of its nodes."""

    def __init__(self, nodes: int, vnodes: int, workers: int, *, seed: int = 1) -> None:
        """Scatter tokens and loads by *seed*."""
        random = Random(seed)  # noqa: S311 (no secret)
        made = [
            Node(f"n{n}", tuple(random.randrange(-(1 << 63), 1 << 63) for _ in range(vnodes)))
            for n in range(nodes)
        ]
        self.nodes = tuple(made)
        self.splits = names(count_for(workers, nodes))
        self.rates = {s: int(random.gammavariate(4, 25_000)) for s in self.splits}
        self.workers = {f"w{n:04}": (f"n{n * nodes // workers}",) for n in range(workers)}
        self.topology = self._topology(self.nodes)
        self.places = shares(self.topology, [KEYSPACE], self.splits)
        self._spare = Node(
            "new", tuple(random.randrange(-(1 << 63), 1 << 63) for _ in range(vnodes))
        )

    def parts(self, owners: Mapping[str, str]) -> Sequence[Part]:
        """Return the splits as *owners* have them."""
        return [Part(split, rate, owners.get(split)) for split, rate in self.rates.items()]

    def grown(self) -> tuple[Mapping[str, Collection[str]], Mapping[str, Mapping[str, float]]]:
        """Return workers and places after a node joined, with a worker beside it."""
        topology = self._topology((*self.nodes, self._spare))
        return {**self.workers, "new": ("new",)}, shares(topology, [KEYSPACE], self.splits)

    def state_bytes(self) -> tuple[int, int]:
        """Return the size of a split's head without records, and of the ring that it goes by.

        It has a marker and books for each node that has a copy of something of the split.
        """
        nodes = tuple(self.places[self.splits[0]])
        state = CdcState(
            split_time_ms=1 << 40,
            number=1 << 40,
            hosts=nodes,
            keyspaces=(KEYSPACE,),
            markers={n: Marker(1 << 50, (1 << 20) + i) for i, n in enumerate(nodes)},
            counters={
                f"entries.{n}.{b}": (1 << 30) + i for i, n in enumerate(nodes) for b in _BOOKS
            },
            topologies=(StoredTopology(Chunk(self.topology.encode()), None),),
        )
        encoded = state.encode()
        return len(encoded.head), sum(len(chunk) for chunk in encoded.chunks.values())

    @staticmethod
    def _topology(nodes: Sequence[Node]) -> Topology:
        options = {"class": "SimpleStrategy", "replication_factor": str(COPIES)}
        return Topology.of(nodes, [KeyspaceSchema(KEYSPACE, options)], "QUORUM")


def reckon(ring: Ring) -> dict[str, float]:
    """Return how long assignments take, in seconds, and what they come to."""
    began = time.process_time()
    owners = assigned(ring.parts({}), ring.workers, ring.places)
    first = time.process_time()
    again = assigned(ring.parts(owners), ring.workers, ring.places)
    settled = time.process_time()
    workers, places = ring.grown()
    before_join = time.process_time()
    joined = assigned(ring.parts(owners), workers, places)
    after_join = time.process_time()
    gone = {name: near for name, near in ring.workers.items() if name != "w0000"}
    left = assigned(ring.parts(owners), gone, ring.places)
    loads: Counter[str] = Counter()
    near = 0.0
    for split, rate in ring.rates.items():
        loads[owners[split]] += rate
        held = ring.places[split]
        near += rate * sum(held.get(node, 0) for node in ring.workers[owners[split]])
    total = sum(ring.rates.values())
    copies_near = near / total
    return {
        "splits": len(ring.splits),
        "assignment of all splits, s": first - began,
        "assignment again, s": settled - first,
        "assignment after a node joined, s": after_join - before_join,
        "moves without a reason": _moves(owners, again),
        "moves after a node joined": _moves(owners, joined),
        "an ideal share": len(ring.splits) / len(workers),
        "moves after a worker died": _moves(owners, left),
        "splits that it had": sum(owner == "w0000" for owner in owners.values()),
        "most loaded worker, of the mean": max(loads.values()) * len(ring.workers) / total,
        "copies read without a network, of 3": copies_near,
        "network bytes for a published byte": (CROSSING_BYTES - DIGEST_BYTES * copies_near)
        / MUTATION_BYTES,
    }


def watch(ring: Ring, *, seconds: int) -> dict[str, float]:
    """Return what workers ask of the store each second, while nothing happens and after a join."""
    clock, store = DrivenClock(), Tallied(ring.rates)
    near = ring.places
    keepers: dict[str, LeaseHolder] = {}
    due: dict[str, int] = {}

    def join(name: str, places: Sequence[str]) -> None:
        owner = Owner(worker=name, host="h", boot="", pid_space="", pid=1, started=0)
        store.enroll(owner, places)
        keepers[name] = LeaseHolder(
            cast("Store", store),
            owner,
            clock,
            lease_ms=LEASE_MS,
            nearness=Nearness(places, near),
        )
        due[name] = clock.monotonic_ms() + len(due) % (POLL_MS // STEP_MS) * STEP_MS

    def run(for_seconds: int) -> None:
        for _ in range(for_seconds * 1_000 // STEP_MS):
            for name, lease_holder in keepers.items():
                if due[name] <= clock.monotonic_ms():
                    for split in lease_holder.step().hand_over:
                        token = lease_holder.held[split].token
                        store.release(name, split, token)
                        lease_holder.closed(split, token, failed=False)
                    due[name] = lease_holder.next_ms(POLL_MS)
            clock.advance(STEP_MS)

    for name, places in ring.workers.items():
        join(name, places)
    run(10)
    assert all(row.owner for row in store.rows.values())  # noqa: S101 (else it says nothing)
    store.asked.clear()
    run(seconds)
    quiet = {f"{what} each second": n / seconds for what, n in sorted(store.asked.items())}
    tokens = sum(row.token for row in store.rows.values())
    store.asked.clear()
    join("new", ring.workers["w0000"])
    run(10)
    moved = sum(row.token for row in store.rows.values()) - tokens
    busy = {f"{what} each second, while a worker joins": n / 10 for what, n in store.asked.items()}
    return {**quiet, **busy, "splits that it got": moved}


def _moves(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    return sum(before[split] != after[split] for split in before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each figure; return 1 if it takes longer, or moves more, than it may."""
    parser = argparse.ArgumentParser(prog="python -m bench.ring", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--vnodes", type=int, default=16)
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=24, help="so long leases are kept")
    given = parser.parse_args(arguments)
    ring = Ring(given.nodes, given.vnodes, given.workers)
    head, topology = ring.state_bytes()
    figures = {
        **reckon(ring),
        **watch(ring, seconds=given.seconds),
        "nodes that a split meets": len(ring.places[ring.splits[0]]),
        "state of a split, without records, bytes": head,
        "the ring in it, bytes": topology,
        "state of all splits, without records, MB": (head + topology) * len(ring.splits) / 1e6,
    }
    width = max(map(len, figures))
    sys.stdout.writelines(
        f"{name.ljust(width)}  {value:10,.3f}\n" for name, value in figures.items()
    )
    slow = figures["assignment of all splits, s"] > 2  # noqa: PLR2004 (what is promised)
    restless = figures["moves after a node joined"] > 2 * figures["an ideal share"]
    return int(slow or restless)


if __name__ == "__main__":
    sys.exit(main())
