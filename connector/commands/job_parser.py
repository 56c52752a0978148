"""Arguments that several commands take: a job, and the engine that runs it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from headrace.connector.control.entries import ENGINES, SPARK, WORKER
from headrace.plugins import ConfigError, Problem
from headrace.plugins.config.arguments import CommandParser


def job_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser that takes a job file and, optionally, the name of another job."""
    parser = CommandParser(prog=f"headrace {name}", description=description)
    add_job(parser)
    return parser


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the job file and the job's name to *parser*."""
    parser.add_argument("job_file", type=Path, metavar="JOB.yaml", help="the job file")
    parser.add_argument(
        "--job", metavar="NAME", help="the job to use instead of the one in the file"
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options of engines to *parser*."""
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default=WORKER,
        help="the engine of jobs whose data sources do not set `engine`: a process for each job, "
        "or Spark, in micro-batches",
    )
    parser.add_argument("--master", help="with Spark: the master; default: local mode")
    parser.add_argument(
        "--batch-bytes",
        type=int,
        metavar="N",
        help="with Spark: the approximate bytes of all logs in a micro-batch (512 MiB)",
    )


def check_engine(given: argparse.Namespace, *, by_source: bool) -> None:
    """Raise if options of Spark would have no effect, or are out of range.

    *by_source* says that data sources may ask for Spark: then the options have an effect.

    Raises:
        ConfigError: it names all of these options.

    """
    problems = [
        Problem(name, f"is for Spark, found --engine {given.engine}", f"add --engine {SPARK}")
        for name, value in (("--master", given.master), ("--batch-bytes", given.batch_bytes))
        if value is not None and given.engine != SPARK and not by_source
    ]
    if given.batch_bytes is not None and given.batch_bytes < 1:
        problems.append(Problem("--batch-bytes", f"must be at least 1, found {given.batch_bytes}"))
    if problems:
        raise ConfigError(problems)


def engine_arguments(given: argparse.Namespace) -> Sequence[str]:
    """Return the arguments of `headrace run` that are equivalent to *given*."""
    master = () if given.master is None else ("--master", given.master)
    size = () if given.batch_bytes is None else ("--batch-bytes", str(given.batch_bytes))
    return ("--engine", given.engine, *master, *size)
