"""Writes mutations as a node's finished commit log: what a replica of the same rows would have."""

import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

SEGMENT_BYTES: Final = 32 * 1024 * 1024
SECTION_BYTES: Final = 100_000
SHUFFLE_WINDOW: Final = 200  # Entries; about how far apart replicas log the same mutation.
_MARKER_BYTES: Final = 8
_VERSION: Final = 7
_PARAMETERS: Final = b"{}"


def write_log(folder: Path, entries: Sequence[bytes], *, first_id: int) -> None:
    """Write *entries* as finished segments of version 7 into *folder*, which is made."""
    folder.mkdir(parents=True)
    for number, (content, end) in enumerate(_segments(entries, first_id)):
        name = f"CommitLog-{_VERSION}-{first_id + number}"
        with (folder / f"{name}.log").open("wb") as file:
            file.write(content)
            file.truncate(SEGMENT_BYTES)  # Preallocated: zeros after the last marker.
        (folder / f"{name}_cdc.idx").write_text(f"{end}\nCOMPLETED")


def shuffled(entries: Sequence[bytes], *, seed: int) -> list[bytes]:
    """Return *entries* in another order, no entry more than SHUFFLE_WINDOW places from its own."""
    places = random.Random(seed)  # noqa: S311 (the same order in every run, not a secret)
    order = sorted(range(len(entries)), key=lambda place: place + places.random() * SHUFFLE_WINDOW)
    return [entries[place] for place in order]


def _segments(entries: Sequence[bytes], first_id: int) -> Iterator[tuple[bytes, int]]:
    """Yield each segment's bytes, and where its durable part ends."""
    left = iter([*entries, None])
    entry = next(left)
    segment_id = first_id
    while True:
        content = _header(segment_id)
        while entry is not None and len(content) + SECTION_BYTES < SEGMENT_BYTES:
            begin = len(content)
            content += bytes(_MARKER_BYTES)
            while entry is not None and len(content) - begin < SECTION_BYTES - len(entry):
                content += _framed(entry)
                entry = next(left)
            content[begin : begin + _MARKER_BYTES] = _marker(segment_id, begin, len(content))
        yield bytes(content), len(content)
        if entry is None:
            return
        segment_id += 1


def _header(segment_id: int) -> bytearray:
    written = struct.pack(">IQH", _VERSION, segment_id, len(_PARAMETERS)) + _PARAMETERS
    summed = struct.pack(
        ">IIII", _VERSION, segment_id & 0xFFFF_FFFF, segment_id >> 32, len(_PARAMETERS)
    )
    return bytearray(written + struct.pack(">I", zlib.crc32(summed + _PARAMETERS)))


def _marker(segment_id: int, at: int, next_at: int) -> bytes:
    summed = struct.pack(">III", segment_id & 0xFFFF_FFFF, segment_id >> 32, at)
    return struct.pack(">II", next_at, zlib.crc32(summed))


def _framed(entry: bytes) -> bytes:
    size = struct.pack(">I", len(entry))
    sum_size = zlib.crc32(size)
    return b"".join(
        (size, struct.pack(">I", sum_size), entry, struct.pack(">I", zlib.crc32(entry, sum_size)))
    )
