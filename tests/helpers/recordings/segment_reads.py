"""Counts what is read of the segments of logs."""

import pytest

from headrace.sources.cassandra.logs.directory import SegmentFile


def note_reads(patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the bytes of each read of a segment while *patch* is in force."""
    sizes: list[int] = []
    read_into = SegmentFile.read_into

    def counted(self: SegmentFile, offset: int, buffer: memoryview) -> int:
        sizes.append(read_into(self, offset, buffer))
        return sizes[-1]

    patch.setattr(SegmentFile, "read_into", counted)
    return sizes
