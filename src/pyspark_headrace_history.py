"""Spark finds `headrace.history` by this module's name. It holds nothing else."""

from headrace.connector.replay.frames.sources import HistorySource as DefaultSource

__all__ = ["DefaultSource"]
