"""`headrace`: finds the command, runs it, and turns errors into a line, a hint and an exit status.

Commands are imported only when they run: imports of this module must stay cheap.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from headrace import __version__
from headrace.connector.obs import structlog
from headrace.connector.obs.blame import HINT, PluginBrokenError, described, is_foreign, place_of
from headrace.connector.obs.logging import LEVELS, configure
from headrace.plugins import CommandMain, ConfigError, FatalError, HeadraceError, Problem
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.discovery import load, names
from headrace.plugins.errors import error_text, meant

# By name: where its function is in this package, and what it does.
COMMANDS: Final = {
    "run": ("commands.run:run_main", "run a job"),
    "worker": ("commands.worker:worker_main", "run all jobs of a state, and serve HTTP"),
    "options": ("commands.options:main", "list the options of jobs and plugins"),
    "audit": ("commands.access.audit:main", "show who changed which source or sink"),
    "hash-password": (
        "commands.access.hash_password:main",
        "hash a password for the file of users",
    ),
    "status": ("commands.health.status:main", "show all jobs on one screen"),
    "doctor": ("commands.health.doctor:main", "find what is wrong with a job, and how to fix it"),
    "verify": ("commands.verify:verify_main", "check that no change of a job was lost"),
    "gaps": ("commands.gaps:gaps_main", "list parts of logs that were lost before they were read"),
    "accept": ("commands.gaps:accept_main", "continue a job after a gap"),
    "forget": ("commands.forget:main", "release segments that are kept for a removed job"),
    "splits": ("commands.splits:main", "list the splits of a job, their owners and their lag"),
    "realtime": ("commands.realtime:main", "turn the realtime mode of a job on or off"),
    "waiting": ("commands.waiting:main", "list mutations that wait for copies from other nodes"),
    "dlq": ("commands.dlq:main", "list dead letters, or send them again"),
    "backfill": ("commands.bulk.spark_entry:backfill_main", "send the rows that a table has now"),
    "seed": (
        "commands.bulk.spark_entry:seed_main",
        "load the existing rows of a table into a history",
    ),
    "replay": ("commands.bulk.spark_entry:replay_main", "read a part of the logs again"),
    "reconcile": ("commands.bulk.spark_entry:reconcile_main", "compare logs, topic and table"),
    "shell": ("commands.shell:main", "execute statements and CQL at a prompt"),
    "exec": ("commands.exec:main", "execute statements from the command line or a file"),
    "registry": ("registry.server:main", "run a schema registry"),
    "new": ("commands.authors.new:main", "create a plugin from a template"),
    "plugins": ("commands.authors.listing:main", "list the installed plugins"),
    "quickstart": (
        "demo.quickstart.main:main",
        "run a simulated cluster live, and make parts of it fail",
    ),
    "demo": ("demo.main:main", "replay a recorded cluster, and check the result"),
}
FAILED_STATUS: Final = 1


class BugError(FatalError):
    """An error without a name came from headrace's own code."""

    code = "internal"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run headrace with *arguments*, by default the process's. Returns the exit status."""
    parser, words = _parser(), sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        parser.print_help(sys.stderr)
        return ConfigError.exit_status
    if words[0] == "help":  # As of git and cargo.
        words = [*words[1:2], "--help"]
    given = parser.parse_args(words)
    configure(given.log_level, messages=given.debug)
    try:
        status = _command(given.command)(given.arguments)
        sys.stdout.flush()
    except HeadraceError as error:
        if given.debug:
            structlog.get_logger().exception("command_failed")
        sys.stderr.write(error_text(error))
        return error.exit_status
    except KeyboardInterrupt:
        return FAILED_STATUS
    except BrokenPipeError:  # The reader of the output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 (the last one to see it)
        structlog.get_logger().exception("internal_error")
        sys.stderr.write(error_text(_unnamed(error, given.command)))
        return FAILED_STATUS
    return status


class _Parser(CommandParser):
    """Looks up plugins' commands only when it is asked for help, because that imports them."""

    def format_help(self) -> str:
        """Return the help, with all commands."""
        from headrace.connector.commands.help_text import commands_text  # noqa: PLC0415 (only for help)

        texts = {name: text for name, (_, text) in COMMANDS.items()}
        self.epilog = (
            f"{commands_text(texts)}\nheadrace COMMAND --help shows the arguments of a command."
        )
        return super().format_help()


def _unnamed(error: Exception, command: str) -> HeadraceError:
    """Return a named error for an unexpected one, raised by our code or by a plugin."""
    place = place_of(error)
    if is_foreign(place.rpartition(":")[0]):
        return PluginBrokenError(f"{described(error)}, in {command}", hint=HINT)
    return BugError(
        f"{type(error).__name__} in {command}",
        place=place,
        hint="this is a bug of headrace; its trace is in the log",
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="headrace",
        description="Change data capture: reads the logs of a database, and delivers its changes "
        "to Kafka, files or other sinks.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="the lowest level that is logged"
    )
    parser.add_argument(
        "--debug",
        action="store_true",
        help="log whole traces, and the messages of all exceptions, which may contain values of "
        "rows",
    )
    parser.add_argument("command", metavar="COMMAND", help="the command")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="the command's own arguments"
    )
    return parser


def _command(name: str) -> CommandMain:
    if name in COMMANDS:
        module, _, function = COMMANDS[name][0].partition(":")
        found: CommandMain = getattr(import_module(f"headrace.connector.{module}"), function)
        return found
    plugins = names("commands")
    if name not in plugins:
        known = (*COMMANDS, *plugins)
        hint = f"`headrace --help` lists all {len(known)}"
        # Imported here because few commands need the language.
        from headrace.connector.language.parser import outlook  # noqa: PLC0415

        if name.upper() in outlook("").expected:
            hint = f"{name.upper()} starts a statement: `headrace shell`, or headrace exec -e '…'"
        hint = meant(name, known, hint)
        raise ConfigError([Problem("", f"{name!r} is not a command", hint)])
    loaded: CommandMain = load("commands", name)
    return loaded
