"""Splits, gaps and dead letters of jobs, one by one. Reads only the stores."""

from headrace.connector.control.commands import Commands
from headrace.connector.control.console.paging import Document
from headrace.connector.control.console.ring import tokens_of
from headrace.connector.control.console.state import command_name
from headrace.connector.control.gaps import gap_facts
from headrace.connector.control.health.overview import WELL
from headrace.connector.control.job_files import source_class
from headrace.connector.control.status import ConnectorStatus, time_text
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.statements import POLICIES, AcceptGap, RedriveLetters
from headrace.connector.stores import KeptLoss
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import HeadraceError, Source


def jobs_of(commands: Commands) -> dict[str, ConnectorStatus]:
    """Return the jobs of all sources, each with the status of one of them."""
    return {status.job: status for status in commands.statuses().values()}


def splits_of(notes: NoteCopy, job: str, status: ConnectorStatus) -> list[Document]:
    """Return the splits of a job, unhealthy ones first."""
    source = _source(notes, job)
    return [
        {
            "split": each.split,
            "tokens": None if source is None else tokens_of(each.split, source),
            "state": each.state.value,
            "worker": each.worker,
            "rate_bytes": each.rate,
            "since": time_text(each.since_ms),
            "reason": each.reason,
            "next": each.hint,
        }
        for each in sorted(status.splits, key=lambda split: split.state in WELL)
    ]


def gaps_of(notes: NoteCopy, commands: Commands, job: str) -> list[Document]:
    """Return the gaps that the splits of a job met, each with the statements that accept it."""
    source = _source(notes, job)
    if source is None:
        return []
    return [
        {
            "job": job,
            **gap_facts(each),
            "splits": len(each.splits),
            "accept": {
                policy: format_statement(AcceptGap(gap=each.gap.name, job=job, policy=policy))
                for policy in (POLICIES if each.gap.is_open else ())
            },
        }
        for each in commands.gaps(job, source)
    ]


def letters_of(notes: NoteCopy, job: str) -> list[Document]:
    """Return the dead letters of a job without their content, newest first."""
    return [
        {"job": job, **loss_facts(kept), "redrive": redrive_statement(job, kept.number)}
        for kept in notes.store(job).losses()
    ][::-1]


def redrive_statement(job: str, number: int | None = None) -> str:
    """Return the statement that sends dead letters of *job* again: one, or all."""
    return format_statement(RedriveLetters(job=job, number=number))


def show_command(notes: NoteCopy, job: str) -> str:
    """Return the command that shows a dead letter of a job."""
    try:
        return f"headrace dlq show {command_name(notes, job)}"
    except HeadraceError:
        return "headrace dlq show JOB.yaml"


def loss_facts(kept: KeptLoss) -> dict[str, object]:
    """Return the displayed facts about a dead letter, by name."""
    loss = kept.loss
    return {
        "number": kept.number,
        "time": time_text(kept.lost_ms),
        "kind": loss.kind,
        "stage": loss.stage,
        "code": loss.code,
        "message": loss.message,
        "table": loss.table,
        "split": kept.split,
        "place": loss.place,
        "bytes": len(loss.content),
        "in_topic": kept.sent,
    }


def _source(notes: NoteCopy, job: str) -> type[Source] | None:
    """Return the class of the source of a job; None if it is not known."""
    try:
        return source_class(notes, job)
    except HeadraceError:
        return None
