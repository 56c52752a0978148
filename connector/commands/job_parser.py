"""What several commands take: a job, and the engine that runs it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.plugins.config.arguments import CommandParser

SPARK: Final = "spark"


def job_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser that takes a job file, and perhaps another job than the one in it."""
    parser = CommandParser(prog=f"headrace {name}", description=description)
    add_job(parser)
    return parser


def add_job(parser: argparse.ArgumentParser) -> None:
    """Let *parser* take the same."""
    parser.add_argument("job_file", type=Path, metavar="JOB.yaml", help="the job file")
    parser.add_argument("--job", metavar="NAME", help="the job, instead of the one in the file")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Let *parser* take what runs a job."""
    parser.add_argument(
        "--engine",
        choices=("worker", SPARK),
        default="worker",
        help="what runs a job: a process of its own, or Spark in micro-batches",
    )
    parser.add_argument("--master", help="with Spark: its master; by default local mode")
    parser.add_argument(
        "--batch-bytes",
        type=int,
        metavar="N",
        help="with Spark: about how much of all logs a micro-batch reads (128 MiB)",
    )


def spark_arguments(given: argparse.Namespace) -> Sequence[str]:
    """Return the arguments of `headrace run` that say the same as *given*, if Spark runs jobs."""
    if given.engine != SPARK:
        return ()
    master = () if given.master is None else ("--master", given.master)
    size = () if given.batch_bytes is None else ("--batch-bytes", str(given.batch_bytes))
    return ("--engine", SPARK, *master, *size)
