"""Executes statements: each calls the command service once, and returns a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from msgspec.structs import replace

from headrace.connector.control.access.permission import CALLER, Caller, Guard
from headrace.connector.control.commands import Commands
from headrace.connector.control.connector_config import compile_source
from headrace.connector.control.entries import NAME_KEY, SinkEntry, SourceEntry
from headrace.connector.control.errors import NotFoundError
from headrace.connector.control.gaps import Acceptance
from headrace.connector.control.job_files import source_class
from headrace.connector.control.plugins.probing import Ask, ask
from headrace.connector.control.plugins.redriving import Redriving
from headrace.connector.control.running import Running
from headrace.connector.control.runs.orders import order_of
from headrace.connector.control.showing import runs, show, snapshots
from headrace.connector.foundation.catch_up import Looks
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.states import Desired
from headrace.connector.language.rendering import STATEMENT_COLUMN, ResultTable, StatementWarning
from headrace.connector.language.statements import (
    AcceptGap,
    AlterSink,
    AlterSource,
    Bulk,
    BulkSource,
    CreateSink,
    CreateSource,
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    DropRun,
    DropSink,
    DropSource,
    HistoryStatement,
    PollCdc,
    PreviewSource,
    RedriveLetters,
    SelectCdc,
    SetMode,
    SetPosition,
    Show,
    SnapshotSource,
    Statement,
    SteerRun,
    SteerSource,
    Subject,
    TailCdc,
    ValidateSink,
    Verb,
)
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes

_WANTED: Final = {
    Verb.PAUSE: Desired.PAUSED,
    Verb.RESUME: Desired.RUNNING,
    Verb.STOP: Desired.STOPPED,
}


def asks_plugin(statement: Statement) -> bool:
    """Return whether *statement* waits, perhaps for an answer of a plugin or a history."""
    if isinstance(statement, Show):
        return statement.subject is Subject.LAG
    if isinstance(statement, SetMode):
        return bool(statement.wait)
    waits = SelectCdc | TailCdc | PollCdc | RedriveLetters
    return isinstance(statement, ValidateSink | PreviewSource | SetPosition | waits)


class ControlService:
    """Executes statements on the catalogue of one state file, each atomically."""

    def __init__(  # noqa: PLR0913 (each is about something else)
        self,
        notes: NoteCopy,
        *,
        ask: Ask = ask,
        ask_lag: Ask | None = None,
        guard: Guard | None = None,
        file: Path | None = None,
        looks: Looks | None = None,
    ) -> None:
        """Use *notes*, which the caller closes, from its own thread only.

        *ask* asks a plugin; *ask_lag*, if given, asks the frequent question about lag. *file* is
        the worker's, if known. *looks* has earlier lags, which callers may share.
        """
        self._notes = notes
        self.commands = Commands(notes, guard=guard)
        self.running = Running(
            notes, self.commands, ask=ask, ask_lag=ask_lag, file=file, looks=looks
        )

    @classmethod
    def open(
        cls,
        state: Path,
        *,
        ask_lag: Ask | None = None,
        guard: Guard | None = None,
        file: Path | None = None,
        looks: Looks | None = None,
    ) -> Self:
        """Return the service on the store that *state* names (see `open_notes`).

        Close it after use; another thread may do that.

        Raises:
            StateFileError: the file cannot be used.

        """
        return cls(open_notes(state), ask_lag=ask_lag, guard=guard, file=file, looks=looks)

    @property
    def notes(self) -> NoteCopy:
        """The notes, to be read only."""
        return self._notes

    def close(self) -> None:
        """Close the state file."""
        self._notes.close()

    def serve(self, caller: Caller, guard: Guard) -> None:
        """Execute further statements for *caller*; *guard* checks its permissions."""
        CALLER.set(caller)
        self.commands.guard_by(guard)

    def execute(self, statement: Statement) -> ResultTable:  # noqa: C901, PLR0912 (one branch each)
        """Execute *statement* and return its answer, which has no rows for CREATE and DROP.

        CREATE and ALTER of a source warn about changes of its table that are not delivered.

        Raises:
            ConfigError: the statement is wrong, or does not fit the sinks and sources that exist.
            StoreUnavailableError: the state file did not answer; nothing was changed.

        """
        commands, running, answer = self.commands, self.running, ResultTable()
        match statement:
            case Show():
                answer = self._show(statement)
            case DescribeSinks():
                rows = tuple((s.name, s.plugin, s.statement) for s in commands.sinks())
                answer = ResultTable(("name", "plugin", STATEMENT_COLUMN), rows)
            case DescribeSources():
                answer = self._sources()
            case DescribeSink():
                answer = _described(commands.sink(statement.name), as_config=statement.as_config)
            case DescribeSource():
                source = commands.source_on(statement.word, statement.table)
                answer = _described(source, as_config=statement.as_config)
            case AcceptGap() | RedriveLetters():
                answer = self._mend(statement)
            case ValidateSink(name=name):
                answer = running.validate(name)
            case PreviewSource():
                answer = running.preview(statement)
            case SetPosition():
                answer = running.set_position(statement)
            case SetMode():
                answer = running.set_mode(statement)
            case SnapshotSource() | BulkSource():
                answer = self._ask_run(statement)
            case CreateSource() | AlterSource():
                if changed := self.change_source(statement):
                    answer = ResultTable(warnings=self.table_warnings(changed))
            case CreateSink():
                commands.create_sink(statement)
            case AlterSink():
                commands.alter_sink(statement)
            case DropSink(name=name):
                commands.drop_sink(name, if_exists=statement.if_exists)
            case DropSource():
                if name := self._source_name(statement):
                    commands.drop_source(name)
            case SteerSource():
                self._steer(statement)
            case SteerRun(name=name):
                commands.steer_run(name, _WANTED[statement.verb])
            case DropRun(name=name):
                commands.drop_run(name)
            case _:
                answer = self._of_history(statement)
        return answer

    def _of_history(self, statement: HistoryStatement) -> ResultTable:
        # It decodes records, which needs slow imports.
        from headrace.connector.control.histories.commands import Histories  # noqa: PLC0415

        return Histories(self._notes, self.commands, self.running.rows).execute(statement)

    def change_source(self, statement: CreateSource | AlterSource) -> SourceEntry | None:
        """Create or change a source; return it, or None without a change. Does not ask plugins.

        Raises as `execute` does.
        """
        if isinstance(statement, CreateSource):
            config = compile_source(statement)
            made = self.commands.create_source(config, if_not_exists=statement.if_not_exists)
            return self.commands.source(config[NAME_KEY]) if made else None
        name = self._source_name(statement)
        sink = {"sink": statement.sink} if statement.sink else {}
        changes = {**sink, **dict(statement.options)}
        return self.commands.alter_source(name, changes) if name else None

    def table_warnings(self, source: SourceEntry) -> tuple[StatementWarning, ...]:
        """Return the warnings about the table of *source*, and record them in the audit.

        Raises StoreUnavailableError.
        """
        return self.warn(source, self.running.table_warnings(source))

    def warn(
        self, source: SourceEntry, warnings: Sequence[StatementWarning]
    ) -> tuple[StatementWarning, ...]:
        """Record in the audit that the caller was warned, and return *warnings*.

        Raises StoreUnavailableError.
        """
        if warnings:
            self.commands.note_warnings(source.name, [warning.code for warning in warnings])
        return tuple(warnings)

    def _ask_run(self, statement: SnapshotSource | BulkSource) -> ResultTable:
        commands = self.commands
        config = commands.source_on(statement.word, statement.table).config
        order = order_of(statement, SystemClock().wall_ms())
        match statement:
            case SnapshotSource():
                name = commands.snapshot_source(config, order)
            case BulkSource(verb=Bulk.REPLAY):
                name = commands.replay_source(config, order)
            case BulkSource(verb=Bulk.RECONCILE):
                name = commands.reconcile_source(config, order)
        return ResultTable(("run",), ((name,),))

    def _mend(self, statement: AcceptGap | RedriveLetters) -> ResultTable:
        job = statement.job
        self.commands.check_job(job)
        if isinstance(statement, RedriveLetters):
            numbers = () if statement.number is None else (statement.number,)
            return self.running.redrive(Redriving(job, numbers))
        policy = statement.policy.lower()
        acceptance = Acceptance(job=job, names=[statement.gap], policy=policy)
        found = self.commands.accept_gaps(acceptance, source_class(self._notes, job))
        rows = tuple((each.gap.name, policy, ", ".join(each.splits)) for each in found)
        return ResultTable(("gap", "policy", "splits"), rows)

    def _sources(self) -> ResultTable:
        statuses = self.commands.statuses()
        rows = [
            (s.name, s.sink, statuses[s.name].state, statuses[s.name].reason, s.statement)
            for s in self.commands.sources()
        ]
        return ResultTable(("name", "sink", "state", "problem", STATEMENT_COLUMN), tuple(rows))

    def _show(self, statement: Show) -> ResultTable:
        target = statement.source
        source = self.commands.source_on(target.word, target.table) if target else None
        if statement.subject is Subject.LAG:
            return self.running.lag(source)
        if statement.subject is Subject.SNAPSHOTS:
            return snapshots(self.commands, source)
        if statement.subject is Subject.RUNS:
            return runs(self.commands, source)
        found = show(self._notes, self.commands, statement.subject, source)
        if statement.subject is Subject.STATUS and not found.rows:
            # Imported here to keep starts of commands cheap.
            from headrace.connector.control.health.missing import missing  # noqa: PLC0415

            undefined = missing(len(self.commands.sinks()), 0)
            warnings = [StatementWarning("nothing_defined", p.message, p.hint) for p in undefined]
            return replace(found, warnings=tuple(warnings))
        return found

    def _steer(self, statement: SteerSource) -> None:
        name = self.commands.source_on(statement.word, statement.table).name
        match statement.verb:
            case Verb.PAUSE:
                self.commands.pause(name)
            case Verb.RESUME:
                self.commands.resume(name)
            case Verb.STOP:
                self.commands.stop(name)
            case Verb.RESTART:
                self.commands.restart(name)

    def _source_name(self, statement: AlterSource | DropSource) -> str:
        """Return the name of the connector; "" if it does not exist and that is allowed."""
        try:
            return self.commands.source_on(statement.word, statement.table).name
        except NotFoundError:
            if statement.if_exists:
                return ""
            raise


def _described(entry: SinkEntry | SourceEntry, *, as_config: bool) -> ResultTable:
    if as_config:
        return ResultTable(tuple(entry.config), (tuple(entry.config.values()),))
    return ResultTable((STATEMENT_COLUMN,), ((entry.statement,),))
