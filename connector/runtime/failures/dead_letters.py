"""Sends dead letters from the quarantine to their topic, in the background.

The commit that covers a dead letter stores it in the quarantine first, so nothing is lost if the
topic fails, and the stream never waits for the topic. A crash repeats at most one delivery. A
record that the topic does not accept is sent without its value, so that consumers of the topic
still see it.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

import structlog

from headrace.connector.runtime.failures.retry import RetriesExhaustedError, Retry
from headrace.connector.runtime.failures.tolerance import ErrorPolicy
from headrace.connector.runtime.splits.ledger import miscount_of
from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import KeptLoss, StoreUnavailableError
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import (
    Clock,
    Delivery,
    Disposition,
    EncodedRecords,
    Failure,
    FatalError,
    Headers,
    HeadraceError,
    NumberPosition,
    RecordBatch,
    RetriableError,
)
from headrace.plugins.records.codecs import CONNECT_ERRORS, OWN_ERRORS

DELIVERY_BYTES_MAX: Final = 4 * 1024 * 1024


class DeadLetters:
    """The dead letters of one pipeline. Belongs to the data thread."""

    def __init__(  # noqa: PLR0913 (its surroundings)
        self,
        policy: ErrorPolicy,
        store: Store,
        writers: Writers,
        *,
        job: str,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """Without a topic, the object does nothing."""
        self._policy = policy
        self._store = store
        self._writers = writers
        self._job = job
        self._clock = clock
        self._log = log
        self._retry = Retry(policy.retry_ms_max, pause_ms_max=policy.pause_ms_max)
        self._not_before_ms = 0
        self._results: deque[tuple[Collection[int], Sequence[Failure]]] = deque()
        self._sending: Sequence[KeptLoss] = ()
        self._refusals: dict[int, str] = {}  # Codes, by the numbers of records sent without value.
        self._due = bool(policy.topic)

    @property
    def sent(self) -> bool:
        """Whether a delivery is in flight."""
        return bool(self._sending)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to send, or sending was given up."""
        return not self._sending and not self._due

    def more(self) -> None:
        """Record that a dead letter was committed."""
        self._due = bool(self._policy.topic)

    def step(self, splits: Sequence[str]) -> None:
        """Process the result of the last delivery, or send the waiting dead letters of *splits*."""
        try:
            if self._results:
                self._take_result(*self._results.popleft())
            if self._due and not self._sending and splits:
                self._send(splits)
        except (RetriableError, StoreUnavailableError) as error:
            self._pause(error)
        except HeadraceError as error:
            self._give_up(error)

    def _send(self, splits: Sequence[str]) -> None:
        if self._clock.monotonic_ms() < self._not_before_ms:
            return
        kept = self._store.unsent_losses(splits, bytes_max=DELIVERY_BYTES_MAX)
        if not kept:
            self._due = False
            return
        self._sending = kept
        try:
            self._writers.shared.submit(self._delivery(kept), self._settle)
        except HeadraceError:
            self._sending = ()
            raise

    def _settle(self, delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        """Queue the result; called on any thread."""
        self._results.append((delivered, failures))

    def _take_result(self, delivered: Collection[int], failures: Sequence[Failure]) -> None:
        sending, self._sending = self._sending, ()
        miscount = miscount_of(len(sending), delivered, failures)
        if miscount:  # R6.
            raise RetriableError(f"dead letters: {miscount}")
        lasting = {f.index for f in failures if f.disposition is not Disposition.REJECT}
        refused = [f.index for f in failures if f.index not in lasting]
        bare = {index for index in refused if sending[index].number not in self._refusals}
        for failure in failures:
            number = sending[failure.index].number
            if failure.index in bare:
                self._refusals[number] = failure.code
                self._log.warning("dead_letter_without_value", number=number, code=failure.code)
            elif failure.index not in lasting:  # It stays in the quarantine.
                self._log.warning("dead_letter_refused", number=number, code=failure.code)
        waits = lasting | bare
        done = [kept.number for index, kept in enumerate(sending) if index not in waits]
        self._store.mark_losses_sent(done)
        for number in done:
            self._refusals.pop(number, None)
        if lasting:
            first = next(f for f in failures if f.index in lasting)
            fatal = any(f.disposition is Disposition.FATAL for f in failures)
            kind = FatalError if fatal else RetriableError
            raise kind(f"dead letters were not delivered: {first.message}")
        self._retry.succeeded()

    def _pause(self, error: RetriableError) -> None:
        try:
            self._not_before_ms = self._retry.failed(self._clock.monotonic_ms(), error)
        except RetriesExhaustedError as exhausted:
            self._give_up(exhausted)
        else:
            self._log.warning("dead_letters_pause", error=str(error))

    def _give_up(self, error: HeadraceError) -> None:
        """Stop sending until another dead letter is committed, or until the next start."""
        self._due = False
        self._log.error("dead_letters_failed", error_code=error.code, error=str(error))

    def _delivery(self, kept: Sequence[KeptLoss]) -> Delivery:
        losses = [each.loss for each in kept]
        encoded = EncodedRecords(
            keys=[loss.key for loss in losses],
            values=[b"" if each.number in self._refusals else each.loss.content for each in kept],
            headers=[self._headers(each) for each in kept],
            tables=[loss.table for loss in losses],
            topics=[self._policy.topic] * len(kept),
        )
        size_bytes = sum(map(len, encoded.values))
        batch = RecordBatch(kept[0].split, NumberPosition(0), size_bytes, made=())
        return Delivery(batch, encoded)

    def _headers(self, kept: KeptLoss) -> Headers:
        loss = kept.loss
        refusal = self._refusals.get(kept.number)
        if not self._policy.context and refusal is None:
            return loss.headers
        said = {
            f"{CONNECT_ERRORS}connector.name": self._job,
            f"{CONNECT_ERRORS}task.id": kept.split,
            f"{CONNECT_ERRORS}stage": loss.stage,
            f"{CONNECT_ERRORS}exception.class.name": loss.code,
            f"{CONNECT_ERRORS}exception.message": loss.message,
            f"{OWN_ERRORS}kind": loss.kind,
            f"{OWN_ERRORS}code": loss.code,
            f"{OWN_ERRORS}place": loss.place,
            f"{OWN_ERRORS}table": loss.table,
            f"{OWN_ERRORS}time": str(kept.lost_ms),
            f"{OWN_ERRORS}number": str(kept.number),
        }
        if refusal is not None:
            said[f"{OWN_ERRORS}value.bytes"] = str(len(loss.content))
            said[f"{OWN_ERRORS}value.refused"] = refusal
            if loss.table:
                said[f"{OWN_ERRORS}topic"] = loss.origin.get(
                    "topic"
                ) or self._writers.sink.topic_of(loss.table)
        return (*loss.headers, *((name, text.encode()) for name, text in said.items()))
