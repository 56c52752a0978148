"""Sends dead letters again, in their order.

A sink may delay records to send more of them at once, so records are submitted in groups, with one
wait for each group.
"""

from collections.abc import Collection, Generator, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
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
    RetriableError,
    Sink,
    Source,
    Writer,
)

DELIVERY_MS_MAX: Final = 60_000  # The longest wait for the results of a group.
# A group ends at the first of these bounds, so that results come soon and memory is bounded.
GROUP_RECORDS_MAX: Final = 500
GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
GROUP_MS_MAX: Final = 1_000
SOURCE_STAGE: Final = "TASK_POLL"


class Redrive:
    """See the module. Delivered records leave the quarantine."""

    def __init__(self, job: Job, store: Store) -> None:
        """Make source and sink of *job*; the working folder must be that of its file."""
        self._store = store
        self._context = Context(
            job=job.name,
            clock=SystemClock(),
            job_key=store.job_key(),
            log=structlog.stdlib.get_logger(),
            resumes=True,  # A run that opened the sink has read them.
        )
        self._source: Source = made_source(job, self._context)
        self._sink: Sink = made_sink(job, self._context)
        self._encoder = encoder_of(job, self._context, self._sink, self._source.origin)
        self._retry = Retry(in_ms(job.runtime.retry_seconds_max))
        self._wake = ThreadWake()

    def groups(
        self, chosen: Sequence[KeptLoss], *, dry: bool
    ) -> Generator[Sequence[tuple[int, str]]]:
        """Yield each group's results: the number, and why it was not delivered, or an empty string.

        A dry run only checks whether each can be encoded. Close the iterator to stop early.

        Raises:
            HeadraceError: the sink accepts no more; the results of all before were yielded.

        """
        writer = None if dry else self._sink.open()
        try:
            left = iter(chosen)
            while group := self._submitted(left, writer):
                yield self._results(group, writer)
                if group[-1].error is not None:
                    raise group[-1].error
        finally:
            if writer:
                writer.close()
            self._encoder.close()
            self._source.close()

    def _submitted(self, left: Iterator[KeptLoss], writer: Writer | None) -> Sequence["_Sent"]:
        """Take a group from *left*, and submit it to the sink."""
        clock = self._context.clock
        group: list[_Sent] = []
        until_ms, size_bytes = clock.monotonic_ms() + GROUP_MS_MAX, 0
        for kept in left:
            group.append(self._submit(kept, writer))
            size_bytes += len(kept.loss.content)
            is_full = len(group) >= GROUP_RECORDS_MAX or size_bytes >= GROUP_BYTES_MAX
            if is_full or group[-1].error is not None or clock.monotonic_ms() >= until_ms:
                break
        return group

    def _submit(self, kept: KeptLoss, writer: Writer | None) -> "_Sent":
        try:
            encoded = self._encoded(kept)
        except HeadraceError as error:
            return _Sent(kept, f"{error.code}: {error.message}")
        if encoded is None:
            return _Sent(kept, "its bytes cannot be made into records again")
        if encoded.quarantined:
            lost = encoded.quarantined[0]
            return _Sent(kept, f"{lost.code}: {lost.message}")
        if writer is None:
            return _Sent(kept, "")
        sent = _Sent(kept, None, records=len(encoded))
        delivery = Delivery(RecordBatch("redrive", NumberPosition(0), 0, made=()), encoded)
        try:
            try:
                writer.submit(delivery, sent.settle)
            except RetriableError:  # It accepted nothing: its buffer may still be full.
                self._drain(writer)
                writer.submit(delivery, sent.settle)
        except HeadraceError as error:
            sent.problem, sent.error = f"{error.code}: {error.message}", error
        return sent

    def _results(
        self, group: Sequence["_Sent"], writer: Writer | None
    ) -> Sequence[tuple[int, str]]:
        """Wait for the sink, and remove delivered records from the quarantine."""
        if writer is not None:
            if any(sent.problem is None for sent in group):
                self._drain(writer)
            # Each is checked once: a record that settles later stays, and is sent again.
            missing = f"no result within {DELIVERY_MS_MAX // 1000} s"
            for sent in group:
                sent.problem = missing if sent.problem is None else sent.problem
            self._store.remove_losses([sent.kept for sent in group if not sent.problem])
        return [(sent.kept.number, sent.problem or "") for sent in group]

    def _drain(self, writer: Writer) -> None:
        writer.drain(self._context.clock.monotonic_ms() + DELIVERY_MS_MAX)

    def _encoded(self, kept: KeptLoss) -> EncodedRecords | None:
        loss = kept.loss
        if loss.kind == "dead_letter":
            topic = loss.origin.get("topic")  # The topic that a transform chose.
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
        """Return the batch to encode again: from the source's bytes, or from a change in Avro."""
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


class _Sent(msgspec.Struct):
    """A dead letter that was submitted; `error` ended the sending."""

    kept: KeptLoss
    problem: str | None
    """Why it was not delivered, or an empty string; None while that is unknown."""
    records: int = 0
    error: HeadraceError | None = None

    def settle(self, delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        """See `Settle`."""
        if self.problem is None:
            problems = [f"{failure.code}: {failure.message}" for failure in failures]
            self.problem = "; ".join(problems) or miscount_of(self.records, delivered, failures)
