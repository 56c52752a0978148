"""Executes statements: each is one call of the command service, and a table as its answer."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from headrace.connector.control.commands import Commands
from headrace.connector.control.connector_config import compile_source
from headrace.connector.control.entries import SinkEntry, SourceEntry
from headrace.connector.control.errors import NotFoundError
from headrace.connector.control.offsets import Offset, OffsetsChange
from headrace.connector.control.permission import CALLER, Caller, Guard
from headrace.connector.control.probing import Ask, ask
from headrace.connector.control.running import Running
from headrace.connector.control.showing import show
from headrace.connector.notes import open_notes
from headrace.connector.shell.rendering import STATEMENT_COLUMN, ResultTable
from headrace.connector.shell.statements import (
    AlterSink,
    AlterSource,
    CreateSink,
    CreateSource,
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    DropSink,
    DropSource,
    PreviewSource,
    SetPosition,
    Show,
    Statement,
    SteerSource,
    Subject,
    ValidateSink,
    Verb,
)


def asks_plugin(statement: Statement) -> bool:
    """Say whether the answer to *statement* takes a plugin's, which may take its time."""
    if isinstance(statement, Show):
        return statement.subject is Subject.LAG
    return isinstance(statement, ValidateSink | PreviewSource | SetPosition)


class ControlService:
    """Executes statements on the catalogue of one state file, each wholly or not at all."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        ask: Ask = ask,
        guard: Guard | None = None,
        file: Path | None = None,
    ) -> None:
        """Use *connection* from its own thread only; closing it stays with the caller.

        *ask* puts a question to a plugin. *file* is the worker's, if known.
        """
        self._connection = connection
        self.commands = Commands(connection, guard=guard)
        self._running = Running(connection, self.commands, ask=ask, file=file)

    @classmethod
    def open(cls, state: Path, *, guard: Guard | None = None, file: Path | None = None) -> Self:
        """Return the service of what *state* names (see `open_notes`); close it.

        Another thread may close it.

        Raises:
            StateFileError: the file cannot be used.

        """
        return cls(open_notes(state, check_same_thread=False), guard=guard, file=file)

    def close(self) -> None:
        """Close the state file."""
        self._connection.close()

    def serve(self, caller: Caller, guard: Guard) -> None:
        """Let *guard* decide from now on what *caller*, who is whoever executes here, may do."""
        CALLER.set(caller)
        self.commands.guard_by(guard)

    def execute(self, statement: Statement) -> ResultTable:
        """Execute *statement* and return its answer, which is empty for CREATE and DROP.

        Raises:
            ConfigError: the statement is wrong, or does not fit what is there.
            StoreUnavailableError: the state file did not answer; nothing was changed.

        """
        match statement:
            case DescribeSinks() | DescribeSources() | DescribeSink() | DescribeSource():
                return self._describe(statement)
            case Show():
                return self._show(statement)
            case ValidateSink() | PreviewSource() | SetPosition():
                return self._ask(statement)
        self._change(statement)
        return ResultTable()

    def alter_offsets(
        self, name: str, wanted: Sequence[Offset], *, dry_run: bool = False
    ) -> OffsetsChange:
        """Move positions of a stopped source, also to places that its plugin must find.

        Raises as `Commands.alter_offsets` and `Running.alter_offsets` do.
        """
        return self._running.alter_offsets(name, wanted, dry_run=dry_run)

    def _describe(
        self, statement: DescribeSinks | DescribeSources | DescribeSink | DescribeSource
    ) -> ResultTable:
        commands = self.commands
        match statement:
            case DescribeSinks():
                rows = tuple((s.name, s.plugin, s.statement) for s in commands.sinks())
                return ResultTable(("name", "plugin", STATEMENT_COLUMN), rows)
            case DescribeSources():
                return self._sources()
            case DescribeSink():
                return _described(commands.sink(statement.name), as_config=statement.as_config)
            case DescribeSource():
                source = commands.source_on(statement.word, statement.table)
                return _described(source, as_config=statement.as_config)

    def _change(self, statement: Statement) -> None:
        commands = self.commands
        match statement:
            case CreateSink():
                commands.create_sink(statement)
            case AlterSink():
                commands.alter_sink(statement)
            case DropSink(name=name):
                commands.drop_sink(name, if_exists=statement.if_exists)
            case CreateSource():
                config = compile_source(statement)
                commands.create_source(config, if_not_exists=statement.if_not_exists)
            case AlterSource():
                if name := self._source_name(statement):
                    sink = {"sink": statement.sink} if statement.sink else {}
                    commands.alter_source(name, {**sink, **dict(statement.options)})
            case DropSource():
                if name := self._source_name(statement):
                    commands.drop_source(name)
            case SteerSource():
                self._steer(statement)
            case _:
                raise AssertionError(statement)

    def _ask(self, statement: ValidateSink | PreviewSource | SetPosition) -> ResultTable:
        match statement:
            case ValidateSink(name=name):
                return self._running.validate(name)
            case PreviewSource():
                return self._running.preview(statement)
            case SetPosition():
                return self._running.set_position(statement)

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
            return self._running.lag(source)
        return show(self._connection, self.commands, statement.subject, source)

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
        """Return the name of the connector; nothing if it is missing and that is no error."""
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
