"""Spark finds `headrace.sink` by this module's name. It holds nothing else."""

from headrace.connector.replay.frames.sources import SinkTarget as DefaultSource

__all__ = ["DefaultSource"]
