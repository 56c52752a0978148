"""The command service: all changes, from whichever interface they come.

CQL statements and all REST APIs (Kafka Connect's, the Sidecar's, our own) call only these verbs.
A verb changes the state file and nothing else; it takes effect wholly or not at all, and asks no
broker or node. Verbs write target states; the workers read them and act on them.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headrace.connector.control.access.audit import newest_lines
from headrace.connector.control.access.gate import Gate, needs
from headrace.connector.control.access.permission import Guard, Role, RoleGuard, UnauthorizedError
from headrace.connector.control.altering import altered_sink
from headrace.connector.control.catalogue import Catalogue, near_hint
from headrace.connector.control.connector_config import (
    is_own,
    own_class,
    sink_entry,
    sink_entry_of,
    source_entry,
)
from headrace.connector.control.entries import (
    CLASS_KEY,
    NAME_KEY,
    TASKS_KEY,
    ConnectorOptions,
    OwnOptions,
    SinkEntry,
    SourceEntry,
    own_options,
)
from headrace.connector.control.errors import (
    AlreadyExistsError,
    BadRunError,
    InUseError,
    NotFoundError,
    NotStoppedError,
)
from headrace.connector.control.gaps import Acceptance, Gaps, JobGap
from headrace.connector.control.job_files import source_class
from headrace.connector.control.modes import JobModes, ModeChange, NodeMode, least_places
from headrace.connector.control.offsets import SPLIT_KEY, Offset, Offsets, OffsetsChange
from headrace.connector.control.plugins.redriving import Redriving
from headrace.connector.control.plugins.search import source_of_class
from headrace.connector.control.services import ROUTE, check_service
from headrace.connector.control.status import ConnectorStatus, connector_statuses, sink_status
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.secrets import secret_problems
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.language.formatting import format_statement, format_table
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.statements import (
    AlterSink,
    CreateSink,
    DropSink,
    DropSource,
    TableName,
)
from headrace.connector.obs.logging import set_threshold
from headrace.connector.stores.asked_runs import (
    OVER,
    AskedRun,
    AskedRuns,
    Order,
    Progress,
    RunKind,
    RunState,
)
from headrace.connector.stores.job_forks import separate
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import LOG_LEVEL, WHOLE_JOB
from headrace.plugins import (
    ConfigError,
    EncodedPosition,
    Problem,
    Realtime,
    Source,
    declared_options,
)
from headrace.plugins.config.forms import CheckedOption, check_options
from headrace.plugins.stores.kept_modes import ALL_LOGS

# A config from a client of Kafka Connect is stored unchanged, also after an update.
_AS_GIVEN: Final = (NAME_KEY, CLASS_KEY, TASKS_KEY)
_RUNS_SHOWN_MAX: Final = 5  # In a hint.
_FAILED: Final = frozenset({Observed.FAILED, Observed.RESTARTING})


class Commands:
    """The verbs. Use them from the thread of *notes* only.

    The caller is the one in `CALLER`. The guard checks each verb that changes something, and the
    audit beside the state file records it.
    """

    def __init__(self, notes: NoteCopy, *, guard: Guard | None = None) -> None:
        """Use *notes*, which the caller closes."""
        self._notes = notes
        self._gate = Gate(notes, guard or RoleGuard())
        self._catalogue = Catalogue(notes)
        self._offsets = Offsets(notes)
        self._gaps = Gaps(notes)
        self._modes = JobModes(notes)

    def guard_by(self, guard: Guard) -> None:
        """Use *guard* from now on."""
        self._gate = Gate(self._notes, guard)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Run the block so that its verbs take effect atomically."""
        with self._catalogue.changing():
            yield

    # Sinks.

    def sinks(self) -> Sequence[SinkEntry]:
        """Return all sinks by name."""
        return self._catalogue.sinks()

    def sink(self, name: str) -> SinkEntry:
        """Return one sink. Raises NotFoundError."""
        return self._catalogue.sink(name)

    @needs(Role.ADMIN)
    def create_sink(self, statement: CreateSink) -> bool:
        """Create a sink; return False if it exists and that is allowed.

        Raises:
            ConfigError: it has every mistake.
            AlreadyExistsError: the name is taken.

        """
        entry = sink_entry(statement)
        with self._catalogue.changing():
            if not self._catalogue.has_sink(entry.name):
                self._add(entry)
                return True
        if statement.if_not_exists:
            return False
        raise AlreadyExistsError(
            "sink",
            f"data sink {entry.name} already exists",
            f"use IF NOT EXISTS, or first {format_statement(DropSink(name=entry.name))}",
        )

    @needs(Role.ADMIN)
    def alter_sink(self, statement: AlterSink) -> SinkEntry | None:
        """Change options of a sink, or its URI; None if it does not exist and that is allowed.

        Its running jobs settle and commit the records in flight, then take the new options.

        Raises:
            NotFoundError: the sink does not exist.
            ConfigError: it has every mistake; nothing was changed.

        """
        with self._catalogue.changing():
            if statement.if_exists and not self._catalogue.has_sink(statement.name):
                return None
            known = self._catalogue.sink(statement.name)
            before = parse_statement(known.statement)
            assert isinstance(before, CreateSink)  # noqa: S101 (the formatter wrote it)
            entry = sink_entry(altered_sink(before, statement))
            kept = {k: v for k, v in known.config.items() if k in _AS_GIVEN}
            entry = replace(entry, config={**entry.config, **kept})
            self._catalogue.replace_sink(entry)
        return entry

    @needs(Role.ADMIN)
    def drop_sink(self, name: str, *, if_exists: bool = False) -> None:
        """Delete a sink.

        Raises:
            NotFoundError: the sink does not exist, and *if_exists* does not allow that.
            InUseError: a source writes into it.

        """
        with self._catalogue.changing():
            if if_exists and not self._catalogue.has_sink(name):
                return
            sink = self._catalogue.sink(name)
            users = self._users(sink.name)
            if users:
                first = self._catalogue.source(users[0])
                more = f" and {len(users) - 1} more" if users[1:] else ""
                drop = format_statement(DropSource(word=first.word, table=first.table))
                raise InUseError(
                    "sink", f"data sink {sink.name} is used by {first.name}{more}", f"first {drop}"
                )
            self._catalogue.remove_sink(sink.name)

    @needs(Role.OPERATOR)
    def validate_sink(self, name: str) -> SinkEntry:
        """Return a sink that the caller wants to check. Raises NotFoundError."""
        return self._catalogue.sink(name)

    # The same for connector configs of Kafka Connect's clients.

    @needs(Role.ADMIN)
    def put_sink(self, config: Mapping[str, str], *, replaces: bool = True) -> bool:
        """Create a sink from a connector config, or replace its config; return whether it is new.

        The config is stored as it is given.

        Raises:
            ConfigError: it has every mistake; nothing was changed.
            AlreadyExistsError: the name is taken, and *replaces* does not allow that.

        """
        entry = sink_entry_of(config)
        with self._catalogue.changing():
            if not self._catalogue.has_sink(entry.name):
                self._add(entry)
                return True
            if not replaces:
                raise AlreadyExistsError("sink", f"data sink {entry.name} already exists")
            if entry.config != self._catalogue.sink(entry.name).config:
                self._catalogue.replace_sink(entry)
        return False

    def check_sink(self, config: Mapping[str, str]) -> Sequence[Problem]:
        """Return the problems of a sink's connector config. Changes nothing."""
        try:
            sink_entry_of(config)
        except ConfigError as error:
            return error.problems
        return ()

    # Sources and their status.

    def sources(self) -> Sequence[SourceEntry]:
        """Return all sources by name."""
        return self._catalogue.sources()

    def source(self, name: str) -> SourceEntry:
        """Return one source by its connector's name. Raises NotFoundError."""
        return self._catalogue.source(name)

    def source_on(self, word: str, table: TableName) -> SourceEntry:
        """Return the source of a table. Raises NotFoundError, AmbiguousError."""
        return self._catalogue.source_on(word, table)

    def statuses(self) -> Mapping[str, ConnectorStatus]:
        """Return the status of each connector, by name."""
        return {status.name: status for status in connector_statuses(self._notes)}

    def status(self, name: str) -> ConnectorStatus:
        """Return the status of one source. Raises NotFoundError."""
        self._catalogue.source(name)
        return self.statuses()[name]

    def sink_status(self, name: str) -> ConnectorStatus:
        """Return one status for all sources that write into a sink. Raises NotFoundError."""
        known = self.statuses()
        return sink_status(name, [known[user] for user in self._users(self.sink(name).name)])

    # Sources.

    @needs(Role.ADMIN)
    def create_source(
        self,
        config: Mapping[str, str],
        *,
        if_not_exists: bool = False,
        state: Desired = Desired.RUNNING,
    ) -> bool:
        """Create a source from a connector config; return False if it exists and that is allowed.

        Raises:
            ConfigError: it has every mistake.
            NotFoundError: the sink does not exist.
            AlreadyExistsError: the name is taken.

        """
        entry = source_entry(config)
        with self._catalogue.changing():
            if self._catalogue.has_sink(entry.name):
                raise AlreadyExistsError("name", f"{entry.name} is the name of a data sink")
            if not self._catalogue.has_source(entry.name):
                self._catalogue.sink(entry.sink)  # Raises if it does not exist.
                self._catalogue.add_source(entry, state)
                return True
            known = self._catalogue.source(entry.name)
        if if_not_exists:
            return False
        drop = format_statement(DropSource(word=known.word, table=known.table))
        hint = f"use IF NOT EXISTS, or first {drop}"
        if known.table != entry.table and known.table_text:
            hint = f"it is on table {format_table(known.table)}: give this one another `name`"
        raise AlreadyExistsError("table", f"data source {entry.name} already exists", hint)

    def alter_source(self, name: str, changes: Mapping[str, str | None]) -> SourceEntry:
        """Change keys of a source's config; None removes a key. Raises as `replace_source`."""
        return self.replace_source(name, _merged(self._catalogue.source(name).config, changes))

    @needs(Role.ADMIN)
    def replace_source(self, name: str, config: Mapping[str, str]) -> SourceEntry:
        """Replace the config of a source. Its job settles and commits, then continues with it.

        Raises:
            NotFoundError: the source or the sink does not exist.
            ConfigError: it has every mistake; nothing was changed.

        """
        entry = source_entry(config)
        with self._catalogue.changing():
            before = self._catalogue.source(name)
            if entry.name != name:
                raise ConfigError([Problem("name", f"expected {name}: a source keeps its name")])
            self._catalogue.sink(entry.sink)
            if entry.config != before.config:
                self._catalogue.replace_source(entry)
        return entry

    @needs(Role.ADMIN)
    def put_source(self, name: str, config: Mapping[str, str]) -> bool:
        """Create a source, or replace its config; return whether it was created.

        Raises as `create_source` and `replace_source` do.
        """
        if self.create_source(config, if_not_exists=True):
            return True
        self.replace_source(name, config)
        return False

    def check_source(self, config: Mapping[str, str]) -> Sequence[CheckedOption]:
        """Return every key of a connector config, with its problems. Changes nothing."""
        problems: list[Problem] = []
        try:
            self._catalogue.sink(source_entry(config).sink)
        except ConfigError as error:
            problems += error.problems
        if not is_own(config):
            return check_options(ConnectorOptions, config, group="Connector", problems=problems)
        own, kind = own_options(config), own_class(config)
        given = {key: value for key, value in config.items() if key not in own}
        of_plugin = {*own, *declared_options(kind)}
        problems = [each for each in problems if each.key not in of_plugin]
        return [
            *check_options(OwnOptions, given, group="Connector", problems=problems),
            *check_options(kind, own, group="Source", problems=secret_problems(kind, own)),
        ]

    def source_to_ask_about(self, config: Mapping[str, str]) -> SourceEntry | None:
        """Return the source that a config would create, if the caller may query a plugin.

        Returns None also for a wrong config: `check_source` reports the problems.
        """
        try:
            source = source_entry(config)
        except ConfigError:
            return None
        table = source.table if source.table_text else None
        return source if self._gate.allows(Role.OPERATOR, table) else None

    def note_warnings(self, name: str, codes: Sequence[str]) -> None:
        """Record in the audit that the caller was warned about the table of a source.

        Raises StoreUnavailableError.
        """
        self._gate.warned("check_tables", name, ", ".join(codes))

    @needs(Role.ADMIN)
    def drop_source(self, name: str) -> None:
        """Delete a source; the positions of its job stay. Raises NotFoundError."""
        with self._catalogue.changing():
            self._catalogue.remove_source(self._catalogue.source(name).name)

    # States. A verb writes the target state at once; the workers reach it within about a second.
    # The name of a sink means all sources that write into it.

    @needs(Role.OPERATOR)
    def pause(self, name: str) -> None:
        """Stop reading; keep the leases. Safe to repeat. Raises NotFoundError."""
        self._want(name, Desired.PAUSED)

    @needs(Role.OPERATOR)
    def resume(self, name: str) -> None:
        """Run, also after a stop. Safe to repeat. Raises NotFoundError."""
        self._want(name, Desired.RUNNING)

    @needs(Role.OPERATOR)
    def stop(self, name: str) -> None:
        """Give back leases and readers; keep positions. Safe to repeat. Raises NotFoundError."""
        self._want(name, Desired.STOPPED)

    @needs(Role.OPERATOR)
    def restart(self, name: str, *, only_failed: bool = False) -> Sequence[int]:
        """Restart the job of a source or the jobs of a sink, or only their failed splits.

        Returns the numbers of these splits.

        Raises:
            NotFoundError: the source or sink does not exist.

        """
        concerned: list[int] = []
        with self._catalogue.changing():
            first = 0
            for status in self._jobs_of(name):
                if only_failed:
                    failed = [s for s in status.splits if s.state in _FAILED]
                    splits = [WHOLE_JOB] if status.job_state in _FAILED else []
                    splits += [split.split for split in failed]
                else:
                    failed, splits = [*status.splits], [WHOLE_JOB]
                concerned += [first + split.task for split in failed]
                first += len(status.splits)
                self._catalogue.board.ask_restart(status.job, splits)
            self._forget_failures(name)
        return concerned

    @needs(Role.OPERATOR)
    def restart_split(self, name: str, task: int) -> None:
        """Restart one split. Raises NotFoundError, also when the split does not exist."""
        with self._catalogue.changing():
            tasks = [(s.job, split.split) for s in self._jobs_of(name) for split in s.splits]
            if not 0 <= task < len(tasks):
                raise NotFoundError("task", f"{name} has {len(tasks)} tasks, not {task}")
            job, split = tasks[task]
            self._catalogue.board.ask_restart(job, [split])
            self._forget_failures(name)

    # Runs of bulk work.

    def runs(
        self, source: str | None = None, kind: RunKind | None = None
    ) -> Sequence[tuple[AskedRun, Progress]]:
        """Return all runs, or those of a *source* or *kind*, newest first, with their progress."""
        return AskedRuns(self._notes).all(source, kind)

    def run(self, name: str) -> tuple[AskedRun, Progress]:
        """Return the run with this name, and its progress. Raises NotFoundError."""
        runs = AskedRuns(self._notes)
        if (found := runs.get(name)) is not None:
            return found
        known = [each.name for each, _ in runs.all()]
        hint = near_hint(name, known, _RUNS_SHOWN_MAX)
        raise NotFoundError("run", f"run {name[:48]!r} does not exist", hint)

    @needs(Role.ADMIN)
    def snapshot_source(
        self, config: Mapping[str, str], order: Order, *, name: str | None = None
    ) -> str:
        """Request a snapshot of the table of a source, or of a part of it; return its name.

        One with this *name*, if given, is requested only once.

        Raises:
            NotFoundError: the source does not exist.
            BadRunError: its sink takes none.

        """
        return self._ask_run(config, order, name)

    @needs(Role.ADMIN)
    def replay_source(self, config: Mapping[str, str], order: Order) -> str:
        """Request a replay of a source's changes; return its name. Raises as `snapshot_source`."""
        return self._ask_run(config, order)

    @needs(Role.ADMIN)
    def reconcile_source(self, config: Mapping[str, str], order: Order) -> str:
        """Request a comparison of a source's logs with its sink; return its name.

        Raises as `snapshot_source`.
        """
        return self._ask_run(config, order)

    def _ask_run(self, config: Mapping[str, str], order: Order, name: str | None = None) -> str:
        with self._catalogue.changing():
            entry = self._catalogue.source(config[NAME_KEY])
            return self._catalogue.ask_run(entry, order, name=name)

    @needs(Role.OPERATOR)
    def steer_run(self, name: str, wanted: Desired) -> None:
        """Pause, stop or continue a run; delivered changes stay. Safe to repeat.

        Raises:
            NotFoundError: the name is unknown.
            BadRunError: it is over.

        """
        with self._catalogue.changing():
            run, seen = self.run(name)
            state = run.state(seen)
            if state is RunState.COMPLETED or (
                state is RunState.STOPPED and wanted is not Desired.STOPPED
            ):
                raise BadRunError("run", f"{name} is {state.value}", "ask for another one")
            AskedRuns(self._notes).want(run, wanted)

    @needs(Role.OPERATOR)
    def drop_run(self, name: str) -> None:
        """Forget a run and its finished shards; delivered changes stay.

        Raises:
            NotFoundError: the name is unknown.
            BadRunError: it is not over, and has not failed.

        """
        with self._catalogue.changing():
            run, seen = self.run(name)
            state = run.state(seen)
            if state not in (*OVER, RunState.FAILED):
                raise BadRunError("run", f"{name} is {state.value}", f"first STOP RUN '{name}'")
            AskedRuns(self._notes).forget(name)

    # The services of the Sidecar.

    def services(self) -> Mapping[str, Mapping[str, str]]:
        """Return the configurations of the services, by name."""
        return self._catalogue.services()

    @needs(Role.ADMIN)
    def put_service(self, name: str, config: Mapping[str, str]) -> None:
        """Give a service a configuration; its running job continues with it.

        Raises:
            NotFoundError: the service does not exist.
            ConfigError: it has every key that is wrong; nothing was changed.

        """
        with self._catalogue.changing():
            check_service(name, config, self._catalogue.services())
            self._catalogue.set_service(name, config)

    @needs(Role.ADMIN)
    def delete_service(self, name: str) -> None:
        """Delete a service's configuration; publishing stops, positions stay.

        Raises:
            NotFoundError: the service does not exist, or has no configuration.

        """
        with self._catalogue.changing():
            if name not in self._catalogue.services():
                raise NotFoundError("service", f"service {name[:48]!r} has no configuration")
            self._catalogue.set_service(name, None)

    @needs(Role.ADMIN)
    def set_log_level(self, level: str) -> None:
        """Set the log level: at once in this process, soon in all others that use the state."""
        with self._catalogue.changing():
            self._catalogue.board.set_setting(LOG_LEVEL, level)
        set_threshold(level)

    def may(self, role: Role) -> bool:
        """Return whether the caller has *role*. Does not audit."""
        return self._gate.allows(role)

    def audit(self) -> Sequence[Mapping[str, Any]]:  # Any: JSON.
        """Return the newest lines of the audit, the newest first.

        Raises:
            UnauthorizedError: the caller is not an admin.

        """
        if not self.may(Role.ADMIN):
            raise UnauthorizedError("the audit is shown to admins only")
        return newest_lines(Path(f"{self._notes.beside}.audit"))

    # Positions.

    def offsets(self, name: str) -> Sequence[Offset]:
        """Return the committed positions of all splits, also of the job of the services.

        Raises:
            NotFoundError: the source does not exist.

        """
        status = self.statuses().get(name) if name == ROUTE else self.status(name)
        if status is None:
            raise NotFoundError("service", "the services have no job")
        if not any(state.position for state in self._offsets.states(status.job)):
            return []
        plugin = source_class(self._notes, status.job) if name == ROUTE else self._plugin(name)
        return self._offsets.of(status.job, plugin)

    @needs(Role.ADMIN)
    def alter_offsets(
        self, name: str, wanted: Sequence[Offset], *, dry_run: bool = False
    ) -> OffsetsChange:
        """Move positions of a stopped source.

        Raises:
            NotFoundError: the source does not exist.
            NotStoppedError: it is not stopped, or still stopping.
            ConfigError: it has every position that is not valid.

        """
        job = self._stopped(name, dry_run=dry_run)
        return self._offsets.alter(job, self._plugin(name), wanted, dry_run=dry_run)

    @needs(Role.ADMIN)
    def reset_offsets(self, name: str, *, dry_run: bool = False) -> OffsetsChange:
        """Delete the positions of a stopped source: it then starts at the oldest log.

        Raises as `alter_offsets` does.
        """
        job = self._stopped(name, dry_run=dry_run, resets=True)
        return self._offsets.reset(job, self._plugin(name), dry_run=dry_run)

    @needs(Role.ADMIN)
    def preview_source(self, config: Mapping[str, str]) -> str:
        """Return the job whose next changes to show, if the caller may read the table.

        Raises NotFoundError.
        """
        return self.status(config[NAME_KEY]).job

    @needs(Role.ADMIN)
    def read_history(self, config: Mapping[str, str]) -> None:
        """Return if the caller may read the history of the table that *config* names."""

    @needs(Role.ADMIN)
    def seek(self, name: str, *, dry_run: bool) -> str:
        """Return the job of a source whose position the caller wants to change.

        Raises as `alter_offsets` does.
        """
        return self._stopped(name, dry_run=dry_run)

    @needs(Role.ADMIN)
    def move(
        self,
        name: str,
        positions: Mapping[str, EncodedPosition | None],
        *,
        dry_run: bool = False,
    ) -> OffsetsChange:
        """Set the positions of splits of a stopped source. Raises as `alter_offsets` does."""
        job = self._stopped(name, dry_run=dry_run)
        plugin = self._plugin(name)
        decoded = {
            split: plugin.decode_position(position) if position else None
            for split, position in positions.items()
        }
        return self._offsets.move(job, plugin, decoded, dry_run=dry_run)

    # Modes.

    @needs(Role.OPERATOR)
    def set_mode(self, name: str, mode: str, *, node: str = ALL_LOGS) -> int:
        """Request a mode of a source's job; return the number of the request.

        Raises:
            NotFoundError: the source does not exist.
            NotOfferedError: its logs have only one mode.

        """
        return self.ask_mode(self.status(name).job, self._plugin(name), mode, node=node)

    @needs(Role.OPERATOR)
    def ask_mode(self, job: str, source: type[Source], mode: str, *, node: str = ALL_LOGS) -> int:
        """Request a mode of a job, as `set_mode`."""
        Realtime.of_class(source)
        described = [
            (log, part.offset or {})
            for part in self._offsets.of(job, source)
            for key, log in part.partition.items()
            if key != SPLIT_KEY
        ]
        now_ms = SystemClock().wall_ms()
        places = least_places(described)
        return self._modes.ask(job, mode, node=node, places=places, now_ms=now_ms)

    def modes(self, job: str) -> Sequence[NodeMode]:
        """Return the modes of a job's logs."""
        return self._modes.modes(job)

    def mode_changes(self, job: str, *, request: int | None = None) -> Sequence[ModeChange]:
        """Return the outcomes of the last requests for a mode, or of one *request*."""
        found = self._modes.changes(job)
        return [each for each in found if request in (None, each.request)]

    # Gaps and dead letters.

    def check_job(self, job: str) -> None:
        """Raise NotFoundError if no source has this job."""
        jobs = {status.job for status in self.statuses().values()}
        if job not in jobs:
            known = ", ".join(sorted(jobs)) or "none"
            raise NotFoundError("job", f"job {job[:48]!r} does not exist", f"there are: {known}")

    def gaps(self, job: str, source: type[Source]) -> Sequence[JobGap]:
        """Return the gaps that the splits of *job* met, in the order of their time."""
        return self._gaps.of(job, source)

    @needs(Role.ADMIN)
    def accept_gaps(self, acceptance: Acceptance, source: type[Source]) -> Sequence[JobGap]:
        """Make splits continue after gaps, and return these gaps; see `Gaps.accept`."""
        return self._gaps.accept(acceptance, source)

    @needs(Role.OPERATOR)
    def redrive(self, redriving: Redriving) -> None:
        """Return if the caller may send dead letters again."""

    def _plugin(self, name: str) -> type[Source]:
        return source_of_class(self._catalogue.source(name).config[CLASS_KEY])[1]

    def _stopped(self, name: str, *, dry_run: bool, resets: bool = False) -> str:
        """Return the job of a source after checking that it is stopped and that no worker owns it.

        A job that runs other sources too is forked first. The store must know the latest position,
        unless the caller *resets* it.
        """
        status = self.status(name)
        if dry_run:
            return status.job
        if status.desired is not Desired.STOPPED:
            raise NotStoppedError(
                "table", f"{name} is {status.state}, not STOPPED", "stop it first"
            )
        unknown = self._notes.behind(status.job)
        is_alone = separate(self._notes, status.job, busy=self._offsets.live(status.job))
        if not is_alone or (unknown and not resets):
            hint = "wait a moment"
            if unknown:
                hint += "; if nothing runs the job, run it: the sink may have a newer position"
            raise NotStoppedError("table", f"{name} is still stopping", hint)
        return self.status(name).job

    def _add(self, entry: SinkEntry) -> None:
        if self._catalogue.has_source(entry.name):
            raise AlreadyExistsError("sink", f"{entry.name} is the name of a data source")
        self._catalogue.add_sink(entry)

    def _users(self, sink: str) -> Sequence[str]:
        return [source.name for source in self._catalogue.sources() if source.sink == sink]

    def _want(self, name: str, state: Desired) -> None:
        with self._catalogue.changing():
            for source in self._sources_of(name):
                self._catalogue.board.want(source, state)

    def _forget_failures(self, name: str) -> None:
        for source in self._sources_of(name):
            self._catalogue.board.forget_failure(source)

    def _jobs_of(self, name: str) -> Sequence[ConnectorStatus]:
        """Return the status of one source of each job of a connector."""
        known = self.statuses()
        return list({known[s].job: known[s] for s in self._sources_of(name)}.values())

    def _sources_of(self, name: str) -> Sequence[str]:
        if self._catalogue.has_sink(name):
            return self._users(name)
        return [self._catalogue.source(name).name]


def _merged(config: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**config, **changes}
    return {key: value for key, value in merged.items() if value is not None}
