"""`headrace dlq`: dead letters, shown, and sent again."""

import argparse
import json
import sys
from codecs import getincrementaldecoder
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from headrace.connector.commands.job_parser import add_job
from headrace.connector.commands.run import enter
from headrace.connector.control.commands import Commands
from headrace.connector.control.console.records import loss_facts
from headrace.connector.control.plugins.redriving import Redriving
from headrace.connector.control.status import time_text
from headrace.connector.runtime.failures.redrive import Redrive
from headrace.connector.stores import KeptLoss
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, FatalError, Problem
from headrace.plugins.config.arguments import CommandParser

_SHOWN_MAX: Final = 4_096
_LINE_ENDS: Final = str.maketrans("", "", "\n\r\t")


class NotRedrivenError(FatalError):
    """Some dead letters were sent again and not delivered; they stay in quarantine."""

    code = "not_redriven"


def main(arguments: Sequence[str]) -> int:
    """List, show or redrive dead letters, as *arguments* say; return 0."""
    given = _parser().parse_args(arguments)
    job = enter(given.job_file, given.job)
    with closing(job.open_store(create=False)) as store:
        chosen = _chosen(store, given)
        if given.verb == "list":
            _list(chosen, as_json=given.json, is_filtered=bool(given.code or given.table))
        elif given.verb == "show":
            _show(chosen[0], given.content)
        else:
            _redrive(job, store, chosen, dry=given.dry_run)
    return 0


def _redrive(job: Job, store: Store, chosen: Sequence[KeptLoss], *, dry: bool) -> None:
    """Send dead letters again, and print the outcome of each. Raises NotRedrivenError."""
    if not dry:
        with closing(open_notes(job.notes, create=False)) as notes:
            Commands(notes).redrive(Redriving(job.name, [kept.number for kept in chosen]))
    failed = 0
    for group in Redrive(job, store).groups(chosen, dry=dry):
        for number, problem in group:
            failed += bool(problem)
            sys.stdout.write(f"{number}\t{problem or ('ready' if dry else 'delivered')}\n")
    if failed:
        raise NotRedrivenError(f"{failed} of {len(chosen)} were not delivered")


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="headrace dlq",
        description="List records that could not be processed or delivered, or send them again.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list dead letters, the oldest first")
    listing.add_argument("--json", action="store_true", help="print JSON lines")
    showing = verbs.add_parser("show", help="show one with its bytes")
    showing.add_argument("--content", type=Path, metavar="FILE", help="write its bytes to FILE")
    again = verbs.add_parser(
        "redrive", help="send them again; those that are delivered are removed from the list"
    )
    again.add_argument(
        "--dry-run", action="store_true", help="print the records without sending them"
    )
    again.add_argument("--all", action="store_true", help="all records that match the filters")
    for verb in (listing, showing, again):
        add_job(verb)
    showing.add_argument(
        "numbers", nargs=1, type=int, metavar="NUMBER", help="the number that `list` prints"
    )
    again.add_argument(
        "numbers", nargs="*", type=int, metavar="NUMBER", help="the number that `list` prints"
    )
    for verb in (listing, again):
        verb.add_argument("--code", help="only records with this error code")
        verb.add_argument("--table", help="only records of this table")
    return parser


def _chosen(store: Store, given: argparse.Namespace) -> Sequence[KeptLoss]:
    numbers: Sequence[int] = getattr(given, "numbers", ())
    if given.verb == "redrive" and bool(numbers) == given.all:
        raise ConfigError([Problem("", "give numbers, or --all", "`headrace dlq list` has them")])
    if numbers:
        found = list(store.losses(numbers))
        missing = set(numbers) - {kept.number for kept in found}
        if missing:
            problem = Problem("", f"number {min(missing)} does not exist", "see headrace dlq list")
            raise ConfigError([problem])
        return found
    return [
        kept
        for kept in store.losses()
        if given.code in (None, kept.loss.code) and given.table in (None, kept.loss.table)
    ]


def _list(chosen: Sequence[KeptLoss], *, as_json: bool, is_filtered: bool) -> None:
    if not chosen and not as_json:
        sys.stdout.write("no dead letters match\n" if is_filtered else "no dead letters\n")
    for kept in chosen:
        loss = kept.loss
        if as_json:
            sys.stdout.write(json.dumps(loss_facts(kept)) + "\n")
        else:
            sys.stdout.write(
                f"{kept.number}\t{time_text(kept.lost_ms)}\t{loss.kind}\t{loss.code}\t"
                f"{loss.table or '-'}\t{len(loss.content)} bytes\t{loss.place}\n"
            )


def _show(kept: KeptLoss, path: Path | None) -> None:
    for name, fact in loss_facts(kept).items():
        shown = fact if isinstance(fact, str) else json.dumps(fact)
        sys.stdout.write(f"{name}: {shown}\n")
    for name, content in kept.loss.headers:
        sys.stdout.write(f"header {name}: {_readable(content)}\n")
    if kept.loss.key is not None:
        sys.stdout.write(f"key: {_readable(kept.loss.key)}\n")
    if path is None:
        sys.stdout.write(f"content: {_readable(kept.loss.content)}\n")
        return
    try:
        path.write_bytes(kept.loss.content)
    except OSError as error:
        problem = Problem("--content", f"cannot be written: {error.strerror}")
        raise ConfigError([problem], place=str(path)) from error


def _readable(content: bytes) -> str:
    """Return text as text, in JSON's quotes if it has lines, and other bytes as hex digits.

    Long content is cut.
    """
    shown = content[:_SHOWN_MAX]
    more = f" … and {len(content) - len(shown)} bytes" if len(content) > len(shown) else ""
    try:  # The cut may be within a character.
        text = getincrementaldecoder("utf-8")().decode(shown, final=not more)
    except UnicodeDecodeError:
        return f"0x{shown.hex()}{more}"
    if text.isprintable():
        return text + more
    plain = text.translate(_LINE_ENDS).isprintable()
    return (json.dumps(text, ensure_ascii=False) if plain else f"0x{shown.hex()}") + more
