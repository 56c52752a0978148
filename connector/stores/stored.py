"""What stores keep as text, and how it is read back: as it was written, or not at all.

Nothing is guessed from damaged text. The reader says whose it was (`StateLostError`).
"""

import json
from collections.abc import Collection
from typing import Final, TypeVar

import msgspec

from headrace.connector.stores import Counters, TableCounts

T = TypeVar("T")

PLAN: Final = 1  # The first plan generation: it grows when a job has other splits.
JOB_KEY_BYTES: Final = 16
# In place of the other place of a head: what a sink has under the name is of a removed job.
PARTED: Final = "parted"
_WITHOUT_REPEATS: Final = 5  # Numbers of a table's counts.
_WITH_REPEATS: Final = 8


def restore_hint(what: str) -> str:
    """Return the hint where *what* keeps the state was spoilt."""
    return (
        f"restore the {what} from a backup; starting over, as a job of another name does, would "
        "repeat or lose changes"
    )


class UnreadableError(ValueError):
    """Something stored is not as it was written."""


def decoded(text: object, kind: type[T], what: str) -> T:
    """Read JSON of a kind. Raises UnreadableError with *what* it is."""
    if not isinstance(text, str):
        raise UnreadableError(f"{what}: found {_kind(text)}, expected JSON")
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise UnreadableError(f"{what}: {error}") from error


def key_of(value: object, what: str) -> bytes:
    """Read the key of a job. Raises UnreadableError; the key is not in it."""
    if not isinstance(value, bytes) or len(value) != JOB_KEY_BYTES:
        found = f"{len(value)} bytes" if isinstance(value, bytes) else _kind(value)
        raise UnreadableError(f"{what}: found {found}, expected {JOB_KEY_BYTES} bytes")
    return value


def counters_of(text: object, what: str = "column counters") -> Counters:
    """Read what `counters_text` wrote. Raises UnreadableError."""
    found = decoded(text, dict[str, list[int]], what)
    for table, numbers in found.items():
        if len(numbers) not in (_WITHOUT_REPEATS, _WITH_REPEATS):
            expected = f"{_WITHOUT_REPEATS} or {_WITH_REPEATS}"
            raise UnreadableError(
                f"{what}: found {len(numbers)} numbers of {table}, expected {expected}"
            )
    return {table: TableCounts(*numbers) for table, numbers in found.items()}


def counters_text(counters: Counters) -> str:
    """Write counters as a JSON object of five numbers per table; of eight where some are repeats.

    So an older release reads what has none.
    """
    return json.dumps(
        {
            table: [*c.fates.values(), *(c.repeats.values() if any(c.repeats.values()) else ())]
            for table, c in sorted(counters.items())
        }
    )


def not_kept(names: Collection[str]) -> str:
    """Say what is lost where a position rests on chunks that the store has not got."""
    return f"chunk {min(names)}, kept from an earlier commit, is missing"


def _kind(value: object) -> str:
    return "NULL" if value is None else type(value).__name__
