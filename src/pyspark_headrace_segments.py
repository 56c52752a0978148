"""Spark finds `headrace.segments` by this module's name. It holds nothing else."""

from headrace.connector.replay.frames.sources import SegmentSource as DefaultSource

__all__ = ["DefaultSource"]
