"""Follows the signals that users send to a job, while it runs: on a thread of its own."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Final

import structlog

from headrace.connector.control.access.permission import CALLER, Caller
from headrace.connector.runtime.making import made_sink, read_only_context
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.job import Job
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.target_state import FORK_MARK
from headrace.plugins import HeadraceError, Signal, SignalChannel, Signals
from headrace.plugins.metrics import Measure, counter

WAIT_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 5.0  # After a failure to read the topic, or to change the state.
END_SECONDS_MAX: Final = 30.0
_DONE, _REFUSED, _OTHERS = "followed", "refused", "other_job"


class Signalling:
    """See the module. `stop` may be called at any time, on any thread."""

    def __init__(self, job: Job, log: structlog.stdlib.BoundLogger) -> None:
        """Read nothing yet."""
        self._job = job
        self._log = log.bind(job=job.name)
        self._stopped = threading.Event()
        self._counts = dict.fromkeys((_DONE, _REFUSED, _OTHERS), 0)
        self._said = ""

    def stop(self) -> None:
        """Stop reading."""
        self._stopped.set()

    def measures(self) -> Iterable[Measure]:
        """Return how many signals came. Any thread may call."""
        found = [({"fate": fate}, float(count)) for fate, count in self._counts.items() if count]
        return [counter("headrace_signals_total", "Signals by what became of them.", found)]

    @contextlib.contextmanager
    def beside(self, notes: NoteCopy) -> Iterator[None]:
        """Follow signals while the block runs, if the sink has a topic for them.

        *notes* is the control store of the job. A fork follows the signals of the job that it left.

        Raises:
            ConfigError: the sink's client refuses an option.

        """
        signals = None
        if issubclass(self._job.sink, SignalChannel) and FORK_MARK not in self._job.name:
            key = notes.store(self._job.name).job_key()
            sink = made_sink(self._job, read_only_context(self._job.name, key))
            assert isinstance(sink, SignalChannel)  # noqa: S101 (as its class is)
            signals = sink.signals()
        if signals is None:
            yield
            return
        thread = threading.Thread(target=self._follow, args=(signals,), name="signals", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join(END_SECONDS_MAX)

    def _follow(self, signals: Signals) -> None:
        CALLER.set(Caller(name="signal", door="signal"))
        with contextlib.closing(signals), contextlib.closing(open_notes(self._job.notes)) as notes:
            while not self._stopped.is_set():
                try:
                    found = signals.take(WAIT_SECONDS)
                except HeadraceError as error:
                    self._warn("signals_unreadable", error)
                    self._stopped.wait(PAUSE_SECONDS)
                    continue
                for signal in found:
                    if not self._followed(notes, signal):
                        return
                    signals.done(signal)

    def _followed(self, notes: NoteCopy, signal: Signal) -> bool:
        """Execute *signal*, once the state can be changed; False: a stop was requested."""
        while not self._stopped.is_set():
            try:
                self._obey(notes, signal)
            except StoreUnavailableError as error:
                self._warn("signal_delayed", error)
                self._stopped.wait(PAUSE_SECONDS)
            else:
                return True
        return False

    def _obey(self, notes: NoteCopy, signal: Signal) -> None:
        # Imported here because they are slow to import and seldom needed.
        from headrace.connector.control.commands import Commands  # noqa: PLC0415
        from headrace.connector.control.runs.signals import follow_signal  # noqa: PLC0415

        name = self._job.name
        if signal.key != name.encode():
            self._counts[_OTHERS] += 1
            self._log.info("signal_for_another_job", origin=signal.origin)
            return
        mine = [
            route.source
            for route in notes.board.routes()
            if route.job.partition(FORK_MARK)[0] == name
        ]
        try:
            names = follow_signal(Commands(notes), mine, signal)
        except StoreUnavailableError:
            raise
        except HeadraceError as error:
            self._counts[_REFUSED] += 1
            self._log.error("signal_refused", origin=signal.origin, error=str(error))
            return
        self._counts[_DONE] += 1
        self._log.info("signal_followed", origin=signal.origin, snapshots=names)

    def _warn(self, event: str, error: HeadraceError) -> None:
        """Log *error*, unless it is the one that was logged last."""
        if str(error) != self._said:
            self._said = str(error)
            self._log.warning(event, error=self._said)
