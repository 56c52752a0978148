"""The Cassandra source obeys the contract, on the recorded logs of three nodes."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import pytest

from headrace.connector.serde import Encoder
from headrace.plugins import (
    Batch,
    Demand,
    EncodedRecords,
    Encoding,
    NumberPosition,
    Record,
    RecordBatch,
    parse_config,
)
from headrace.plugins.testing import (
    BulkReadingSuite,
    JobTracesSuite,
    LocalitySuite,
    LogArchiveSuite,
    LogFramingSuite,
    LogSearchSuite,
    LogSpacesSuite,
    MicroBatchesSuite,
    PartialReadingSuite,
    RelocationSuite,
    ResplittingSuite,
    SidecarServiceSuite,
    SourceDriver,
    SourceSuite,
    TableChecksSuite,
    TablesSuite,
    TokenRangesSuite,
    TypedColumnsSuite,
)
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.encode.origin import ORIGIN
from headrace.sources.cassandra.ring.splits import names
from headrace.sources.cassandra.source import CassandraSource
from helpers.recordings.corpora import recording
from helpers.recordings.interleaved import GrowingLog

pytestmark = pytest.mark.long

RING = "5.0-ring"
TABLE = "ring_cobalt_ticket.b_gale_umbra"  # One of two: less is enough, batch by batch.
SECTIONS = 110  # Of some 290: with 215 mutations of the table.


class RingDriver(SourceDriver):
    """Three nodes with the first sections of their logs, at first.

    Copies agree in another order when they are read in another order; a mutation's bytes are
    bounded, and its rows not counted before they are decoded.
    """

    ordered = False
    counts_records = False

    def __init__(self, folder: Path) -> None:
        """Let the beginning of the recording be in *folder*."""
        self.nodes = {node: folder / node for node in ("node1", "node2", "node3")}
        segments = recording(RING) / "segments"
        self._logs = [GrowingLog(path, [segments / node]) for node, path in self.nodes.items()]
        for log in self._logs:
            log.grow(SECTIONS)

    def source(self) -> CassandraSource:
        """Return a source of two splits."""
        return CassandraSource(parse_config(CassandraConfig, self.options()), context())

    def options(self) -> Mapping[str, object]:
        """Return the options of both the nodes and the table."""
        return {
            "nodes": {node: str(path) for node, path in self.nodes.items()},
            "schema": str(recording(RING) / "schema.cql"),
            "splits": 2,
            "tables": [TABLE],
        }

    def grow(self) -> int:
        """Add the rest; what it holds is what a reader of the whole finds besides."""
        before = self._count()
        for log in self._logs:
            log.grow_state()
        return self._count() - before

    def other_splits(self) -> Sequence[str]:
        """Return three parts of the ring instead of two."""
        return names(3)

    def identity(self, record: Record) -> Hashable:
        """Return the mutation's digest and the index of the change in it."""
        return self.mutation(record), record.document()["index"]

    def mutation(self, record: Record) -> Hashable:
        """Return the mutation's digest."""
        digest: str = record.document()["mutation"]
        return digest

    def encoded(self, encoding: str, batch: Batch) -> EncodedRecords:
        """Encode the records of *batch*, which are not bytes then."""
        codec, *shape = encoding.split(".")
        wanted = Encoding(
            codec=codec,
            envelope="flat" if "flat" in shape else "",
            key="primary" if "primary" in shape else "partition",
        )
        records = RecordBatch("", NumberPosition(0), 0, list(batch.records()))
        return Encoder(wanted, ORIGIN).encode(records, token=1)

    def _count(self) -> int:
        source = self.source()
        readers = [source.open(split, None) for split in source.plan()]
        batches = [reader.read(Demand(bytes_max=1 << 30)) for reader in readers]
        return sum(len(list(b.records())) for b in batches if isinstance(b, Batch))


class TestCassandraSource(
    SourceSuite,
    BulkReadingSuite,
    MicroBatchesSuite,
    LogFramingSuite,
    LogSearchSuite,
    LogSpacesSuite,
    TypedColumnsSuite,
    LogArchiveSuite,
    SidecarServiceSuite,
    JobTracesSuite,
    LocalitySuite,
    PartialReadingSuite,
    RelocationSuite,
    ResplittingSuite,
    TableChecksSuite,
    TablesSuite,
    TokenRangesSuite,
):
    """Every rule of the contract, on real bytes."""

    @pytest.fixture
    def driver(self, tmp_path: Path) -> SourceDriver:
        """Return the ring."""
        return RingDriver(tmp_path)
