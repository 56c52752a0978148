"""Answers SHOW from the store alone. Times are shown in UTC."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.connector.control.commands import Commands
from headrace.connector.control.entries import SourceEntry
from headrace.connector.control.modes import ModeChange
from headrace.connector.control.offsets import SPLIT_KEY
from headrace.connector.control.status import ConnectorStatus, time_text, unread_since
from headrace.connector.foundation.states import Observed
from headrace.connector.language.rendering import ResultTable
from headrace.connector.language.statements import Subject
from headrace.connector.stores import KeptLoss
from headrace.connector.stores.asked_runs import Order, RunKind
from headrace.connector.stores.note_copy import NoteCopy

_US_PER_MS: Final = 1_000
ERRORS_SHOWN_MAX: Final = 1000  # The newest are shown.
CHANGE_COLUMNS: Final = (
    *("request", "node", "asked", "outcome", "reason"),
    *("from", "to", "requested", "ended"),
)


def show(
    notes: NoteCopy,
    commands: Commands,
    subject: Subject,
    source: SourceEntry | None = None,
) -> ResultTable:
    """Return the answer about all sources, or about *source*."""
    chosen = [commands.status(source.name)] if source else list(commands.statuses().values())
    if subject is Subject.STATUS:
        return _status(chosen, {source.name: source.sink for source in commands.sources()})
    if subject is Subject.SPLITS:
        return _splits(chosen)
    if subject is Subject.OFFSETS:
        return _offsets(commands, chosen)
    if subject is Subject.MODE:
        return _modes(commands, chosen)
    if subject is Subject.MODE_CHANGES:
        return mode_changes(commands, chosen)
    return errors_of(notes, chosen, source.table_text if source else "")


def pairs_text(pairs: Mapping[str, Any]) -> str:  # Any: a number or a string.
    """Return `segment_id=5, position=77`."""
    return ", ".join(f"{key}={value}" for key, value in pairs.items())


def _status(chosen: Sequence[ConnectorStatus], sinks: Mapping[str, str]) -> ResultTable:
    columns = ("name", "sink", "job", "wanted", "state", "splits", "generation", "worker")
    rows = [
        (
            *(s.name, sinks.get(s.name, ""), s.job, s.desired.value, s.state.value),
            f"{sum(split.state is Observed.RUNNING for split in s.splits)}/{len(s.splits)}",
            *(str(s.generation), s.worker, _reason(s.reason, s.attempt, s.next_attempt_ms)),
        )
        for s in chosen
    ]
    return ResultTable((*columns, "reason"), tuple(rows))


def _splits(chosen: Sequence[ConnectorStatus]) -> ResultTable:
    columns = ("name", "split", "task", "state", "generation", "worker", "since", "reason")
    rows = [
        (
            *(s.name, split.split, str(split.task), split.state.value, str(split.generation)),
            *(split.worker, time_text(split.since_ms)),
            _reason(split.reason, split.attempt, split.next_attempt_ms),
        )
        for s in chosen
        for split in s.splits
    ]
    return ResultTable(columns, tuple(rows))


def _offsets(commands: Commands, chosen: Sequence[ConnectorStatus]) -> ResultTable:
    rows = []
    for status in chosen:
        for part in commands.offsets(status.name):
            partition = {key: value for key, value in part.partition.items() if key != SPLIT_KEY}
            split = part.partition[SPLIT_KEY]
            rows.append((status.name, split, pairs_text(partition), pairs_text(part.offset or {})))
    return ResultTable(("name", "split", "partition", "offset"), tuple(rows))


def _modes(commands: Commands, chosen: Sequence[ConnectorStatus]) -> ResultTable:
    rows = [
        (
            *(status.name, each.node, each.mode, each.asked, f"{each.splits}/{each.of_splits}"),
            *(time_text(each.since_ms), each.reason),
        )
        for status in chosen
        for each in commands.modes(status.job)
    ]
    columns = ("name", "node", "mode", "asked", "splits", "since", "reason")
    return ResultTable(columns, tuple(rows))


def snapshots(commands: Commands, source: SourceEntry | None) -> ResultTable:
    """Return the snapshots of all sources, or of *source*, the newest first."""
    rows = [
        (
            *(each.source, each.name, _part_text(each.order)),
            *(each.wanted.value, each.state(seen).value),
            *(f"{seen.done}/{seen.shards}", str(seen.changes), str(seen.lost)),
            *map(time_text, (each.asked_ms, seen.begun_ms, seen.ended_ms)),
            seen.problem,
        )
        for each, seen in commands.runs(source.name if source else None, RunKind.SNAPSHOT)
    ]
    columns = ("name", "snapshot", "part", "wanted", "state", "ranges", "rows", "lost")
    return ResultTable((*columns, "asked", "begun", "ended", "problem"), tuple(rows))


def runs(commands: Commands, source: SourceEntry | None) -> ResultTable:
    """Return the runs of all sources, or of *source*, the newest first."""
    rows = [
        (
            *(each.source, each.name, each.order.kind.value, part_text(each.order)),
            *(each.wanted.value, each.state(seen).value, f"{seen.done}/{seen.shards}"),
            *(str(seen.changes), str(seen.size_bytes), f"{seen.rate:.0f}", str(seen.lost)),
            *map(time_text, (each.asked_ms, seen.begun_ms, seen.ended_ms)),
            *(seen.result, seen.problem),
        )
        for each, seen in commands.runs(source.name if source else None)
    ]
    columns = ("name", "run", "kind", "part", "wanted", "state", "shards", "changes", "size_bytes")
    others = ("rate", "lost", "asked", "begun", "ended", "result", "problem")
    return ResultTable((*columns, *others), tuple(rows))


def part_text(order: Order) -> str:
    """Return the part of the logs, or of the table, that a run reads, and its options."""
    times = (("from", order.from_us), ("to", order.to_us))
    found = [f"{word} {time_text(us // _US_PER_MS)}" for word, us in times if us is not None]
    options = [pairs_text(order.options)] if order.options else []
    return "; ".join([", ".join(found) or _part_text(order), *options])


def _part_text(order: Order) -> str:
    tokens = [f"tokens {after}:{until}" for after, until in order.tokens]
    return ", ".join(tokens) or pairs_text(order.key or {}) or "all"


def change_row(change: ModeChange) -> tuple[str | int, ...]:
    """Return the cells of a change, in the order of `CHANGE_COLUMNS`; unknown ones are empty."""
    return (
        *(change.request, change.node, change.asked, change.outcome.value, change.reason),
        *(pairs_text(change.begin), pairs_text(change.end)),
        *(time_text(change.asked_ms), time_text(change.ended_ms)),
    )


def mode_changes(
    commands: Commands, chosen: Sequence[ConnectorStatus], request: int | None = None
) -> ResultTable:
    """Return the outcomes of requests for a mode, or of one *request*, newest first."""
    rows = [
        (status.name, *map(str, change_row(each)))
        for status in chosen
        for each in commands.mode_changes(status.job, request=request)
    ]
    return ResultTable(("name", *CHANGE_COLUMNS), tuple(rows))


def errors_of(notes: NoteCopy, chosen: Sequence[ConnectorStatus], table: str = "") -> ResultTable:
    """Return the errors that stopped jobs and splits, then the losses, newest first.

    With a *table*, returns only its losses.
    """
    columns = ("job", "split", "kind", "table", "place", "code", "message", "size_bytes")
    rows: list[tuple[str, ...]] = []
    for job in dict.fromkeys(status.job for status in chosen):
        mine = [status for status in chosen if status.job == job]
        whole = [("", s.reason) for s in mine if s.job_state is not Observed.UNASSIGNED]
        splits = [(split.split, split.reason) for split in mine[0].splits]
        for split, reason in dict.fromkeys(whole + splits):
            if reason:
                code, _, message = reason.partition(": ")
                rows.append((job, split, "failed", "", "", code, message, ""))
        rows += [
            (job, "", "unread", "", part.name, *unread_since(part), "") for part in mine[0].unread
        ]
        kept = notes.store(job).losses()
        chosen_losses = (each for each in kept if table in ("", each.loss.table))
        newest = deque(map(_loss_row, chosen_losses), ERRORS_SHOWN_MAX)
        rows += [(job, *row) for row in reversed(newest)]
    return ResultTable(columns, tuple(rows))


def _loss_row(kept: KeptLoss) -> tuple[str, ...]:
    loss = kept.loss
    size_bytes = len(loss.content) + len(loss.key or b"")
    facts = (loss.table, loss.place, loss.code, loss.message)
    return (kept.split, loss.kind, *facts, str(size_bytes))


def _reason(reason: str, attempt: int, next_attempt_ms: int | None) -> str:
    if next_attempt_ms is None:
        return reason
    return f"{reason} (attempt {attempt}, next at {time_text(next_attempt_ms)})"
