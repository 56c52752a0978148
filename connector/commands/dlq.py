"""`headrace dlq`: dead letters, shown, and sent again."""

import argparse
import json
import sys
from codecs import getincrementaldecoder
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from headrace.connector.commands.job_parser import add_job
from headrace.connector.commands.run import enter
from headrace.connector.control.console.records import loss_facts
from headrace.connector.control.status import time_text
from headrace.connector.foundation.clock import SystemClock, ThreadWake
from headrace.connector.runtime.failures.retry import Retry, call_with_retries
from headrace.connector.runtime.making import made_sink, made_source
from headrace.connector.runtime.schemas import encoder_of
from headrace.connector.runtime.splits.ledger import miscount_of
from headrace.connector.runtime.starting import in_ms
from headrace.connector.serde.codecs.records import KeptBatch
from headrace.connector.stores import KeptLoss, Loss
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import (
    Batch,
    ConfigError,
    Context,
    Delivery,
    EncodedRecords,
    Failure,
    FatalError,
    HeadraceError,
    NumberPosition,
    Problem,
    Quarantined,
    RecordBatch,
    Recovery,
    Sink,
    Source,
    Writer,
)
from headrace.plugins.config.arguments import CommandParser

DELIVERY_MS_MAX: Final = 60_000
SOURCE_STAGE: Final = "TASK_POLL"
_SHOWN_MAX: Final = 4_096
_LINE_ENDS: Final = str.maketrans("", "", "\n\r\t")


class NotRedrivenError(FatalError):
    """Some of what was to be sent again was not delivered; it stays where it was."""

    code = "not_redriven"


def main(arguments: Sequence[str]) -> int:
    """Do what *arguments* say; return 0."""
    given = _parser().parse_args(arguments)
    job = enter(given.job_file, given.job)
    with closing(job.open_store(create=False)) as store:
        chosen = _chosen(store, given)
        if given.verb == "list":
            _list(chosen, as_json=given.json, is_filtered=bool(given.code or given.table))
        elif given.verb == "show":
            _show(chosen[0], given.content)
        else:
            _Redrive(job, store).run(chosen, dry=given.dry_run)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="headrace dlq",
        description="Show and send again records that could not be processed or delivered.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="one line each, oldest first")
    listing.add_argument("--json", action="store_true", help="as JSON, one object a line")
    showing = verbs.add_parser("show", help="all about one, with its bytes")
    showing.add_argument(
        "--content", type=Path, metavar="FILE", help="write its bytes to this file"
    )
    again = verbs.add_parser("redrive", help="send again; delivered records leave the quarantine")
    again.add_argument("--dry-run", action="store_true", help="only print what would be sent")
    again.add_argument("--all", action="store_true", help="all that match the filters")
    for verb in (listing, showing, again):
        add_job(verb)
    showing.add_argument("numbers", nargs=1, type=int, metavar="NUMBER", help="as `list` prints it")
    again.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="as `list` prints it")
    for verb in (listing, again):
        verb.add_argument("--code", help="only those with this code")
        verb.add_argument("--table", help="only those of this table")
    return parser


def _chosen(store: Store, given: argparse.Namespace) -> Sequence[KeptLoss]:
    numbers: Sequence[int] = getattr(given, "numbers", ())
    if given.verb == "redrive" and bool(numbers) == given.all:
        raise ConfigError([Problem("", "give numbers, or --all", "`headrace dlq list` has them")])
    if numbers:
        found = list(store.losses(numbers))
        missing = set(numbers) - {kept.number for kept in found}
        if missing:
            problem = Problem("", f"there is no number {min(missing)}", "see headrace dlq list")
            raise ConfigError([problem])
        return found
    return [
        kept
        for kept in store.losses()
        if given.code in (None, kept.loss.code) and given.table in (None, kept.loss.table)
    ]


def _list(chosen: Sequence[KeptLoss], *, as_json: bool, is_filtered: bool) -> None:
    if not chosen and not as_json:
        sys.stdout.write("no such dead letters\n" if is_filtered else "no dead letters\n")
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

    Of much, its beginning.
    """
    shown = content[:_SHOWN_MAX]
    more = f" … and {len(content) - len(shown)} bytes" if len(content) > len(shown) else ""
    try:  # What was cut off may begin within a character.
        text = getincrementaldecoder("utf-8")().decode(shown, final=not more)
    except UnicodeDecodeError:
        return f"0x{shown.hex()}{more}"
    if text.isprintable():
        return text + more
    plain = text.translate(_LINE_ENDS).isprintable()
    return (json.dumps(text, ensure_ascii=False) if plain else f"0x{shown.hex()}") + more


class _Redrive:
    """Sends dead letters again, in their order."""

    def __init__(self, job: Job, store: Store) -> None:
        self._store = store
        self._context = Context(
            job=job.name,
            clock=SystemClock(),
            job_key=store.job_key(),
            log=structlog.stdlib.get_logger(),
            resumes=True,  # A run that had opened the sink read them.
        )
        self._source: Source = made_source(job, self._context)
        self._sink: Sink = made_sink(job, self._context)
        self._encoder = encoder_of(job, self._context, self._sink, self._source.origin)
        self._retry = Retry(in_ms(job.runtime.retry_seconds_max))
        self._wake = ThreadWake()

    def run(self, chosen: Sequence[KeptLoss], *, dry: bool) -> None:
        """Deliver each, one by one, and forget what arrived.

        Raises:
            NotRedrivenError: something was not delivered.

        """
        failed = 0
        writer = None if dry else self._sink.open()
        try:
            for kept in chosen:
                problem = self._redrive(kept, writer)
                failed += bool(problem)
                sys.stdout.write(f"{kept.number}\t{problem or ('ready' if dry else 'delivered')}\n")
        finally:
            if writer:
                writer.close()
            self._encoder.close()
            self._source.close()
        if failed:
            raise NotRedrivenError(f"{failed} of {len(chosen)} were not delivered")

    def _redrive(self, kept: KeptLoss, writer: Writer | None) -> str:
        """Return why it was not delivered, or nothing."""
        try:
            encoded = self._encoded(kept)
        except HeadraceError as error:
            return f"{error.code}: {error.message}"
        if encoded is None:
            return "its bytes cannot be made into records again"
        if encoded.quarantined:
            lost = encoded.quarantined[0]
            return f"{lost.code}: {lost.message}"
        if writer is None:
            return ""
        problem = _delivered(writer, encoded, self._context)
        if not problem:
            self._store.remove_losses([kept])
        return problem

    def _encoded(self, kept: KeptLoss) -> EncodedRecords | None:
        loss = kept.loss
        if loss.kind == "dead_letter":
            topic = loss.origin.get("topic")  # Where a transform had it go.
            return EncodedRecords(
                [loss.key],
                [loss.content],
                [loss.headers],
                [loss.table],
                topics=None if topic is None else [topic],
            )
        batch = self._batch(loss)
        if batch is None:
            return None
        self._encoder.announce(batch.schemas())
        encode = partial(self._encoder.encode, batch, token=0)  # Its schema may have no number.
        return call_with_retries(encode, self._retry, self._context.clock, self._wake)

    def _batch(self, loss: Loss) -> Batch | None:
        """Return what is to be encoded again: from the source's bytes, or from a change in Avro."""
        if loss.stage == SOURCE_STAGE:
            if not isinstance(self._source, Recovery):
                return None
            return self._source.recover(
                Quarantined(
                    loss.place, loss.code, loss.message, loss.content, loss.stage, loss.origin
                )
            )
        named = loss.origin.get("schema")  # None for a record that has no envelope.
        schema = None if named is None else self._store.schema(bytes.fromhex(named))
        return None if schema is None else KeptBatch(loss.content, loss.origin, schema)


def _delivered(writer: Writer, encoded: EncodedRecords, context: Context) -> str:
    """Deliver; return why not, or nothing."""
    results: list[str] = []

    def settle(delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        told = [f"{failure.code}: {failure.message}" for failure in failures]
        results.append("; ".join(told) or miscount_of(len(encoded), delivered, failures))

    batch = RecordBatch("redrive", NumberPosition(0), 0, made=())
    writer.submit(Delivery(batch, encoded), settle)
    writer.drain(context.clock.monotonic_ms() + DELIVERY_MS_MAX)
    if not results:
        return f"no result within {DELIVERY_MS_MAX // 1000} s"
    return results[0]
