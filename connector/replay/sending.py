"""Sends records of bulk work to a sink. A shard ends when all deliveries are settled, or it fails.

Delivery is at least once: a delivery with retriable failures is sent again as a whole; a shard that
is repeated sends its records again, with the same keys and the headers of its attempt.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, overload

import msgspec

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.replay.errors import DeliveryRefusedError
from headrace.connector.replay.shards import changes_with_facts, encoded_changes
from headrace.connector.runtime.splits.ledger import dead_letter, miscount_of
from headrace.connector.serde import Encoder
from headrace.connector.stores import Loss
from headrace.plugins import (
    AbortedError,
    Batch,
    Delivery,
    Disposition,
    EncodedRecords,
    Failure,
    Headers,
    RecordSchema,
    RetriableError,
    Sink,
    TransactionalWriter,
    Writer,
)
from headrace.plugins.records.codecs import RUN_HEADER

OUTSTANDING_RECORDS_MAX: Final = 60_000
TRIES_MAX: Final = 8
SETTLE_MS_MAX: Final = 120_000
NOTES_MAX: Final = 20


class _Marked(Sequence[Headers]):
    """Headers with those of a run and the write time, made when a sink reads them."""

    def __init__(
        self, headers: Sequence[Headers], mark: Headers, timestamps_us: Sequence[int]
    ) -> None:
        self._headers = headers
        self._mark = mark
        self._timestamps_us = timestamps_us

    def __len__(self) -> int:
        return len(self._headers)

    @overload
    def __getitem__(self, index: int) -> Headers: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Headers]: ...
    def __getitem__(self, index: int | slice) -> Headers | Sequence[Headers]:
        if isinstance(index, slice):
            return _Marked(self._headers[index], self._mark, self._timestamps_us[index])
        written = ("write_time", b"%d" % self._timestamps_us[index])
        return (*self._headers[index], *self._mark, written)

    def __iter__(self) -> Iterator[Headers]:
        mark = self._mark
        for headers, timestamp_us in zip(self._headers, self._timestamps_us, strict=True):
            yield (*headers, *mark, ("write_time", b"%d" % timestamp_us))


@dataclass(slots=True)
class _Sent:
    """A delivery that is not settled yet."""

    delivery: Delivery
    tries: int = 0


class Sending:
    """A sink's writer, and the deliveries that are outstanding there."""

    def __init__(  # noqa: PLR0913 (what is done to records, and what becomes of refused ones)
        self,
        sink: Sink,
        encoder: Encoder,
        *,
        run: str = "",
        attempt: int = 0,
        suffix: str = "",
        with_facts: bool = False,
        lose: Callable[[Loss], None] = lambda _: None,
        into: TransactionalWriter | None = None,
        shared: Writer | None = None,
        schemas: dict[bytes, RecordSchema] | None = None,
    ) -> None:
        """Open the sink; records get the headers of *run*, and their topics the *suffix*.

        *with_facts* asks for the facts of all records. *lose* takes the records that the sink
        refused permanently. *into* is the writer of a split, in whose transaction nothing can be
        sent again: a failure ends it. *shared* is the writer of several sendings, which stays open.
        *schemas* are those announced so far, and get new ones.
        """
        self.refused: Counter[str] = Counter()  # Permanently, by table.
        self.notes: list[str] = []
        self._sink = sink
        self._encoder = encoder
        self._suffix = suffix
        self._lose = lose
        self._encode = changes_with_facts if with_facts else encoded_changes
        self._mark: Headers = (
            ((RUN_HEADER, run.encode()), ("replay_attempt", b"%d" % attempt)) if run else ()
        )
        self._clock = SystemClock()
        self._results: SimpleQueue[tuple[int, Collection[int], Sequence[Failure]]] = SimpleQueue()
        self._outstanding: dict[int, _Sent] = {}
        self.outstanding = 0
        """The number of records that are not settled."""
        self._number = 0
        self._schemas = {} if schemas is None else schemas
        self._into = into
        self._is_shared = shared is not None
        self._writer = into or shared or sink.open()

    @property
    def rejected(self) -> int:
        """The number of records that the sink refused permanently."""
        return self.refused.total()

    def announce(self, batch: Batch) -> None:
        """Announce the schemas of *batch* to the encoder and the sink, before it is encoded."""
        announced = batch.schemas()
        self._schemas.update((schema.schema_id, schema) for schema in announced)
        self._encoder.announce(announced)

    def encode(self, batch: Batch) -> EncodedRecords:
        """Encode for the sink."""
        self.announce(batch)
        return self._encode(self._encoder, batch)

    def take(self, encoded: EncodedRecords, batch: Batch) -> None:
        """Submit the records; wait while too many are outstanding."""
        if not len(encoded):
            return
        marked = msgspec.structs.replace(
            encoded, headers=self._headers(encoded), topics=self._topics(encoded)
        )
        self._submit(_Sent(Delivery(batch, marked, self._schemas)))
        if self.outstanding > OUTSTANDING_RECORDS_MAX:
            self.finish()

    def finish(self) -> None:
        """Wait until all deliveries are settled.

        Raises:
            DeliveryRefusedError: the sink did not accept some of them.
            AbortedError: the transaction must be restarted.

        """
        while self._outstanding:
            if not self._writer.drain(self._clock.monotonic_ms() + SETTLE_MS_MAX):
                raise DeliveryRefusedError(
                    f"no result for {self.outstanding} records within {SETTLE_MS_MAX} ms",
                    hint="check the brokers; then run the shard again",
                )
            self._hear()

    def close(self) -> None:
        """Close the writer, unless it is shared."""
        if not self._is_shared:
            self._writer.close()

    def _submit(self, sent: _Sent) -> None:
        self._number += 1
        number = self._number
        self._outstanding[number] = sent
        self.outstanding += len(sent.delivery.encoded)

        def settle(delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
            self._results.put((number, delivered, failures))

        sent.tries += 1
        try:
            self._writer.submit(sent.delivery, settle)
        except RetriableError as error:
            failure = Failure(0, Disposition.RETRY, error.code, error.message)
            self._results.put((number, (), [failure]))

    def _hear(self) -> None:
        again: list[_Sent] = []
        while True:
            try:
                number, delivered, failures = self._results.get_nowait()
            except Empty:
                break
            sent = self._outstanding.pop(number)
            count = len(sent.delivery.encoded)
            self.outstanding -= count
            refused = [f for f in failures if f.disposition is Disposition.REJECT]
            miscount = miscount_of(count, delivered, failures)
            if not miscount and len(refused) == len(failures):
                tables = sent.delivery.encoded.tables
                self.refused.update(tables[failure.index] for failure in refused)
                reasons = [f"{f.code}: {f.message}" for f in refused]
                self.notes += reasons[: max(0, NOTES_MAX - len(self.notes))]
                for failure in refused:
                    self._lose(dead_letter(sent.delivery.encoded, failure, f"delivery {number}"))
            else:
                again.append(self._to_repeat(sent, failures, miscount))
        for sent in again:
            self._submit(sent)

    def _to_repeat(self, sent: _Sent, failures: Sequence[Failure], miscount: str) -> _Sent:
        fatal = [f for f in failures if f.disposition is Disposition.FATAL]
        reasons = [f"{why.code}: {why.message}" for why in (*fatal, *failures)]
        said = next(iter(reasons), miscount)
        if self._into is not None and not fatal:
            aborted = AbortedError(said, place=self._into.place)
            aborted.at_once = any(failure.at_once for failure in failures)
            raise aborted
        if fatal or sent.tries >= TRIES_MAX:
            raise DeliveryRefusedError(
                f"{len(sent.delivery.encoded)} records failed in {sent.tries} attempts: {said}"
            )
        return sent

    def _headers(self, encoded: EncodedRecords) -> Sequence[Headers]:
        if not self._mark:
            return encoded.headers
        facts = encoded.facts
        if facts is None or len(facts.timestamps_us) != len(encoded):
            return [headers + self._mark for headers in encoded.headers]
        return _Marked(encoded.headers, self._mark, facts.timestamps_us)

    def _topics(self, encoded: EncodedRecords) -> Sequence[str] | None:
        if not self._suffix:
            return encoded.topics
        if encoded.topics is not None:
            return [topic + self._suffix for topic in encoded.topics]
        names = {t: self._sink.topic_of(t) + self._suffix for t in dict.fromkeys(encoded.tables)}
        return [names[table] for table in encoded.tables]
