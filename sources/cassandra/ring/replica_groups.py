"""Replica groups: the replicas of a token, and the copies that its level needs, per topology.

Records refer to a group by its number; `topology` creates the groups.
"""

import itertools
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from headrace.sources.cassandra.native import ops

GROUPS_MAX: Final = 1 << 16  # A record has 16 bits for its group.
# For no groups: never read, and replaced when groups are set.
_NO_MASKS, _NO_NUMBERS, _NO_TOKENS = (memoryview(array(code, [0])) for code in "Qiq")

# (mask of hosts, number of them needed). The level needs all terms; EACH_QUORUM has several.
Terms: TypeAlias = tuple[tuple[int, int], ...]
Ring: TypeAlias = Sequence[tuple[int, int]]  # (ring token, number of its group), ascending.


class Group(NamedTuple):
    """One of `alternatives` must be met, one per topology; all hosts in `expected` may log it."""

    alternatives: tuple[Terms, ...]
    expected: int  # A mask of hosts.


class Groups:
    """The groups of all keyspaces.

    Keyspace k's ring has the tokens `tokens[first[k]:first[k+1]]`, ascending; a token belongs to
    the first ring token that is not smaller, wrapping round, and `groups` gives that ring token's
    group. Group g has the terms from `bounds[g]` to `bounds[g+1]`; `following[t]` is the start of
    the alternative after that of term t.
    """

    def __init__(self, hosts: int) -> None:
        """Start without keyspaces; *hosts* is the number of logs, at most 64."""
        self.hosts = hosts
        self.masks = self.expected = _NO_MASKS
        self.needed = self.following = self.bounds = self.first = self.groups = _NO_NUMBERS
        self.tokens = _NO_TOKENS

    def set(self, groups: Sequence[Group], rings: Sequence[Ring]) -> None:
        """Set the groups, and the ring of each keyspace."""
        sizes = [len(terms) for group in groups for terms in group.alternatives]
        ends = list(itertools.accumulate(sizes))
        following = [end for end, size in zip(ends, sizes, strict=True) for _ in range(size)]
        flat = [term for group in groups for terms in group.alternatives for term in terms]
        widths = [sum(map(len, group.alternatives)) for group in groups]
        self.masks = memoryview(array("Q", [mask for mask, _ in flat] or [0]))
        self.needed = memoryview(array("i", [count for _, count in flat] or [0]))
        self.following = memoryview(array("i", following or [0]))
        self.bounds = memoryview(array("i", [0, *itertools.accumulate(widths)]))
        self.expected = memoryview(array("Q", [group.expected for group in groups] or [0]))
        first = [0, *itertools.accumulate(len(ring) for ring in rings)]
        self.first = memoryview(array("i", first))
        self.tokens = memoryview(array("q", [token for ring in rings for token, _ in ring] or [0]))
        self.groups = memoryview(array("i", [group for ring in rings for _, group in ring] or [0]))

    def find(self, keyspace: int, token: int) -> int:
        """Return the number of the group of *token* in *keyspace*."""
        low = self.first[keyspace]
        high = self.first[keyspace + 1]
        begin = low
        while low < high:
            middle = (low + high) // 2
            if self.tokens[middle] < token:
                low = middle + 1
            else:
                high = middle
        return self.groups[begin if low == self.first[keyspace + 1] else low]

    def met(self, group: int, seen: int) -> int:
        """Return whether the hosts in *seen* meet the level in one of the topologies (line 3)."""
        at = self.bounds[group]
        while at < self.bounds[group + 1]:
            if ops.popcount(seen & self.masks[at]) < self.needed[at]:
                at = self.following[at]
            elif at + 1 == self.following[at]:
                return 1
            else:
                at += 1
        return 0
