"""Reads, checks and completes the job file that `headrace run` runs. Connects to nothing."""

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from headrace.connector.foundation.configured import checked_config, configured, plugin_part
from headrace.connector.foundation.confinement import Bounds
from headrace.connector.foundation.job_file import (
    EARLIEST,
    FILE_SUFFIXES,
    JobFile,
    RuntimeConfig,
    document_of,
    read_job_file,
)
from headrace.connector.foundation.references import check_references
from headrace.connector.stores import StateFileError
from headrace.connector.stores.job import Job, WorkerFile, notes_of, place_and_name, store_class
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import (
    ConfigError,
    HeadraceError,
    Problem,
    ServiceSettings,
    SidecarService,
    Source,
    TableReading,
    declared_options,
)
from headrace.plugins.config.options import NOT_AN_OPTION
from headrace.plugins.discovery import load

if TYPE_CHECKING:
    from headrace.connector.control.catalogue import JobParts
    from headrace.connector.stores.keyed.store import Store


def read_worker(path: Path) -> WorkerFile:
    """Read the file at *path* as a worker's file.

    Raises:
        ConfigError: it has all mistakes found, each under its key.

    """
    written = read_job_file(path)
    problems: list[Problem] = []
    if written.sink is not None or written.job is not None:
        hint = "a worker runs the jobs that the statements in `state` define"
        key = "job" if written.sink is None else "sink"
        problems.append(Problem(key, "cannot be given to a worker", hint))
    runtime = checked_config("runtime", RuntimeConfig, written.runtime, problems, "runtime")
    if problems or runtime is None:
        raise ConfigError(problems, place=str(path))
    return WorkerFile(state=notes_of(path, written), runtime=runtime, rest=written.rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobText:
    """A job file with the parts that statements define; references to secrets are unresolved."""

    name: str
    directory: Path
    state: Path
    notes: Path
    source: Mapping[str, Any] = field(repr=False)
    sink: Mapping[str, Any] = field(repr=False)
    runtime: Mapping[str, Any]
    store: Mapping[str, Any] | None = field(repr=False)
    start: str
    engine: str
    """The engine of the job, if a source of a statement names it."""
    bounds: Bounds | None
    """The bounds of a sink that a statement created; None for a sink of the job file itself."""
    source_bounds: Bounds | None
    """The bounds of a source that a statement created; None for a source of the job file itself."""


def job_text(
    path: Path,
    job: str | None = None,
    *,
    written: JobFile | None = None,
    notes: NoteCopy | None = None,
) -> JobText:
    """Read the job file at *path*, and the parts that it omits from its state.

    A process that has read the file, or opened its control store, passes the parsed file as
    *written*, and the *notes*.

    Raises:
        ConfigError: the file cannot be read, or is not a job file.
        StateFileError: the state file is needed and cannot be used.
        SecretUnavailableError: a sink that a statement created has a reference that is not allowed;
            see `check_references`.

    """
    written = written or read_job_file(path)
    place, name = place_and_name(path, written, job)
    source, sink, runtime_given = dict(written.source), written.sink, dict(written.runtime)
    start, own, engine = written.start, False, ""
    if sink is None:
        parts = _from_statements(notes, place, name)
        sink, start, engine = parts.sink, start or parts.start, parts.engine
        own = parts.source is not None
        if parts.source is not None:
            source = dict(parts.source)
            check_references(source, section="source")
        else:
            source = _source_of(path, written, parts.cluster)
        parts.name_tables(source)
        check_references(sink, section="sink")
        if parts.service:
            source = _of_service(source, parts.service.settings)
            runtime_given |= parts.service.runtime
    if not (own or written.source) and path.suffix not in FILE_SUFFIXES:
        hint = (
            f"write a file, such as worker.yaml, with `state: {path.name}` and "
            "`source: {plugin: …}`, with its options, which `headrace options` lists; "
            "then: headrace worker worker.yaml"
        )
        problem = Problem("source", "a state file alone does not say what to read", hint)
        raise ConfigError([problem], place=str(path))
    bounds = bounds_of(path, written) if written.sink is None else None
    return JobText(
        name=name,
        directory=path.absolute().parent,
        state=path.absolute().parent / written.state,
        notes=place,
        source=source,
        sink=sink,
        runtime=runtime_given,
        store=written.store,
        start=start or EARLIEST,
        engine=engine,
        bounds=bounds,
        source_bounds=bounds if own else None,
    )


def read_job(
    path: Path,
    job: str | None = None,
    *,
    written: JobFile | None = None,
    notes: NoteCopy | None = None,
) -> Job:
    """Read and check the job file at *path*, and the parts that it omits from its state.

    *job* replaces the name in the file. For *written* and *notes* see `job_text`.

    Raises:
        ConfigError: it has all mistakes found, each under its key.
        StateFileError: the state file is needed and cannot be used.
        SecretUnavailableError: a secret that the file refers to is missing here.

    """
    try:
        written = written or read_job_file(path)
    except ConfigError as error:
        raise all_mistakes(path, error) from error
    try:
        text = job_text(path, job, written=written, notes=notes)
    except StateFileError as error:  # It has the sink: other mistakes do not depend on it.
        if found := _mistakes_beside(path, written):
            raise ConfigError(found, place=str(path)) from error
        raise
    bounds = (text.source_bounds, text.bounds)
    parts = _checked_parts(text.source, text.sink, text.runtime, text.store, bounds)
    if parts.problems or parts.runtime is None or parts.store is None:
        # Missing places of parts that statements define are not reported: they are on this machine.
        source, sink = written.source, written.sink or {}
        problems = [*parts.problems, *_missing(path, written.state, source, sink)]
        raise ConfigError(problems, place=str(path))
    source_class, source_config = parts.source
    sink_class, sink_config = parts.sink
    return Job(
        name=text.name,
        directory=text.directory,
        state=text.state,
        file=path.absolute(),
        source=source_class,
        source_config=source_config,
        sink=sink_class,
        sink_config=sink_config,
        runtime=parts.runtime,
        store=parts.store[0],
        store_config=parts.store[1],
        start=text.start,
        engine=text.engine,
    )


def all_mistakes(path: Path, error: ConfigError) -> ConfigError:
    """Return *error*, which the file at *path* caused, with the mistakes within its sections.

    Raises:
        ConfigError: the file is not a mapping at all.

    """
    written = document_of(path)
    source, sink, runtime = (written.get(name) or {} for name in ("source", "sink", "runtime"))
    problems = list(error.problems)
    said = {problem.key for problem in problems}
    if all(isinstance(each, Mapping) for each in (source, sink, runtime)):
        with suppress(HeadraceError):  # A missing secret or plugin is reported later.
            for found in _checked_parts(source, sink, runtime).problems:
                section = found.key.partition(".")[0]
                problems += [found] if section in written and section not in said else []
        problems += _missing(path, written.get("state"), source, sink)
    return ConfigError(problems, place=error.place)


def _mistakes_beside(path: Path, written: JobFile) -> Sequence[Problem]:
    """Return the mistakes of a file whose sink is unknown, with missing places."""
    problems: list[Problem] = []
    with suppress(HeadraceError):  # A missing secret is reported later.
        found = _checked_parts(written.source, {}, written.runtime).problems
        problems += [each for each in found if each.key.partition(".")[0] != "sink"]
    return [*problems, *_missing(path, written.state, written.source, {})] if problems else ()


def _missing(
    path: Path, state: object, source: Mapping[str, Any], sink: Mapping[str, Any]
) -> Sequence[Problem]:
    """Return the missing places that a file with mistakes names."""
    # Imported here because a file without mistakes does not need it.
    from headrace.connector.foundation.missing_places import missing_places  # noqa: PLC0415

    found: list[Problem] = []
    sections = {name: given for name, given in (("source", source), ("sink", sink)) if given}
    with suppress(HeadraceError):  # The plugin of a section is among the mistakes.
        for each in missing_places(path.absolute().parent, state, sections):
            found.append(each)  # noqa: PERF402 (what came before an error is kept)
    return found


class _Parts(msgspec.Struct, frozen=True):
    """The parts of a job, each a class and its options, and their problems."""

    source: tuple[Any, Any]
    sink: tuple[Any, Any]
    runtime: RuntimeConfig | None
    store: "tuple[type[Store], Any] | None"
    problems: Sequence[Problem]


def _checked_parts(
    source: Mapping[str, Any],
    sink: Mapping[str, Any],
    runtime: Mapping[str, Any],
    store: Mapping[str, Any] | None = None,
    bounds: tuple[Bounds | None, Bounds | None] = (None, None),
) -> _Parts:
    """Return the parts; *bounds* are those of the source and of the sink."""
    problems: list[Problem] = []
    the_source = plugin_part("source", source, problems, bounds[0])
    the_sink = plugin_part("sink", sink, problems, bounds[1])
    the_runtime = checked_config("runtime", RuntimeConfig, runtime, problems, "runtime")
    the_store: tuple[type[Store], Any] | None = (SqliteStore, None)
    if store is not None:
        plugin, store_config = plugin_part("store", store, problems)
        the_store = (store_class(plugin), store_config) if plugin else None
    classes = {"source": the_source[0], "sink": the_sink[0], "store": the_store and the_store[0]}
    sections = {name: part and part.config_class for name, part in classes.items()}
    known = {**sections, "runtime": RuntimeConfig, "": JobFile}
    found = placed(problems, known) if problems else ()
    return _Parts(the_source, the_sink, the_runtime, the_store, found)


# Any: of its config_class.
def read_source(
    path: Path, job: str, *, alone: bool = False, cluster: str = ""
) -> tuple[type[Source], Any]:
    """Return the plugin and the config of a job's source. Raises as `read_job` does.

    With *alone* only the file is read: the source is that of *cluster*, or the first one.
    """
    if not alone:
        return source_in(job_text(path, job), path)
    written = read_job_file(path)
    return configured("source", _source_of(path, written, cluster), place=str(path))


# Any: of its config_class.
def source_in(text: JobText, path: Path) -> tuple[type[Source], Any]:
    """Return the plugin and the config of the source in *text*, the content of the file at *path*.

    Raises as `read_job` does.
    """
    return configured("source", text.source, text.source_bounds, place=str(path))


def bounds_of(path: Path, written: JobFile) -> Bounds:
    """Return the bounds that the file at *path* sets for sinks of statements."""
    state = path.absolute().parent / written.state
    return Bounds(file=path.absolute(), state=state, roots=written.sink_files_roots)


def _from_statements(notes: NoteCopy | None, place: Path, job: str) -> "JobParts":
    """Return the sink and the tables that statements define for *job*.

    Without *notes*, the control store at *place* is opened.
    """
    # Imported here because jobs without statements do not need them.
    from headrace.connector.control.catalogue import job_parts  # noqa: PLC0415
    from headrace.connector.stores.open_control_store import open_notes  # noqa: PLC0415

    if notes is not None:
        return job_parts(notes, job)
    with closing(open_notes(place, create=False)) as opened:
        return job_parts(opened, job)


def _of_service(source: dict[str, Any], settings: ServiceSettings) -> dict[str, Any]:
    """Return *source* with the options of the services; `read_job` checks that it has a plugin."""
    if not isinstance(name := source.get("plugin"), str):
        return source
    return dict(SidecarService.of_class(load("sources", name)).of_service(source, settings))


def _source_of(path: Path, written: JobFile, cluster: str) -> dict[str, Any]:
    """Return the source of a cluster; without a name, of the first one."""
    if not cluster:
        return dict(written.source)
    found = written.clusters.get(cluster)
    if not isinstance(found, Mapping):
        known = ", ".join(sorted(written.clusters)) or "none"
        problem = Problem("clusters", f"has no source {cluster!r}", f"there are: {known}")
        raise ConfigError([problem], place=str(path))
    return dict(found)


def placed(problems: Sequence[Problem], sections: Mapping[str, type | None]) -> Sequence[Problem]:
    """Return *problems*; if an option belongs to another section, the hint names this section.

    *sections* are the classes of options by name of the section, None where the class is not known;
    the name of the class for keys outside all sections is "".
    """
    declared = {name: declared_options(found) for name, found in sections.items() if found}
    made = []
    for problem in problems:
        section, _, key = problem.key.partition(".")
        homes = [name for name, options in declared.items() if key in options and name != section]
        if problem.message == NOT_AN_OPTION and homes:
            hint = f"it is an option of `{homes[0]}`"
            outside = f"it stands beside `{section}`, not in it"
            problem = replace(problem, hint=hint if homes[0] else outside)  # noqa: PLW2901
        made.append(problem)
    return made


def table_source(text: JobText, table: str, *, page_rows: int = 0) -> Mapping[str, Any]:
    """Return a source that reads *table* in the cluster of the job's source.

    *page_rows* are as in `TableReading.of_table`.

    Raises:
        ConfigError: the table cannot be read there.

    """
    reading = TableReading.of_class(load("sources", str(text.source.get("plugin", ""))))
    if problem := reading.table_problem(text.source):
        raise ConfigError([problem])
    return reading.of_table(text.source, table, page_rows=page_rows)
