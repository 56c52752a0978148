"""An overview as a screen of text."""

from collections.abc import Iterator
from typing import Final

from headrace.connector.commands.health.columns import columns_text
from headrace.connector.control.health.overview import Line, Overview
from headrace.connector.control.running import UNKNOWN, JobLag
from headrace.connector.control.status import time_text
from headrace.connector.foundation.states import Observed
from headrace.connector.language.rendering import printable
from headrace.plugins import LogSpace
from headrace.plugins.amounts import count_text, size_text, span_text

ERRORS_SHOWN_MAX: Final = 5
_SOURCES: Final = (
    *("SOURCE", "SINK", "JOB", "STATE", "SPLITS"),
    *("LAG", "BEHIND", "CAUGHT UP IN", "RATE", "WORKER"),
)
_LOGS: Final = ("LOG", "JOB", "BEHIND", "ON DISK", "FULL IN")
_ERRORS: Final = ("JOB", "SPLIT", "KIND", "TABLE", "ERROR")


def screen_of(overview: Overview, place: str) -> str:
    """Return the text of the screen; *place* is the file that the user named."""
    parts = [f"{place}: {overview.said}\n"]
    parts += [f"{each.message}: {each.hint}\n" for each in overview.missing]
    if overview.lines:
        parts += ["\n", columns_text(_SOURCES, [_source_row(overview, e) for e in overview.lines])]
    parts += _notes(overview)
    if logs := [*_log_rows(overview)]:
        parts += ["\n", columns_text(_LOGS, logs)]
    parts.append(_errors(overview))
    return "".join(parts)


def _source_row(overview: Overview, line: Line) -> list[str]:
    status, lag = line.status, overview.lags.get(line.status.job)
    running = sum(split.state is Observed.RUNNING for split in status.splits)
    age = behind = until = ""
    if isinstance(lag, JobLag):
        age = "" if lag.age_seconds is None else span_text(lag.age_seconds)
        behind = _behind_text(*map(sum, zip(*lag.left.values(), strict=True))) if lag.left else ""
        left = lag.catch_up_seconds
        until = UNKNOWN if left is None else span_text(left)
    return [
        *(status.name, line.sink, status.job, status.state.value),
        *(f"{running}/{len(status.splits)}", age, behind, until, f"{size_text(line.rate)}/s"),
        status.worker,
    ]


def _notes(overview: Overview) -> Iterator[str]:
    """Yield the reason and the next step of each source that has one, and why a lag is unknown."""
    for line in overview.lines:
        status = line.status
        said = [status.reason] if status.reason else []
        if status.next_attempt_ms is not None:
            said.append(f"attempt {status.attempt}, next at {time_text(status.next_attempt_ms)}")
        lag = overview.lags.get(status.job)
        if isinstance(lag, str) and not status.reason:
            said.append(f"lag not known: {lag}")
        if said or line.next:
            text = "; ".join(said) or status.state.value
            yield f"\n{printable(status.name)}: {printable(text)}\n"
        if line.next and line.next not in status.reason:
            yield f"  next: {printable(line.next)}\n"


def _log_rows(overview: Overview) -> Iterator[list[str]]:
    for job, part, lag in overview.logs():
        behind = _behind_text(*lag.left[part]) if part in lag.left else ""
        space = lag.spaces.get(part)
        yield [
            *(part or "all", job, lag.problems.get(part, behind)),
            *(_space_texts(space) if space else ("", "")),
        ]


def _behind_text(size_bytes: int, files: int) -> str:
    return f"{size_text(size_bytes)} in {count_text(files, 'file')}" if size_bytes else "nothing"


def _space_texts(space: LogSpace) -> tuple[str, str]:
    """Return how full a disk is, and when it will be full."""
    text, left = size_text(space.used_bytes), space.full_in_seconds
    if space.limit_bytes:
        percent = 100 * space.used_bytes / space.limit_bytes
        text += f" of {size_text(space.limit_bytes)} ({percent:.0f} %)"
    elif space.free_bytes is not None:
        text += f", {size_text(space.free_bytes)} free"
    return text, "" if left is None else span_text(left)


def _errors(overview: Overview) -> str:
    """Return the newest errors that are not reasons above: unread parts, and losses."""
    found = [dict(zip(overview.errors.columns, row, strict=True)) for row in overview.errors.rows]
    rows = [e for e in found if e["kind"] != "failed" or e["split"]]
    if not rows:
        return ""
    shown = [
        [
            *(each["job"], each["split"], each["kind"], each["table"]),
            ": ".join(filter(None, (each["code"], each["place"], each["message"]))),
        ]
        for each in rows[:ERRORS_SHOWN_MAX]
    ]
    more = len(rows) - len(shown)
    end = f"and {more} more: SHOW ERRORS\n" if more else ""
    return f"\n{columns_text(_ERRORS, shown)}{end}"
