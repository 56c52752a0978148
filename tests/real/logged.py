"""What a source has to read, without a worker."""

from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import SourceSpec, batches, opened
from headrace.sources.cassandra.encode.change_record import ChangeRecord


def changes(spec: SourceSpec) -> list[ChangeRecord]:
    """Read a source once through."""
    found: list[ChangeRecord] = []
    for shard in planned(spec, Selection(), shards=7).shards:
        with opened(shard) as source:
            for batch in batches(source, shard):
                found += [r for r in batch.records() if isinstance(r, ChangeRecord)]
    return found
