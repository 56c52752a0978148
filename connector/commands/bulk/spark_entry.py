"""The commands that need Spark: they parse the command line, and name a missing package."""

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Final

import structlog

from headrace.connector.hosting.host import Engine
from headrace.connector.replay.errors import SparkMissingError
from headrace.connector.replay.options import (
    BackfillOptions,
    CatchUpOptions,
    IndexOptions,
    OfJob,
    PlanOptions,
    ReconcileOptions,
    RunOptions,
    SeedOptions,
    StatusOptions,
    VerifyOptions,
)
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.config.command_line import add_options, config_of
from headrace.plugins.errors import install_hint

_VERBS: Final[dict[str, tuple[str, type[OfJob]]]] = {
    "plan": ("plan a run, and show what it will read", PlanOptions),
    "run": ("execute a planned run, or continue it", RunOptions),
    "verify": ("compare what a run delivered with the logs", VerifyOptions),
    "index": ("index tables and times of the logs, so that runs read less", IndexOptions),
    "status": ("list the runs, or the shards of a run", StatusOptions),
    "catch-up": ("read the backlog of lagging splits in bulk", CatchUpOptions),
}
_POSITIONAL: Final = {"job_file": "JOB.yaml", "run": "RUN"}


def replay_main(arguments: Sequence[str]) -> int:
    """Run `headrace replay`."""
    parser = CommandParser(
        prog="headrace replay",
        description="Read a part of the logs again, and deliver its changes.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, (words, options) in _VERBS.items():
        add_options(verbs.add_parser(verb, help=words), options, positional=_POSITIONAL)
    given = parser.parse_args(arguments)
    return _run("replay", config_of(_VERBS[given.verb][1], given))


def reconcile_main(arguments: Sequence[str]) -> int:
    """Run `headrace reconcile`."""
    parser = CommandParser(
        prog="headrace reconcile",
        description="Compare the changes of the logs with the topic, and the rows of the topic "
        "with the tables; exit 4 if they differ.",
    )
    add_options(parser, ReconcileOptions, positional=_POSITIONAL)
    return _run("reconcile", config_of(ReconcileOptions, parser.parse_args(arguments)))


def backfill_main(arguments: Sequence[str]) -> int:
    """Run `headrace backfill`."""
    parser = CommandParser(
        prog="headrace backfill",
        description="Send the rows that tables have now to the job's sink, with their write times.",
        epilog="Run an interrupted command again to continue it.",
    )
    positional = {"job_file": "JOB.yaml", "tables": "KEYSPACE.TABLE"}
    add_options(parser, BackfillOptions, positional=positional)
    return _run("backfill", config_of(BackfillOptions, parser.parse_args(arguments)))


def seed_main(arguments: Sequence[str]) -> int:
    """Run `headrace seed`."""
    parser = CommandParser(
        prog="headrace seed",
        description="Load the rows that a table had before its history, to complete its images.",
        epilog="Run an interrupted command again to continue it.",
    )
    positional = {"job_file": "WORKER.yaml", "history": "HISTORY"}
    add_options(parser, SeedOptions, positional=positional)
    return _run("seed", config_of(SeedOptions, parser.parse_args(arguments)))


def stream_engine(
    given: argparse.Namespace, log: structlog.stdlib.BoundLogger
) -> AbstractContextManager[Engine]:
    """Return a factory of runs of a job on Spark; *given* are the arguments of `headrace run`."""
    made: AbstractContextManager[Engine] = _module("run_on_spark").spark_engine(given, log)
    return made


def _run(module: str, given: OfJob) -> int:
    status: int = _module(module).main(given)
    return status


def _module(module: str) -> Any:  # noqa: ANN401 (a module)
    try:
        return import_module(f"headrace.connector.commands.bulk.{module}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("headrace"):
            raise
        said = f"{error.name} is not installed"
        raise SparkMissingError(said, hint=install_hint("spark")) from error
