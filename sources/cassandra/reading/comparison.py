"""Decide whether a mutation has only content already published: lines 17 and 19.

A repair writes the replicas' data in other bytes than the original write did. The content of a
mutation is its atoms; the atoms of mutations with the same token are compared. Bytes are read from
the logs again, so a copy that is no longer in any log is not compared. Blocking file I/O; for one
thread.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import groupby
from typing import Final

from headrace.plugins import RetriableError
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.logs.reread import Copy
from headrace.sources.cassandra.mutation.errors import BadMutationError
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema_versions.epochs import Epoch

ATOMS_MAX: Final = 200_000  # Cached per split for the comparisons that follow.
# As the newest write time: no published bytes are readable; not looked up yet.
NOTHING: Final = -(1 << 63)
NOT_LOOKED: Final = (1 << 63) - 1

Atoms = frozenset[bytes]


class Decision(IntEnum):
    """What to do with a pending record whose level is met."""

    LATER = 0  # Bytes cannot be read now: it stays, and each sweep retries.
    KNOWN = 1
    NEW = 2


Find = Callable[[int], Copy | None]
EpochOf = Callable[[Copy], Epoch]


class _Published:
    """The published content of one token, as far as it has been examined.

    It stays valid while its *oldest* record and the *indexed* of `Agreement` are unchanged.
    """

    __slots__ = ("atoms", "indexed", "is_any_gone", "oldest", "slots")

    def __init__(self, oldest: int, indexed: int) -> None:
        """Start with nothing examined."""
        self.oldest = oldest
        self.indexed = indexed
        self.slots: set[int] = set()
        self.atoms: set[bytes] = set()
        self.is_any_gone = False  # The bytes of one record are gone.


class Comparison:
    """Compares the records of one split.

    *find* reads a slot's copy again; *epoch_of* gives the schema in force at its place.
    """

    def __init__(self, agreement: Agreement, find: Find, epoch_of: EpochOf) -> None:
        """Start with nothing compared."""
        self.unsure = 0
        """How many published mutations might be known if all bytes were readable (36)."""
        self._agreement = agreement
        self._find = find
        self._epoch_of = epoch_of
        self._atoms: OrderedDict[tuple[int, int], Atoms | None] = OrderedDict()
        self._kept = 0
        self._known = _Published(-1, -1)  # Of the most recently examined token.

    def decide(self, slot: int) -> int:
        """Decide about a pending record whose copy's bytes are in a log."""
        try:
            return self._decide(slot)
        except RetriableError:
            return Decision.LATER

    def _decide(self, slot: int) -> int:
        newest = self._agreement.newest_published(slot)
        if newest == NOT_LOOKED:
            newest = self.learn_newest(slot)
        span = None if newest == NOTHING else self._span(slot)
        # It cannot be known if all of it was written after the published content.
        if span is not None and span[0] <= newest:
            atoms = self._of(slot)
            if atoms and atoms <= self._published(slot).atoms:
                return Decision.KNOWN
        if span is None or span[0] <= newest:
            self.unsure += self._published(slot).is_any_gone
        return Decision.NEW

    def learn_newest(self, slot: int) -> int:
        """Read the published content of the slot's token; return its newest write time.

        Raises:
            RetriableError: a log cannot be read now.

        """
        spans = filter(None, map(self._span, self._agreement.published_of_token(slot)))
        newest = max((newest for _, newest in spans), default=NOTHING)
        self._agreement.learn_newest(slot, newest)
        return newest

    def compare(self, slots: Sequence[int]) -> Iterator[int]:
        """Compare pending records; yield those that others joined and that may be published.

        A known record becomes CONTENT_KNOWN; one equal to another pending record joins it.
        """
        by_token = sorted((self._agreement.head(slot), slot) for slot in slots)
        for _, group in groupby(by_token, key=lambda pair: pair[0]):
            with suppress(RetriableError):  # Each sweep retries.
                yield from self._compare([slot for _, slot in group])

    def _compare(self, members: Sequence[int]) -> Iterator[int]:
        """Compare pending records of one token, as described for `compare`."""
        agreement = self._agreement
        published = set(self._published(members[0]).atoms)
        waiting = self._waiting(members[0])
        taken: set[int] = set()  # Yielded, so they no longer wait.
        for slot in members:
            if slot in taken:
                continue
            agreement.check(slot)
            atoms = self._of(slot)
            if not atoms:
                continue
            other = waiting[atoms]
            if atoms <= published:
                agreement.know(slot)
            elif other != slot:
                agreement.join(slot, other)
                if agreement.is_ready(other):
                    yield other
                    taken.add(other)
                    published |= atoms

    def _span(self, slot: int) -> tuple[int, int] | None:
        """Return the oldest and newest write time in a copy, or None if it is gone or unfit."""
        found = self._find(slot)
        if found is None:
            return None
        cutter = self._epoch_of(found).atom_cutter.cutter
        try:
            cutter.cut(found.raw, 0, len(found.raw), found.messaging)
        except BadMutationError:  # It was not published.
            return None
        cutter.span()
        return cutter.oldest, cutter.newest

    def _waiting(self, slot: int) -> dict[Atoms | None, int]:
        """Return the oldest pending record of the token for each content."""
        others = [
            other
            for other, kind in self._agreement.others_of_token(slot)
            if kind == constants.PENDING
        ]
        oldest = sorted([slot, *others], key=self._agreement.number_of, reverse=True)
        return {self._of(other): other for other in oldest}

    def _published(self, slot: int) -> _Published:
        """Return the published content of the slot's token; examine only what is new."""
        slots, indexed = self._agreement.published_of_token(slot), self._agreement.indexed
        oldest, known = slots[-1] if slots else -1, self._known
        if (known.oldest, known.indexed) != (oldest, indexed) or len(known.atoms) > ATOMS_MAX:
            self._known = known = _Published(oldest, indexed)
        new = len(slots) - len(known.slots)
        for other in slots:
            if not new:
                break
            if other not in known.slots:
                atoms = self._of(other)
                known.is_any_gone |= atoms is None
                known.atoms |= atoms or frozenset()
                known.slots.add(other)
                new -= 1
        return known

    def _of(self, slot: int) -> Atoms | None:
        """Return the content of a record's mutation, or None if its bytes are gone.

        It is empty if the mutation does not fit the schema; such a mutation was not published.
        """
        d0, d1, _ = self._agreement.identity(slot)
        if (d0, d1) in self._atoms:
            self._atoms.move_to_end((d0, d1))
            return self._atoms[d0, d1]
        found = self._find(slot)
        try:
            atoms = self._cut(found) if found else None
        except BadMutationError:
            atoms = frozenset()
        self._atoms[d0, d1] = atoms
        self._kept += len(atoms or ())
        while self._kept > ATOMS_MAX:
            self._kept -= len(self._atoms.popitem(last=False)[1] or ())
        return atoms

    def _cut(self, found: Copy) -> Atoms:
        return self._epoch_of(found).atom_cutter.atoms_of(found.raw, found.messaging)
