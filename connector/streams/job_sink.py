"""The sink of a job for its consumers, made from its options or from the job file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import structlog

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.configured import configured
from headrace.connector.foundation.job_file import read_job_file
from headrace.connector.stores.job import notes_of
from headrace.plugins import ConfigError, Context, Problem, Sink
from headrace.plugins.discovery import load

_PLUGIN: Final = "kafka"
_SCHEMA_FOLDER: Final = "schema.store.path"


class WrittenSink(msgspec.Struct, frozen=True):
    """A job file's sink, and the place of the schemas if no schema store has them.

    `state` is the state file, or the job file if that names a store, which then has the schemas.
    """

    options: Mapping[str, Any]
    state: Path | None
    source: str | None
    folder: Path

    @classmethod
    def of_job(cls, path: str | Path) -> Self:
        """Return the sink of the job file at *path*. Raises ConfigError."""
        path = Path(path)
        written = read_job_file(path)
        if written.sink is None:
            hint = "give the options of the sink, which statements defined, and the state file"
            raise ConfigError([Problem("sink", "is required", hint)], place=str(path))
        options = dict(written.sink)
        folder = path.absolute().parent
        if _SCHEMA_FOLDER in options:
            options[_SCHEMA_FOLDER] = str(folder / options[_SCHEMA_FOLDER])
        state = None if "schema.store" in options else notes_of(path, written)
        return cls(options, state, written.source.get("plugin"), folder)


def sink_of(options: Mapping[str, Any]) -> tuple[Sink, Context]:
    """Return the Kafka sink with these *options*, those of a job file's section `sink`.

    Raises:
        ConfigError: with all mistakes found, each under its key.
        SecretUnavailableError: the target of a reference to a secret does not exist here.

    """
    plugin, config = configured("sink", {"plugin": _PLUGIN, **options})
    if plugin is not load("sinks", _PLUGIN):
        hint = "only what the Kafka sink wrote is read"
        raise ConfigError([Problem("sink.plugin", f"expected {_PLUGIN}", hint)])
    log = structlog.stdlib.get_logger()
    context = Context(
        job="consumer", clock=SystemClock(), job_key=bytes(16), log=log, read_only=True
    )
    return plugin(config, context), context
