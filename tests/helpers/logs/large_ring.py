"""A job over the logs of a ring of many nodes, driven by hand, and the replicas of its keys."""

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from cassandra.murmur3 import murmur3

from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.forged import SCHEMA, insert
from helpers.logs.node_logs import batches, source
from helpers.stores.shelf import Shelf

if TYPE_CHECKING:
    from headrace.plugins import Reader
    from headrace.sources.cassandra.source import CassandraSource

VNODES: Final = 4
COPIES: Final = 3
LOOK_MS: Final = 10_000
Tokens = Mapping[str, Sequence[int]]
Ring = Sequence[tuple[int, str]]


def tokens_of(count: int, seed: int = 1) -> dict[str, list[int]]:
    """Return the tokens of *count* nodes."""
    drawn = random.Random(seed)  # noqa: S311 (a ring)
    return {
        f"n{number:03}": [drawn.randrange(-(1 << 63), 1 << 63) for _ in range(VNODES)]
        for number in range(count)
    }


def ring_of(tokens: Tokens) -> Ring:
    """Return the tokens in their order, each with its node."""
    return sorted((token, node) for node, owned in tokens.items() for token in owned)


def replicas(ring: Ring, key: bytes) -> list[str]:
    """Return the replicas of *key*: the next nodes on the ring."""
    at = bisect_left(ring, (murmur3(key), ""))
    found: list[str] = []
    while len(found) < COPIES:
        node = ring[at % len(ring)][1]
        found += [] if node in found else [node]
        at += 1
    return found


class LargeRing:
    """The job; `came` counts the keys that were published."""

    def __init__(
        self,
        folder: Path,
        tokens: Tokens,
        *,
        more: Iterable[str] = (),
        only: slice = slice(None),
        **options: object,
    ) -> None:
        """Start with empty logs; those of *more* are read too, but are not in the ring.

        *only* these splits are opened, or all.
        """
        self.folder, self.tokens = folder, dict(tokens)
        self.clock = DrivenClock()
        self.came: Counter[bytes] = Counter()
        self.shelf = Shelf()
        self._segment_id = SEGMENT_ID
        (folder / "schema.cql").write_text(SCHEMA)
        nodes = [*tokens, *more]
        for node in nodes:
            (folder / node).mkdir()
        self.ring(tokens)
        self.options: dict[str, object] = {
            "nodes": {node: str(folder / node) for node in nodes},
            "schema": str(folder / "schema.cql"),
            "topology": str(folder / "ring.yaml"),
            **options,
        }
        self.source: CassandraSource
        self.readers: dict[str, Reader]
        self.open(only)

    @property
    def states(self) -> dict[str, CdcState]:
        """What is committed."""
        return self.shelf.states()

    def ring(self, tokens: Tokens) -> None:
        """Make these nodes the ring."""
        self.tokens = dict(tokens)
        named = {node: {"tokens": list(owned)} for node, owned in tokens.items()}
        (self.folder / "ring.yaml").write_bytes(msgspec.yaml.encode(named))

    def open(self, only: slice = slice(None)) -> None:
        """Open *only* these splits, or all, at the committed positions."""
        self.source = source(self.options, self.clock)
        states, splits = self.states, self.source.plan()[only]
        self.readers = {s.split_id: self.source.open(s, states.get(s.split_id)) for s in splits}

    def log(self, keys: Iterable[bytes], copies: slice = slice(None)) -> None:
        """Let the replicas of *keys* log them, or some of the replicas, in a new segment."""
        logged: dict[str, list[bytes]] = {}
        ring = ring_of(self.tokens)
        for key in keys:
            for node in replicas(ring, key)[copies]:
                logged.setdefault(node, []).append(insert(key))
        self._segment_id += 1
        for node, raws in logged.items():
            content = segment([raws], segment_id=self._segment_id).content
            write_segment(self.folder / node, content, segment_id=self._segment_id)

    def crash(self, only: slice = slice(None)) -> None:
        """Crash, and continue at the committed positions, with *only* these splits, or all."""
        self.source.close()
        self.open(only)

    def replan(self, count: int) -> None:
        """Continue with another number of splits."""
        self.source.close()
        self.options["splits"] = count
        made = source(self.options, self.clock)
        states = made.resplit(self.states) or {}
        made.close()
        self.shelf = Shelf()
        for split, state in states.items():
            if state is not None:
                self.shelf.put(split, state)
        self.open()

    def read(self) -> None:
        """Read all logs, look at the ring, and commit."""
        self.clock.advance(LOOK_MS)
        for batch in batches(self.readers.values()):
            for record in batch.records():
                self.came[bytes.fromhex(str(record.document()["key"]["k"])[2:])] += 1
            self.shelf.put(batch.split, batch.end)
            self.readers[batch.split].release(batch.end)

    def wait(self, seconds: int) -> None:
        """Let time pass, listing the logs meanwhile."""
        for _ in range(0, seconds * 1_000, LOOK_MS):
            self.read()

    def books(self) -> Counter[str]:
        """Return the books of all splits."""
        total: Counter[str] = Counter()
        for state in self.states.values():
            total.update(state.books())
        return total


def keys(name: str, count: int) -> list[bytes]:
    """Return *count* keys."""
    return [f"{name} {number}".encode() for number in range(count)]
