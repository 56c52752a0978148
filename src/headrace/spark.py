"""Frames of Spark in Python: `segments` reads logs once for all tasks."""

from headrace.connector.replay.frames.framed_segments import segments

__all__ = ["segments"]
