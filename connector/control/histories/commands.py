"""Creates, changes, drops and reads histories: each is a sink, and the source that feeds it."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from headrace.connector.control.commands import Commands
from headrace.connector.control.connector_config import (
    compile_source,
    sink_options,
    source_name,
    whole_table,
)
from headrace.connector.control.entries import SinkEntry, SourceEntry
from headrace.connector.control.errors import AlreadyExistsError, NotFoundError, StatementError
from headrace.connector.control.histories.answers import answer
from headrace.connector.control.histories.queries import poll_query, query_of, tail_query
from headrace.connector.control.histories.source_rows import Read, with_source_rows
from headrace.connector.control.plugins.probing import Answer
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.job_file import read_job_file
from headrace.connector.history.arrival import ms_of, time_text
from headrace.connector.history.config import LATEST, SNAPSHOT, HistoryConfig
from headrace.connector.history.durations import duration_ms
from headrace.connector.history.errors import HistoryFileError, HistoryMissingError
from headrace.connector.history.following import poll, tail
from headrace.connector.history.query import Query
from headrace.connector.history.reading import History
from headrace.connector.history.rendering import TextShape
from headrace.connector.history.seeding import seed_now
from headrace.connector.history.store.contract import Seed
from headrace.connector.history.store.places import opened, table_parts, table_place
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.rendering import STATEMENT_COLUMN, ResultTable, StatementWarning
from headrace.connector.language.statements import (
    AlterCdc,
    AlterSink,
    CreateCdc,
    CreateSink,
    CreateSource,
    DescribeCdc,
    DropCdc,
    HistoryStatement,
    PollCdc,
    SelectCdc,
    TableName,
    TailCdc,
)
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import Document, parse_config

PLUGIN: Final = "history"
WORD: Final = "cdc"  # The word after DATA_SOURCE.
_FOLDER: Final = "history"
_OF_SOURCE: Final = ("start", "job", "cluster", "tasks.max", "name")
_FIXED: Final = ("path", "table", "buckets", "files", "seed")
"""Options that are fixed when a history is created."""
TAIL_WAIT_MS: Final = 10_000


class HistoryChangedError(StatementError):
    """An option of a history that cannot be changed, or a definition that differs."""

    code = "history_fixed"


class Histories:
    """Executes the statements about histories. Use it from the thread of *notes* only."""

    def __init__(self, notes: NoteCopy, commands: Commands, read: Read) -> None:
        """Use the verbs of *commands*; a history without a path is stored beside the state.

        *read* reads rows of a source.
        """
        self._read = read
        self._beside = Path(notes.beside).absolute()
        self._file = notes.file
        self._commands = commands
        self._clock = SystemClock()

    def execute(self, statement: HistoryStatement) -> ResultTable:
        """Execute a statement about histories. Raises as its method does."""
        match statement:
            case DescribeCdc():
                return self.describe(statement)
            case SelectCdc():
                return self.select(statement)
            case TailCdc():
                return self.tail(statement)
            case PollCdc():
                return self.poll(statement)
            case CreateCdc():
                return ResultTable(warnings=self.create(statement))
            case AlterCdc():
                self.alter(statement)
            case DropCdc():
                self.drop(statement)
        return ResultTable()

    def create(self, statement: CreateCdc) -> tuple[StatementWarning, ...]:
        """Create a history: its sink, and the source that feeds it. Returns what is left to do.

        Raises:
            ConfigError: it has every mistake.
            AlreadyExistsError: the name is taken.
            HistoryChangedError: one exists, and the definition with IF NOT EXISTS differs.

        """
        sink, source = self._parts(statement)
        if statement.if_not_exists and (known := self._known(statement.name)):
            wanted = _statement_of(statement.name, dict(sink.options), dict(source.options[1:]))
            if self._statement(known) != wanted:
                raise HistoryChangedError(
                    "cdc",
                    f"{known.name} exists, and is another: {self._statement(known)}",
                    "alter it, or drop it first",
                )
            return ()
        with self._commands.together():
            try:
                self._commands.create_sink(sink)
            except AlreadyExistsError as error:
                if not self._known(sink.name):
                    raise
                hint = f"use IF NOT EXISTS, ALTER CDC {sink.name}, or first DROP CDC {sink.name}"
                what = f"CDC {sink.name} already exists"
                raise AlreadyExistsError("cdc", what, hint) from error
            self._commands.create_source(compile_source(source))
        if dict(statement.options).get("seed") != SNAPSHOT:
            return ()
        said = "the rows that are in the table now are not read yet"
        return (StatementWarning("not_seeded", said, f"when its job runs, {_todo(sink.name)}"),)

    def alter(self, statement: AlterCdc) -> None:
        """Change the options of a history, for the future. Raises as `create`."""
        known = self._known(statement.name)
        if known is None and statement.if_exists:
            return
        self._found(statement.name)
        for name, _ in statement.options:
            if name in _FIXED:
                raise HistoryChangedError(
                    name, "cannot be changed", "drop the history and create it again"
                )
        include = (("include", ",".join(statement.include)),) if statement.include else ()
        self._commands.alter_sink(
            AlterSink(name=statement.name, options=(*include, *statement.options))
        )

    def drop(self, statement: DropCdc) -> None:
        """Forget a history and, on request, remove its content and its positions.

        Raises:
            NotFoundError: the history does not exist.
            NotStoppedError: its content is to be removed, and a worker still runs it.

        """
        known = self._known(statement.name)
        if known is None and statement.if_exists:
            return
        known = self._found(statement.name)
        with self._commands.together():
            for source in self._sources(known):
                if statement.purge:
                    self._commands.stop(source.name)
                    self._commands.reset_offsets(source.name)
                self._commands.drop_source(source.name)
            self._commands.drop_sink(known.name)
        if statement.purge:
            _purge(self._place(_config(known)))

    def describe(self, statement: DescribeCdc) -> ResultTable:
        """Return one history, or all of them."""
        if statement.name is None:
            rows = tuple(
                (h.name, _config(h).table, self._state(h), self._statement(h))
                for h in self._commands.sinks()
                if h.plugin == PLUGIN
            )
            return ResultTable(("name", "table", "state", STATEMENT_COLUMN), rows)
        known = self._found(statement.name)
        config = _config(known)
        shown = {
            "name": known.name,
            "table": config.table,
            "include": ", ".join(config.include),
            "buckets": str(config.buckets),
            "files": str(config.files),
            "retention": config.retention,
            "state": self._state(known),
            "file": self._place(config),
            **_kept(self._place(config), config, known.name),
            STATEMENT_COLUMN: self._statement(known),
        }
        return ResultTable(tuple(shown), (tuple(shown.values()),))

    def select(self, statement: SelectCdc) -> ResultTable:
        """Answer a SELECT.

        Raises:
            NotFoundError: the history does not exist.
            ConfigError: the query is wrong, or its range was removed.
            HistoryFileError: its file is not here, or cannot be used.
            UnauthorizedError: the caller may not read the table.
            NotAvailableError: the source could not be read.

        """
        with self._opened(statement.name) as history:
            query = query_of(statement, self._clock.wall_ms())
            if statement.source_level:
                return self._select_with_source(statement, query, history)
            return answer(statement, history.select(query), history)

    def _select_with_source(
        self, statement: SelectCdc, query: Query, history: History
    ) -> ResultTable:
        """Answer a SELECT whose newest images are read from the source."""
        scopes = {*(history.include if query.scopes is None else query.scopes), LATEST}
        page = history.select(replace(query, scopes=frozenset(scopes - {LATEST})))
        known = self._found(statement.name)
        sources = self._sources(known)
        if not sources:
            raise NotFoundError("cdc", f"no data source feeds {known.name} any more")

        def read(keys: Sequence[Document]) -> Answer:
            return self._read(sources[0].name, _config(known).table, keys, statement.source_level)

        events = with_source_rows(page.events, read, self._clock.wall_ms() // 1_000)
        shown = msgspec.structs.replace(statement, scopes=tuple(scopes))
        made = answer(shown, replace(page, events=events), history)
        footer = ("latest_from", f"source at {statement.source_level}")
        return msgspec.structs.replace(made, footer=(*made.footer, footer))

    def tail(self, statement: TailCdc) -> ResultTable:
        """Answer TAIL: available events, or the next ones while it waits. Raises as `select`."""
        with self._opened(statement.name) as history:
            query = tail_query(statement, self._clock.wall_ms())
            wait_ms = duration_ms(statement.wait, "wait") if statement.wait else TAIL_WAIT_MS
            page = tail(history, query, wait_ms=wait_ms, pause=time.sleep)
            shown = SelectCdc(name=statement.name, as_json=statement.as_json)
            return answer(shown, page, history)

    def poll(self, statement: PollCdc) -> ResultTable:
        """Answer POLL: one range of time, when it is due. Raises as `select`."""
        with self._opened(statement.name) as history:
            query, pace = poll_query(statement, self._clock.wall_ms())
            found = poll(history, query, pace, pause=time.sleep)
            end_ms, page = next(found)
            events = list(page.events)
            while page.token:
                _, page = next(found)
                events += page.events
            shown = SelectCdc(name=statement.name, as_json=statement.as_json)
            made = answer(shown, replace(page, events=events), history)
            return msgspec.structs.replace(made, footer=(("next_from", str(end_ms)),))

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[History]:
        """Yield the history of this name, if the caller may read its table."""
        known = self._found(name)
        config = _config(known)
        keyspace, _, table = config.table.partition(".")
        self._commands.read_history({"name": known.name, "keyspace": keyspace, "table": table})
        file = opened(self._place(config), self._clock)
        history = History(file, frozenset(config.include), self._clock, TextShape)
        try:
            yield history
        finally:
            history.close()

    def _parts(self, statement: CreateCdc) -> tuple[CreateSink, CreateSource]:
        """Return the statements that *statement* abbreviates."""
        given = dict(statement.options)
        table = ".".join(whole_table(statement.table))
        of_source = {n: given.pop(n) for n in _OF_SOURCE if n in given}
        named = f"{source_name(WORD, statement.table)}.{statement.name}"
        options = {
            "path": self._path(statement.name, given.pop("path", None)),
            "table": table,
            **({"include": ",".join(statement.include)} if statement.include else {}),
            **given,
        }
        sink = CreateSink(name=statement.name, uri=f"{PLUGIN}://", options=tuple(options.items()))
        source = CreateSource(
            word=WORD,
            table=statement.table,
            sink=statement.name,
            options=tuple(({"name": named} | of_source).items()),
        )
        return sink, source

    def _path(self, name: str, given: str | None) -> str:
        """Return the place of a history: tables if the state is in Cassandra, else a file."""
        if given is None and self._file is not None:
            store = read_job_file(self._file).store or {}
            if store.get("plugin") != "cassandra":
                raise StatementError(
                    "path",
                    "is required: only a store in Cassandra keeps histories, too",
                    "WITH path = '/a/path/on/the/machine/of/the/worker.db'",
                )
            return table_place(self._file.name, name)  # Each machine has its own such file.
        if given is not None and table_parts(given)[1]:
            return given
        return str(self._beside.parent / (given or f"{_FOLDER}/{name}.db"))

    def _place(self, config: HistoryConfig) -> str:
        """Return its place, relative to the folder of this process."""
        file, name = table_parts(config.path)
        folder = (self._file or self._beside).absolute().parent
        return table_place(str(folder / file), name) if name else config.place

    def _known(self, name: str) -> SinkEntry | None:
        return next(
            (s for s in self._commands.sinks() if (s.name, s.plugin) == (name, PLUGIN)), None
        )

    def _found(self, name: str) -> SinkEntry:
        known = self._known(name)
        if known is None:
            names = ", ".join(s.name for s in self._commands.sinks() if s.plugin == PLUGIN)
            raise NotFoundError(
                "cdc", f"CDC {name} does not exist", f"there are: {names or 'none'}"
            )
        return known

    def _sources(self, known: SinkEntry) -> list[SourceEntry]:
        return [source for source in self._commands.sources() if source.sink == known.name]

    def _state(self, known: SinkEntry) -> str:
        status = self._commands.sink_status(known.name)
        return f"{status.state}: {status.reason}" if status.reason else str(status.state)

    def _statement(self, known: SinkEntry) -> str:
        """Return the statement that would create a history."""
        return _statement_of(known.name, _options(known), self._start(known))

    def _start(self, known: SinkEntry) -> dict[str, str]:
        given = [source.config for source in self._sources(known)]
        names = [name for name in _OF_SOURCE if name != "name"]
        return {name: config[name] for config in given for name in names if name in config}


def _statement_of(name: str, options: Mapping[str, str], of_source: Mapping[str, str]) -> str:
    left = dict(options)
    keyspace, _, table = left.pop("table").partition(".")
    include = left.pop("include", "")
    return format_statement(
        CreateCdc(
            name=name,
            table=TableName(keyspace, table),
            include=tuple(filter(None, include.split(","))),
            options=tuple((left | dict(of_source)).items()),
        )
    )


def _options(known: SinkEntry) -> dict[str, str]:
    return sink_options(known.config)


def _config(known: SinkEntry) -> HistoryConfig:
    config: HistoryConfig = parse_config(HistoryConfig, _options(known))
    return config


def _kept(place: str, config: HistoryConfig, name: str) -> dict[str, str]:
    """Return facts from the history: its content, since when, and until when it is final."""
    try:
        file = opened(place, SystemClock())
    except HistoryMissingError:
        return {"kept": "nothing yet: no worker has run its job"}
    except HistoryFileError as error:
        return {"problem": str(error)}
    try:
        with file.reading():
            first, last, count = file.extent()
            epochs, seed = file.epochs(), seed_now(file)
        return {
            "changes": str(count),
            "first_arrival": time_text(ms_of(first)) if count else "",
            "last_arrival": time_text(ms_of(last)) if count else "",
            "floor": time_text(ms_of(file.floor())) if file.floor() else "",
            "safe_until": time_text(ms_of(file.last() + 1)),
            "kept": "; ".join(
                f"{', '.join(sorted(epoch.scopes))} since "
                f"{time_text(ms_of(epoch.since)) if epoch.since else 'the beginning'}"
                for epoch in epochs
            ),
            **({"seed": _seed_text(seed, name)} if config.seed == SNAPSHOT else {}),
        }
    finally:
        file.close()


def _seed_text(seed: Seed | None, name: str) -> str:
    if seed is None:
        return f"not started: {_todo(name)}"
    if seed.done is None:
        said = f"{seed.rows} rows read by run {seed.run}"
        return f"{said}; if it does not run any more, {_todo(name)}"
    return f"done: {seed.rows} rows read, all known since {time_text(ms_of(seed.done))}"


def _todo(name: str) -> str:
    return f"run `headrace seed WORKER.yaml {name}`"


def _purge(place: str) -> None:
    """Remove the content, if it belongs to this history."""
    with contextlib.suppress(HistoryMissingError):
        opened(place, SystemClock()).purge()
