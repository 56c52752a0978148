"""The data thread of a worker: all splits it owns, in micro-batches, at the pace of sink and tick.

The control thread sends commands and receives ended splits; nothing else is shared. Errors of
plugin calls are caught here and nowhere else: a split that fails stops alone (I8).
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

import msgspec

from headrace.connector.foundation import crash
from headrace.connector.foundation.clock import Wake
from headrace.connector.obs.blame import described
from headrace.connector.runtime.failures.dead_letters import DeadLetters
from headrace.connector.runtime.failures.retry import RetriesExhaustedError, Retry, kind_of, named
from headrace.connector.runtime.limits import Limits
from headrace.connector.runtime.messages import (
    Closed,
    Command,
    Gain,
    HandOver,
    Idled,
    Lose,
    Pause,
    SetModes,
    Stop,
)
from headrace.connector.runtime.modes import REFUSED_PART, Modes
from headrace.connector.runtime.splits.split_task import (
    DeliveryResult,
    Progress,
    SplitRun,
    Surroundings,
)
from headrace.connector.runtime.splits.watch import Pulse
from headrace.connector.runtime.tally import Tally
from headrace.connector.stores import StoreUnavailableError
from headrace.plugins import (
    AbortedError,
    CloseReason,
    Demand,
    FatalError,
    HeadraceError,
    LeaseLostError,
    News,
    Realtime,
    RetriableError,
    SharedReading,
)
from headrace.plugins.config.realtime_options import REALTIME
from headrace.plugins.metrics import Stages
from headrace.plugins.stores.kept_modes import AskedMode, KeptModes

T = TypeVar("T")

SINK_WAIT_MS: Final = 10
POSITIONS_MS: Final = 100  # Request positions this long before a commit: sinks mostly settle.
POSITIONS_MAX: Final = 16  # How many splits without changes to ask for a position each time.
ENDS_BYTES_MAX: Final = 1 << 20  # Memory of ends that wait for a commit, at most.
PULSE_EVERY_MS: Final = 500
REST_MS: Final = 500  # Between two looks at a source without news.
WRITTEN_MS: Final = 2  # Realtime: between the starts of two passes; one sync is several events.
UNTOLD_MS: Final = (2, 10)  # Without events: the least and the most between two looks.
QUIET_PART: Final = 100  # Then looks are this part of the time since a log's last write apart.
PROGRESS_EVERY_MS: Final = 10_000
WRITTEN, ACKNOWLEDGED = "written", "acknowledged"  # Before and after the stages of a source.


class Pipeline:
    """See the module. Commands may come from any thread; `run` is the data thread."""

    def __init__(  # noqa: PLR0913 (its surroundings)
        self,
        around: Callable[[Callable[[DeliveryResult], None]], Surroundings],
        limits: Limits,
        wake: Wake,
        tell: Callable[[Closed | Idled], None],
        *,
        until_idle: bool = False,
        pulse: Callable[[Pulse], None] | None = None,
    ) -> None:
        """*around* is called on the data thread, with the receiver of results; it opens the sink.

        *tell* and *pulse* are called on the data thread. With *until_idle* the pipeline does not
        wait for the tick while records are in flight.
        """
        self._make_around = around
        self._limits = limits
        self._wake = wake
        self._tell_control = tell
        self._until_idle = until_idle
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._commands_done = 0
        self._results: deque[DeliveryResult] = deque()
        self._runs: dict[str, SplitRun] = {}
        self._ended: dict[str, SplitRun] = {}  # Splits that ended with the run.
        self._stopping = False
        self._paused = False
        self._pulse, self._pulse_ms = pulse, 0
        self._quiet_passes = 0
        self._awake: dict[str, SplitRun] = {}
        """The splits that have work even without news of the source."""
        self._unsaved: dict[str, SplitRun] = {}  # Those that may have something to commit.
        self._owing: dict[str, SplitRun] = {}  # Those with batches after their last position.
        self._turn = 0  # The next of the others to ask for a position.
        self._modes: Modes | None = None
        self._kept_modes: KeptModes | None = None  # The modes stored with all splits.
        self._demanded: tuple[tuple[int, int, int, bool], Demand] | None = None
        self._pace = limits  # The bounds of this pass, and the logs that it reads: None is all.
        self._logs: Collection[str] | None = None
        self._followed: Collection[str] = frozenset()  # The logs that the source follows.
        self._written_ms = 0  # The last write to a log in realtime.
        self._ticked_ms = 0  # The last read of all logs.
        self._news_ms = 0  # When the source last had any.
        self._looked_ms = 0  # When the source last reported the splits with news.
        self._ended_ms: int | None = None  # The same, with nothing else left to read.
        self._is_resting = False  # Until an event says that there is more.
        # The unsettled records and bytes of all splits: summed up once a pass, then updated.
        self._held_records = self._held_bytes = 0
        self._uncommitted: dict[str, int] = {}  # Bytes of splits that ended with work uncommitted.
        self._committed_ms = 0
        self._positions_ms: int | None = None  # When they were requested for the next commit.
        self._ends_bytes = 0  # The size of positions settled since the last commit.
        self._commit_begun = False  # For some splits in this pass; the others follow at its end.
        self._store_retry = Retry(limits.retry_ms_max)
        self._store_not_before_ms = 0
        self._reported_ms = 0
        self._around: Surroundings
        self._dead_letters: DeadLetters
        self.stats = Tally()
        """The counters of commits and their times."""
        self._idled = False
        self.pass_ms: int | None = None
        """When the last pass started, on the clock; the control thread checks it."""
        self.split_last = ""
        """The last split that was asked."""

    @property
    def runs(self) -> Sequence[SplitRun]:
        """The current splits, read-only. Any thread may call."""
        return list(self._runs.values())

    @property
    def runs_and_ended(self) -> Sequence[SplitRun]:
        """The same, and those that ended with the run: their commits stay known."""
        return list({**self._ended, **self._runs}.values())

    @property
    def modes(self) -> Modes | None:
        """The modes of the logs, if the job may be in realtime. Any thread may read the numbers."""
        return self._modes

    def moved_ms(self, run: SplitRun) -> int:
        """Return when a split last moved, or had nothing to do. Any thread may call."""
        return run.moved_ms if run.split in self._awake else max(run.moved_ms, self._looked_ms)

    def lag_ms(self, run: SplitRun) -> float | None:
        """Return the age of the oldest record that is not acknowledged, in ms. Any thread may call.

        It counts from when it could be read, at most since everything was acknowledged. None: no
        change came yet.
        """
        clock = self._around.clock
        reached_ms, ended_ms = run.ledger.reached_ms, self._ended_ms
        if self._is_resting:
            ended_ms = clock.monotonic_ms()
        lags = [] if reached_ms is None else [clock.wall_ms() - reached_ms]
        if ended_ms is not None and run.ledger.empty and run.read_last is None:
            lags.append(clock.monotonic_ms() - ended_ms)
        return max(0, min(lags)) if lags else None

    def command(self, command: Command) -> None:
        """Queue *command* for the data thread."""
        self._commands.put(command)
        self._wake.set()

    def run(self) -> None:
        """Run until stopped. Raises the errors of opening the sink; splits fail one by one."""
        self.open()
        try:
            while not self._stopping or self._runs:
                self.run_pass()
        finally:
            self.close()

    def open(self) -> None:
        """Open the sink and the store; needed before `run_pass`. `run` does it."""
        around = self._make_around(self._results.append)
        self._around = around = replace(around, tally=self.stats)
        self._dead_letters = DeadLetters(
            around.errors,
            around.store,
            around.writers,
            job=around.job,
            clock=around.clock,
            log=around.log,
        )
        self._committed_ms = self._reported_ms = self._around.clock.monotonic_ms()
        source = around.source
        if source.stages:
            self.stats.stages = Stages((WRITTEN, *source.stages, ACKNOWLEDGED))
        if isinstance(source, Realtime) and source.config.mode == REALTIME:
            self._ask({}, starts=True)

    def close(self) -> None:
        """Close the sink and the stores."""
        self._around.encoder.close()
        self._around.writers.close()
        self._around.store.close()

    def run_pass(self) -> None:
        """Step every split that has work, commit if it is due, and wait."""
        self.pass_ms = started_ms = self._around.clock.monotonic_ms()
        self._take_commands()
        for run in list(self._awake.values()):
            self.split_last = run.split
            if self._guard(run, run.begin):
                self._kept_modes = None
                if run.modes is not None:
                    self._ask(run.modes.asked, starts=True)
        self._held_records = self._held_bytes = 0
        for run in self._awake.values():
            self._hold(run)
        if self._modes is not None:
            self._set_pace(self._modes, started_ms)
        due = self._is_position_due(started_ms)
        news = self._news()
        runs = self._asked(news, due=due)
        reads = None if news is None or due else news.splits
        progress = [self._step(run, due=due, reads=reads) for run in runs]
        self._take_results()
        self._note_steps(runs, progress)
        quiet = all(p is Progress.QUIET for p in progress) and not self._sent()
        window = self._limits.commit_bytes_max
        is_full = any(run.ledger.settled_bytes * 2 >= window for run in runs)
        at_once = is_full or (quiet and self._until_idle)
        self._commit_if_due(started_ms, at_once=at_once, asked=due)
        letters_rest = self._dead_letters.idle
        if not letters_rest:
            self._dead_letters.step([s for s, run in self._runs.items() if not run.closing])
        self._release()
        if self._modes is not None:
            self._check_buffer(self._modes)
            self._check_begun(self._modes, started_ms, news, progress)
            self._keep_modes(self._modes)
        self._close_finished()
        self._note_idle(quiet=quiet and letters_rest)
        self._tell()
        self._wait(started_ms, news, progress, letters_rest=letters_rest)

    def _wait(
        self,
        started_ms: int,
        news: News | None,
        progress: Collection[Progress],
        *,
        letters_rest: bool,
    ) -> None:
        """Wait for the next pass, unless more can be read at once."""
        has_more = Progress.MORE in progress or (news is not None and news.more)
        if has_more or (self._stopping and not self._runs):
            return
        fetching = Progress.FETCHING in progress
        if (fetching or Progress.BLOCKED in progress) and self._sent():
            self._wait_for_sink(self._around.clock.monotonic_ms() + SINK_WAIT_MS)
        elif fetching:
            self._wake.wait(SINK_WAIT_MS)
        elif self._modes is not None and self._modes.realtime and news is not None:
            self._wait_for_writes(self._modes, news, started_ms)
        elif not (self._until_idle and (Progress.MOVED in progress or self._quiet_passes == 1)):
            self._wait_for_tick(started_ms + self._limits.tick_ms)
            if news is not None and news.is_still is not None and letters_rest:
                self._rest(started_ms, news.is_still, news.readable)

    # The choice of splits.

    def _news(self) -> News | None:
        """Look once for all splits; None if each must be asked. The first one takes an error."""
        source, now_ms = self._around.source, self._around.clock.monotonic_ms()
        if self._until_idle or not isinstance(source, SharedReading):
            return None
        ready = (r for r in self._runs.values() if r.is_open and now_ms >= r.not_before_ms)
        run, demand = next(ready, None), self._demand(0, due=False)
        if self._logs is not None:
            demand = msgspec.structs.replace(demand, logs=self._logs)
        if run is None or demand.records_max <= 0 or demand.bytes_max <= 0:
            return News(())
        found = self._guard(run, partial(source.look, demand))
        if found is not None:
            self._looked_ms = now_ms
            if found.splits:
                self._news_ms = now_ms
            if not found.more:
                self._ended_ms = now_ms
        return found

    def _asked(self, news: News | None, *, due: bool) -> Sequence[SplitRun]:
        """Return the splits to step: more of them if positions are *due*."""
        if news is None:
            return list(self._runs.values())
        asked = dict(self._awake)
        asked |= {split: self._runs[split] for split in news.splits if split in self._runs}
        if due:
            asked |= self._owing
            every = list(self._runs.values())
            self._turn %= max(1, len(every))
            turn = [*every, *every][self._turn : self._turn + min(POSITIONS_MAX, len(every))]
            asked |= {run.split: run for run in turn}
            self._turn += POSITIONS_MAX
        return list(asked.values())

    def _note_steps(self, runs: Sequence[SplitRun], progress: Sequence[Progress]) -> None:
        """Record which splits moved, and which have work in the next pass."""
        now_ms = self._around.clock.monotonic_ms()
        for run, came_to in zip(runs, progress, strict=True):
            idle = came_to is Progress.QUIET and run.drained()
            if idle or came_to in (Progress.MOVED, Progress.MORE):
                run.moved_ms = now_ms
            if run.ledger.needs_end:
                self._owing[run.split] = run
            else:
                self._owing.pop(run.split, None)
            if run.rests(now_ms):
                self._awake.pop(run.split, None)
                if run.ledger.settled is None:
                    self._unsaved.pop(run.split, None)
            else:
                self._awake[run.split] = run

    # Commands and results.

    def _take_commands(self) -> None:
        while True:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            self._commands_done += 1
            self._quiet_passes, self._idled = 0, False
            match command:
                case Gain(lease):
                    left = self._uncommitted.pop(lease.split, 0)
                    run = SplitRun(lease, self._around, again_bytes=left)
                    self._runs[lease.split] = self._awake[lease.split] = run
                    self._ended.pop(lease.split, None)
                case Lose(split) if split in self._runs:
                    self._begin_close(self._runs[split], CloseReason.LEASE_LOST)
                    self._close_finished()  # The next command may start it again.
                case Pause(paused):
                    self._paused = paused
                case HandOver(split) if split in self._runs:
                    self._begin_close(self._runs[split], CloseReason.HANDED_OVER)
                case Stop():
                    self._stopping = True
                    for run in self._runs.values():
                        self._begin_close(run, CloseReason.HANDED_OVER)
                case SetModes(asked):
                    self._ask(asked, starts=not self._runs)
                case _:
                    pass  # The split has just ended by itself.

    def _take_results(self) -> None:
        while self._results:
            run, ledger, seq, attempt, delivered, failures = self._results.popleft()
            # A restarted run numbers its batches from the start: results for old numbers are void.
            if self._runs.get(run.split) is run and run.ledger is ledger:
                self._hold(run, -1)
                self._guard(run, partial(run.settle, seq, attempt, delivered, failures))
                self._hold(run)
            crash.reached("settled")

    # One split.

    def _step(self, run: SplitRun, *, due: bool, reads: Collection[str] | None) -> Progress:
        """Step a split; it reads if it is in *reads*, where None is all."""
        if run.closing is CloseReason.FAILED:
            return Progress.WAITING
        self.split_last = run.split
        self._unsaved[run.split] = run
        demand = None
        if reads is None or run.split in reads:
            demand = self._demand(run.ledger.uncommitted_bytes, due=due)
        ends_bytes = run.end_bytes
        self._hold(run, -1)
        progress = self._guard(run, partial(run.step, demand))
        self._hold(run)
        self._take_results()
        if run.end_bytes > ends_bytes:
            self._ends_bytes += run.end_bytes - ends_bytes
            self._commit_if_large()
        return progress or Progress.WAITING

    def _demand(self, uncommitted_bytes: int, *, due: bool) -> Demand:
        limits = self._pace
        records_max = min(
            0 if self._paused else limits.batch_records_max,
            limits.outstanding_records_max - self._held_records,
        )
        bytes_max = min(
            limits.batch_bytes_max,
            limits.commit_bytes_max - uncommitted_bytes,  # I7: one window.
            limits.outstanding_bytes_max - self._held_bytes,
        )
        wanted = records_max, bytes_max, limits.tick_ms, due
        if self._demanded is None or self._demanded[0] != wanted:  # Made seldom: it costs most.
            demand = Demand(
                records_max=records_max,
                bytes_max=bytes_max,
                linger_ms=limits.tick_ms,
                commit_due=due or self._until_idle,
                position_due=due,
                end_may_wait=not (due or self._until_idle),
            )
            self._demanded = wanted, demand
        return self._demanded[1]

    def _hold(self, run: SplitRun, times: int = 1) -> None:
        """Add the unsettled records and bytes of *run* to the sums, or subtract them."""
        self._held_records += times * run.ledger.outstanding_records
        self._held_bytes += times * run.ledger.outstanding_bytes
        if run.read_last is not None:
            self._held_bytes += times * run.read_bytes

    def _guard(self, run: SplitRun, call: Callable[[], T]) -> T | None:
        """Make a call that may reach a plugin; handle its error instead of raising it."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 (any plugin, any error)
            self._handle(run, error)
            return None

    def _handle(self, run: SplitRun, error: Exception) -> None:
        """Handle an error by its kind (R11)."""
        self._awake[run.split] = run
        self.stats.errors[kind_of(error)] += 1
        if isinstance(error, LeaseLostError):
            self._log(run, "split_lost", error)
            self._begin_close(run, CloseReason.LEASE_LOST)
        elif isinstance(error, RetriableError):
            if isinstance(error, AbortedError):
                run.restart()
                if error.at_once:
                    self._log(run, "split_repeats", error)
                    return
            self._pause(run, error)
        elif isinstance(error, HeadraceError):
            self._fail(run, error)
        else:
            self._around.log.error("plugin_broken", split=run.split, exc_info=error)
            run.restart()
            self._pause(run, error)

    def _pause(self, run: SplitRun, error: Exception) -> None:
        run.trouble = described(error).partition("\n")[0]
        try:
            run.not_before_ms = run.retry.failed(self._around.clock.monotonic_ms(), error)
        except RetriesExhaustedError as exhausted:
            self._fail(run, exhausted)
        else:
            self._log(run, "split_pauses", error)

    def _fail(self, run: SplitRun, error: HeadraceError) -> None:
        """Stop a split permanently; its settled prefix is still committed."""
        if run.error is None:
            run.error = error
            self._around.log.error(
                "split_failed", split=run.split, error_code=error.code, error=str(error)
            )
        self._begin_close(run, CloseReason.FAILED)

    def _begin_close(self, run: SplitRun, reason: CloseReason) -> None:
        self._awake[run.split] = run
        if run.closing is None:
            run.close_by_ms = self._around.clock.monotonic_ms() + self._limits.stop_ms_max
        if run.closing is not CloseReason.LEASE_LOST:  # It is final; a failure outranks a stop.
            handing_over = reason is CloseReason.HANDED_OVER
            run.closing = run.closing or reason if handing_over else reason

    def _close_finished(self) -> None:
        for run in list(self._awake.values()):
            if run.closing is None:
                continue
            late = self._around.clock.monotonic_ms() >= run.close_by_ms
            if run.closing is CloseReason.LEASE_LOST or run.drained() or late:
                self._close(run, run.closing)

    def _close(self, run: SplitRun, reason: CloseReason) -> None:
        if (self._stopping or self._until_idle) and reason is not CloseReason.LEASE_LOST:
            self._ended[run.split] = run
        del self._runs[run.split]
        self._awake.pop(run.split, None)
        self._owing.pop(run.split, None)
        self._unsaved.pop(run.split, None)
        self._uncommitted[run.split] = run.ledger.uncommitted_bytes
        self._around.log.info("split_stopped", split=run.split, reason=reason.value)
        try:
            run.close(reason)
            self._around.writers.leave(run.split)
        except Exception:
            self._around.log.exception("plugin_broken", split=run.split)
        if reason is not CloseReason.LEASE_LOST:
            problem = f"{run.error.code}: {run.error}" if run.error else ""
            try:
                self._around.store.release(self._around.worker, run.split, run.lease.token, problem)
            except StoreUnavailableError as error:  # The lease expires by itself.
                self._log(run, "lease_kept", error)
        crash.reached("handed_over")
        self._tell_control(Closed(run.split, run.lease.token, run.error))

    # All splits together.

    def _sent(self) -> bool:
        return self._dead_letters.sent or any(run.ledger.sent for run in self._awake.values())

    def _commit_if_due(self, started_ms: int, *, at_once: bool, asked: bool) -> None:
        """Commit settled batches if due; the next term counts from *started_ms*, the pass's start.

        *asked* says that the pass requested positions.
        """
        now_ms = self._around.clock.monotonic_ms()
        if asked:
            self._positions_ms = now_ms
        if now_ms < self._store_not_before_ms:
            return
        due = (
            at_once
            or self._commit_begun
            or self._is_commit_due(now_ms, asked=asked)
            or any(run.closing for run in self._awake.values())
        )
        runs = self._leased() if due or self._around.writers.transactional else ()
        if due:
            self._committed_ms, self._commit_begun = started_ms, False
            self._positions_ms = None
            for run in runs:
                run.hold_for_commit()
        if due or any(r.commit_due for r in runs):
            self._commit(runs)

    def _commit_if_large(self) -> None:
        """Start the commit early if the ends that wait for it take much memory; release them."""
        if self._ends_bytes <= ENDS_BYTES_MAX:
            return
        if self._around.clock.monotonic_ms() >= self._store_not_before_ms:
            self._commit_begun = True
            self._commit(self._leased())
            self._release()

    def _leased(self) -> Sequence[SplitRun]:
        """Return the splits whose work may still be committed; others have none."""
        return [r for r in self._unsaved.values() if r.closing is not CloseReason.LEASE_LOST]

    def _is_position_due(self, now_ms: int) -> bool:
        """Return whether to request positions from splits, for a commit that is due soon."""
        return self._positions_ms is None and now_ms >= self._positions_due_ms()

    def _positions_due_ms(self) -> int:
        """Return when to request positions for the next commit, if they were not yet."""
        # Exactly once, each batch has a position.
        return self._due_ms(ahead_ms=0 if self._around.writers.transactional else POSITIONS_MS)

    def _is_commit_due(self, now_ms: int, *, asked: bool) -> bool:
        """Return whether to commit: if all positions are settled, or too late to wait.

        *asked*: the positions were requested just now.
        """
        if self._around.writers.transactional:
            return now_ms >= self._due_ms()
        if self._positions_ms is None:
            return False
        if not any(run.ledger.awaits_end for run in self._awake.values()):
            return True
        waited = not asked and now_ms - self._positions_ms >= POSITIONS_MS
        return waited and now_ms >= self._due_ms()

    def _due_ms(self, *, ahead_ms: int = 0) -> int:
        """Return when a commit is due, less *ahead_ms*, at most half the interval of commits."""
        bound_ms = self._around.writers.window_ms()
        limit_ms = self._limits.commit_ms_max
        most_ms = limit_ms if bound_ms is None else min(limit_ms, bound_ms // 2)
        return self._committed_ms + most_ms - min(ahead_ms, most_ms // 2)

    def _commit(self, runs: Sequence[SplitRun]) -> None:
        self._ends_bytes = 0
        if any(run.commit_due and run.ledger.sent for run in runs):
            self._wait_for_sink(self._around.clock.monotonic_ms() + SINK_WAIT_MS)
        offers = [(r, offer) for r in runs if (offer := self._guard(r, r.offer))]
        if not offers:
            return
        try:
            started_ms = self._around.clock.monotonic_ms()
            refused = self._around.store.commit([offer.commit for _, offer in offers])
        except StoreUnavailableError as error:
            self._store_failed(error)
            return
        self._store_retry.succeeded()
        self.stats.commits += 1
        self.stats.commit_times.observe(self._around.clock.monotonic_ms() - started_ms)
        for run, offer in offers:
            refusal = refused.get(run.split)
            if refusal is None:
                run.committed(offer)
                self._awake[run.split] = run  # So that the split releases.
                run.moved_ms = self._around.clock.monotonic_ms()
                if offer.settled.losses:
                    self._dead_letters.more()
                self.stats.batches += 1
                self.stats.changes += offer.settled.changes
            else:
                self._handle(run, refusal)
                if not isinstance(refusal, AbortedError):
                    run.close_by_ms = 0  # Nothing of it can be committed.

    def _store_failed(self, error: StoreUnavailableError) -> None:
        now_ms = self._around.clock.monotonic_ms()
        self._around.log.warning("store_unavailable", error=str(error))
        try:
            self._store_not_before_ms = self._store_retry.failed(now_ms, error)
        except RetriesExhaustedError as exhausted:
            for run in self._runs.values():
                self._fail(run, exhausted)
                run.close_by_ms = 0

    def _release(self) -> None:
        """Release positions to the sources: after the commit (R1), until it succeeds (R2)."""
        for run in list(self._awake.values()):
            now_ms = self._around.clock.monotonic_ms()
            if run.release_due is None or now_ms < run.release_not_before_ms:
                continue
            try:
                run.release()
                run.release_retry.succeeded()
                crash.reached("positions_released")
            except FatalError as error:
                self._fail(run, error)
            except Exception as error:  # noqa: BLE001 (a plugin call)
                self._log(run, "release_pauses", error)
                try:
                    run.release_not_before_ms = run.release_retry.failed(now_ms, error)
                except RetriesExhaustedError as exhausted:
                    self._fail(run, exhausted)

    # Modes.

    def _ask(self, asked: Mapping[str, AskedMode], *, starts: bool) -> None:
        """Request modes of the logs; a run until idle has none.

        *starts* says that the request is for a start, not for a running source.
        """
        around = self._around
        if self._until_idle or not isinstance(around.source, Realtime):
            return
        if self._modes is None:
            self._modes = Modes(
                around.source, self._limits, around.clock, around.log, starts=starts
            )
        self._modes.ask(asked)

    def _set_pace(self, modes: Modes, started_ms: int) -> None:
        """Set the bounds of a pass by the modes of the logs, and choose the logs that it reads."""
        modes.follow(self._held_bytes)
        realtime = modes.realtime
        if realtime != self._followed:
            self._followed = realtime
            modes.source.follow_writes(realtime)
        self._around.writers.hurry(hurries=bool(realtime))
        self._pace = self._limits
        if modes.is_full:
            self._pace = replace(self._limits, outstanding_bytes_max=0)
        if not realtime:
            self._logs = None
            return
        is_tick = started_ms - self._ticked_ms >= self._limits.tick_ms
        # The other logs wait for room, and leave the buffer to the logs in realtime.
        has_room = self._held_bytes < self._limits.outstanding_bytes_max
        if is_tick and has_room and not modes.is_whole:
            self._logs, self._ticked_ms = None, started_ms
            return
        self._logs = realtime
        if not modes.is_full:
            self._pace = modes.limits

    def _check_buffer(self, modes: Modes) -> None:
        """Stop reading once the buffer is full; continue when it is empty."""
        modes.measure(self._held_bytes)
        if modes.is_full:
            runs = [run for run in self._runs.values() if not run.closing]
            if all(run.drained() for run in runs) and modes.emptied():
                for run in runs:
                    run.restart()
                    self._awake[run.split] = run
            return
        if not modes.realtime or not self._is_buffer_full(modes):
            return
        try:
            modes.overflowed()
        except HeadraceError as error:
            for run in list(self._runs.values()):
                self._fail(run, error)

    def _check_begun(
        self, modes: Modes, started_ms: int, news: News | None, progress: Collection[Progress]
    ) -> None:
        """Record that the backlog of the start is read, if this pass looked and left nothing."""
        if not (modes.is_beginning and modes.realtime) or self._looked_ms < started_ms:
            return
        late = {Progress.MORE, Progress.FETCHING, Progress.BLOCKED}
        if news is not None and not news.more and late.isdisjoint(progress) and not modes.is_full:
            modes.caught_up(self.stats.records_read)

    def _keep_modes(self, modes: Modes) -> None:
        """Store the modes with the positions of all splits, if they changed."""
        kept, now_ms = modes.kept, self._around.clock.monotonic_ms()
        if kept is None or kept is self._kept_modes or now_ms < self._store_not_before_ms:
            return
        runs = {run.split: run for run in self._runs.values() if run.is_loaded}
        made = {split: kept.after(run.modes, run.places()) for split, run in runs.items()}
        new = {split: each for split, each in made.items() if each != runs[split].modes}
        tokens = {split: runs[split].lease.token for split in new}
        try:
            refused = self._around.store.keep_modes(self._around.worker, tokens, new)
        except StoreUnavailableError as error:
            self._store_failed(error)
            return
        self._kept_modes = kept
        for split, each in new.items():
            if split in refused:
                self._handle(runs[split], refused[split])
            else:
                runs[split].modes = each

    def _is_buffer_full(self, modes: Modes) -> bool:
        """Return whether unacknowledged records have reached a bound."""
        limits, window = modes.limits, self._limits.commit_bytes_max
        now_ms, awake = self._around.clock.monotonic_ms(), self._awake.values()
        if modes.buffered_bytes * REFUSED_PART >= limits.outstanding_bytes_max and any(
            run.is_refused(now_ms) for run in awake
        ):
            return True
        return (
            modes.buffered_bytes >= limits.outstanding_bytes_max
            or self._held_records >= limits.outstanding_records_max
            or any(
                run.ledger.uncommitted_bytes >= window and run.ledger.outstanding_bytes * 2 > window
                for run in awake
            )
        )

    # Time.

    def _wait_for_tick(self, until_ms: int) -> None:
        """Wait for the end of the tick, or for a command; the sink works meanwhile."""
        clock = self._around.clock
        while self._commands.empty() and (left_ms := until_ms - clock.monotonic_ms()) > 0:
            if not self._sent():
                self._wake.wait(left_ms)
                continue
            self._wait_for_sink(until_ms)
            if self._until_idle:
                return

    def _rest(
        self,
        started_ms: int,
        is_still: Callable[[], bool],
        readable: Callable[[], int | None] | None,
    ) -> None:
        """Let ticks pass while there is nothing to do: a check for news costs less than a pass.

        *started_ms* is the start of the last pass. A source without news for long is not even asked
        until *readable* is. A source with recent news is asked, because a tick costs less than an
        event and a tick.
        """
        clock, tick_ms = self._around.clock, self._limits.tick_ms
        until_ms = min(started_ms + REST_MS, self._positions_due_ms())
        while self._commands.empty() and not self._awake:
            now_ms = clock.monotonic_ms()
            if now_ms >= until_ms:
                return
            try:
                if not is_still():
                    return
                is_long = now_ms - self._news_ms >= REST_MS
                descriptor = readable() if readable is not None and is_long else None
            except Exception:  # noqa: BLE001 (a plugin call: the next look meets the error)
                return
            self.pass_ms = self._looked_ms = self._ended_ms = now_ms
            if descriptor is not None:
                self._is_resting = True
                self._wake.wait(until_ms - now_ms, descriptor)
                self._is_resting = False
            # A write is several events; the look at the tick's end finds them all.
            passed_ms = (clock.monotonic_ms() - started_ms) % tick_ms
            self._wait_for_tick(min(until_ms, clock.monotonic_ms() + tick_ms - passed_ms))

    def _wait_for_writes(self, modes: Modes, news: News, started_ms: int) -> None:
        """Wait until a log in realtime is written to, or something else is due."""
        clock = self._around.clock
        until_ms = started_ms + (REST_MS if self._is_still(news) else self._limits.tick_ms)
        while self._commands.empty():
            now_ms = clock.monotonic_ms()
            if now_ms >= until_ms or self._is_position_due(now_ms):
                return
            readable, wait_ms = modes.source.descriptor(), until_ms - now_ms
            if modes.source.is_written(modes.realtime):
                self._written_ms = now_ms
                wait_ms = started_ms + WRITTEN_MS - now_ms
                if wait_ms <= 0:
                    return
                readable = None
            elif readable is None:
                quiet_ms = (now_ms - self._written_ms) // QUIET_PART
                wait_ms = min(wait_ms, max(UNTOLD_MS[0], min(UNTOLD_MS[1], quiet_ms)))
            self.pass_ms = now_ms
            if self._sent():
                self._wait_for_sink(now_ms + 1, rest_ms=1)
            else:
                self._wake.wait(wait_ms, readable)

    def _is_still(self, news: News) -> bool:
        """Return whether there is nothing to do and, by a cheap check, nothing new."""
        try:
            return not self._awake and news.is_still is not None and news.is_still()
        except Exception:  # noqa: BLE001 (a plugin call: the next look meets the error)
            return False

    def _wait_for_sink(self, until_ms: int, *, rest_ms: int = SINK_WAIT_MS) -> None:
        """Wait until all is settled, at most until *until_ms*.

        A writer that returns earlier is called again after *rest_ms*.
        """
        before_ms = self._around.clock.monotonic_ms()
        try:
            self._around.writers.drain(until_ms)
        except RetriableError as error:
            self._around.log.warning("sink_pauses", error=str(error))
        except Exception as error:
            self._around.log.exception("plugin_broken")
            for run in self._runs.values():
                self._fail(run, named(error))
        self._take_results()
        if self._sent() and self._around.clock.monotonic_ms() - before_ms < rest_ms:
            self._wake.wait(rest_ms)  # No busy loop if a writer does not wait.

    def _note_idle(self, *, quiet: bool) -> None:
        still = quiet and all(r.drained() for r in self._awake.values())
        self._quiet_passes = self._quiet_passes + 1 if still else 0
        # Twice: one split's read may take mutations from the logs for a split asked before it.
        idle = (self._quiet_passes > 1 and not self._owing) or not self._runs
        if idle and not self._idled:
            runs = self._runs.values()
            done = bool(runs) and all(run.done for run in runs)
            self._tell_control(Idled(self._commands_done, for_ever=done))
        self._idled = idle

    def _tell(self) -> None:
        now_ms = self._around.clock.monotonic_ms()
        if self._pulse is not None and now_ms - self._pulse_ms >= PULSE_EVERY_MS:
            # If the source was not asked for news, it contains all splits.
            looked_ms = self._looked_ms if self._looked_ms > self._pulse_ms else None
            self._pulse_ms = now_ms
            reported = self._runs if looked_ms is None else self._awake
            moved_ms = {run.split: self.moved_ms(run) for run in reported.values()}
            reasons = {run.split: run.held_up(now_ms) for run in self._awake.values()}
            self._pulse(Pulse(moved_ms, reasons, self._paused, looked_ms))
        if now_ms - self._reported_ms >= PROGRESS_EVERY_MS:
            self._reported_ms = now_ms
            self._around.log.info(
                "progress",
                splits=len(self._runs),
                changes=self.stats.changes,
                batches=self.stats.batches,
                outstanding_bytes=sum(r.ledger.outstanding_bytes for r in self._runs.values()),
            )

    def _log(self, run: SplitRun, event: str, error: Exception) -> None:
        self._around.log.warning(event, split=run.split, error=described(error))
