"""Sends records that could not be processed or delivered again, one by one, in their order."""

from collections.abc import Collection, Generator, Sequence
from functools import partial
from typing import Final

import structlog

from headrace.connector.foundation.clock import SystemClock, ThreadWake
from headrace.connector.runtime.failures.retry import Retry, call_with_retries
from headrace.connector.runtime.making import made_sink, made_source
from headrace.connector.runtime.schemas import encoder_of
from headrace.connector.runtime.splits.ledger import miscount_of
from headrace.connector.runtime.starting import in_ms
from headrace.connector.serde.codecs.records import KeptBatch
from headrace.connector.stores import KeptLoss, Loss
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import (
    Batch,
    Context,
    Delivery,
    EncodedRecords,
    Failure,
    HeadraceError,
    NumberPosition,
    Quarantined,
    RecordBatch,
    Recovery,
    Sink,
    Source,
    Writer,
)

DELIVERY_MS_MAX: Final = 60_000
SOURCE_STAGE: Final = "TASK_POLL"


class Redrive:
    """See the module. What is delivered leaves the quarantine."""

    def __init__(self, job: Job, store: Store) -> None:
        """Make source and sink of *job*; the working folder is that of its file."""
        self._store = store
        self._context = Context(
            job=job.name,
            clock=SystemClock(),
            job_key=store.job_key(),
            log=structlog.stdlib.get_logger(),
            resumes=True,  # A run that had opened the sink read them.
        )
        self._source: Source = made_source(job, self._context)
        self._sink: Sink = made_sink(job, self._context)
        self._encoder = encoder_of(job, self._context, self._sink, self._source.origin)
        self._retry = Retry(in_ms(job.runtime.retry_seconds_max))
        self._wake = ThreadWake()

    def each(self, chosen: Sequence[KeptLoss], *, dry: bool) -> Generator[tuple[int, str]]:
        """Yield of each its number, and why it was not delivered, or nothing.

        A dry run only tries whether each can be encoded. Close the iterator to end sooner.
        """
        writer = None if dry else self._sink.open()
        try:
            for kept in chosen:
                yield kept.number, self._redrive(kept, writer)
        finally:
            if writer:
                writer.close()
            self._encoder.close()
            self._source.close()

    def _redrive(self, kept: KeptLoss, writer: Writer | None) -> str:
        """Return why it was not delivered, or nothing."""
        try:
            encoded = self._encoded(kept)
        except HeadraceError as error:
            return f"{error.code}: {error.message}"
        if encoded is None:
            return "its bytes cannot be made into records again"
        if encoded.quarantined:
            lost = encoded.quarantined[0]
            return f"{lost.code}: {lost.message}"
        if writer is None:
            return ""
        problem = _delivered(writer, encoded, self._context)
        if not problem:
            self._store.remove_losses([kept])
        return problem

    def _encoded(self, kept: KeptLoss) -> EncodedRecords | None:
        loss = kept.loss
        if loss.kind == "dead_letter":
            topic = loss.origin.get("topic")  # Where a transform had it go.
            return EncodedRecords(
                [loss.key],
                [loss.content],
                [loss.headers],
                [loss.table],
                topics=None if topic is None else [topic],
            )
        batch = self._batch(loss)
        if batch is None:
            return None
        self._encoder.announce(batch.schemas())
        encode = partial(self._encoder.encode, batch, token=0)  # Its schema may have no number.
        return call_with_retries(encode, self._retry, self._context.clock, self._wake)

    def _batch(self, loss: Loss) -> Batch | None:
        """Return what is to be encoded again: from the source's bytes, or from a change in Avro."""
        if loss.stage == SOURCE_STAGE:
            if not isinstance(self._source, Recovery):
                return None
            return self._source.recover(
                Quarantined(
                    loss.place, loss.code, loss.message, loss.content, loss.stage, loss.origin
                )
            )
        named = loss.origin.get("schema")  # None for a record that has no envelope.
        schema = None if named is None else self._store.schema(bytes.fromhex(named))
        return None if schema is None else KeptBatch(loss.content, loss.origin, schema)


def _delivered(writer: Writer, encoded: EncodedRecords, context: Context) -> str:
    """Deliver; return why not, or nothing."""
    results: list[str] = []

    def settle(delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        problems = [f"{failure.code}: {failure.message}" for failure in failures]
        results.append("; ".join(problems) or miscount_of(len(encoded), delivered, failures))

    batch = RecordBatch("redrive", NumberPosition(0), 0, made=())
    writer.submit(Delivery(batch, encoded), settle)
    writer.drain(context.clock.monotonic_ms() + DELIVERY_MS_MAX)
    if not results:
        return f"no result within {DELIVERY_MS_MAX // 1000} s"
    return results[0]
