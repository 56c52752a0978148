"""Who executes a run: one process at a time, on whichever machine.

Whoever executes says so beside the run, and every few seconds that he is still there. One who
stopped saying so is replaced: at once where his process is seen to be gone, and on another machine
when he was watched for a while. Nobody compares clocks.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Final

from headrace.connector.foundation.processes import is_alive, is_dead, this_process
from headrace.connector.replay.errors import RunBusyError
from headrace.connector.stores import Owner, StoreUnavailableError
from headrace.connector.stores.note_copy import NoteCopy

CLAIMS: Final = "claims"  # The kind of the notes that say who executes a run, and his beat.
BEAT_SECONDS: Final = 5.0
WRITES_MAX: Final = 8  # Of the same, while others write.
PAUSE_SECONDS: Final = 0.1
WATCH_SECONDS: Final = 30  # Without a beat, after which another machine's process is replaced.
Opened = Callable[[], NoteCopy]


class Claims:
    """The claims on runs; *opened* gives each thread a connection of its own."""

    def __init__(self, opened: Opened, pause: Callable[[float], None]) -> None:
        """Read nothing yet; *pause* waits so many seconds."""
        self._opened = opened
        self._pause = pause
        self._lost: set[str] = set()

    @contextlib.contextmanager
    def held(self, run: str) -> Iterator[None]:
        """Hold *run* meanwhile.

        Raises:
            RunBusyError: another process does, and is alive.
            StoreUnavailableError: the store does not answer.

        """
        me = json.dumps(asdict(this_process()))
        with contextlib.closing(self._opened()) as notes:
            self._take(notes, run, me)
        ended = threading.Event()
        beating = threading.Thread(target=self._beat, args=(run, me, ended), name="run-claim")
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()

    def _take(self, notes: NoteCopy, run: str, me: str) -> None:
        seen = _claim(notes, run)
        if seen is not None:
            self._watch(notes, run, seen)
        with notes.transaction():
            if _claim(notes, run) != seen:
                raise _busy(run)
            notes.put(CLAIMS, run, json.dumps([me, 0]))

    def _watch(self, notes: NoteCopy, run: str, seen: tuple[str, int]) -> None:
        """Return when who holds a run is seen to be gone."""
        owner = Owner(**json.loads(seen[0]))
        if is_alive(owner):
            raise _busy(run)
        for _ in range(0 if is_dead(owner) else WATCH_SECONDS):
            self._pause(1)
            if _claim(notes, run) != seen:
                raise _busy(run)

    def check(self, run: str) -> None:
        """Raise RunBusyError if *run* was held here, and is another process's by now."""
        if run in self._lost:
            raise _busy(run)

    def _beat(self, run: str, me: str, ended: threading.Event) -> None:
        """Say now and then that this process is there; in the end give the run back."""
        while not ended.wait(BEAT_SECONDS):
            with (
                contextlib.suppress(StoreUnavailableError),  # The next beat may come through.
                contextlib.closing(self._opened()) as notes,
            ):
                write(notes, lambda notes: _beaten(notes, run, me))
                if (claim := _claim(notes, run)) is None or claim[0] != me:
                    self._lost.add(run)
        with (
            contextlib.suppress(StoreUnavailableError),  # Others see that nobody beats.
            contextlib.closing(self._opened()) as notes,
        ):
            write(notes, lambda notes: _given_back(notes, run, me))


def write(notes: NoteCopy, change: Callable[[NoteCopy], None]) -> None:
    """Let *change* put notes, all or none; it may be done twice.

    It is repeated while others write at the same time.

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
