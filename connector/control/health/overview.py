"""The overview of `headrace status`: rows of SHOW STATUS, LAG and ERRORS, and what to do next."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.control.entries import SourceEntry
from headrace.connector.control.health.missing import missing
from headrace.connector.control.running import JobLag
from headrace.connector.control.service import ControlService
from headrace.connector.control.showing import errors_of
from headrace.connector.control.status import ConnectorStatus
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.rendering import ResultTable
from headrace.connector.language.statements import SteerSource, Verb
from headrace.connector.stores.asked_runs import RunState
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import Problem

WELL: Final = (Observed.RUNNING, Observed.PAUSED, Observed.STOPPED)
SAID_MAX: Final = 10  # Troubles that one line names.
FULL_SECONDS_MIN: Final = 3600.0  # A disk that is full earlier is a trouble.


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A data source, or a job whose file has its sink; `next` says what to do in trouble."""

    status: ConnectorStatus
    sink: str
    next: str = ""

    @property
    def rate(self) -> int:
        """How many bytes a second its job reads."""
        return sum(split.rate for split in self.status.splits)


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. `lags` has the lag of each job, or why it is unknown.

    `missing` has missing definitions, each with the statement that adds it. `failed_runs` are the
    names of failed runs, which wait for a user.
    """

    lines: Sequence[Line]
    lags: Mapping[str, JobLag | str]
    errors: ResultTable
    missing: Sequence[Problem] = ()
    failed_runs: Sequence[str] = ()

    @property
    def troubles(self) -> Sequence[str]:
        """The troubles, in short; empty if all is well."""
        return [*self._troubles()]

    @property
    def said(self) -> str:
        """The first troubles in words, or that there are none."""
        found = self.troubles
        if not found:
            return "all is well"
        more = len(found) - SAID_MAX
        shown = [*found[:SAID_MAX], *([f"and {more} more"] if more > 0 else [])]
        return f"{len(found)} to look at: {'; '.join(shown)}"

    def logs(self) -> Iterator[tuple[str, str, JobLag]]:
        """Yield job and name of each part of a source whose lag is known."""
        for job, lag in self.lags.items():
            if isinstance(lag, JobLag):
                parts = dict.fromkeys([*lag.left, *lag.problems, *lag.spaces])
                yield from ((job, part, lag) for part in parts)

    def _troubles(self) -> Iterator[str]:
        yield from (each.message for each in self.missing)
        for line in self.lines:
            if line.status.state not in WELL:
                yield f"{line.status.name} is {line.status.state.value}"
        yield from (f"run {name} is FAILED" for name in self.failed_runs)
        for job, lag in self.lags.items():
            if isinstance(lag, str):
                continue
            yield from (f"{part} of {job} cannot be read" for part in lag.problems)
            for part, space in lag.spaces.items():
                left = space.full_in_seconds
                if space.room_bytes == 0 or (left is not None and left < FULL_SECONDS_MIN):
                    yield f"the disk of {part} is almost full"


def overview_of(
    notes: NoteCopy, service: ControlService, job: Line | None = None, *, may_wait: bool = True
) -> Overview:
    """Return the overview of the jobs of *service* on *notes*, and of the *job* of a file.

    It asks the sources for their lag, which may take seconds. A caller that calls again soon need
    not wait for a second look: see `Running.lags`.
    """
    commands = service.commands
    sources = {source.name: source for source in commands.sources()}
    lines = [_line(status, sources.get(status.name)) for status in commands.statuses().values()]
    undefined: Sequence[Problem] = ()
    if job is None:
        undefined = missing(len(commands.sinks()), len(lines))
    else:
        lines.append(job)
    seen = service.running.lags(
        list(dict.fromkeys(line.status.job for line in lines)), may_wait=may_wait
    )
    return Overview(
        lines=lines,
        lags={
            job: lag if isinstance(lag, JobLag) else lag.problems[0].message
            for job, lag in seen.items()
        },
        errors=errors_of(notes, [line.status for line in lines]),
        missing=undefined,
        failed_runs=[
            run.name for run, seen in commands.runs() if run.state(seen) is RunState.FAILED
        ],
    )


def _line(status: ConnectorStatus, source: SourceEntry | None) -> Line:
    """Return the line of a source; those of services have no entry."""
    sink = "" if source is None else source.sink
    return Line(status=status, sink=sink, next=_next(status, source))


def _next(status: ConnectorStatus, source: SourceEntry | None) -> str:
    """Return what to do about a source that is unhealthy, or that a user stopped or paused."""
    if status.state in WELL and status.desired is Desired.RUNNING:
        return ""
    if status.hint:
        return status.hint
    if source is None:
        return ""
    running = status.desired is Desired.RUNNING
    verb = Verb.RESTART if running else Verb.RESUME
    statement = format_statement(SteerSource(verb=verb, word=source.word, table=source.table))
    return f"find out with `headrace doctor`, then {statement}" if running else statement
