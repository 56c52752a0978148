"""Keeps copies from a segment that is to be removed: their bytes, in a file beside the pins.

A few mutations can wait for hours for a node that is down; they need not keep whole segments.
Blocking file I/O.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headrace.sources.cassandra.logs import pins

_PREFIX: Final = ".rescued-"


class Rescued(NamedTuple):
    """The bytes of a mutation, and their messaging version."""

    raw: bytes
    messaging: int


class _File(msgspec.Struct, frozen=True):
    """The copies of one segment, by the position at which each entry ends."""

    messaging: int
    copies: dict[int, bytes]


def save(folder: Path, segment_id: int, messaging: int, copies: Mapping[int, bytes]) -> None:
    """Keep *copies* of a segment. Raises OSError."""
    content = msgspec.msgpack.encode(_File(messaging, dict(copies)))
    pins.write(folder, f"{_PREFIX}{segment_id}", content)


def load(folder: Path, segment_id: int, position: int) -> Rescued | None:
    """Return the copy whose entry ended at *position*; None if it was not kept.

    A damaged file counts as empty: readers of copies compare their digests.
    """
    try:
        content = (folder / f"{_PREFIX}{segment_id}").read_bytes()
        file = msgspec.msgpack.decode(content, type=_File)
    except (OSError, msgspec.MsgspecError):
        return None
    raw = file.copies.get(position)
    return None if raw is None else Rescued(raw, file.messaging)


def keep_only(folder: Path, is_needed: Callable[[int], bool]) -> None:
    """Remove the copies of segments that are not needed. Raises OSError."""
    for path in folder.glob(f"{_PREFIX}*"):
        segment_id = path.name.removeprefix(_PREFIX)
        if segment_id.isdecimal() and not is_needed(int(segment_id)):
            path.unlink(missing_ok=True)
