"""Spark finds `headrace.topic` by this module's name. It holds nothing else."""

from headrace.connector.replay.frames.sources import TopicSource as DefaultSource

__all__ = ["DefaultSource"]
