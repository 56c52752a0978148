"""The logs that one split reads, and their log slots: the number of each in its records.

The hosts that have a mutation are bits of one word, which limits the slots of a split. In a ring of
any size, a split reads only the logs of the nodes that hold its tokens. Pure.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from headrace.sources.cassandra.errors import SplitTooWideError

LOG_SLOTS_MAX: Final = 64
LOG_SLOTS_WANTED: Final = 48  # The ring is divided for this many, which leaves room for new nodes.
FREE_SLOT: Final = ""  # Instead of a node's name.


class LogSlots:
    """The slots of one split. `names` are the nodes that have them; `FREE_SLOT` is a free one."""

    def __init__(self, split: str, nodes: Collection[str], stored: Sequence[str] = ()) -> None:
        """Start with the *stored* slots whose node is in *nodes*, whose logs can be read.

        A state of a place that a user gave may name more logs than slots; it has no records, and
        gets no slots.
        """
        known = stored if len(stored) <= LOG_SLOTS_MAX else ()
        self.names = tuple(node if node in nodes else FREE_SLOT for node in known)
        self._split = split
        self._needed: frozenset[str] = frozenset()

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes that have slots."""
        return [name for name in self.names if name]

    @property
    def idle(self) -> Sequence[str]:
        """The nodes that have slots but no longer need them."""
        return [name for name in self.names if name and name not in self._needed]

    def of(self, node: str) -> int:
        """Return the slot of a node that has one."""
        return self.names.index(node)

    def need(self, nodes: Iterable[str]) -> None:
        """Assign slots to all of *nodes*; the others keep theirs until they are freed.

        Raises:
            SplitTooWideError: there are too few slots.

        """
        wanted = tuple(dict.fromkeys(nodes))
        self._needed = frozenset(wanted)
        known = set(self.names)
        for node in wanted:
            if node not in known:
                self._assign(node)

    def _assign(self, node: str) -> None:
        names = [*self.names, FREE_SLOT]
        number = names.index(FREE_SLOT)
        if number == LOG_SLOTS_MAX:
            raise SplitTooWideError(
                f"{len(self._needed)} nodes hold its tokens, {len(self.idle)} did recently; of one "
                f"split the logs of {LOG_SLOTS_MAX} are read at most",
                place=f"split {self._split}",
                hint="more splits are narrower: give a larger `splits`, or leave it out",
            )
        names[number] = node
        self.names = tuple(names if number == len(self.names) else names[:-1])

    def free(self, referred: int) -> Sequence[str]:
        """Free the slots of idle nodes, except those in the mask *referred*. Return the nodes.

        Records still refer to these: another node's copies would count for them.
        """
        left = [node for node in self.idle if not referred >> self.of(node) & 1]
        self.names = tuple(FREE_SLOT if name in left else name for name in self.names)
        return left
