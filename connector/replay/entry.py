"""The doors of this room: they say what is missing before anything of it is imported."""

from collections.abc import Sequence
from importlib import import_module

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


def _command(module: str) -> CommandMain:
    try:
        found: CommandMain = import_module(f"headrace.connector.replay.{module}").main
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("headrace"):
            raise
        hint = "pip install 'headrace[spark]'"
        raise SparkMissingError(f"{error.name} is not installed", hint=hint) from error
    return found
