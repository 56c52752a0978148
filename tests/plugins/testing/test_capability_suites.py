"""The parts of the suite pass a source that keeps its word and fail one that does not."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from headrace.plugins import (
    BulkReading,
    ConfigError,
    HeadraceError,
    NumberPosition,
    PartialReading,
    Position,
    Problem,
    Relocation,
    Split,
    Tables,
    TokenRange,
    TokenRanges,
)
from headrace.plugins.testing import (
    BulkReadingSuite,
    PartialReadingSuite,
    RelocationSuite,
    SourceDriver,
    SourceSuite,
    TablesSuite,
    TokenRangesSuite,
)
from headrace.plugins.testing.doubles import (
    MemoryConfig,
    MemorySource,
    Mutation,
    context,
    sample_records,
)

ROWS = 6


class Able(MemorySource, Relocation, TokenRanges, BulkReading, Tables, PartialReading):
    """A source of numbered records, in ranges of their numbers, that can do all of it."""

    parts = 2

    def plan(self) -> Sequence[Split]:
        """Return a split for each part."""
        return [Split(f"{number}") for number in range(1, self.parts + 1)]

    def cut(self, parts: int) -> None:
        """Share the records out again."""
        self.parts = parts
        records = sorted(
            (mutation for split in self.config.splits.values() for mutation in split),
            key=lambda mutation: str(mutation[0].value["n"]),
        )
        shared = {f"{n}": records[n - 1 :: parts] for n in range(1, parts + 1)}
        self.config = MemoryConfig(splits=shared)
        self.released = {split: [] for split in shared}

    def limit(
        self,
        *,
        until: Position | None = None,
        tokens: Sequence[tuple[int, int]] = (),
        elapsed_ms: int = 0,
    ) -> None:
        """Refuse to."""
        del until, tokens, elapsed_ms
        raise ConfigError([Problem("source", "is read as a whole")])

    def locate(self, split: Split, position: Position | None, target: str) -> Position | None:
        """Know both ends."""
        del position
        if target == "earliest":
            return None
        if target == "latest":
            return NumberPosition(len(self.config.splits[split.split_id]))
        raise ConfigError([Problem("position", f"there is no {target}")])

    @classmethod
    def token_range(cls, split_id: str) -> TokenRange | None:
        """Return ten tokens."""
        number = int(split_id)
        return TokenRange(number=number, first=number * 10, behind=number * 10 + 10)

    def tables(self) -> Sequence[str]:
        """Return the table."""
        return ["shop.orders"]

    def missing_tables(self) -> Mapping[str, Problem]:
        """Wait for none."""
        return {}

    def unreadable(self) -> Mapping[str, Problem]:
        """Read all."""
        return {}

    def unread(self) -> Sequence[HeadraceError]:
        """Have read all."""
        return []


class AbleDriver(SourceDriver):
    """Tells the suite about it."""

    def __init__(self, kind: type[MemorySource] = Able) -> None:
        """Give the suite sources of *kind*."""
        self.kind = kind
        rows: list[Mutation] = [[record] for record in sample_records(ROWS)]
        self.config = MemoryConfig(splits={"1": rows[::2], "2": rows[1::2]})

    def source(self) -> MemorySource:
        """Return a source over the same records."""
        return self.kind(self.config, context())

    def grow(self) -> int:
        """Append a record."""
        self.config.splits["1"].append(sample_records(1, first=ROWS))
        return 1


class TestAbleSource(
    SourceSuite,
    RelocationSuite,
    TokenRangesSuite,
    BulkReadingSuite,
    TablesSuite,
    PartialReadingSuite,
):
    """A source that keeps its word passes."""

    @pytest.fixture
    def driver(self) -> SourceDriver:
        """Return the driver."""
        return AbleDriver()


class LateBeginning(Able):
    """Passes over a record at `earliest`."""

    def locate(self, split: Split, position: Position | None, target: str) -> Position | None:
        """Begin behind the first."""
        found = super().locate(split, position, target)
        return found or NumberPosition(1)


class EarlyEnd(Able):
    """Has a record behind `latest`."""

    def locate(self, split: Split, position: Position | None, target: str) -> Position | None:
        """End before the last."""
        found = super().locate(split, position, target)
        return NumberPosition(found.number - 1) if isinstance(found, NumberPosition) else found


class WrongKey(Able):
    """Refuses places under another key."""

    def locate(self, split: Split, position: Position | None, target: str) -> Position | None:
        """Refuse all."""
        del split, position
        raise ConfigError([Problem("place", f"there is no {target}")])


class Overlapping(Able):
    """Has tokens in two splits."""

    @classmethod
    def token_range(cls, split_id: str) -> TokenRange | None:
        """Return twenty tokens."""
        number = int(split_id)
        return TokenRange(number=number, first=number * 10, behind=number * 10 + 20)


class Uncut(Able):
    """Keeps its splits."""

    def cut(self, parts: int) -> None:
        """Do nothing."""


class Shortened(Able):
    """Loses a record when it is cut."""

    def cut(self, parts: int) -> None:
        """Leave out the last."""
        super().cut(parts)
        self.config.splits["1"].pop()


class Forgetful(Able):
    """Does not name its table."""

    def tables(self) -> Sequence[str]:
        """Return another one."""
        return ["shop.other"]


class Complaining(Able):
    """Calls a part unreadable that was read."""

    def unreadable(self) -> Mapping[str, Problem]:
        """Return a part."""
        return {"1": Problem("1", "is away")}


@pytest.mark.parametrize(
    ("kind", "suite", "test"),
    [
        (LateBeginning, RelocationSuite, RelocationSuite.test_earliest_is_the_beginning),
        (EarlyEnd, RelocationSuite, RelocationSuite.test_behind_latest_is_nothing),
        (WrongKey, RelocationSuite, RelocationSuite.test_an_unknown_place_is_refused),
        (Overlapping, TokenRangesSuite, TokenRangesSuite.test_no_token_is_of_two_splits),
        (Uncut, BulkReadingSuite, BulkReadingSuite.test_parts_are_the_whole),
        (Shortened, BulkReadingSuite, BulkReadingSuite.test_parts_are_the_whole),
        (Forgetful, TablesSuite, TablesSuite.test_changes_are_of_its_tables),
        (
            Complaining,
            PartialReadingSuite,
            PartialReadingSuite.test_nothing_is_unreadable_that_was_read,
        ),
    ],
)
def test_a_part_finds(
    kind: type[Able],
    suite: Callable[[], Any],  # Any: one of the suites.
    test: Callable[[Any, SourceDriver], None],
) -> None:
    """A source that breaks a rule of a capability fails the test of that rule."""
    with pytest.raises(AssertionError):
        test(suite(), AbleDriver(kind))


def test_a_part_that_is_left_out_is_found() -> None:
    """The suite of a source fails where the part for a capability is not inherited."""
    TestAbleSource().test_every_capability_is_tested(AbleDriver())
    SourceSuite().test_every_capability_is_tested(AbleDriver(MemorySource))
    with pytest.raises(AssertionError):
        SourceSuite().test_every_capability_is_tested(AbleDriver())
