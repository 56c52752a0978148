"""Reads a job file and checks its parts."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from headrace.connector.foundation.confinement import ROOTS_KEY
from headrace.plugins import ConfigError, Problem, option, parse_config
from headrace.plugins.errors import meant

EARLIEST: Final = "earliest"
PER_JOB: Final = "job"
PER_SPLIT: Final = "split"
DEFAULT_STATE: Final = "headrace.db"  # In the working folder.
STATE_VARIABLE: Final = "HEADRACE_STATE"
FILE_SUFFIXES: Final = (".yaml", ".yml")
_MIB: Final = 1024 * 1024
JOB_FILE_BYTES_MAX: Final = _MIB
_PRIMARY: Final = 0xFF  # The primary code within an extended one.


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """The section `runtime`."""

    tick_min_ms: int = option(
        "The shortest time between the starts of two passes over all splits, unless there"
        " is more to read.",
        default=20,
        minimum=1,
        maximum=60_000,
    )
    commit_max_seconds: float = option(
        "Settled batches are committed at least this often.", default=1.0, minimum=0, maximum=3600
    )
    commit_max_bytes: int = option(
        "The most per split that is uncommitted, and so is repeated after a crash.",
        default=16 * _MIB,
        minimum=1,
    )
    outstanding_bytes_max: int = option(
        "The most that is read and not settled, over all splits; one mutation may exceed it.",
        default=4 * _MIB,
        minimum=1,
    )
    outstanding_records_max: int = option(
        "The most records that are read and not settled, over all splits.",
        default=200_000,
        minimum=1,
    )
    batch_bytes_max: int = option("The bound of one batch.", default=2 * _MIB, minimum=1)
    batch_records_max: int = option("The bound of one batch.", default=5_000, minimum=1)
    lease_seconds: float = option(
        "A split whose owner is silent gets another owner within this time.",
        default=10.0,
        minimum=0.5,
        maximum=3600,
    )
    resplit_seconds: float = option(
        "A job without `splits` gets more of them when there were too few for its workers"
        " for this time.",
        default=30.0,
        minimum=0,
        maximum=86_400,
    )
    retry_seconds_max: float = option(
        "How long a call that fails and may succeed later is repeated.", default=300.0, minimum=0
    )
    settle_seconds_max: float = option(
        "How long the sink may take to give a result for a batch.", default=300.0, minimum=1
    )
    call_seconds_max: float = option(
        "A source or sink that does not return within this time ends the process.",
        default=120.0,
        minimum=0.5,
    )
    stall_seconds: float = option(
        "A split that has not progressed for this time, and is not idle, is STALLED.",
        default=30.0,
        minimum=1,
        maximum=3600,
    )
    restarts_max: int = option(
        "How many times in a row a split is restarted that failed for a reason that may pass.",
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
        "How long a split that is stopped may take to settle and commit.", default=10.0, minimum=0
    )
    quarantine_bytes_max: int = option(
        "The bound of all quarantined and dead-lettered bytes of the job.",
        default=256 * _MIB,
        minimum=0,
    )
    metrics_detail: str = option(
        "Count metrics for the whole `job`, or for each `split`.",
        name="metrics.detail",
        default=PER_JOB,
        choices=(PER_JOB, PER_SPLIT),
    )
    otel_endpoint: str | None = option(
        "Where metrics, and spans of batches, are sent over OTLP: the URL below which `/v1/traces`"
        " and `/v1/metrics` are. It needs the extra `otel`.",
        name="otel.endpoint",
        default=None,
    )
    otel_every_seconds: float = option(
        "The time between two sendings.",
        name="otel.every_seconds",
        default=10.0,
        minimum=0.1,
        maximum=3600,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """The job file as written."""

    job: str | None = option(
        "The job's name; its state is kept under it. A worker's file has none.", default=None
    )
    state: str = option(
        "The SQLite file that keeps the state; with a store, this machine's own files are"
        " beside it."
    )
    store: Mapping[str, Any] | None = option(
        "A store that keeps the state instead, shared by machines: `plugin` and its options. "
        "Without a sink, the jobs that statements define in it.",
        default=None,
    )
    start: str | None = option(
        "Where a job without a commit starts: earliest, latest, a time in ISO 8601, or a "
        "place in the source's notation.",
        default=None,
    )
    source: Mapping[str, Any] = option(
        "The source: `plugin` and its options. Only a worker's file can be without.", default={}
    )
    clusters: Mapping[str, Any] = option(
        "More sources, by names that statements give as `cluster`. Only in a worker's file.",
        default={},
    )
    sink: Mapping[str, Any] | None = option("The sink: `plugin` and its options.", default=None)
    runtime: Mapping[str, Any] = option("Bounds and times of the runtime.", default={})
    sink_files_roots: tuple[str, ...] = option(
        "Folders in which sinks of statements may write files, and sources of statements read "
        "them; by default the folder of this file.",
        name=ROOTS_KEY,
        default=(".",),
    )
    rest: Mapping[str, Any] = option("The HTTP server of `headrace worker`.", default={})


def state_given(given: str | None, *, create: bool = False) -> Path:
    """Return the state that a user named, or the default state.

    Raises:
        ConfigError: no state is named, the default does not exist, and *create* is false.

    """
    named = given or os.environ.get(STATE_VARIABLE)
    place = Path(named or DEFAULT_STATE)
    if not (create or named or place.exists()):
        hint = f"give STATE, or set {STATE_VARIABLE}; `headrace shell` makes a state with CREATE"
        raise ConfigError([Problem("", f"there is no {DEFAULT_STATE} here", hint)])
    return place


def read_job_file(path: Path) -> JobFile:
    """Return the job file at *path*, its sections unchecked. Raises ConfigError.

    A state file counts as a worker's file without other settings.
    """
    if is_state(path):
        return JobFile(state=path.name, source={})
    return parse_config(JobFile, document_of(path), place=str(path), name="job")


def is_state(path: Path) -> bool:
    """Return whether *path* is a state file, and not a YAML file that names one.

    SQLite reads the file: a process that closes a descriptor of its own loses all its locks on the
    file, so another process could remove the log that this one writes.
    """
    if path.suffix in FILE_SUFFIXES or not path.is_file() or not path.stat().st_size:
        return False
    import sqlite3  # noqa: PLC0415 (a job in a file that is run needs none)

    place = f"file:{quote(str(path.absolute()))}?mode=rw"  # This does not create a file.
    try:
        with contextlib.closing(sqlite3.connect(place, uri=True)) as connection:
            connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        code = error.sqlite_errorcode & _PRIMARY
        return code not in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
    return True


def _near(path: Path) -> str:
    """Return a hint with the file beside the missing *path* that was probably meant."""
    try:
        beside = {e.name: str(e) for e in path.parent.iterdir() if e.suffix in FILE_SUFFIXES}
    except OSError:
        beside = {}
    return meant(path.name, beside, "give the path of a YAML file")


def document_of(path: Path) -> Mapping[str, Any]:
    """Return the content of the file at *path*, unchecked. Raises ConfigError."""
    place = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(JOB_FILE_BYTES_MAX + 1)
    except OSError as error:
        problem = Problem("", f"cannot be read: {error.strerror}", _near(path))
        raise ConfigError([problem], place=place) from error
    if len(content) > JOB_FILE_BYTES_MAX:
        raise ConfigError([Problem("", f"has more than {JOB_FILE_BYTES_MAX} bytes")], place=place)
    # Imported here because statements on a state file do not read YAML.
    from headrace.plugins.config.yaml_text import parse_yaml  # noqa: PLC0415

    document = parse_yaml(content, place=place)
    if not isinstance(document, Mapping):
        kind = type(document).__name__
        raise ConfigError(
            [Problem("", f"expected keys and values, found {kind}", "job, state, source, sink")],
            place=place,
        )
    return document
