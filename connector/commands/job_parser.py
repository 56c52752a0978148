"""What the commands about one job have in common."""

import argparse
from pathlib import Path

from headrace.plugins.config.arguments import CommandParser


def job_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser that takes a job file, and perhaps another job than the one in it."""
    parser = CommandParser(prog=f"headrace {name}", description=description)
    add_job(parser)
    return parser


def add_job(parser: argparse.ArgumentParser) -> None:
    """Let *parser* take the same."""
    parser.add_argument("job_file", type=Path, metavar="JOB.yaml", help="the job file")
    parser.add_argument("--job", metavar="NAME", help="the job, instead of the one in the file")
