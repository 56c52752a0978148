"""The text forms in which stores keep values, and their strict readers.

A reader returns what was written, or raises; it does not guess from damaged text. Its caller raises
`StateLostError` with the place.
"""

import json
from collections.abc import Collection
from typing import Final, TypeVar

import msgspec

from headrace.connector.stores import Counters, TableCounts

T = TypeVar("T")

PLAN: Final = 1  # The first plan generation; it increases when the splits of a job change.
JOB_KEY_BYTES: Final = 16
# Replaces the other place of a head: what a sink has under the name belongs to a removed job.
FORKED: Final = "parted"
_WITHOUT_REPEATS: Final = 5  # The length of a table's counts.
_WITH_REPEATS: Final = 8


def restore_hint(what: str) -> str:
    """Return the hint for damage in *what*, which holds the state."""
    return (
        f"restore the {what} from a backup; starting over, as a job of another name does, would "
        "repeat or lose changes"
    )


class UnreadableError(ValueError):
    """A stored value is damaged."""


def decoded(text: object, kind: type[T], what: str) -> T:
    """Decode JSON of a type. Raises UnreadableError, which names *what* was read."""
    if not isinstance(text, str):
        raise UnreadableError(f"{what}: found {_kind(text)}, expected JSON")
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise UnreadableError(f"{what}: {error}") from error


def key_of(value: object, what: str) -> bytes:
    """Return the key of a job. Raises UnreadableError, whose message does not have the key."""
    if not isinstance(value, bytes) or len(value) != JOB_KEY_BYTES:
        found = f"{len(value)} bytes" if isinstance(value, bytes) else _kind(value)
        raise UnreadableError(f"{what}: found {found}, expected {JOB_KEY_BYTES} bytes")
    return value


def counters_of(text: object, what: str = "column counters") -> Counters:
    """Return the counters in a result of `counters_text`. Raises UnreadableError."""
    found = decoded(text, dict[str, list[int]], what)
    for table, numbers in found.items():
        if len(numbers) not in (_WITHOUT_REPEATS, _WITH_REPEATS):
            expected = f"{_WITHOUT_REPEATS} or {_WITH_REPEATS}"
            raise UnreadableError(
                f"{what}: found {len(numbers)} numbers of {table}, expected {expected}"
            )
    return {table: TableCounts(*numbers) for table, numbers in found.items()}


def counters_text(counters: Counters) -> str:
    """Return counters as a JSON object of five numbers per table, or eight if there are repeats.

    So an older release can read counters without repeats.
    """
    return json.dumps(
        {
            table: [*c.fates.values(), *(c.repeats.values() if any(c.repeats.values()) else ())]
            for table, c in sorted(counters.items())
        }
    )


def not_kept(names: Collection[str]) -> str:
    """Return the message about a position that needs chunks that the store does not have."""
    return f"chunk {min(names)}, kept from an earlier commit, is missing"


def _kind(value: object) -> str:
    return "NULL" if value is None else type(value).__name__
