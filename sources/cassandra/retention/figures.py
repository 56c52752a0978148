"""Figures of the segments that an agent or a job keeps."""

import msgspec


class HoldFigures(msgspec.Struct, frozen=True):
    """The held and the remaining space of a node's log, and how long it lasts.

    `retention_seconds`, at the recent write rate, is None while that is unknown; `full`: some
    segment is not held now. `free_bytes` of the disk and `growth`, the recent write rate in bytes
    per second, are None if unknown, as from older agents.
    """

    held_bytes: int
    held_segments: int
    cdc_raw_bytes: int
    room_bytes: int
    retention_seconds: float | None
    full: bool
    free_bytes: int | None = None
    growth: float | None = None
