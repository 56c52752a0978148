"""What stores keep as text, and how it is read back: as it was written, or not at all.

Nothing is guessed from what was spoilt. Whoever reads says whose it was (`StateLostError`).
"""

import json
from collections.abc import Collection
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from headrace.connector.stores import Counters, TableCounts

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

PLAN: Final = 1  # The first plan generation: it grows when a job has other splits.
JOB_KEY_BYTES: Final = 16
BEGINS_ANEW: Final = "null"  # In place of the names of chunks, beside a head that is NULL.
# In place of where a head is kept besides: what a sink has of the name is of a job that is gone.
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


def document(text: object, what: str) -> Any:  # noqa: ANN401 (a document of any form)
    """Read any JSON. Raises UnreadableError with *what* it is."""
    return decoded(text, object, what)


def names(text: object, what: str) -> tuple[str, ...]:
    """Read names, of splits or places. Raises UnreadableError."""
    return decoded(text, tuple[str, ...], what)


def chunks_of(text: object, kind: type[T]) -> T | None:
    """Read how chunks are listed; None where it is said that the split begins anew.

    Raises UnreadableError.
    """
    return None if text == BEGINS_ANEW else decoded(text, kind, "column chunks")


def one_of(kind: type[E], value: str, what: str) -> E:
    """Read one of the values of *kind*. Raises UnreadableError."""
    try:
        return kind(value)
    except ValueError as error:
        expected = ", ".join(kind)
        raise UnreadableError(f"{what}: found {value!r}, expected one of {expected}") from error


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


def check_plan(found: object, in_force: int) -> None:
    """Refuse a head of another plan than the one in force; that of a frozen one is negative."""
    if not isinstance(found, int) or abs(found) != in_force:
        raise UnreadableError(f"column plan: found {found}, expected {in_force}")


def check_position(
    head: object, chunks: Collection[str] | None, *, seq: object, plan: object
) -> bytes | None:
    """Return the head of a position; None where the split has none yet, or is to begin anew.

    Such a head says so in the place of its *chunks*: one that merely is not there was lost, and
    all that was published would be published again (I7). One that an older release registered
    says nothing, and was never committed to.
    """
    if not isinstance(plan, int) or not isinstance(seq, int):
        raise UnreadableError(f"columns plan, seq: found {_kind(plan)}, {_kind(seq)}")
    if isinstance(head, bytes) and chunks is not None:
        return head
    if head is None and (chunks is None or (not chunks and seq == 0 and abs(plan) == PLAN)):
        return None
    if head is None:
        raise UnreadableError(f"column head: found NULL, expected the position of commit {seq}")
    raise UnreadableError(f"columns head, chunks: found {_kind(head)} without names of chunks")


def not_kept(names: Collection[str]) -> str:
    """Say what is lost where a position rests on chunks that the store has not got."""
    return f"chunk {min(names)}, kept from an earlier commit, is missing"


def _kind(value: object) -> str:
    return "NULL" if value is None else type(value).__name__
