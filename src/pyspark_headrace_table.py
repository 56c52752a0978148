"""Spark finds `headrace.table` by this module's name. It holds nothing else."""

from headrace.connector.replay.frames.sources import TableSource as DefaultSource

__all__ = ["DefaultSource"]
