"""The times of batches, from reading to the commit, for OTLP."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from headrace.plugins.metrics import Passed


class BatchTrace(msgspec.Struct):
    """One batch with records, and when it reached each step, in ms of the monotonic clock.

    `stages_ms` are those of its first change, in ms since 1970; None if unknown.
    """

    split: str
    seq: int
    records: int
    size_bytes: int
    read_ms: int
    encode_ms: int
    stages_ms: Sequence[float | None]
    sent_ms: int = 0
    settled_ms: int = 0
    committed_ms: int = 0
    attempts: int = 0


class WorkTrace(msgspec.Struct, frozen=True):
    """A part of bulk work that ended, in ms since 1970; *problem* is the code of a failure."""

    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, str | int]
    problem: str = ""


class Trail:
    """The batches of one split since it was opened, until they are committed."""

    def __init__(self, split: str, tell: Callable[[BatchTrace], None]) -> None:
        """*tell* is called for each batch once it is committed, and must not block."""
        self._split = split
        self._tell = tell
        self._batches: dict[int, BatchTrace] = {}  # In order; the ledger limits them.
        self._read_ms = self._encode_ms = 0

    def read(self, started_ms: int, ended_ms: int) -> None:
        """Note when the next added batch was read."""
        self._read_ms, self._encode_ms = started_ms, ended_ms

    def added(self, seq: int, records: int, size_bytes: int, passed: Sequence[Passed]) -> None:
        """Note that the batch read last is in the ledger."""
        if records:
            stages = passed[0].times_ms if passed else ()
            self._batches[seq] = BatchTrace(
                self._split, seq, records, size_bytes, self._read_ms, self._encode_ms, stages
            )

    def settled(self, seq: int, attempt: int, sent_ms: int, settled_ms: int) -> None:
        """Note a result of the sink; of several, sent is of the first and settled of the last."""
        batch = self._batches[seq]
        batch.sent_ms = batch.sent_ms or sent_ms
        batch.settled_ms, batch.attempts = settled_ms, attempt

    def committed(self, last_seq: int, now_ms: int) -> None:
        """Report all batches up to *last_seq*: they are durable."""
        for seq in [seq for seq in self._batches if seq <= last_seq]:
            batch = self._batches.pop(seq)
            batch.committed_ms = now_ms
            self._tell(batch)
