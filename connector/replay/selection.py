"""The selection of changes for bulk work. Pure."""

import datetime as dt
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

import msgspec

from headrace.connector.replay.errors import bad_option
from headrace.connector.serde.change_names import name_of
from headrace.plugins import OPERATIONS, EncodedRecords, Facts
from headrace.plugins.records.record import MUTATION_ID_BYTES

_US: Final = 1_000_000
_RING_END: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Changes written from `from_us` on and before `to_us`, of these tables, operations and keys.

    Times are in µs since 1970; an empty field or None selects everything. `tokens` are ranges that
    exclude their first token and include their last. `keys` are encoded as for the target; `names`
    are single changes, in the form of `name_of`.
    """

    tables: frozenset[str] = frozenset()
    operations: frozenset[str] = frozenset()
    from_us: int | None = None
    to_us: int | None = None
    tokens: tuple[tuple[int, int], ...] = ()
    keys: frozenset[bytes] = frozenset()
    names: frozenset[bytes] = frozenset()

    @property
    def by_record(self) -> bool:
        """Whether single records must be checked; the source selects by tokens."""
        return bool(
            self.tables
            or self.operations
            or self.keys
            or self.names
            or self.from_us is not None
            or self.to_us is not None
        )

    def apply(self, encoded: EncodedRecords) -> EncodedRecords:
        """Return the records that are selected, in their order."""
        if not self.by_record or not len(encoded):
            return encoded
        mask = self._mask(encoded)
        if all(mask):
            return encoded
        numbers = list(compress(range(len(mask)), mask))
        facts = encoded.facts and _chosen(encoded.facts, numbers)
        return msgspec.structs.replace(encoded.chosen(numbers), facts=facts)

    def _mask(self, encoded: EncodedRecords) -> list[bool]:
        mask = [True] * len(encoded)
        if self.tables:
            mask = [table in self.tables for table in encoded.tables]
        if self.keys:
            mask = [m and key in self.keys for m, key in zip(mask, encoded.keys, strict=True)]
        facts = encoded.facts
        if self.names:
            named = names_of(facts) if facts is not None else ()
            if len(named) != len(encoded):
                raise bad_option("selection", "these records have no names")
            mask = [m and name in self.names for m, name in zip(mask, named, strict=True)]
        if self.operations or self.from_us is not None or self.to_us is not None:
            if facts is None or len(facts.timestamps_us) != len(encoded):
                hint = "leave out times and operations, or transforms that split records"
                raise bad_option("selection", "these records have no times", hint)
            low = -_RING_END if self.from_us is None else self.from_us
            high = _RING_END if self.to_us is None else self.to_us
            wanted = [not self.operations or each.value in self.operations for each in OPERATIONS]
            times, operations = facts.timestamps_us, facts.operations
            mask = [
                m and low <= us < high and wanted[operation]
                for m, us, operation in zip(mask, times, operations, strict=True)
            ]
        return mask


def names_of(facts: Facts) -> Sequence[bytes]:
    """Return the names of all records; none if mutations have no names."""
    if not facts.ids:
        return ()
    return [
        name_of(facts.ids[MUTATION_ID_BYTES * m : MUTATION_ID_BYTES * (m + 1)], index)
        for m, index in zip(facts.mutations, facts.indexes, strict=True)
    ]


def _chosen(facts: Facts, numbers: Sequence[int]) -> Facts:
    """Return the facts of these records; those of mutations stay as they are."""

    def chosen(column: memoryview) -> memoryview:
        return memoryview(array("q", [column[i] for i in numbers]))

    return msgspec.structs.replace(
        facts,
        timestamps_us=chosen(facts.timestamps_us),
        operations=chosen(facts.operations),
        indexes=chosen(facts.indexes),
        mutations=chosen(facts.mutations),
    )


def time_us(text: str, key: str) -> int:
    """Return µs since 1970 of a time in ISO 8601; one without a zone is in UTC.

    Raises:
        ConfigError: it is not a time; *key* is the option's name.

    """
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        hint = "2026-01-31T12:00:00Z, or a day"
        raise bad_option(key, f"expected a time, found {text[:48]!r}", hint) from error
    since = (time if time.tzinfo else time.replace(tzinfo=dt.UTC)) - dt.datetime(
        1970, 1, 1, tzinfo=dt.UTC
    )
    return (since.days * 86_400 + since.seconds) * _US + since.microseconds


def names_in(text: str | None, key: str) -> frozenset[str]:
    """Return the names in *text*, separated by commas; without text, no names.

    Raises:
        ConfigError: *text* has no name; *key* is the option's name.

    """
    names = frozenset(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not names:
        raise bad_option(key, f"expected names, found {text!r}", "leave it out to select all")
    return names


def operations_in(text: str | None, key: str) -> frozenset[str]:
    """Return the operations in *text*, as `names_in` does.

    Raises:
        ConfigError: a name is not an operation, or *text* has none.

    """
    names = names_in(text, key)
    known = [operation.value for operation in OPERATIONS]
    for name in sorted(names.difference(known)):
        raise bad_option(key, f"{name!r} is not an operation", f"there are {', '.join(known)}")
    return names


def token_range(text: str) -> tuple[int, int]:
    """Return `START:END` as a range without START and with END; an open side is the ring's end.

    Raises:
        ConfigError: it is not a range.

    """
    left, colon, right = text.partition(":")
    try:
        found = (int(left or -_RING_END), int(right or _RING_END - 1))
    except ValueError:
        found = (_RING_END, 0)
    if not colon or any(not -_RING_END <= token < _RING_END for token in found):
        hint = "START:END, two tokens; a side left out is the ring's end"
        raise bad_option("--token-range", f"expected two tokens, found {text[:48]!r}", hint)
    return found
