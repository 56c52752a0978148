"""The Cassandra source over forged or recorded logs, driven by hand."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from headrace.plugins import Batch, Demand, Position, Reader, parse_config
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.forge.segments import segment, write_segment
from headrace.sources.cassandra.source import CassandraSource
from helpers.logs.forged import SCHEMA

READS_MAX = 10_000


def forged_nodes(
    folder: Path, logs: Mapping[str, Iterable[bytes]], schema: str = SCHEMA, *, version: int = 7
) -> dict[str, object]:
    """Write one final segment of each node's mutations, and the schema; return the options."""
    for node, raws in logs.items():
        write_segment(folder / node, segment([raws], version=version).content, version=version)
    path = folder / "schema.cql"
    path.write_text(schema)
    return {"nodes": {node: str(folder / node) for node in logs}, "schema": str(path)}


def source(
    options: Mapping[str, object], clock: DrivenClock | None = None, *, job: str = "test"
) -> CassandraSource:
    """Return a source with these options."""
    return CassandraSource(parse_config(CassandraConfig, dict(options)), context(clock, job=job))


def open_all(
    made: CassandraSource, resume: Mapping[str, Position] | None = None
) -> dict[str, Reader]:
    """Open every split, each after its position in *resume*."""
    at = resume or {}
    return {s.split_id: made.open(s, at.get(s.split_id)) for s in made.plan()}


def batches(readers: Iterable[Reader], demand: Demand | None = None) -> Iterator[Batch]:
    """Read in turn until every reader is idle."""
    left = list(readers)
    for _ in range(READS_MAX):
        came = [reader.read(demand or Demand(linger_ms=1 << 30)) for reader in left]
        found = [each for each in came if isinstance(each, Batch)]
        if not found:
            return
        yield from found
    raise AssertionError("it goes on for ever")


def everything(options: Mapping[str, object]) -> Sequence[Batch]:
    """Return all that the logs justify."""
    made = source(options)
    found = list(batches(open_all(made).values()))
    made.close()
    return found
