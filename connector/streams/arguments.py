"""The command lines of this package's apps: where a job's topics are, and how to run."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

import faust

from headrace.connector.obs.logging import configure
from headrace.connector.streams.changes import ChangeReader
from headrace.connector.streams.connection import app_beside
from headrace.connector.streams.job_sink import WrittenSink
from headrace.plugins import ConfigError, HeadraceError, Problem, Sink

STORES: Final = ("memory", "rocksdb")
Main = Callable[[Sequence[str]], int]


def reader_of(given: argparse.Namespace) -> ChangeReader:
    """Return a reader according to the arguments of `changes_parser`."""
    options = options_of(given)
    if given.job is None:
        return ChangeReader.of(options, state=given.state, source=given.source)
    if given.state or given.source:
        hint = "leave the file out, or --state and --source"
        raise ConfigError([Problem("job", "has the state and the source", hint)])
    return ChangeReader.of_job(given.job)


def options_of(given: argparse.Namespace) -> Mapping[str, Any]:
    """Return the options of the sink from the arguments of `app_parser`."""
    options: dict[str, Any] = dict(option.partition("=")[::2] for option in given.option)
    for key in ("bootstrap_servers", "topic"):
        if getattr(given, key) is not None:
            options[key.replace("_", ".")] = getattr(given, key)
    if given.job is None:
        return options
    if options:
        hint = "leave the file out, or --option, --bootstrap-servers and --topic"
        raise ConfigError([Problem("job", "its options are in the job file", hint)])
    return WrittenSink.of_job(given.job).options


def changes_parser(module: str, description: str, name: str) -> argparse.ArgumentParser:
    """Return the parser of an app that reads changes; it extends `app_parser`."""
    parser = app_parser(module, description, name)
    parser.add_argument("--state", type=Path, help="the job's state file, which has the schemas")
    parser.add_argument("--source", help="the source's plugin, for flat and debezium from --state")
    parser.add_argument(
        "--table",
        action="append",
        metavar="KEYSPACE.TABLE",
        help="a table whose topic is followed; may be repeated; needed if the topic is a pattern",
    )
    return parser


def app_parser(module: str, description: str, name: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of every app of this package.

    *name* is the default name of its folder, and part of its group's name.
    """
    program = f"headrace.connector.streams.{module}"
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument(
        "job", nargs="?", type=Path, help="the job file, whose sink writes the topics"
    )
    parser.add_argument("--bootstrap-servers", help="without a job file: the brokers")
    parser.add_argument("--topic", help="the topic, or the sink's pattern of topics")
    parser.add_argument(
        *("-o", "--option"),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the job's sink, such as schema.store=registry; may be repeated",
    )
    parser.add_argument(
        "--name", default=f"headrace-{name}", help="the name of the app and its consumer group"
    )
    parser.add_argument("--folder", type=Path, default=Path(name), help="Faust's own files")
    parser.add_argument(
        "--store", choices=STORES, default=STORES[0], help="what keeps the tables of this process"
    )
    parser.add_argument(
        "--no-create-topics",
        action="store_true",
        help="do not ask the broker to create the app's own topics: they exist, or it creates "
        "them on first use, as the embedded one does",
    )
    parser.add_argument("--port", type=int, default=6066, help="the port of its pages, on loopback")
    return parser


def app_of(given: argparse.Namespace, sink: Sink) -> faust.App:
    """Return an app according to the arguments of `app_parser`. Raises as `app_beside`."""
    return app_beside(
        sink,
        given.name,
        store=f"{given.store}://",
        datadir=str(given.folder),
        web_port=given.port,
        topic_allow_declare=not given.no_create_topics,
    )


def reported(main: Main) -> Main:
    """Make a *main* print an error on standard error and return its exit status."""

    @wraps(main)
    def reporting(arguments: Sequence[str]) -> int:
        try:
            return main(arguments)
        except HeadraceError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_status

    return reporting


def run(app: faust.App) -> None:
    """Run *app* until SIGTERM or SIGINT, and exit. It logs on standard error.

    Raises:
        HeadraceError: the error that ended it.

    """
    configure()
    try:
        faust.Worker(app, loglevel="WARN").execute_from_commandline()
    except SystemExit:
        if isinstance(app.crash_reason, HeadraceError):
            raise app.crash_reason from None
        raise
