"""Who executes a run: one process at a time, on whichever machine.

Whoever executes says so beside the run, and every few seconds that he is still there. One who
stopped saying so is replaced: at once where his process is seen to be gone, and on another machine
when he was watched for a while. Nobody compares clocks.
"""

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Final

from headrace.connector.replay.errors import RunBusyError
from headrace.connector.runtime.processes import is_alive, is_dead, this_process
from headrace.connector.stores import Owner, StoreUnavailableError
from headrace.connector.stores.sqlite_file import transaction

TABLES: Final = """
CREATE TABLE IF NOT EXISTS claims (
    run TEXT PRIMARY KEY, owner TEXT NOT NULL, beat INTEGER NOT NULL
) STRICT;
"""
BEAT_SECONDS: Final = 5.0
WRITES_MAX: Final = 8  # Of the same, while others write.
PAUSE_SECONDS: Final = 0.1
WATCH_SECONDS: Final = 30  # Without a beat, after which another machine's process is replaced.
_BEAT: Final = "UPDATE claims SET beat = beat + 1 WHERE run = ? AND owner = ?"
_GIVE_BACK: Final = "DELETE FROM claims WHERE run = ? AND owner = ?"
Opened = Callable[[], sqlite3.Connection]


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
        with contextlib.closing(self._opened()) as connection:
            self._take(connection, run, me)
        ended = threading.Event()
        beating = threading.Thread(target=self._beat, args=(run, me, ended), name="run-claim")
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()

    def _take(self, connection: sqlite3.Connection, run: str, me: str) -> None:
        seen = _claim(connection, run)
        if seen is not None:
            self._watch(connection, run, seen)
        with transaction(connection):
            if _claim(connection, run) != seen:
                raise _busy(run)
            connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, 0)", (run, me))

    def _watch(self, connection: sqlite3.Connection, run: str, seen: tuple[str, int]) -> None:
        """Return when who holds a run is seen to be gone."""
        owner = Owner(**json.loads(seen[0]))
        if is_alive(owner):
            raise _busy(run)
        for _ in range(0 if is_dead(owner) else WATCH_SECONDS):
            self._pause(1)
            if _claim(connection, run) != seen:
                raise _busy(run)

    def check(self, run: str) -> None:
        """Raise RunBusyError if *run* was held here, and is another process's by now."""
        if run in self._lost:
            raise _busy(run)

    def _beat(self, run: str, me: str, ended: threading.Event) -> None:
        """Say now and then that this process is there; in the end give the run back."""
        own = (run, me)
        while not ended.wait(BEAT_SECONDS):
            with (
                contextlib.suppress(StoreUnavailableError),  # The next beat may come through.
                contextlib.closing(self._opened()) as connection,
            ):
                write(connection, _BEAT, own)
                if (claim := _claim(connection, run)) is None or claim[0] != me:
                    self._lost.add(run)
        with (
            contextlib.suppress(StoreUnavailableError),  # Others see that nobody beats.
            contextlib.closing(self._opened()) as connection,
        ):
            write(connection, _GIVE_BACK, own)


def write(connection: sqlite3.Connection, sql: str, *rows: Sequence[object]) -> None:
    """Execute *sql* with each of *rows*, all or none; what it does may be done twice.

    It is repeated while others write at the same time.

    Raises:
        StoreUnavailableError: the store does not answer.

    """
    for left in reversed(range(WRITES_MAX)):
        try:
            with transaction(connection):
                connection.executemany(sql, rows)
        except StoreUnavailableError:
            if not left:
                raise
            time.sleep(PAUSE_SECONDS)
        else:
            return


def _claim(connection: sqlite3.Connection, run: str) -> tuple[str, int] | None:
    found: tuple[str, int] | None = connection.execute(
        "SELECT owner, beat FROM claims WHERE run = ?", (run,)
    ).fetchone()
    return found


def _busy(run: str) -> RunBusyError:
    hint = "wait for it; `headrace replay status` shows how far it is"
    return RunBusyError("another process executes this run", place=f"run {run}", hint=hint)
