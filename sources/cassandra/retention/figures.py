"""Figures of the segments that an agent or a job keeps."""

import msgspec


class HoldFigures(msgspec.Struct, frozen=True):
    """How much is held of a node's log, how much more can be, and how long that lasts.

    `retention_seconds`, at the recent rate of writing, is None while that is not known; `full`:
    something is not held now.
    """

    held_bytes: int
    held_segments: int
    cdc_raw_bytes: int
    room_bytes: int
    retention_seconds: float | None
    full: bool
