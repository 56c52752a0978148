"""Shards of recorded rings, and what a task reads of them."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headrace.connector.replay.columns import arrow_schema, record_batch
from headrace.connector.replay.shards import Shard, SourceSpec, batches, encoded_changes, opened
from headrace.connector.serde import Encoder
from headrace.plugins import Encoding
from helpers.recordings.corpora import recording


class Read(NamedTuple):
    """What was read of a shard: rows, what could not be decoded, and where it ended."""

    rows: Sequence[Mapping[str, Any]]
    lost: Sequence[tuple[str, str]]
    books: Mapping[str, int]
    position: Any


def ring(name: str, folder: Path | None = None, **options: object) -> SourceSpec:
    """Return the source of a recorded ring, copied into *folder* if there is one."""
    place = recording(name)
    if folder is not None:
        place = folder / name
        shutil.copytree(recording(name), place)
    nodes = {node: str(place / "segments" / node) for node in ("node1", "node2", "node3")}
    given = {"plugin": "cassandra", "nodes": nodes, "schema": str(place / "schema.cql"), **options}
    return SourceSpec(given=given, directory=str(place))


def read(shard: Shard) -> Read:
    """Read a shard as a task does."""
    encoder = Encoder(Encoding(codec="json"), joined=True)
    rows: list[Mapping[str, Any]] = []
    lost = []
    end: Any = None
    with opened(shard, sparing=True) as source:
        schema = arrow_schema(source.origin)
        for batch in batches(source, shard):
            made = encoded_changes(encoder, batch)
            lost += [(each.code, each.place) for each in made.quarantined]
            rows += record_batch(shard.selection.apply(made), schema).to_pylist()
            end = batch.end if batch.has_end else end
    return Read(rows, lost, end.books(), end.describe())
