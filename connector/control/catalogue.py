"""The sinks and sources that statements created, in the control store.

Separate from the service, so that a job can read them without executing statements.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace.connector.control.connector_config import sink_options
from headrace.connector.control.entries import (
    CLASS_KEY,
    NEVER,
    ONLY,
    SNAPSHOT_KEY,
    TABLE_KEY,
    SinkEntry,
    SourceEntry,
    own_options,
)
from headrace.connector.control.errors import (
    AmbiguousError,
    BadRunError,
    JobUndefinedError,
    NotFoundError,
)
from headrace.connector.control.plugins.search import source_of_class
from headrace.connector.control.runs.orders import check_sink
from headrace.connector.control.services import ROUTE, SERVICES, ServiceJob, service_job
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.states import Desired
from headrace.connector.language.formatting import format_source, format_statement, format_table
from headrace.connector.language.statements import NO_TABLE, SteerSource, TableName, Verb
from headrace.connector.stores.asked_runs import AskedRuns, Order, RunKind
from headrace.connector.stores.job_forks import begin_apart
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import FORK_MARK, SERVICE, SETTINGS, Route, Wanted
from headrace.plugins import ConfigError, HeadraceError, Problem, declared_options
from headrace.plugins.cql_text import quote_name
from headrace.plugins.discovery import load
from headrace.plugins.errors import meant

# Kinds of notes; a note has the name of its object.
SINKS: Final = "sinks"
SOURCES: Final = "sources"
_HISTORY: Final = "history"
CLUSTER_MARK: Final = "@"  # Between sink and cluster, in the name of the job for both.
WAITING: Final = "tables_missing"  # The option of a source that can `wait` for some of its tables.


class Catalogue:
    """Reads and writes sinks and sources. Use it from the thread of *notes* only."""

    def __init__(self, notes: NoteCopy) -> None:
        """Read nothing yet."""
        self._notes = notes
        self.board = notes.board

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Run the block as a transaction: its reads stay valid until its writes commit."""
        with self._notes.transaction():
            yield

    def sinks(self) -> list[SinkEntry]:
        """Return all sinks by name."""
        return list(self._notes.documents(SINKS, SinkEntry).values())

    def sources(self) -> list[SourceEntry]:
        """Return all sources by name."""
        return list(self._notes.documents(SOURCES, SourceEntry).values())

    def services(self) -> dict[str, dict[str, str]]:
        """Return the configurations of the services, by name."""
        found = {name: self.board.setting(f"{SERVICE}{name}") for name in SERVICES}
        return {name: json.loads(text) for name, text in found.items() if text is not None}

    def set_service(self, name: str, config: Mapping[str, str] | None) -> None:
        """Store or delete the configuration of a service; update the target state of its job."""
        text = None if config is None else json.dumps(dict(config))
        self.board.set_setting(f"{SERVICE}{name}", text)
        before = [route for route in self.board.routes() if route.source == ROUTE]
        try:
            wanted = service_job(self.services())
        except ConfigError:  # Incomplete: publishing stops, positions stay.
            if before:
                self.board.want(ROUTE, Desired.STOPPED)
            return
        state = Desired.RUNNING if wanted.enabled else Desired.STOPPED
        if before and before[0].job == wanted.job:
            self.board.want(ROUTE, state)
            self.board.changed(wanted.job)
        else:
            self.board.remove_route(ROUTE)
            self.board.add_route(Route(ROUTE, wanted.job, ROUTE, state))

    def has_sink(self, name: str) -> bool:
        """Return whether a sink of this name exists."""
        return self._notes.get(SINKS, name) is not None

    def has_source(self, name: str) -> bool:
        """Return whether a source of this name exists."""
        return self._notes.get(SOURCES, name) is not None

    def text(self, name: str) -> str | None:
        """Return the stored text of the source, sink or service of this name."""
        places = ((SOURCES, name), (SINKS, name), (SETTINGS, f"{SERVICE}{name}"))
        with self._notes.snapshot():
            strings = (self._notes.get(kind, each) for kind, each in places)
            return next((text for text in strings if text is not None), None)

    def sink(self, name: str) -> SinkEntry:
        """Return one sink.

        Raises:
            NotFoundError: the name is unknown.

        """
        found = self._notes.document(SINKS, name, SinkEntry)
        if found is None:
            hint = near_hint(name, [quote_name(known.name) for known in self.sinks()])
            raise NotFoundError("sink", f"data sink {name} does not exist", hint)
        return found

    def source(self, name: str) -> SourceEntry:
        """Return one source.

        Raises:
            NotFoundError: the name is unknown.

        """
        found = self._notes.document(SOURCES, name, SourceEntry)
        if found is None:
            raise _no_source(name, self.sources())
        return found

    def source_on(self, word: str, table: TableName) -> SourceEntry:
        """Return the source that `DATA_SOURCE word ON table` names.

        Raises:
            NotFoundError: no source is on the table.
            AmbiguousError: several sources are, and none of them has the default name.

        """
        if table == NO_TABLE:
            return self.source(word)
        name = f"{word}.{table.keyspace}.{table.name}"
        sources = self.sources()
        found = {s.name: s for s in sources if s.table == table and s.word == word}
        if len(found) > 1 and name not in found:
            names = ", ".join(found)
            raise AmbiguousError("table", f"{format_table(table)} has several: {names}")
        if not found:
            raise _no_source(name, sources)
        return found.get(name) or next(iter(found.values()))

    def add_sink(self, entry: SinkEntry) -> None:
        """Store a new sink."""
        self._notes.put_document(SINKS, entry.name, entry)

    def replace_sink(self, entry: SinkEntry) -> None:
        """Replace the sink of this name, and change the jobs that use it."""
        self._notes.put_document(SINKS, entry.name, entry)
        users = [route for route in self.board.routes() if route.sink == entry.name]
        for job in sorted({route.job for route in users}):
            self.board.changed(job)
        for route in users:
            self.board.forget_failure(route.source)

    def add_source(self, entry: SourceEntry, state: Desired = Desired.RUNNING) -> None:
        """Store a new source, and add it to the target state of its job."""
        self._notes.put_document(SOURCES, entry.name, entry)
        job, snapshot = self._job_for(entry), entry.snapshot
        if snapshot == ONLY or (entry.start and self._begins_elsewhere(job, entry)):
            job = begin_apart(self._notes, job, entry.name)
        if snapshot != NEVER:
            self.ask_run(entry, Order())
        self.board.add_route(Route(entry.name, job, entry.sink, state))

    def ask_run(self, entry: SourceEntry, order: Order, *, name: str | None = None) -> str:
        """Request a run of a source; return its name. An existing run of that *name* is unchanged.

        Raises:
            BadRunError: its sink, or its table, does not take this run.

        """
        key, sink = SNAPSHOT_KEY if order.kind is RunKind.SNAPSHOT else "", self.sink(entry.sink)
        if order.kind is not RunKind.REPLAY and not entry.table_text:
            raise BadRunError(key, f"{entry.name} has no table")
        if sink.plugin == _HISTORY and order.kind is RunKind.SNAPSHOT:
            hint = "CREATE CDC … WITH seed = 'snapshot', and headrace seed"
            raise BadRunError(key, f"{entry.sink} is a history, which is seeded instead", hint)
        check_sink(order, entry.sink, load("sinks", sink.plugin))
        return AskedRuns(self._notes).ask(entry.name, SystemClock().wall_ms(), order, name=name)

    def _begins_elsewhere(self, job: str, entry: SourceEntry) -> bool:
        """Return whether *job* has positions, or sources with a `start` other than *entry* has."""
        if any(state.position for state in self._notes.store(job).states()):
            return True
        mine = {route.source for route in self.board.routes(job)}
        return any(s.start != entry.start for s in self.sources() if s.name in mine)

    def replace_source(self, entry: SourceEntry) -> None:
        """Replace the source of this name, and change its job."""
        before = self.source(entry.name)
        kept, asked = before.snapshot, entry.snapshot
        if kept != asked:
            hint = "SNAPSHOT DATA_SOURCE takes one now"
            said = f"is of a new source: expected {kept}, found {asked}"
            raise ConfigError([Problem(SNAPSHOT_KEY, said, hint)])
        (route,) = (r for r in self.board.routes() if r.source == entry.name)
        job = route.job
        if (before.job, before.cluster) != (entry.job, entry.cluster):
            if self._notes.store(route.job).plans().in_force.splits:
                raise ConfigError(
                    [
                        Problem(
                            "job",
                            f"{entry.name} has run in job {route.job} and cannot leave it",
                            "drop it and create it again: it then starts where that job is",
                        )
                    ]
                )
            job = self._job_for(entry)
        self._notes.put_document(SOURCES, entry.name, entry)
        self.board.point(entry.name, job=job, sink=entry.sink)
        self.board.forget_failure(entry.name)

    def remove_sink(self, name: str) -> None:
        """Delete a sink."""
        self._notes.put(SINKS, name, None)

    def remove_source(self, name: str) -> None:
        """Delete a source."""
        self._notes.put(SOURCES, name, None)
        AskedRuns(self._notes).forget_source(name)
        self.board.remove_route(name)

    def _job_for(self, entry: SourceEntry) -> str:
        """Return the job for *entry*: the one that runs its sink's other sources."""
        cluster = entry.cluster
        alike = {s.name for s in self.sources() if not s.job and s.cluster == cluster}
        shared = [
            route.job
            for route in self.board.routes()
            if route.sink == entry.sink and route.source in alike and FORK_MARK not in route.job
        ]
        mine = f"{entry.sink}{CLUSTER_MARK}{cluster}" if cluster else entry.sink
        return entry.job or next(iter(shared), mine)


class JobParts(NamedTuple):
    """The parts of a job that the statements, or the services, define.

    `sink` has the sink's options and its `plugin`. If `tables` is None, the job reads all tables
    with CDC. `start` is where the job starts, if a source says so. `cluster` is the cluster to
    read, if it is not the worker's first. `source` is a source without tables, and its `plugin`.
    `engine` runs the job, if a source names it.
    """

    sink: dict[str, str]
    tables: list[str] | None
    start: str | None = None
    cluster: str = ""
    service: ServiceJob | None = None
    source: Mapping[str, str] | None = None
    engine: str = ""

    def name_tables(self, source: dict[str, Any]) -> None:
        """Add the tables to the options of a *source* if it names none.

        A statement can add a table while the job runs. If that table cannot be delivered yet, a
        source that can wait for it continues with the others.
        """
        if self.tables is None or "tables" in source:
            return
        source["tables"] = self.tables
        with contextlib.suppress(HeadraceError):  # `read_job` reports a broken plugin.
            plugin = load("sources", str(source.get("plugin")))
            if WAITING in declared_options(plugin.config_class):
                source.setdefault(WAITING, "wait")


def job_parts(notes: NoteCopy, job: str) -> JobParts:
    """Return the parts of *job* that statements define.

    They include the sources that *job* already runs; if there are none, the sources that name no
    job. Values may be references to secrets, which are not resolved here.

    Raises:
        JobUndefinedError: the sources do not exist, or they write into more than one sink.

    """
    with notes.snapshot():
        return _parts(Catalogue(notes), job)


def engine_of(notes: NoteCopy, job: str) -> str:
    """Return the engine that the sources of *job* name; empty if they name none, or are wrong."""
    with contextlib.suppress(ConfigError):
        return job_parts(notes, job).engine
    return ""


def is_own_job(notes: NoteCopy, job: str) -> bool:
    """Return whether statements define all of *job*, its source included: it needs no file."""
    with contextlib.suppress(ConfigError):
        return job_parts(notes, job).source is not None
    return False


def _parts(catalogue: Catalogue, job: str) -> JobParts:
    routes = catalogue.board.routes()
    if _is_of_services(routes, job):
        service = service_job(catalogue.services())
        return JobParts(dict(service.sink), None, service=service)
    mine = _sources_for(catalogue, routes, job)
    if not mine:
        raise JobUndefinedError(
            "",
            f"no data source is defined for job {job}",
            "create one: CREATE DATA_SOURCE cdc ON TABLE keyspace.table WITH sink; "
            "or give the job file `sink:` and `source: tables:`",
        )
    names = sorted({source.sink for source in mine})
    if len(names) > 1:
        raise JobUndefinedError(
            "",
            f"the data sources of job {job} write into {len(names)} sinks: {', '.join(names)}",
            f"a job has one sink: create those it runs WITH … AND job = '{job}'",
        )
    own = [source for source in mine if TABLE_KEY not in source.config]
    if own and len(mine) > 1:
        raise JobUndefinedError(
            "",
            f"job {job} has {own[0].name}, which has no table, and {len(mine) - 1} other sources",
            f"a source without a table has a job of its own: DROP DATA_SOURCE {own[0].name}, and "
            "create it with another `job`",
        )
    options = [source.options for source in mine]
    clusters = sorted({each.cluster or "" for each in options})
    if len(clusters) > 1:
        raise JobUndefinedError(
            "",
            f"the data sources of job {job} read {len(clusters)} clusters: {clusters}",
            f"a job reads one cluster: create those it runs WITH … AND job = '{job}'",
        )
    engines = sorted({each.engine for each in options if each.engine})
    if len(engines) > 1:
        raise JobUndefinedError(
            "",
            f"the data sources of job {job} are to run on {' and '.join(engines)}",
            "a job has one engine: give all of them the same, or those of one a `job` of their own",
        )
    sink = catalogue.sink(names[0])
    return JobParts(
        {"plugin": sink.plugin} | sink_options(sink.config),
        None if own else [f"{s.config['keyspace']}.{s.config[TABLE_KEY]}" for s in mine],
        next((each.start for each in options if each.start), None),
        cluster=clusters[0],
        source=_own_source(own[0]) if own else None,
        engine=engines[0] if engines else "",
    )


def _own_source(entry: SourceEntry) -> Mapping[str, str]:
    plugin, _ = source_of_class(entry.config[CLASS_KEY])
    return {"plugin": plugin} | own_options(entry.config)


def adopt_sources(notes: NoteCopy, job: str) -> Wanted:
    """Assign its sources, also those that name no job, to *job*; return its target state."""
    catalogue = Catalogue(notes)
    with notes.snapshot():
        moved = _moved(catalogue, job)
        if not moved:
            return catalogue.board.wanted(job)
    catalogue.board.adopt(job, moved)
    return catalogue.board.wanted(job)


def _moved(catalogue: Catalogue, job: str) -> Sequence[Route]:
    """Return the routes of sources that *job* should run, and that do not name it."""
    routes = catalogue.board.routes()
    if _is_of_services(routes, job):
        return ()
    mine = _sources_for(catalogue, routes, job)
    names = {source.name for source in mine}
    moved = [route for route in routes if route.source in names and route.job != job]
    return moved if len({source.sink for source in mine}) == 1 else ()


def _is_of_services(routes: Sequence[Route], job: str) -> bool:
    return any(route.source == ROUTE and route.job == job for route in routes)


def _sources_for(catalogue: Catalogue, routes: Sequence[Route], job: str) -> list[SourceEntry]:
    sources = {source.name: source for source in catalogue.sources()}
    jobs = {route.source: route.job for route in routes}
    free = [s for s in sources.values() if not s.job and FORK_MARK not in jobs.get(s.name, "")]
    mine = [sources[name] for name, owner in jobs.items() if owner == job and name in sources]
    return mine or ([] if FORK_MARK in job else free)


def _no_source(name: str, sources: Sequence[SourceEntry]) -> NotFoundError:
    known = {source.name: format_source(source.word, source.table) for source in sources}
    hint = near_hint(name, known)
    return NotFoundError("table", f"data source {name} does not exist", hint)


def near_hint(
    name: str, known: Sequence[str] | Mapping[str, str], shown_max: int | None = None
) -> str:
    """Return a hint: the *known* name that was probably meant, or the first ones; see `meant`."""
    shown = list(known.values() if isinstance(known, Mapping) else known)[:shown_max]
    listed = f"there are: {', '.join(shown)}" if shown else "there are none yet"
    return meant(name, known, listed)


def resumes_of(notes: NoteCopy, table: str) -> dict[str, str]:
    """Return the statement that resumes each source of *table* (`ks.t`), by the source's name."""
    sources = Catalogue(notes).sources()
    return {s.name: _resume(s) for s in sources if s.table_text == table}


def _resume(source: SourceEntry) -> str:
    resume = SteerSource(verb=Verb.RESUME, word=source.word, table=source.table)
    return format_statement(resume).removesuffix(";")
