"""How commits of a history in tables are decided: two conditional writes to a partition.

A commit is an attempt with a unique number. First the head names it, and until it ends, others
cannot begin. Its rows are written, and readers do not count them yet. Then the head removes the
name and gets a later arrival, if the attempt was still named. The rows of an abandoned attempt are
never counted, however late they were written.
"""

import contextlib
import threading
import time
from collections.abc import Collection, Mapping
from typing import Final

from headrace.connector.history import arrival
from headrace.connector.history.errors import HistoryBusyError, HistoryMissingError
from headrace.connector.history.store.head import HEAD, Head, Pending, Snapshot
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.cassandra.values import CassandraValues
from headrace.connector.stores.keyed.rows import decided, pack, unpack
from headrace.plugins import Clock, FencedError
from headrace.plugins.stores.key_values import Change, Entry, Key

LOOK_SECONDS: Final = 0.02
PATIENCE_MS: Final = 3_000  # The minimum and
PATIENCE_MS_MAX: Final = 30_000  # the maximum for which others wait. Failures make it longer.
LEARN_MAX: Final = 5


class Deciding:
    """The deciding partition. Its calls may raise StoreUnavailableError."""

    def __init__(self, values: CassandraValues, name: str, clock: Clock) -> None:
        """Start without reading the head."""
        self.place = f"{values.place}, history {name}"
        self._values = values
        self._partition = decided("history", name)
        self._key = Key(self._partition, HEAD)
        self._clock = clock
        self._mine = 0  # The last attempt of this connection; if still named, it failed.
        self._patience_ms = PATIENCE_MS  # What the next attempt asks others to wait.
        self._began_ms = 0  # The begin of that attempt.
        self._seen = (0, 0)  # The last attempt that was waited for, and since when.

    def exists(self) -> bool:
        """Return whether a history of this name exists."""
        return self._values.row(self._key) is not None

    def create(self, head: Head) -> None:
        """Make the head, unless another process was first."""
        self._values.change([self._replacement(None, {HEAD: pack(head)})])

    def remove(self, now: Snapshot) -> None:
        """Remove the partition, and thereby the history."""
        self._values.change([self._replacement(now.stamp, dict.fromkeys(now.rows()))])

    def version(self) -> int:
        """Return the version, as described for `HistoryStore.version`."""
        return self._values.stamp(self._key)

    def load(self) -> Snapshot:
        """Return all current rows. Raises HistoryMissingError."""
        found = Snapshot.of(self._values.scan([self._partition]), self._values)
        if found is None:
            raise self._missing()
        return found

    def begin(self, split: str, *, begins: bool, seconds: float) -> Snapshot:
        """Name an attempt in the head, and return the snapshot; wait for other attempts.

        One that *begins* does not wait for an earlier one of its split; without a split, it does
        not wait for any.

        Raises:
            HistoryBusyError: another attempt was running for this many *seconds*.

        """
        until = time.monotonic() + seconds
        pause = threading.Event()
        mine = 0
        while True:
            entry, head = self._head()
            if entry.stamp == mine:
                return self._begun(mine)
            now_ms = self._clock.wall_ms()
            pending = head.pending
            if pending is None or self._is_over(pending, split if begins else None, now_ms):
                head.end_pending(now_ms)
                head.attempts += 1
                head.pending = Pending(head.attempts, split, now_ms, self._patience_ms)
                change = self._replacement(entry.stamp, {HEAD: pack(head)})
                mine = change.stamp
                self._mine, self._began_ms = head.attempts, self._clock.monotonic_ms()
                if self._values.change([change])[0]:
                    return self._begun(mine)
            if time.monotonic() >= until:
                raise HistoryBusyError(
                    f"another process writes for more than {seconds} s",
                    place=self.place,
                    hint="that of a process that died is given up within "
                    f"{PATIENCE_MS_MAX // 1000} s",
                )
            if pending is not None:
                pause.wait(LOOK_SECONDS)

    def _begun(self, stamp: int) -> Snapshot:
        found = self.load()
        if found.stamp != stamp:
            raise self._replaced()
        return found

    def decide(
        self,
        now: Snapshot,
        before: Mapping[str, bytes | None],
        then: Collection[Key],
    ) -> None:
        """End the attempt: replace what differs from *before*, if the head still names it.

        *then* are plain rows that are no longer needed.

        Raises:
            HistoryBusyError: another commit replaced it.
            FencedError: the outcome is unknown.

        """
        now.head.pending = None
        after = now.rows()
        rows = {name: row for name, row in after.items() if row != before.get(name)}
        rows |= dict.fromkeys(before.keys() - after.keys())
        change = Change(
            partition=self._partition,
            expected={HEAD: now.stamp},
            rows=rows,
            then=then,
        )
        try:
            (applied,) = self._values.change([change])
        except StoreUnavailableError:
            applied = None
        if applied is None:
            applied = self._learnt(now.head.attempts)
        if not applied:
            raise self._replaced()
        took_ms = self._clock.monotonic_ms() - self._began_ms
        self._patience_ms = min(max(PATIENCE_MS, took_ms * 2), PATIENCE_MS_MAX)

    def give_up(self, attempt: int) -> None:
        """Remove this process's attempt from the head, if the store answers."""
        with contextlib.suppress(StoreUnavailableError, HistoryMissingError):
            entry, head = self._head()
            if head.pending is not None and head.pending.attempt == attempt:
                head.end_pending(self._clock.wall_ms())
                self._values.change([self._replacement(entry.stamp, {HEAD: pack(head)})])

    def settle(self, until_ms: int, *, seconds: float) -> None:
        """Settle with one conditional write, as described for `HistoryStore.settle`."""
        promised = arrival.first_of(until_ms) - 1
        until = time.monotonic() + seconds
        pause = threading.Event()
        while True:
            entry, head = self._head()
            if head.last >= promised:
                return
            now_ms = self._clock.wall_ms()
            if head.pending is None or self._is_over(head.pending, None, now_ms):
                head.end_pending(now_ms)
                head.last = promised
                if self._values.change([self._replacement(entry.stamp, {HEAD: pack(head)})])[0]:
                    return
            if time.monotonic() >= until:
                raise HistoryBusyError("a commit is under way", place=self.place)
            if head.pending is not None:
                pause.wait(LOOK_SECONDS)

    def _is_over(self, pending: Pending, begun: str | None, now_ms: int) -> bool:
        """Return whether a running commit has failed, or need not be waited for.

        A process measures by its own clock how long it has waited; at first it compares clocks. A
        wrong answer only costs a repeated commit, which then has more time.
        """
        if pending.attempt == self._mine or begun in ("", pending.split):
            return True
        attempt, since_ms = self._seen
        mono_ms = self._clock.monotonic_ms()
        if attempt != pending.attempt:
            since_ms = mono_ms
            self._seen = pending.attempt, mono_ms
        waited_ms = mono_ms - since_ms
        return waited_ms > pending.patience_ms or now_ms - pending.begun_ms > PATIENCE_MS_MAX

    def _learnt(self, attempt: int) -> bool:
        """Return whether an attempt without an answer was decided."""
        pause = threading.Event()
        for _ in range(LEARN_MAX):
            pause.wait(LOOK_SECONDS)
            with contextlib.suppress(StoreUnavailableError):
                _, head = self._head()
                is_named = head.pending is not None and head.pending.attempt == attempt
                return not is_named and all(attempt != each for each, _ in head.abandoned)
        raise FencedError(
            "it is not known whether a commit was decided", place=self.place, hint="claim it again"
        )

    def _head(self) -> tuple[Entry, Head]:
        entry = self._values.row(self._key)
        if entry is None:
            raise self._missing()
        return entry, unpack(Head, self._key, entry, self._values)

    def _replacement(self, stamp: int | None, rows: Mapping[str, bytes | None]) -> Change:
        return Change(partition=self._partition, expected={HEAD: stamp}, rows=rows)

    def _replaced(self) -> HistoryBusyError:
        self._patience_ms = min(self._patience_ms * 2, PATIENCE_MS_MAX)
        return HistoryBusyError("another commit took its place", place=self.place)

    def _missing(self) -> HistoryMissingError:
        return HistoryMissingError(
            "there is no history of this name here",
            place=self.place,
            hint="a worker makes it when it runs the history's job: `headrace worker`",
        )
