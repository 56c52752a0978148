"""What is sent to where it is worked on: a shard, or a search. Needs no Spark."""

import contextlib
from dataclasses import dataclass

from headrace.connector.replay.delivery import ShardReport, Target, deliver
from headrace.connector.replay.shards import Shard, SourceSpec, inside


@dataclass(frozen=True, slots=True)
class Work:
    """A shard, where it goes, and which attempt of which run this is."""

    shard: Shard
    target: Target
    run: str
    attempt: int

    def __call__(self) -> ShardReport:
        """Do it. An error that headrace names is in the report."""
        return deliver(self.shard, self.target, run=self.run, attempt=self.attempt)


@dataclass(frozen=True, slots=True)
class Search:
    """Finds in the logs of `source` what lets shards pass over parts of them."""

    source: SourceSpec

    def __call__(self) -> int:
        """Do it; return how many bytes were new."""
        with inside(self.source.directory), contextlib.closing(self.source.open()) as source:
            return source.search()
