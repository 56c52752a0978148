"""A job and the place of its state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from headrace.connector.foundation.configured import configured
from headrace.connector.foundation.job_file import (
    EARLIEST,
    FILE_SUFFIXES,
    JobFile,
    RuntimeConfig,
    read_job_file,
)
from headrace.connector.stores.keyed.store import Store, store_over
from headrace.connector.stores.sqlite.store import SqliteConfig, SqliteStore
from headrace.connector.stores.target_state import FORK_BYTES_MAX, FORK_MARK, JOB_BYTES_MAX
from headrace.plugins import ConfigError, Problem, Sink, Source
from headrace.plugins.stores.key_values import KeyValues

S = TypeVar("S", bound=Store)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, checked. Relative paths in its options are relative to `directory`.

    `file` is its job file, and `engine` the engine that a source of a statement asks for.
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
    engine: str = ""
    store: type[Store] = SqliteStore
    # Any: an instance of the store's config_class; None is the state file.
    store_config: Any = field(default=None, repr=False)
    file: Path | None = None

    @property
    def notes(self) -> Path:
        """The place of the notes; see `headrace.connector.stores.open_control_store`."""
        return self.state if self.store_config is None or self.file is None else self.file

    def open_store(self, *, create: bool = True) -> Store:
        """Open the store of leases and positions. Raises as `Store.open_job`."""
        return self.open_as(self.store, create=create)

    def open_as(self, kind: type[S], *, create: bool = True) -> S:
        """Open the store as a *kind*, a class derived from `store`. Raises as `Store.open_job`."""
        config = self.store_config or SqliteConfig(path=str(self.state))
        bytes_max = self.runtime.quarantine_bytes_max
        return kind.open_job(config, self.name, create=create, quarantine_bytes_max=bytes_max)


def state_of(path: Path, job: str | None = None) -> tuple[Path, str]:
    """Return the place of the notes of the job file at *path*, and its job's name, or *job*.

    If the file names a store, the place is the file itself; see `stores.open_control_store`.

    Raises:
        ConfigError: it has all mistakes found, each under its key.

    """
    return place_and_name(path, read_job_file(path), job)


def place_and_name(path: Path, written: JobFile, job: str | None) -> tuple[Path, str]:
    """Return the result of `state_of` for the parsed job file *written*. Raises as it does."""
    name = job if job is not None else written.job
    if name is None:
        hint = "give --job NAME, or `job: NAME` in the file; `headrace status` lists the jobs of a "
        hint += "state, `headrace worker` runs all of them"
        raise ConfigError([Problem("job", "is required", hint)], place=str(path))
    is_forked = job is not None and FORK_MARK in job
    bytes_max = FORK_BYTES_MAX if is_forked else JOB_BYTES_MAX
    is_safe = name.strip() and name.isprintable() and (is_forked or FORK_MARK not in name)
    if not is_safe or len(quote(name)) > bytes_max:
        hint = f"one that can be printed, of at most {bytes_max} bytes as URLs have it, without "
        hint += f"{FORK_MARK}, which is in the names of forked jobs"
        problem = Problem("job", f"expected a name, found {name[:48]!r}", hint)
        raise ConfigError([problem], place=str(path))
    return notes_of(path, written), name


def kept_in(path: Path) -> tuple[Path, type[Store] | None, Any]:  # Any: its config_class's.
    """Return the state file that the file at *path* names, and its store with its configuration.

    The store is None if the file names none. Raises as `read_job` does.
    """
    written = read_job_file(path)
    state = path.absolute().parent / written.state
    if written.store is None:
        return state, None, None
    plugin, config = configured("store", written.store)
    return state, store_class(plugin), config


def store_class(plugin: type[Store] | type[KeyValues]) -> type[Store]:
    """Return the store class of a plugin of the group `headrace.stores`, which may be a backend."""
    return store_over(plugin) if issubclass(plugin, KeyValues) else plugin


def notes_of(path: Path, written: JobFile) -> Path:
    """Return the place of the notes of the job file at *path*. Raises ConfigError."""
    state = path.absolute().parent / written.state
    try:
        state.exists()
    except OSError as error:
        problem = Problem("state", f"is not a file name: {error.strerror}")
        raise ConfigError([problem], place=str(path)) from error
    if written.store is None:
        return state
    if path.suffix not in FILE_SUFFIXES:
        message = f"a file that names a store ends in {FILE_SUFFIXES[0]}"
        raise ConfigError([Problem("store", message)], place=str(path))
    return path.absolute()


class WorkerFile(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a job file that `headrace worker` itself uses; its children read the rest.

    `state` is the place of the notes; see `headrace.connector.stores.open_control_store`.
    """

    state: Path
    runtime: RuntimeConfig
    rest: Mapping[str, Any]
