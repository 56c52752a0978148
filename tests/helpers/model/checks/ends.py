"""The ends of batches, for the checks: also of batches that no process may commit."""

from headrace.connector.runtime.splits.ledger import Part
from headrace.plugins import Batch, Reader
from headrace.sources.cassandra.reader import CassandraReader
from headrace.sources.cassandra.state.cdc_state import CdcState


def end_of(reader: Reader, batch: Batch) -> CdcState:
    """Return the state at the end of what *reader* has just read; make it if the reader did not."""
    if not batch.has_end:
        assert isinstance(reader, CassandraReader)
        batch.end = reader._state(reader._noted_markers())  # noqa: SLF001 (the only way to it)
    assert isinstance(batch.end, CdcState)
    return batch.end


def whole_of(batch: Batch) -> Batch:
    """Return the whole batch that was read, of which only a part is sent."""
    while isinstance(batch, Part):
        batch = batch.whole
    return batch
