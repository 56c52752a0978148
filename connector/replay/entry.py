"""The doors of this room: they say what is missing before anything of it is imported."""

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from headrace.connector.replay.errors import SparkMissingError
from headrace.plugins import CommandMain


def replay_main(arguments: Sequence[str]) -> int:
    """Run `headrace replay`."""
    return _command("command")(arguments)


def reconcile_main(arguments: Sequence[str]) -> int:
    """Run `headrace reconcile`."""
    return _command("reconcile_command")(arguments)


def backfill_main(arguments: Sequence[str]) -> int:
    """Run `headrace backfill`."""
    return _command("backfill_command")(arguments)


def stream_main(given: argparse.Namespace) -> int:
    """Run `headrace run --engine spark`."""
    status: int = _main_of("stream_command")(given)
    return status


def _command(module: str) -> CommandMain:
    found: CommandMain = _main_of(module)
    return found


def _main_of(module: str) -> Any:  # noqa: ANN401 (what the module's command is given)
    try:
        return import_module(f"headrace.connector.replay.{module}").main
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("headrace"):
            raise
        hint = "pip install 'headrace[spark]'"
        raise SparkMissingError(f"{error.name} is not installed", hint=hint) from error
