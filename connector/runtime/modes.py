"""Decides which logs are read as they are written (realtime), and bounds the buffer for it.

The buffer holds the records that were read and are not acknowledged. Once it is full nothing is
read until all of it is acknowledged and committed; by default the logs are then read at each tick
again, until the backlog is small for a while. A requested mode replaces the configured one. Rules
are in docs/adr/0042-one-reader-two-paces.md and 0043-a-mode-is-asked-for.md. Belongs to one thread;
others may read the numbers.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from headrace.connector.runtime.limits import Limits
from headrace.plugins import Clock, FatalError, Realtime
from headrace.plugins.config.realtime_options import FAIL, FALLBACK, LOG, REALTIME
from headrace.plugins.metrics import Measure, counter, gauge
from headrace.plugins.stores.kept_modes import (
    ALL_LOGS,
    NO_SUCH_LOG,
    AskedMode,
    KeptModes,
    LogMode,
    ModeAnswer,
    ModeOutcome,
    asked_of,
    last_request,
    newest,
)

BATCH_BYTES: Final = 256 * 1024  # Small: the first change of a batch waits for the last one.
BATCH_PART: Final = 16  # A batch is this part of a small buffer: encoding may enlarge it.
LINGER_MS: Final = 5
LOOK_MS: Final = 1_000  # Between two measurements of the backlog.
REFUSED_PART: Final = 8  # With this part in use, the buffer is full if the sink accepts no more.
RETURN_PART: Final = 4  # A backlog below this part of the buffer is small.
RETURN_MS_MAX: Final = 30 * 60_000
STEADY_MS: Final = 60 * 60_000  # After this time in realtime, the wait after a fallback is reset.
BUFFER_FULL, RESTART_BACKLOG, BACKLOG_IS_SMALL, STARTED, ASKED = (
    "buffer_full",
    "restart_backlog",
    "backlog_is_small",
    "started",
    "asked",
)
# Why a request is refused or falls back, if no change of the mode says so.
BACKLOG, TELLS_NOTHING = "backlog", "tells_nothing"


class RealtimeBufferFullError(FatalError):
    """The buffer of the realtime mode is full, and `realtime.on_overflow` is `fail`."""

    code = "realtime_buffer_full"


class Modes:
    """See the module. `realtime` are the logs in this mode; while `is_full` nothing is read."""

    def __init__(
        self,
        source: Realtime,
        limits: Limits,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
        *,
        starts: bool,
    ) -> None:
        """Start with all logs in mode log.

        With *starts* the worker starts: requests from before the logs are known are part of the
        start.
        """
        self.source = source
        self._options = source.config
        self._clock = clock
        self._log = log
        self._base = limits
        self._logs: frozenset[str] = frozenset()
        self._silent: frozenset[str] = frozenset()
        self._asked: dict[str, AskedMode] = {}
        self._is_asked = False  # A request was not processed yet.
        self._wanted: frozenset[str] = frozenset()  # The logs that are to be in realtime.
        self._must_begin = False
        self._start_request = None if starts else 0  # The last request when logs were first known.
        self._shown: dict[str, LogMode] = {}
        self._is_fallen = False
        self._small_since_ms: int | None = None
        self._look_ms = 0
        self._return_ms = self._least_return_ms = round(
            self._options.realtime_return_after_seconds * 1000
        )
        self._realtime_since_ms: int | None = None
        self._returned = False  # Whether the mode returned to realtime by itself.
        self._begun_bytes: int | None = None  # The backlog at the start, until all of it is read.
        self.realtime: frozenset[str] = frozenset()
        self.is_whole = False
        """Whether all logs that are read are in realtime."""
        self.is_full = False
        self.buffered_bytes = 0
        """The bytes in the buffer at the last pass."""
        self.overflows = 0
        self.switches: Counter[tuple[str, str, str]] = Counter()
        """How often the mode changed, by the mode before, the mode after, and the reason."""
        self.kept: KeptModes | None = None
        """The modes to store; a new object after each change."""
        self._set_capacity(self._options.realtime_buffer_bytes or 0)

    def _set_capacity(self, size_bytes: int) -> None:
        self.capacity_bytes = size_bytes
        self.limits = replace(
            self._base,
            tick_ms=min(self._base.tick_ms, LINGER_MS),
            batch_bytes_max=min(
                self._base.batch_bytes_max, BATCH_BYTES, size_bytes // BATCH_PART + 1
            ),
            outstanding_bytes_max=size_bytes,
        )

    def measure(self, held_bytes: int) -> None:
        """Set how many bytes readers have returned that are not acknowledged."""
        self.buffered_bytes = held_bytes + self.source.untaken_bytes()

    def follow(self, held_bytes: int) -> None:
        """Decide the mode before a pass; for *held_bytes* see `measure`."""
        self.measure(held_bytes)
        if not self.is_full:
            logs = frozenset(self.source.written_logs())
            silent = frozenset(self.source.silent_logs())
            if logs != self._logs or silent != self._silent:
                self._must_begin |= bool(logs - self._logs) and not self._is_fallen
                self._logs, self._silent, self._is_asked = logs, silent, True
        if self._is_asked:
            self._heed()
        if self.is_full:
            return
        if self._must_begin:
            self._begin()
        if self._is_fallen:
            self._return_if_small()
        self.is_whole = self.realtime == self._logs and not self._silent

    def ask(self, asked: Mapping[str, AskedMode]) -> None:
        """Take requests; only those newer than the known ones count."""
        merged = newest(self._asked, asked)
        if merged != self._asked:
            self._asked, self._is_asked = merged, True

    def _heed(self) -> None:
        """Decide the mode of each log; end realtime at once for logs that should not have it."""
        self._is_asked = False
        known = self._logs | self._silent
        if known:
            if self._start_request is None:
                self._start_request = last_request(self._asked)
            self._refuse(self._asked.keys() - known - {ALL_LOGS})
        self._wanted = frozenset(log for log in self._logs if self._mode_of(log) == REALTIME)
        self._must_begin &= bool(self._wanted - self.realtime)
        self._is_fallen &= bool(self._wanted)
        gone = self.realtime - self._wanted
        self.realtime &= self._wanted
        if gone & self._logs:
            self._changed(REALTIME, LOG, ASKED, gone & self._logs)
        if not self.realtime:
            self._begun_bytes = self._realtime_since_ms = None
        for log in sorted(known):
            self._receive(log)
        last = max((mode.request for mode in self._shown.values()), default=0)
        self._shown = {
            log: mode
            for log, mode in self._shown.items()
            if log in known or mode.request == last > 0
        }
        self._keep()

    def _refuse(self, unknown: Collection[str]) -> None:
        """Refuse requests about logs that are not read."""
        for name in sorted(unknown):
            asked, shown = self._asked[name], self._shown.get(name)
            if shown is None or shown.request < asked.request:
                self._shown[name] = LogMode(mode=LOG, request=asked.request)
                self._answer([name], ModeOutcome.REFUSED, NO_SUCH_LOG)
        self._asked = {name: each for name, each in self._asked.items() if name not in unknown}

    def _mode_of(self, log: str) -> str:
        asked = asked_of(self._asked, log)
        return self._options.mode if asked is None else asked.mode

    def _receive(self, log: str) -> None:
        """Process the last request about a log, if it is new."""
        asked, known = asked_of(self._asked, log), self._shown.get(log, LogMode(mode=LOG))
        self._shown[log] = known
        if asked is None or asked.request <= known.request:
            is_pending = known.request and known.answer.outcome is ModeOutcome.PENDING
            if log in self._silent and is_pending:
                self._answer([log], ModeOutcome.REFUSED, TELLS_NOTHING)
            return
        self._shown[log] = msgspec.structs.replace(
            known, request=asked.request, answer=ModeAnswer()
        )
        if asked.mode == LOG:
            self._show([log], LOG, ASKED)
            self._answer([log], ModeOutcome.SUCCEEDED, "")
        elif log in self._silent:
            self._answer([log], ModeOutcome.REFUSED, TELLS_NOTHING)
        elif log not in self.realtime:
            self._must_begin = True
        elif not self.is_beginning:
            self._answer([log], ModeOutcome.SUCCEEDED, "")

    def _begin(self) -> None:
        """Start realtime if the backlog fits the buffer."""
        self._must_begin = False
        if not self.capacity_bytes:
            self._set_capacity(self.source.buffer_bytes())
        unread_bytes = self.source.unread_bytes(self._wanted)
        first = self._start_request or 0
        is_asked = any(self._shown[log].request > first for log in self._pending())
        if self.buffered_bytes + unread_bytes > self.capacity_bytes:
            self._fall(BACKLOG if is_asked else RESTART_BACKLOG, unread_bytes)
            return
        joined = self._wanted - self.realtime
        if not self.realtime:
            self._realtime_since_ms = self._clock.monotonic_ms()
        if is_asked or not self.realtime:
            self._begun_bytes = unread_bytes
            self._changed(LOG, REALTIME, ASKED if is_asked else STARTED, joined, unread_bytes)
        self._is_fallen, self._returned = False, self._returned and not is_asked
        self._show(joined, REALTIME, ASKED if is_asked else STARTED)
        self.realtime = self._wanted
        self._keep()

    @property
    def is_beginning(self) -> bool:
        """Whether the backlog of the start is still being read."""
        return self._begun_bytes is not None

    def caught_up(self, records: int) -> None:
        """Record that the backlog of the start is read: *records* so far."""
        size_bytes, self._begun_bytes = self._begun_bytes, None
        logs = sorted(self.realtime)
        self._log.info("realtime_started", logs=logs, records=records, size_bytes=size_bytes)
        self._answer(self._pending(), ModeOutcome.SUCCEEDED, "")
        self._keep()

    def overflowed(self) -> None:
        """Stop reading until the buffer is empty; with `fallback`, change to mode log.

        Raises:
            RealtimeBufferFullError: the splits must stop.

        """
        self.is_full = True
        self.overflows += 1
        unread_bytes = self.source.unread_bytes(self._wanted)
        self._log.warning(
            "realtime_buffer_full",
            logs=sorted(self.realtime),
            buffered_bytes=self.buffered_bytes,
            capacity_bytes=self.capacity_bytes,
            unread_bytes=unread_bytes,
            on_overflow=self._options.realtime_on_overflow,
        )
        if self._options.realtime_on_overflow == FAIL:
            self.is_full = False
            self._answer(self._pending(), ModeOutcome.FAILED, RealtimeBufferFullError.code)
            self._keep()
            raise RealtimeBufferFullError(
                f"{self.buffered_bytes} bytes are read and not acknowledged",
                hint="the sink does not keep up; realtime.on_overflow: fallback continues",
            )
        if self._options.realtime_on_overflow == FALLBACK:
            self._fall(BUFFER_FULL, unread_bytes)

    def emptied(self) -> bool:
        """Resume reading; return whether from the committed position: the mode changed."""
        self.is_full = False
        return self._is_fallen

    def _fall(self, reason: str, unread_bytes: int) -> None:
        now_ms, since_ms = self._clock.monotonic_ms(), self._realtime_since_ms
        if since_ms is not None and now_ms - since_ms >= STEADY_MS:
            self._return_ms = self._least_return_ms
        elif self._returned:
            self._return_ms = min(max(1, 2 * self._return_ms), RETURN_MS_MAX)
        self._is_fallen, self._small_since_ms, self._look_ms = True, None, 0
        self._begun_bytes = self._realtime_since_ms = None
        if reason is not BACKLOG or self.realtime:
            self._changed(REALTIME, LOG, reason, self._wanted, unread_bytes)
        self._show(self._wanted, LOG, reason)
        self._answer(self._pending(), ModeOutcome.FELL_BACK, reason)
        self.realtime = frozenset()
        self._keep()

    def _return_if_small(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        unread_bytes = self.source.unread_bytes(self._wanted)
        if (self.buffered_bytes + unread_bytes) * RETURN_PART >= self.capacity_bytes:
            self._small_since_ms = None
            return
        if self._small_since_ms is None:
            self._small_since_ms = now_ms
        if now_ms - self._small_since_ms >= self._return_ms:
            self._is_fallen, self._returned, self._realtime_since_ms = False, True, now_ms
            self._changed(LOG, REALTIME, BACKLOG_IS_SMALL, self._wanted, unread_bytes)
            self._show(self._wanted, REALTIME, BACKLOG_IS_SMALL)
            self.realtime = self._wanted
            self._keep()

    # Reports.

    def _pending(self) -> Collection[str]:
        """Return the logs that should be in realtime by a request without an outcome."""
        return [
            log
            for log in sorted(self._wanted)
            if self._shown[log].request and self._shown[log].answer.outcome is ModeOutcome.PENDING
        ]

    def _answer(self, logs: Collection[str], outcome: ModeOutcome, reason: str) -> None:
        answer = ModeAnswer(outcome, reason, self._clock.wall_ms())
        for log in logs:
            self._shown[log] = msgspec.structs.replace(self._shown[log], answer=answer)
            self._log.info(
                "mode_request_ended",
                log=log,
                request=self._shown[log].request,
                outcome=outcome.value,
                reason=reason,
            )

    def _show(self, logs: Collection[str], mode: str, reason: str) -> None:
        since_ms = self._clock.wall_ms()
        for log in logs:
            self._shown[log] = msgspec.structs.replace(
                self._shown[log], mode=mode, reason=reason, since_ms=since_ms
            )

    def _keep(self) -> None:
        self.kept = KeptModes(self._asked, dict(self._shown))

    def _changed(
        self, before: str, after: str, reason: str, logs: Collection[str], unread_bytes: int = 0
    ) -> None:
        self.switches[before, after, reason] += 1
        self._log.info(
            "mode_changed",
            logs=sorted(logs),
            before=before,
            after=after,
            reason=reason,
            unread_bytes=unread_bytes,
            return_after_ms=self._return_ms if self._is_fallen and after == LOG else None,
        )

    def measures(self) -> Iterator[Measure]:
        """Return the mode of each log, and how full the buffer is."""
        logs, realtime = self._logs, self.realtime
        yield gauge(
            "headrace_mode",
            "1 for the mode in which a log is read.",
            [({"log": each, "mode": REALTIME if each in realtime else LOG}, 1) for each in logs],
        )
        yield counter(
            "headrace_mode_changes_total",
            "How often the mode changed.",
            [
                ({"before": before, "after": after, "reason": reason}, count)
                for (before, after, reason), count in dict(self.switches).items()
            ],
        )
        yield gauge(
            "headrace_realtime_buffer_bytes",
            "Read and not acknowledged, over all logs.",
            [({}, self.buffered_bytes)],
        )
        yield gauge(
            "headrace_realtime_buffer_capacity_bytes",
            "The most of this in mode realtime.",
            [({}, self.capacity_bytes)],
        )
        yield counter(
            "headrace_realtime_overflows_total",
            "How often the buffer was full.",
            [({}, self.overflows)],
        )
