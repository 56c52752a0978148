"""The job file: what `headrace run` runs. Reads, checks and completes it; connects to nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from headrace.connector.control.confinement import ROOTS_KEY, Bounds
from headrace.connector.control.connector_config import secret_problems
from headrace.connector.control.references import check_references, resolved
from headrace.connector.control.services import keep_datacenter
from headrace.connector.misplaced import placed
from headrace.connector.stores import Store
from headrace.connector.stores.sqlite import SqliteConfig, SqliteStore
from headrace.plugins import ConfigError, Problem, Sink, Source, option, parse_config
from headrace.plugins.discovery import load
from headrace.plugins.yaml_text import parse_yaml

if TYPE_CHECKING:
    from headrace.connector.control.catalogue import JobParts

C = TypeVar("C")
S = TypeVar("S", bound=Store)

EARLIEST: Final = "earliest"
FILE_SUFFIXES: Final = (".yaml", ".yml")
JOB_FILE_BYTES_MAX: Final = 1024 * 1024
JOB_BYTES_MAX: Final = 200  # Names of files have at most 255, some with a suffix.
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """The section `runtime`."""

    tick_min_ms: int = option(
        "A pass over all splits that took less waits for the rest, unless there is more to read.",
        default=100,
        minimum=1,
        maximum=60_000,
    )
    commit_max_seconds: float = option(
        "Settled batches are committed at least this often.", default=1.0, minimum=0, maximum=3600
    )
    commit_max_bytes: int = option(
        "At most this much per split is uncommitted, and comes again after a crash.",
        default=16 * _MIB,
        minimum=1,
    )
    outstanding_bytes_max: int = option(
        "At most this much is read and not settled, over all splits; one mutation may exceed it.",
        default=4 * _MIB,
        minimum=1,
    )
    outstanding_records_max: int = option(
        "At most this many records are read and not settled, over all splits.",
        default=200_000,
        minimum=1,
    )
    batch_bytes_max: int = option("The bound of one batch.", default=2 * _MIB, minimum=1)
    batch_records_max: int = option("The bound of one batch.", default=5_000, minimum=1)
    lease_seconds: float = option(
        "A split whose owner falls silent has another one after so long at most.",
        default=10.0,
        minimum=0.5,
        maximum=3600,
    )
    resplit_seconds: float = option(
        "A job that leaves the number of its splits open gets more of them when so long there were "
        "too few for its workers.",
        default=30.0,
        minimum=0,
        maximum=86_400,
    )
    retry_seconds_max: float = option(
        "A call that fails and may succeed later is repeated for so long.", default=300.0, minimum=0
    )
    settle_seconds_max: float = option(
        "The sink has so long for its verdict on a batch.", default=300.0, minimum=1
    )
    call_seconds_max: float = option(
        "A source or sink that does not return for so long ends the process.",
        default=120.0,
        minimum=0.5,
    )
    stall_seconds: float = option(
        "A split that has not moved for so long, and is not idle, is called STALLED.",
        default=30.0,
        minimum=1,
        maximum=3600,
    )
    restarts_max: int = option(
        "A split that failed for a reason that may pass is begun anew so many times in a row.",
        default=10,
        minimum=0,
        maximum=1_000_000,
    )
    restart_pause_seconds: float = option(
        "The pause before the first restart; it doubles up to 10 minutes.",
        default=1.0,
        minimum=0.01,
        maximum=600,
    )
    stop_seconds_max: float = option(
        "A split that is stopped has so long to settle and commit.", default=10.0, minimum=0
    )
    quarantine_bytes_max: int = option(
        "The bound of all quarantined and dead-lettered bytes of the job.",
        default=256 * _MIB,
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """The job file as written."""

    job: str | None = option(
        "The job's name; its state is kept under it. A worker's file has none.", default=None
    )
    state: str = option(
        "The SQLite file that keeps the state; with a store, what this machine keeps lies beside."
    )
    store: Mapping[str, Any] | None = option(
        "What keeps the state instead, shared by machines: `plugin` and its options. Without a "
        "sink, the jobs that statements define in it.",
        default=None,
    )
    start: str | None = option(
        "Where a job begins that has committed nothing: earliest, latest, a time in ISO 8601, or a "
        "place in the source's own words.",
        default=None,
    )
    source: Mapping[str, Any] = option("The source: `plugin` and its options.")
    clusters: Mapping[str, Any] = option(
        "More sources, by names that statements give as `cluster`. Only in a worker's file.",
        default={},
    )
    sink: Mapping[str, Any] | None = option("The sink: `plugin` and its options.", default=None)
    runtime: Mapping[str, Any] = option("Bounds and times of the runtime.", default={})
    sink_files_roots: tuple[str, ...] = option(
        "Folders in which sinks of statements may write files; by default the folder of this file.",
        name=ROOTS_KEY,
        default=(".",),
    )
    rest: Mapping[str, Any] = option("The HTTP server of `headrace worker`.", default={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, checked. Relative paths in its options are relative to `directory`.

    `file` is what it was read from.
    """

    name: str
    directory: Path
    state: Path
    source: type[Source]
    source_config: Any = field(repr=False)  # Any: an instance of the source's config_class.
    sink: type[Sink]
    sink_config: Any = field(repr=False)  # Any: an instance of the sink's config_class.
    runtime: RuntimeConfig
    start: str = EARLIEST
    store: type[Store] = SqliteStore
    # Any: an instance of the store's config_class; None is the state file.
    store_config: Any = field(default=None, repr=False)
    file: Path | None = None

    @property
    def notes(self) -> Path:
        """What keeps the notes; see `headrace.connector.notes`."""
        return self.state if self.store_config is None or self.file is None else self.file

    def open_store(self, *, create: bool = True) -> Store:
        """Open what keeps leases and positions. Raises as `Store.open_job`."""
        return self.open_as(self.store, create=create)

    def open_as(self, kind: type[S], *, create: bool = True) -> S:
        """Open it as a store of *kind*, which is made of `store`. Raises as `Store.open_job`."""
        config = self.store_config or SqliteConfig(path=str(self.state))
        bytes_max = self.runtime.quarantine_bytes_max
        return kind.open_job(config, self.name, create=create, quarantine_bytes_max=bytes_max)


def state_of(path: Path, job: str | None = None) -> tuple[Path, str]:
    """Return what keeps the notes of the job file at *path*, and the name of its job, or *job*.

    With a store that is the file itself, which names it; see `headrace.connector.notes`.

    Raises:
        ConfigError: with all mistakes found, each under its key.

    """
    written = parse_config(JobFile, _document(path), place=str(path), name="job")
    name = job if job is not None else written.job
    if name is None:
        hint = "give the job a name; or run `headrace worker`, which runs all jobs of the state"
        raise ConfigError([Problem("job", "is required", hint)], place=str(path))
    if not name.strip() or not name.isprintable() or len(quote(name)) > JOB_BYTES_MAX:
        hint = f"one that can be printed, of at most {JOB_BYTES_MAX} bytes as URLs have it"
        problem = Problem("job", f"expected a name, found {name[:48]!r}", hint)
        raise ConfigError([problem], place=str(path))
    return _notes_of(path, written), name


def kept_in(path: Path) -> tuple[Path, type[Store] | None, Any]:  # Any: of its config_class.
    """Return the state file that the file at *path* names, and its store with its configuration.

    The store is None where it names none. Raises as `read_job` does.
    """
    written = parse_config(JobFile, _document(path), place=str(path), name="job")
    state = path.absolute().parent / written.state
    return state, *(configured("store", written.store) if written.store else (None, None))


def _notes_of(path: Path, written: JobFile) -> Path:
    state = path.absolute().parent / written.state
    try:
        state.exists()
    except OSError as error:
        problem = Problem("state", f"is no name of a file: {error.strerror}")
        raise ConfigError([problem], place=str(path)) from error
    if written.store is None:
        return state
    if path.suffix not in FILE_SUFFIXES:
        message = f"a file that names a store ends in {FILE_SUFFIXES[0]}"
        raise ConfigError([Problem("store", message)], place=str(path))
    return path.absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFile:
    """What `headrace worker` itself takes from a job file; its children read the rest.

    `state` names what keeps the notes; see `headrace.connector.notes`.
    """

    state: Path
    runtime: RuntimeConfig
    rest: Mapping[str, Any]


def read_worker(path: Path) -> WorkerFile:
    """Read the file at *path* as a worker's.

    Raises:
        ConfigError: with all mistakes found, each under its key.

    """
    written = parse_config(JobFile, _document(path), place=str(path), name="job")
    problems: list[Problem] = []
    if written.sink is not None or written.job is not None:
        hint = "a worker runs the jobs that the statements in `state` define"
        key = "job" if written.sink is None else "sink"
        problems.append(Problem(key, "cannot be given to a worker", hint))
    runtime = _checked("runtime", RuntimeConfig, written.runtime, problems, "runtime")
    if problems or runtime is None:
        raise ConfigError(problems, place=str(path))
    return WorkerFile(state=_notes_of(path, written), runtime=runtime, rest=written.rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobText:
    """A job as written, with the parts that statements define; its references unresolved."""

    name: str
    directory: Path
    state: Path
    notes: Path
    source: Mapping[str, Any] = field(repr=False)
    sink: Mapping[str, Any] = field(repr=False)
    runtime: Mapping[str, Any]
    store: Mapping[str, Any] | None = field(repr=False)
    start: str
    bounds: Bounds | None
    """Where a sink of statements may write; None for one of the job file itself."""


def job_text(path: Path, job: str | None = None) -> JobText:
    """Read the job file at *path*; ask its state for the parts it leaves out.

    Raises:
        ConfigError: the file cannot be read, or is none.
        StateFileError: the state file is needed and cannot be used.
        SecretUnavailableError: a sink of statements refers to what it may not; see
            `check_references`.

    """
    notes, name = state_of(path, job)
    written = parse_config(JobFile, _document(path), place=str(path), name="job")
    source, sink, runtime_given = dict(written.source), written.sink, dict(written.runtime)
    start = written.start
    if sink is None:
        parts = _from_statements(notes, name)
        sink, start = parts.sink, start or parts.start
        source = _source_of(path, written, parts.cluster)
        parts.name_tables(source)
        check_references(sink, section="sink")
        if parts.service:
            source |= parts.service.source
            runtime_given |= parts.service.runtime
            keep_datacenter(source, parts.service.datacenter)
    return JobText(
        name=name,
        directory=path.absolute().parent,
        state=path.absolute().parent / written.state,
        notes=notes,
        source=source,
        sink=sink,
        runtime=runtime_given,
        store=written.store,
        start=start or EARLIEST,
        bounds=_bounds_of(path, written) if written.sink is None else None,
    )


def read_job(path: Path, job: str | None = None) -> Job:
    """Read and check the job file at *path*; ask its state for the parts it leaves out.

    *job* stands for the name in the file.

    Raises:
        ConfigError: with all mistakes found, each under its key.
        StateFileError: the state file is needed and cannot be used.
        SecretUnavailableError: a reference to a secret leads to nothing here.

    """
    text = job_text(path, job)
    problems: list[Problem] = []
    source_class, source_config = _part("source", text.source, problems)
    sink_class, sink_config = _part("sink", text.sink, problems, text.bounds)
    runtime = _checked("runtime", RuntimeConfig, text.runtime, problems, "runtime")
    store_class, store_config = SqliteStore, None
    if text.store is not None:
        store_class, store_config = _part("store", text.store, problems)
    if problems or runtime is None:
        parts = {"source": source_class, "sink": sink_class, "store": store_class}
        sections = {name: part and part.config_class for name, part in parts.items()}
        found = placed(problems, {**sections, "runtime": RuntimeConfig, "": JobFile})
        raise ConfigError(found, place=str(path))
    return Job(
        name=text.name,
        directory=text.directory,
        state=text.state,
        file=path.absolute(),
        source=source_class,
        source_config=source_config,
        sink=sink_class,
        sink_config=sink_config,
        runtime=runtime,
        store=store_class,
        store_config=store_config,
        start=text.start,
    )


# Any: of its config_class.
def read_source(path: Path, job: str, *, alone: bool = False) -> tuple[type[Source], Any]:
    """Return a job's source, by statements unless *alone*. Raises as `read_job` does."""
    if alone:
        source = parse_config(JobFile, _document(path), place=str(path), name="job").source
    else:
        source = job_text(path, job).source
    problems: list[Problem] = []
    source_class, source_config = _part("source", source, problems)
    if problems:
        raise ConfigError(problems, place=str(path))
    return source_class, source_config


def configured(section: str, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the plugin that a *section* names, and its configuration with secrets resolved.

    Raises:
        ConfigError: with all mistakes found, each under its key.
        SecretUnavailableError: a reference to a secret leads to nothing here.

    """
    problems: list[Problem] = []
    plugin, config = _part(section, given, problems)
    if problems:
        raise ConfigError(problems)
    return plugin, config


def bounds_of(path: Path) -> Bounds:
    """Return what the file at *path* allows sinks of statements. Raises ConfigError."""
    return _bounds_of(path, parse_config(JobFile, _document(path), place=str(path)))


def _bounds_of(path: Path, written: JobFile) -> Bounds:
    state = path.absolute().parent / written.state
    return Bounds(file=path.absolute(), state=state, roots=written.sink_files_roots)


def _from_statements(state: Path, job: str) -> "JobParts":
    """Ask the statements for the sink and the tables."""
    # Only when needed, and they ask for a job themselves.
    from headrace.connector.control.catalogue import job_parts  # noqa: PLC0415
    from headrace.connector.notes import open_notes  # noqa: PLC0415

    connection = open_notes(state, create=False)
    try:
        return job_parts(connection, job)
    finally:
        connection.close()


def _source_of(path: Path, written: JobFile, cluster: str) -> dict[str, Any]:
    """Return what is read of a cluster; without a name, of the first one."""
    if not cluster:
        return dict(written.source)
    found = written.clusters.get(cluster)
    if not isinstance(found, Mapping):
        known = ", ".join(sorted(written.clusters)) or "none"
        problem = Problem("clusters", f"has no source {cluster!r}", f"there are: {known}")
        raise ConfigError([problem], place=str(path))
    return dict(found)


def _part(
    section: str,
    given: Mapping[str, Any],
    problems: list[Problem],
    bounds: Bounds | None = None,
) -> tuple[Any, Any]:  # Any: the plugin's class, and an instance of its config_class.
    left = dict(given)
    name = left.pop("plugin", None)
    if not isinstance(name, str):
        problems.append(Problem(f"{section}.plugin", "is required", f"name the {section}'s plugin"))
        return None, None
    try:
        plugin = load(f"{section}s", name)
    except ConfigError as error:
        problems += _within(section, error)
        return None, None
    written_down = secret_problems(plugin.config_class, left)
    if written_down:
        problems += _within(section, ConfigError(written_down))
        return None, None
    options = resolved(left, section=section, confined=bounds is not None)
    config = _checked(section, plugin.config_class, options, problems, name)
    if bounds is not None and config is not None and (outside := bounds.problems(config)):
        problems += _within(section, ConfigError(outside))
    return plugin, config


def _checked(
    section: str, kind: type[C], options: Mapping[str, Any], problems: list[Problem], name: str
) -> C | None:
    try:
        return parse_config(kind, options, name=name)
    except ConfigError as error:
        problems += _within(section, error)
        return None


def _within(section: str, error: ConfigError) -> list[Problem]:
    return [
        Problem(
            f"{section}.{problem.key}" if problem.key else section, problem.message, problem.hint
        )
        for problem in error.problems
    ]


def _document(path: Path) -> Mapping[str, Any]:
    place = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(JOB_FILE_BYTES_MAX + 1)
    except OSError as error:
        problem = Problem("", f"cannot be read: {error.strerror}", "give the path of a job file")
        raise ConfigError([problem], place=place) from error
    if len(content) > JOB_FILE_BYTES_MAX:
        raise ConfigError([Problem("", f"has more than {JOB_FILE_BYTES_MAX} bytes")], place=place)
    document = parse_yaml(content, place=place)
    if not isinstance(document, Mapping):
        kind = type(document).__name__
        raise ConfigError(
            [Problem("", f"expected keys and values, found {kind}", "job, state, source, sink")],
            place=place,
        )
    return document
