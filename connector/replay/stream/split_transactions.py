"""Exactly once: delivers a part of a micro-batch in one transaction, with the state at its end.

The writer of a split has the same transactional id as a worker's. Its start fences every earlier
attempt, then the state in the sink shows the outcome of the batch: a repeated task delivers the
batch only if the sink does not have it. The sink refuses later records of earlier attempts.
"""

import platform
from collections.abc import Mapping
from contextlib import closing
from typing import Final
from uuid import uuid4

from headrace.connector.foundation import crash
from headrace.connector.foundation.clock import SystemClock, ThreadWake
from headrace.connector.replay.errors import DeliveryRefusedError, SinkElsewhereError, bad_option
from headrace.connector.replay.sending import SETTLE_MS_MAX, Sending
from headrace.connector.replay.stream.checkpoint import Checkpoint, Known, name_of
from headrace.connector.replay.stream.microbatches import Part, Reading
from headrace.connector.replay.stream.part_delivery import PartDelivery
from headrace.connector.replay.stream.terms import BatchNote, Settled, Term
from headrace.connector.runtime.failures.retry import Retry
from headrace.connector.runtime.failures.tolerance import ErrorPolicy, NotToleratedError
from headrace.connector.serde import Encoder
from headrace.connector.stores import Counters, Loss, StateLostError, add_counters
from headrace.connector.stores.kept_state import KeptState, chunks_in
from headrace.plugins import AbortedError, FencedError, RecordSchema, Sink, TransactionalWriter

CALL_MS: Final = 5_000  # The bound of one call; unfinished work is repeated.
REFUSED_MAX: Final = 1_000  # Records that brokers refuse, found one after another.
_AGAIN: Final = "it is repeated; nothing of it was committed twice"


class SplitTransactions:
    """Delivers the splits of a task, one after another. For one thread."""

    def __init__(
        self,
        opened: tuple[Sink, Encoder],
        checkpoint: Checkpoint,
        policy: ErrorPolicy,
        batch: int,
    ) -> None:
        """Deliver parts of the micro-batch number *batch*."""
        self._sink, self._encoder = opened
        self._checkpoint = checkpoint
        self._policy = policy
        self._batch = batch
        self._clock = SystemClock()
        self._schemas: dict[bytes, RecordSchema] = {}

    def deliver(self, part: Part, framed: str) -> Settled:
        """Deliver a part, unless the sink has it; return its result. Blocking.

        Raises:
            FencedError: a later attempt, or another engine, now has the split.
            SinkElsewhereError: the positions are on another machine.
            StateLostError: the sink has neither the state before the batch nor that after it.
            DeliveryRefusedError: the sink did not accept it, or not within the time of a
                transaction.
            LogShortError: as `Reading.batches`.

        """
        if part.term is None:
            said = "delivers exactly once: only a driver of headrace prepares that"
            raise bad_option("job", said, "use `headrace run … --engine spark`")
        split, refused = part.shard.split, 0
        if self._sink.home() != part.term.home:
            said = "this task does not have the file of positions that the driver has"
            hint = "run all executors on the driver's machine, or let a worker write this sink"
            raise SinkElsewhereError(said, place=f"{platform.node()}, split {split}", hint=hint)
        retry, wake = Retry(self._policy.retry_ms_max), ThreadWake()
        with closing(self._sink.open_split(split)) as writer:
            window_ms = writer.window_ms
            while True:
                started_ms = self._clock.monotonic_ms()
                try:
                    return self._attempt(part, part.term, framed, writer)
                except (AbortedError, FencedError) as error:
                    now_ms = self._clock.monotonic_ms()
                    if now_ms - started_ms >= window_ms:
                        raise _late(split, now_ms - started_ms, window_ms) from error
                    if isinstance(error, FencedError):
                        said = f"a later attempt, or another engine, has it: {error.message}"
                        raise FencedError(said, place=f"split {split}", hint=_AGAIN) from error
                    refused += error.at_once
                    if not error.at_once or refused > REFUSED_MAX:
                        wake.wait(retry.failed(now_ms, error) - now_ms)

    def _attempt(self, part: Part, term: Term, framed: str, writer: TransactionalWriter) -> Settled:
        entries = self._begun(part, writer)
        kept = KeptState.of(entries, f"{writer.place}, split {part.shard.split}")
        note = BatchNote.of(kept, term.checkpoint)
        if kept is not None and note is not None and note.end == name_of(part.end):
            known = Known(kept.position, note.read)
            self._checkpoint.states.store(part.end, part.shard.split, known)
            return Settled(note.delivered, note.losses)
        known = self._start(part, term, kept, note, writer)
        losses: list[Loss] = []
        reading = Reading(part, self._checkpoint, framed, known)
        delivered = self._send(reading, writer, losses)
        crash.reached("part_sent")
        if reading.known.position is None:  # A split that has read nothing has delivered nothing.
            return Settled(delivered)
        settled = Settled(delivered, uuid4().hex if losses else "")
        if losses:
            index = part.shard.number - 1
            self._checkpoint.keep_open(self._batch, index, settled.losses, losses)
        state = self._state(part, term, reading.known, settled)
        self._commit(writer, state.entries(chunks_in(entries)))
        return settled

    def _send(self, reading: Reading, writer: TransactionalWriter, losses: list[Loss]) -> Counters:
        def lose(loss: Loss) -> None:
            if not self._policy.tolerant:
                raise NotToleratedError(f"{loss.code}: {loss.message}", place=loss.place)
            losses.append(loss)

        sending = Sending(self._sink, self._encoder, lose=lose, into=writer, schemas=self._schemas)
        return PartDelivery(reading, sending, self._encoder, self._checkpoint, lose).run()

    def _begun(self, part: Part, writer: TransactionalWriter) -> Mapping[str, bytes]:
        until_ms = self._clock.monotonic_ms() + SETTLE_MS_MAX
        while (now_ms := self._clock.monotonic_ms()) < until_ms:
            entries = writer.begin(now_ms + CALL_MS)
            if entries is not None:
                return entries
        said = f"no answer within {SETTLE_MS_MAX} ms from {writer.awaited or writer.place}"
        raise DeliveryRefusedError(said, place=f"split {part.shard.split}")

    def _start(
        self,
        part: Part,
        term: Term,
        kept: KeptState | None,
        note: BatchNote | None,
        writer: TransactionalWriter,
    ) -> Known:
        """Return the state before the batch. Raises FencedError, StateLostError."""
        split, before = part.shard.split, term.first + self._batch
        place = f"{writer.place}, split {split}"
        if kept is not None and kept.key == term.key:
            if kept.token > term.token:
                said = f"the sink has seen token {kept.token}, that of this batch is {term.token}"
                raise FencedError(said, place=place)
            if (kept.moved, kept.seq) == (term.moved, before):
                if note is not None:
                    return Known(kept.position, note.read)
                return self._checkpoint.states.load(part.start, split)
        known = self._checkpoint.states.load(part.start, split)
        is_older = kept is None or (kept.moved, kept.seq) < (term.moved, term.seq)
        if is_older and (known.position is None or (before == term.seq and not term.is_kept)):
            return known
        found = "nothing" if kept is None else f"commit {kept.seq}, set {kept.moved} times"
        raise StateLostError(
            f"of the state kept with the records, found {found}, expected commit {before}, set "
            f"{term.moved} times",
            place=place,
            hint="another program committed the split, or the state was lost: start the job again",
        )

    def _state(self, part: Part, term: Term, known: Known, delivered: Settled) -> KeptState:
        """Return the state for the sink at the end of the batch."""
        assert known.position is not None  # noqa: S101 (seen by the caller)
        earlier = self._checkpoint.delivered(self._batch - 1)
        before = earlier[part.shard.number - 1] if earlier else {}
        note = BatchNote(
            checkpoint=term.checkpoint,
            batch=self._batch,
            end=name_of(part.end),
            read=dict(known.counters),
            delivered=dict(delivered.counters),
            losses=delivered.losses,
        )
        return KeptState(
            key=term.key,
            token=term.token,
            seq=term.first + self._batch + 1,
            moved=term.moved,
            position=known.position,
            counters=add_counters(add_counters(known.counters, before), delivered.counters),
            note=note.text(),
        )

    def _commit(self, writer: TransactionalWriter, changed: Mapping[str, bytes | None]) -> None:
        until_ms = self._clock.monotonic_ms() + SETTLE_MS_MAX
        while not writer.commit(changed, self._clock.monotonic_ms() + CALL_MS):
            if self._clock.monotonic_ms() >= until_ms:
                said = "whether a transaction was committed is not known: the next attempt sees it"
                raise DeliveryRefusedError(said, place=writer.place)
        crash.reached("part_committed")


def _late(split: str, took_ms: int, window_ms: int) -> DeliveryRefusedError:
    return DeliveryRefusedError(
        f"its part of the batch took {took_ms / 1000:g} s, a transaction ends after "
        f"{window_ms / 1000:g} s",
        place=f"split {split}",
        hint="raise transaction.timeout.ms; a smaller --batch-bytes makes later batches shorter",
    )
