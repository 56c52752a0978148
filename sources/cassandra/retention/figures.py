"""Figures of the segments that an agent or a job keeps."""

import msgspec


class HoldFigures(msgspec.Struct, frozen=True):
    """How much is held of a node's log, how much more can be, and how long that lasts.

    `retention_seconds`, at the recent rate of writing, is None while that is not known; `full`:
    something is not held now. `free_bytes` of the disk and `growth`, the bytes a second that were
    written recently, are None where they are not known, as of agents that do not say them yet.
    """

    held_bytes: int
    held_segments: int
    cdc_raw_bytes: int
    room_bytes: int
    retention_seconds: float | None
    full: bool
    free_bytes: int | None = None
    growth: float | None = None
