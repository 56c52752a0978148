"""The bounds of a pipeline."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds on reads, on records in flight, and on times."""

    tick_ms: int
    commit_ms_max: int
    commit_bytes_max: int
    outstanding_bytes_max: int
    outstanding_records_max: int
    batch_bytes_max: int
    batch_records_max: int
    retry_ms_max: int
    stop_ms_max: int
