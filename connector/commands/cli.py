"""`headrace`: finds the command, runs it, and turns errors into a line, a hint and an exit status.

Commands are imported only when they are run: what stands here must stay cheap.
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

COMMANDS: Final = {
    "run": ("headrace.connector.commands.run:run_main", "run a job"),
    "worker": ("headrace.connector.commands.worker:worker_main", "run all jobs, and serve HTTP"),
    "options": ("headrace.connector.commands.options:main", "what can be configured"),
    "audit": ("headrace.connector.commands.access.audit:main", "show who changed what"),
    "hash-password": (
        "headrace.connector.commands.access.hash_password:main",
        "for a file of users",
    ),
    "status": ("headrace.connector.commands.health.status:main", "how all jobs are, on one screen"),
    "doctor": (
        "headrace.connector.commands.health.doctor:main",
        "what is wrong with a job, and the fix",
    ),
    "verify": ("headrace.connector.commands.verify:verify_main", "check the books of a job"),
    "gaps": ("headrace.connector.commands.gaps:gaps_main", "what was lost unread"),
    "accept": ("headrace.connector.commands.gaps:accept_main", "continue without it"),
    "forget": (
        "headrace.connector.commands.forget:main",
        "let go what is kept for a job that is gone",
    ),
    "splits": ("headrace.connector.commands.splits:main", "who owns the splits of a job"),
    "realtime": (
        "headrace.connector.commands.realtime:main",
        "read logs as they are written, or at each tick",
    ),
    "waiting": ("headrace.connector.commands.waiting:main", "what waits for copies"),
    "dlq": ("headrace.connector.commands.dlq:main", "dead letters: show them, send them again"),
    "backfill": (
        "headrace.connector.commands.bulk.spark_entry:backfill_main",
        "send what a table holds now",
    ),
    "seed": (
        "headrace.connector.commands.bulk.spark_entry:seed_main",
        "read the rows that a history does not know yet",
    ),
    "replay": (
        "headrace.connector.commands.bulk.spark_entry:replay_main",
        "derive records again, in bulk",
    ),
    "reconcile": (
        "headrace.connector.commands.bulk.spark_entry:reconcile_main",
        "compare the logs with the topic",
    ),
    "shell": ("headrace.connector.commands.shell:main", "statements, CQL and help at a prompt"),
    "exec": ("headrace.connector.commands.exec:main", "execute statements"),
    "registry": ("headrace.connector.registry.server:main", "serve schemas to consumers"),
    "new": ("headrace.connector.commands.authors.new:main", "write a package with a plugin"),
    "plugins": (
        "headrace.connector.commands.authors.listing:main",
        "list the plugins that are installed",
    ),
    "quickstart": (
        "headrace.connector.demo.quickstart.main:main",
        "watch a live ring of three nodes, and break it",
    ),
    "demo": ("headrace.connector.demo.main:main", "see it work, without any server"),
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
    """Looks for what plugins' commands do only when it is asked for help: that imports them."""

    def format_help(self) -> str:
        """Return the help, with all commands."""
        from headrace.connector.commands.help_text import commands_text  # noqa: PLC0415 (only for help)

        texts = {name: text for name, (_, text) in COMMANDS.items()}
        self.epilog = f"{commands_text(texts)}\nheadrace COMMAND --help has the arguments of each."
        return super().format_help()


def _unnamed(error: Exception, command: str) -> HeadraceError:
    """Return a named error for an unexpected one: of ours, or of a plugin."""
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
        description="Moves changes out of a database's log to where other programs can use them.",
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
        found: CommandMain = getattr(import_module(module), function)
        return found
    plugins = names("commands")
    if name not in plugins:
        known = (*COMMANDS, *plugins)
        hint = f"`headrace --help` lists all {len(known)}"
        # Only here: few commands need the language.
        from headrace.connector.language.parser import outlook  # noqa: PLC0415

        if name.upper() in outlook("").expected:
            hint = f"{name.upper()} starts a statement: `headrace shell`, or headrace exec -e '…'"
        hint = meant(name, known, hint)
        raise ConfigError([Problem("", f"{name!r} is not a command", hint)])
    loaded: CommandMain = load("commands", name)
    return loaded
