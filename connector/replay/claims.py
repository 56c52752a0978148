"""Claims on runs: one process at a time executes a run, on any machine.

The process that executes a run writes a claim beside it, and a heartbeat every few seconds. Another
process replaces it: at once if it sees on the same machine that the process has ended; otherwise
after it has watched for `WATCH_SECONDS` and seen no heartbeat. No clocks are compared.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import asdict

from headrace.connector.foundation.processes import is_alive, is_dead, this_process
from headrace.connector.replay.errors import RunBusyError
from headrace.connector.stores import Owner, StoreUnavailableError
from headrace.connector.stores.note_copy import NoteCopy

CLAIMS: Final = "claims"  # The kind of the notes: the process that executes a run, its heartbeat.
BEAT_SECONDS: Final = 5.0
WRITES_MAX: Final = 8  # Attempts, while other processes write.
PAUSE_SECONDS: Final = 0.1
WATCH_SECONDS: Final = 30  # Time without heartbeat after which a process elsewhere is replaced.
Opened = Callable[[], NoteCopy]


class Claims:
    """The claims on runs; *opened* gives each thread a connection of its own."""

    def __init__(self, opened: Opened, pause: Callable[[float], None]) -> None:
        """Read nothing yet; *pause* waits for a number of seconds."""
        self._opened = opened
        self._pause = pause
        self._held: dict[str, str] = {}

    @contextlib.contextmanager
    def held(self, run: str) -> Iterator[None]:
        """Hold the claim on *run* during the block.

        Raises:
            RunBusyError: another process holds it and is alive.
            StoreUnavailableError: the store does not answer.

        """
        me = json.dumps(asdict(this_process()))
        with contextlib.closing(self._opened()) as notes:
            self._take(notes, run, me)
        self._held[run] = me
        ended = threading.Event()
        beating = threading.Thread(target=self._beat, args=(run, me, ended), name="run-claim")
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()
            del self._held[run]

    def _take(self, notes: NoteCopy, run: str, me: str) -> None:
        seen = _claim(notes, run)
        if seen is not None:
            self._watch(notes, run, seen)
        with notes.transaction():
            if _claim(notes, run) != seen:
                raise _busy(run)
            notes.put(CLAIMS, run, json.dumps([me, 0]))

    def _watch(self, notes: NoteCopy, run: str, seen: tuple[str, int]) -> None:
        """Return when the process that holds a run has ended, or has shown no heartbeat."""
        owner = Owner(**json.loads(seen[0]))
        if is_alive(owner):
            raise _busy(run)
        for _ in range(0 if is_dead(owner) else WATCH_SECONDS):
            self._pause(1)
            if _claim(notes, run) != seen:
                raise _busy(run)

    def fence(self, notes: NoteCopy, run: str) -> None:
        """Raise RunBusyError if another process has taken over *run* from this one.

        Call it in the transaction that writes: nothing is written when it raises.
        """
        me, claim = self._held.get(run), _claim(notes, run)
        if me is not None and (claim is None or claim[0] != me):
            raise _busy(run)

    def _beat(self, run: str, me: str, ended: threading.Event) -> None:
        """Write a heartbeat at intervals until *ended*; then delete the claim."""
        while not ended.wait(BEAT_SECONDS):
            with (
                contextlib.suppress(StoreUnavailableError),  # The next heartbeat may succeed.
                contextlib.closing(self._opened()) as notes,
            ):
                write(notes, lambda notes: _beaten(notes, run, me))
        with (
            contextlib.suppress(StoreUnavailableError),  # Others see that the heartbeat stopped.
            contextlib.closing(self._opened()) as notes,
        ):
            write(notes, lambda notes: _given_back(notes, run, me))


def write(notes: NoteCopy, change: Callable[[NoteCopy], None]) -> None:
    """Run *change* in a transaction; repeat it while other processes write at the same time.

    *change* may take effect twice.

    Raises:
        StoreUnavailableError: the store does not answer.

    """
    for left in reversed(range(WRITES_MAX)):
        try:
            with notes.transaction():
                change(notes)
        except StoreUnavailableError:
            if not left:
                raise
            time.sleep(PAUSE_SECONDS)
        else:
            return


def _beaten(notes: NoteCopy, run: str, me: str) -> None:
    claim = _claim(notes, run)
    if claim is not None and claim[0] == me:
        notes.put(CLAIMS, run, json.dumps([me, claim[1] + 1]))


def _given_back(notes: NoteCopy, run: str, me: str) -> None:
    claim = _claim(notes, run)
    if claim is not None and claim[0] == me:
        notes.put(CLAIMS, run, None)


def _claim(notes: NoteCopy, run: str) -> tuple[str, int] | None:
    text = notes.get(CLAIMS, run)
    if text is None:
        return None
    owner, beat = json.loads(text)
    return owner, beat


def _busy(run: str) -> RunBusyError:
    hint = "wait for it; `headrace replay status` shows how far it is"
    return RunBusyError("another process executes this run", place=f"run {run}", hint=hint)
