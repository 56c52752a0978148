"""Batches of recorded changes, for tests of what is done with them."""

from functools import lru_cache

from headrace.plugins import Batch
from helpers.logs.node_logs import everything
from helpers.recordings.corpora import recording


def source_of(name: str, **options: object) -> dict[str, object]:
    """Return the options of a source that reads recording *name* as the log of one node."""
    folder = recording(name)
    return {
        "plugin": "cassandra",
        "nodes": {"node1": str(folder / "segments")},
        "schema": str(folder / "schema.cql"),
        "consistency": "ONE",
        **options,
    }


@lru_cache
def recorded_batches(name: str) -> tuple[Batch, ...]:
    """Return what a job with one node and one split reads of recording *name*."""
    folder = recording(name)
    options = {"nodes": {"node1": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    return tuple(everything(options | {"consistency": "ONE", "splits": 1}))
