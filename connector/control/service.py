"""The command service: the only way statements take effect, whatever door they came through.

Executing connects to nothing but the state file. What a statement cannot know yet, such as whether
a broker answers or a table exists, is accepted and shows when the job runs.
"""

import dataclasses
import sqlite3

from headrace.connector.control.altering import altered_sink, altered_source
from headrace.connector.control.catalogue import Catalogue, SinkEntry, SourceEntry
from headrace.connector.control.connector_config import (
    NAME_KEY,
    compile_sink,
    compile_source,
    source_name,
)
from headrace.connector.control.errors import AlreadyExistsError, InUseError, NotAvailableError
from headrace.connector.shell.formatting import format_statement
from headrace.connector.shell.parser import parse_statement
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
    Statement,
)


class ControlService:
    """Executes statements on the catalogue of one state file, each wholly or not at all."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use *connection* from its own thread only; closing it stays with the caller."""
        self._catalogue = Catalogue(connection)

    def execute(self, statement: Statement) -> ResultTable:
        """Execute *statement* and return its answer, which is empty for CREATE and DROP.

        Raises:
            ConfigError: the statement is wrong, or does not fit what is there.
            StoreUnavailableError: the state file did not answer; nothing was changed.

        """
        match statement:
            case DescribeSinks():
                rows = tuple((s.name, s.plugin, s.statement) for s in self._catalogue.sinks())
                return ResultTable(("name", "plugin", STATEMENT_COLUMN), rows)
            case DescribeSources():
                return self._sources()
            case DescribeSink():
                sink = self._catalogue.sink(statement.name)
                return _described(sink, as_config=statement.as_config)
            case DescribeSource():
                source = self._catalogue.source(source_name(statement.word, statement.table))
                return _described(source, as_config=statement.as_config)
        self._change(statement)
        return ResultTable()

    def _change(self, statement: Statement) -> None:
        match statement:
            case CreateSink():
                self._create_sink(statement)
            case AlterSink():
                self._alter_sink(statement)
            case DropSink():
                self._drop_sink(statement)
            case CreateSource():
                self._create_source(statement)
            case AlterSource():
                self._alter_source(statement)
            case DropSource():
                self._drop_source(statement)
            case _:
                raise NotAvailableError("", "this cannot be executed here")

    def _sources(self) -> ResultTable:
        sources = self._catalogue.sources()
        statuses = self._catalogue.statuses(sources)
        rows = [
            (s.name, s.sink, statuses[s.name].state, statuses[s.name].problem, s.statement)
            for s in sources
        ]
        return ResultTable(("name", "sink", "state", "problem", STATEMENT_COLUMN), tuple(rows))

    def _create_sink(self, statement: CreateSink) -> None:
        entry = _sink_entry(statement)
        with self._catalogue.changing():
            if not self._catalogue.has_sink(entry.name):
                self._catalogue.add_sink(entry)
            elif not statement.if_not_exists:
                raise AlreadyExistsError(
                    "sink",
                    f"data sink {entry.name} already exists",
                    f"use IF NOT EXISTS, or first {format_statement(DropSink(name=entry.name))}",
                )

    def _alter_sink(self, statement: AlterSink) -> None:
        with self._catalogue.changing():
            if statement.if_exists and not self._catalogue.has_sink(statement.name):
                return
            before = parse_statement(self._catalogue.sink(statement.name).statement)
            assert isinstance(before, CreateSink)  # noqa: S101 (we wrote it)
            self._catalogue.replace_sink(_sink_entry(altered_sink(before, statement)))

    def _drop_sink(self, statement: DropSink) -> None:
        with self._catalogue.changing():
            if statement.if_exists and not self._catalogue.has_sink(statement.name):
                return
            sink = self._catalogue.sink(statement.name)
            users = [source for source in self._catalogue.sources() if source.sink == sink.name]
            if users:
                first = users[0]
                more = f" and {len(users) - 1} more" if users[1:] else ""
                drop = format_statement(DropSource(word=first.word, table=first.table))
                raise InUseError(
                    "sink", f"data sink {sink.name} is used by {first.name}{more}", f"first {drop}"
                )
            self._catalogue.remove_sink(sink.name)

    def _create_source(self, statement: CreateSource) -> None:
        entry = _source_entry(statement)
        with self._catalogue.changing():
            if not self._catalogue.has_source(entry.name):
                self._catalogue.sink(entry.sink)  # It must be there, to be written into.
                self._catalogue.add_source(entry)
            elif not statement.if_not_exists:
                drop = format_statement(DropSource(word=statement.word, table=statement.table))
                raise AlreadyExistsError(
                    "table",
                    f"data source {entry.name} already exists",
                    f"use IF NOT EXISTS, or first {drop}",
                )

    def _alter_source(self, statement: AlterSource) -> None:
        name = source_name(statement.word, statement.table)
        with self._catalogue.changing():
            if statement.if_exists and not self._catalogue.has_source(name):
                return
            before = parse_statement(self._catalogue.source(name).statement)
            assert isinstance(before, CreateSource)  # noqa: S101 (we wrote it)
            entry = _source_entry(altered_source(before, statement))
            self._catalogue.sink(entry.sink)  # It must be there, to be written into.
            self._catalogue.replace_source(entry)

    def _drop_source(self, statement: DropSource) -> None:
        name = source_name(statement.word, statement.table)
        with self._catalogue.changing():
            if not statement.if_exists or self._catalogue.has_source(name):
                self._catalogue.remove_source(self._catalogue.source(name).name)


def _sink_entry(statement: CreateSink) -> SinkEntry:
    plugin, config = compile_sink(statement)
    text = format_statement(dataclasses.replace(statement, if_not_exists=False))
    return SinkEntry(name=statement.name, plugin=plugin, statement=text, config=config)


def _source_entry(statement: CreateSource) -> SourceEntry:
    config = compile_source(statement)
    return SourceEntry(
        name=config[NAME_KEY],
        sink=statement.sink,
        job=config.get("job", ""),
        statement=format_statement(dataclasses.replace(statement, if_not_exists=False)),
        config=config,
    )


def _described(entry: SinkEntry | SourceEntry, *, as_config: bool) -> ResultTable:
    if as_config:
        return ResultTable(tuple(entry.config), (tuple(entry.config.values()),))
    return ResultTable((STATEMENT_COLUMN,), ((entry.statement,),))
