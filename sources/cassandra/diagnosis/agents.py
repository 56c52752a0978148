"""Checks a node through its agent: its clock, and how long its disk space lasts."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Final

from headrace.plugins import CheckResult, Finding, HeadraceError, LogSpace
from headrace.sources.cassandra.agent.client import Agent, RemoteLog
from headrace.sources.cassandra.agent.protocol import HOLD_PATH
from headrace.sources.cassandra.diagnosis.cluster import clock_finding
from headrace.sources.cassandra.diagnosis.disks import lasting
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.retention.figures import HoldFigures

_DATE_HEADER: Final = "Date"
_DATE_SECONDS: Final = 1.0  # The resolution of a date.


def agent_findings(node: str, agent: Agent, bytes_max: int | None) -> Iterator[Finding]:
    """Yield findings about *node* from its agent; *bytes_max* is `cdc_total_space`, if known.

    If the agent does not answer, that is a finding about the log.
    """
    before = time.time()
    try:
        answered = agent.ask("GET", HOLD_PATH)
        after = time.time()
        figures = agent.document(HoldFigures, answered)
    except HeadraceError:
        return
    ahead = ahead_seconds(answered.head.field(_DATE_HEADER), before, after)
    if ahead is not None:
        found = clock_finding(ahead)
        yield Finding(found.check, found.result, f"{node}: its agent's {found.message}", found.hint)
    if figures.free_bytes is None:
        said = f"{node}: its agent does not say what its disk has left"
        yield Finding("space", CheckResult.UNKNOWN, said, "update the agent")
        return
    yield lasting(node, space_of(node, figures, bytes_max))


def agent_spaces(
    logs: Mapping[str, LogDirectory | RemoteLog], bytes_max: int | None
) -> Iterator[LogSpace]:
    """Yield the space of each node whose agent reports it; skip agents that do not answer."""
    for node, log in logs.items():
        if isinstance(log, RemoteLog):
            with suppress(HeadraceError):
                figures = log.agent.ask_for(HoldFigures, "GET", HOLD_PATH)
                yield space_of(node, figures, bytes_max)


def space_of(node: str, figures: HoldFigures, bytes_max: int | None) -> LogSpace:
    """Return the disk space in an agent's figures."""
    return LogSpace(
        partition={"node": node},
        used_bytes=figures.cdc_raw_bytes,
        limit_bytes=bytes_max,
        free_bytes=figures.free_bytes,
        growth=figures.growth,
    )


def ahead_seconds(date: str, before: float, after: float) -> float | None:
    """Return how far the clock there is ahead, at least, by the *date* of an answer; None: no date.

    The request was sent at *before* and answered at *after*, by the local clock. Returns None
    without a date.
    """
    with suppress(ValueError, TypeError):
        said = parsedate_to_datetime(date).timestamp()
        return max(0.0, said - after) + min(0.0, said + _DATE_SECONDS - before)
    return None
