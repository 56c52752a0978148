"""The doors of this room: they read the command line, and say what is missing to execute it."""

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from headrace.connector.replay.errors import SparkMissingError, install_hint
from headrace.connector.replay.parsers import backfill_parser, reconcile_parser, replay_parser


def replay_main(arguments: Sequence[str]) -> int:
    """Run `headrace replay`."""
    return _run("command", replay_parser().parse_args(arguments))


def reconcile_main(arguments: Sequence[str]) -> int:
    """Run `headrace reconcile`."""
    return _run("reconcile_command", reconcile_parser().parse_args(arguments))


def backfill_main(arguments: Sequence[str]) -> int:
    """Run `headrace backfill`."""
    return _run("backfill_command", backfill_parser().parse_args(arguments))


def stream_main(given: argparse.Namespace) -> int:
    """Run `headrace run --engine spark`."""
    return _run("stream_command", given)


def _run(module: str, given: argparse.Namespace) -> int:
    status: int = _main_of(module)(given)
    return status


def _main_of(module: str) -> Any:  # noqa: ANN401 (what the module's command is given)
    try:
        return import_module(f"headrace.connector.replay.{module}").main
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("headrace"):
            raise
        said = f"{error.name} is not installed"
        raise SparkMissingError(said, hint=install_hint("spark")) from error
