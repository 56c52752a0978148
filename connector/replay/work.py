"""A shard on its way to where it is worked on. Needs no Spark."""

from dataclasses import dataclass

from headrace.connector.replay.delivery import ShardReport, Target, deliver
from headrace.connector.replay.shards import Shard


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
