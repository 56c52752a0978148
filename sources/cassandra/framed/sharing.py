"""Decides which replica of a mutation sends its bytes; the others send digests of it.

Each log decides alone, by the digest: of the replicas of a token whose logs are read, each sends an
equal part. If the log of the chosen one does not have the mutation, the bytes are read again from
another log: so the choice need not be right. Separate so that it can be compiled.
"""

import itertools
from array import array
from collections.abc import Collection, Sequence

from headrace.sources.cassandra.ring.topology import Topology
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import Schema

_WHOLE = 0  # The share of mutations that all logs send with bytes, without a digest.
_BITS, _MASK = 8, 0xFF
_REPLICAS_MAX = 255

# (ring token, the share of the tokens up to it), ascending.
Ring = Sequence[tuple[int, int]]


class Shares:
    """The share of one log: the number of replicas, and which of them it is."""

    def __init__(
        self, catalogue: Catalogue, keyspaces: Sequence[int], rings: Sequence[Ring]
    ) -> None:
        """*keyspaces* has the number of the ring of each table of *catalogue*; -1 if it has none.

        A token belongs to the first ring token that is not smaller, wrapping round.
        """
        self.catalogue = catalogue
        self.keyspaces = memoryview(array("i", [*keyspaces, -1]))
        self.first = memoryview(array("i", [0, *itertools.accumulate(map(len, rings))]))
        self.tokens = memoryview(array("q", [token for ring in rings for token, _ in ring] or [0]))
        self.shares = memoryview(array("i", [share for ring in rings for _, share in ring] or [0]))

    def of(self, high: int, low: int, token: int) -> int:
        """Return the share of a mutation, by the two halves of its table's id.

        0: all logs send its bytes, without a digest.
        """
        table = self.catalogue.find(high, low)
        keyspace = self.keyspaces[table] if table >= 0 else -1
        if keyspace < 0:
            return _WHOLE
        begin, end = self.first[keyspace], self.first[keyspace + 1]
        low_at, high_at = begin, end
        while low_at < high_at:
            middle = (low_at + high_at) // 2
            if self.tokens[middle] < token:
                low_at = middle + 1
            else:
                high_at = middle
        if begin == end:
            return _WHOLE
        return self.shares[begin if low_at == end else low_at]

    def sends(self, share: int, digest: int) -> int:
        """Return whether a log with *share* sends the bytes, by the lower half of the digest."""
        return int(digest % (share >> _BITS) == share & _MASK)


def shares_of(
    topology: Topology, keyspaces: Sequence[str], schema: Schema, node: str, read: Collection[str]
) -> Shares:
    """Return the shares of *node*'s log, for the tables of *schema* in *keyspaces*.

    *read* are the nodes whose logs are read.

    Raises:
        TopologyError: replicas cannot be determined.

    """
    numbers = {name: number for number, name in enumerate(keyspaces)}
    catalogue = Catalogue(schema)
    rings = []
    for name in keyspaces:
        ring = []
        for part in topology.ring(name):
            replicas = sorted(part.replicas.intersection(read))
            share = _WHOLE
            if node in replicas and 1 < len(replicas) <= _REPLICAS_MAX:
                share = len(replicas) << _BITS | replicas.index(node)
            ring.append((part.token, share))
        rings.append(ring)
    return Shares(catalogue, [numbers.get(t.keyspace, -1) for t in catalogue.tables], rings)


def no_shares() -> Shares:
    """Return shares with which a log sends all bytes."""
    return Shares(Catalogue(Schema({}, {})), (), ())
