"""Spark finds `headrace.segments` by this module's name. It holds nothing else."""

from headrace.connector.replay.sources import SegmentSource as DefaultSource

__all__ = ["DefaultSource"]
