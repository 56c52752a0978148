"""Changes that break the rules of room, expiry, retention and reports."""

# ruff: noqa: SLF001 (what is broken is inside)

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace.plugins import Quarantined
from headrace.sources.cassandra import reader
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.logs import pins, rescued_copies
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.reading import pump
from headrace.sources.cassandra.reading.record_expiry import Memory
from headrace.sources.cassandra.state import gaps
from headrace.sources.cassandra.state.cdc_state import StoredGap
from helpers.sabotage.rules import Patch, Sabotage

_AGREED: Final = "mutations.agreed"


def writes_no_rescue(patch: Patch) -> None:
    """Release segments, and keep nothing of the mutations in them that are pending."""
    patch.setattr(rescued_copies, "save", lambda *_: None)


def forgets_what_others_rescued(patch: Patch) -> None:
    """Keep only those mutations of released segments that an opened split has."""
    real = rescued_copies.keep_only

    def keep_only(folder: Path, is_needed: Callable[[int], bool]) -> None:
        named = {n for note in pins.notes_in(folder) for n in note.need.copies}
        real(folder, lambda n: n in named and is_needed(n))

    patch.setattr(rescued_copies, "keep_only", keep_only)


def drops_what_has_no_room(patch: Patch) -> None:
    """Drop pending mutations where there is no room, and keep their bytes nowhere."""
    real = Memory.keep

    def keep(self: Memory, agreed: AgreedMutations, **more: bool) -> list[Quarantined]:
        real(self, agreed, **more)
        return []

    patch.setattr(Memory, "keep", keep)


def counts_no_overflow(patch: Patch) -> None:
    """Do not count in the books what was dropped for room."""
    books_with(patch, lambda books: books.update({"mutations.overflow": 0}))


def books_one_too_many(patch: Patch) -> None:
    """Count one agreed mutation too many."""
    books_with(patch, lambda books: books.update({_AGREED: 1 + books[_AGREED]}))


def books_with(patch: Patch, change: Callable[[dict[str, int]], object]) -> None:
    """Let *change* change the books before they are committed."""
    real = reader.CassandraReader._counters

    def counters(self: reader.CassandraReader) -> dict[str, int]:
        books = real(self)
        change(books)
        return books

    patch.setattr(reader.CassandraReader, "_counters", counters)


def counts_time_twice(patch: Patch) -> None:
    """Let split time run twice as fast as the clock."""
    real = pump.Pump._grow_time

    def grow(self: pump.Pump, now_ms: int) -> None:
        before = {number: split.agreement.split_time_ms for number, split in self._owned.items()}
        shared_ms = self._shared_ms
        real(self, now_ms)
        self._shared_ms += self._shared_ms - shared_ms
        for number, split in self._owned.items():
            split.agreement.split_time_ms += split.agreement.split_time_ms - before[number]

    patch.setattr(pump.Pump, "_grow_time", grow)


def tells_of_gaps_again(patch: Patch) -> None:
    """Report all known gaps whenever one is found."""
    real = gaps.GapBook.meet

    def meet(
        self: gaps.GapBook, found: Sequence[StoredGap], *args: object, **more: object
    ) -> Sequence[StoredGap]:
        reported = real(self, found, *args, **more)  # type: ignore[arg-type]  # As they were given.
        return self.gaps if reported else reported

    patch.setattr(gaps.GapBook, "meet", meet)


def goes_on_before_a_gap_is_accepted(patch: Patch) -> None:
    """Stop no job before a gap."""
    patch.setattr(pump, "FAIL", "")


def counts_a_late_copy_twice(patch: Patch) -> None:
    """Count the copy twice that lets an expired mutation be published."""
    real = Agreement.observe

    def observe(self: Agreement, host: int, *rest: int) -> int:
        found = real(self, host, *rest)
        self.hosts[4 * host + 1] += found < 0 and found != constants.SUSPECT
        return found

    patch.setattr(Agreement, "observe", observe)


def goes_on_counting_what_came_late_as_expired(patch: Patch) -> None:
    """Count a mutation as expired although a late copy let it be published."""
    real = Agreement.observe

    def observe(self: Agreement, host: int, *rest: int) -> int:
        expired = self.expired
        found = real(self, host, *rest)
        self.expired = max(self.expired, expired)
        return found

    patch.setattr(Agreement, "observe", observe)


# How the message starts of the check that must find it.
BOUNDS: Final[Mapping[Sabotage, str]] = {
    writes_no_rescue: "line 34",
    forgets_what_others_rescued: "line 34",
    books_one_too_many: "I3",
    counts_time_twice: "line 8",
}
GAPS: Final[Mapping[Sabotage, str]] = {
    tells_of_gaps_again: "I10",
    goes_on_before_a_gap_is_accepted: "I10",
}
CROWDED: Final[Mapping[Sabotage, str]] = {
    drops_what_has_no_room: "I8",
    counts_no_overflow: "I3",
}
LATE_INTERPRETED: Final[Mapping[Sabotage, str]] = {
    counts_a_late_copy_twice: "I3",
    goes_on_counting_what_came_late_as_expired: "I3",
}
