"""Where batches end, for the model's judge: also those that nobody may commit."""

from headrace.connector.runtime.splits.ledger import Part
from headrace.plugins import Batch, Reader
from headrace.sources.cassandra.reader import CassandraReader
from headrace.sources.cassandra.state.cdc_state import CdcState


def end_of(reader: Reader, batch: Batch) -> CdcState:
    """Return the state at the end of what *reader* has just read, made for the judge if need be."""
    if not batch.has_end:
        assert isinstance(reader, CassandraReader)
        batch.end = reader._state(reader._markers)  # noqa: SLF001 (there is no other way to it)
    assert isinstance(batch.end, CdcState)
    return batch.end


def whole_of(batch: Batch) -> Batch:
    """Return the batch that was read, of what is sent of it."""
    while isinstance(batch, Part):
        batch = batch.whole
    return batch
