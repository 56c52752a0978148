"""Statements that need a plugin's answer: SHOW LAG, SET POSITION, PREVIEW and VALIDATE."""

import base64
import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headrace.connector.control.commands import Commands
from headrace.connector.control.connector_config import sink_options
from headrace.connector.control.entries import CLASS_KEY, SourceEntry
from headrace.connector.control.errors import (
    BadPositionError,
    NotAvailableError,
    NotFoundError,
    StatementError,
)
from headrace.connector.control.job_files import job_file
from headrace.connector.control.offsets import AT_KEY, SPLIT_KEY, Offset, OffsetsChange
from headrace.connector.control.plugins.probing import Answer, Ask, ask
from headrace.connector.control.plugins.redriving import Redriving, redriven
from headrace.connector.control.plugins.search import source_of_class
from headrace.connector.control.showing import mode_changes, pairs_text
from headrace.connector.control.status import file_job_status, time_text
from headrace.connector.foundation.catch_up import MOMENT_SECONDS, Looks, catch_up_seconds
from headrace.connector.history.durations import duration_ms
from headrace.connector.language.rendering import ResultTable, StatementWarning
from headrace.connector.language.statements import PreviewSource, SetMode, SetPosition
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import Document, EncodedPosition, LogSpace, TableChecks
from headrace.plugins.stores.kept_modes import ModeOutcome

PREVIEW_ROWS: Final = 10
UNKNOWN: Final = "unknown"
WAIT_MS_MAX: Final = 30_000
LOOK_SECONDS: Final = 0.1  # Between two checks of a request's outcome.

_MS, _US = 1_000, 1_000_000
Part = Sequence[Any]  # Any: JSON.


class JobLag(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of a job by the parts of its source: for each the slowest split.

    `left` are bytes and files, `problems` say why other parts cannot be read, `oldest_us` is the
    time of the oldest unpublished change, and `spaces` are the disks of the logs. `pace` is how
    many bytes a second the lag shrank by in the last minutes; None after one look.
    """

    left: Mapping[str, tuple[int, int]]
    problems: Mapping[str, str]
    oldest_us: int | None
    spaces: Mapping[str, LogSpace]
    pace: float | None = None

    @property
    def left_bytes(self) -> int:
        """The bytes left to read, of all parts."""
        return sum(size_bytes for size_bytes, _ in self.left.values())

    @property
    def catch_up_seconds(self) -> float | None:
        """Seconds until the lag ends at this pace; None if unknown, or if it does not shrink."""
        return catch_up_seconds(self.left_bytes, self.pace)

    @property
    def age_seconds(self) -> float | None:
        """The age of the oldest unpublished change; None if unknown."""
        if self.oldest_us is not None:
            return max(0.0, time.time() - self.oldest_us / _US)
        return None if self.left_bytes else 0.0


class Running:
    """Executes statements that ask plugins of jobs. Use it from the thread of *notes* only."""

    def __init__(  # noqa: PLR0913 (each is about something else)
        self,
        notes: NoteCopy,
        commands: Commands,
        *,
        ask: Ask = ask,
        ask_lag: Ask | None = None,
        file: Path | None = None,
        looks: Looks | None = None,
    ) -> None:
        """Send no question yet. *file* is the file of jobs that have not run yet, if known."""
        self._ask = ask
        self._ask_lag = ask_lag or ask
        self._looks = looks or Looks()
        self._file = file
        self._notes = notes
        self._commands = commands

    def lag(self, source: SourceEntry | None) -> ResultTable:
        """Return the lag of *source*, or of all sources, and the parts that cannot be read.

        Raises:
            NotAvailableError: the lag of *source* is unknown.

        """
        facts = ("behind_bytes", "behind_files", "oldest", "age_seconds", "catch_up_seconds")
        columns = ("name", "partition", *facts, "problem")
        statuses = [self._commands.status(source.name)] if source else None
        jobs: dict[str, list[str]] = {}
        for status in statuses or self._commands.statuses().values():
            jobs.setdefault(status.job, []).append(status.name)
        rows: list[tuple[str, ...]] = []
        for job, lag in self.lags(list(jobs)).items():
            if isinstance(lag, JobLag):
                rows += [(name, *row) for name in jobs[job] for row in _lag_rows(lag)]
            elif source is not None:
                raise lag
            else:
                blank = ("",) * (len(columns) - 2)
                rows += [(name, *blank, lag.problems[0].message) for name in jobs[job]]
        return ResultTable(columns, tuple(sorted(rows)))

    def preview(self, statement: PreviewSource) -> ResultTable:
        """Return the next changes of a source.

        Raises:
            UnauthorizedError: the caller may not read the table.
            NotAvailableError: it has the reason.

        """
        source = self._commands.source_on(statement.word, statement.table)
        job = self._commands.preview_source(source.config)
        changes = self._ask({
            "verb": "preview",
            **self._file_of(job),
            "table": source.table_text,
            "limit": statement.limit or PREVIEW_ROWS,
        })  # fmt: skip
        rows = [(what, time_text(time_us // _MS), text) for what, time_us, text in changes]
        return ResultTable(("operation", "written", "change"), tuple(rows))

    def rows(self, source: str, table: str, keys: Sequence[Document], level: str) -> Answer:
        """Return the current rows of *table* with *keys*; see `probe.rows`.

        Raises:
            NotAvailableError: it has the reason.

        """
        job = self._commands.status(source).job
        return self._ask({
            "verb": "rows",
            **self._file_of(job),
            "table": table,
            "keys": keys,
            "level": level,
        })  # fmt: skip

    def redrive(self, redriving: Redriving) -> ResultTable:
        """Send dead letters of a job again; return the outcome of each.

        Raises:
            UnauthorizedError: the caller may not.
            NotAvailableError: it has the reason.

        """
        self._commands.redrive(redriving)
        return redriven(self._ask, redriving, self._file_of(redriving.job))

    def validate(self, name: str) -> ResultTable:
        """Return the results of the sink's own checks.

        Raises:
            UnauthorizedError: the caller may not check the sink.
            NotAvailableError: there is no answer.

        """
        sink = self._commands.validate_sink(name)
        options = sink_options(sink.config)
        file = self._file_for(name)
        found = self._ask({
            "verb": "validate",
            "plugin": sink.plugin,
            "options": options,
            "job_file": None if file is None else str(file.absolute()),
        })  # fmt: skip
        return ResultTable(("check", "result", "message", "hint"), tuple(map(tuple, found)))

    def checks_tables(self, source: SourceEntry) -> bool:
        """Return whether a plugin can check the table of *source*, which can take long."""
        return self._file_to_ask_with(source) is not None

    def table_warnings(self, source: SourceEntry) -> Sequence[StatementWarning]:
        """Return warnings about changes of its table that a source does not deliver.

        *source* need not exist yet. If its plugin does not respond, the warning says so. If no file
        is known to make the source from, there is no warning.
        """
        file, table = self._file_to_ask_with(source), source.table_text
        if file is None:
            return ()
        try:
            found = self._ask({
                "verb": "tables",
                "job": source.name,
                "job_file": str(file.absolute()),
                "cluster": source.cluster,
                "tables": [table],
            })  # fmt: skip
        except StatementError as error:
            return (unchecked(table, error.problems[0].message, error.problems[0].hint),)
        return tuple(StatementWarning(*warning) for warning in found)

    def set_position(self, statement: SetPosition) -> ResultTable:
        """Move a stopped source, unless in a dry run; return the effect on each part.

        Raises:
            UnauthorizedError: the caller may not move it.
            NotStoppedError: it is not stopped, and this is not a dry run.
            BadPositionError: the position is not one of the source.
            NotFoundError: the split does not exist.
            NotAvailableError: there is no answer.

        """
        name = self._commands.source_on(statement.word, statement.table).name
        job = self._commands.seek(name, dry_run=statement.dry_run)
        found = self._located(name, statement.split, statement.position)
        if not statement.dry_run:
            self._move(name, found)
        statuses = self._commands.statuses().values()
        sources = ", ".join(s.name for s in statuses if s.job == job)
        rows = [
            (split, pairs_text(partition), _offset(was), _offset(will), effect, sources)
            for split, _, parts in found
            for partition, was, will, before, after in parts
            for effect in [_effect(before, after)]
        ]
        return ResultTable(("split", "partition", "from", "to", "effect", "sources"), tuple(rows))

    def set_mode(self, statement: SetMode) -> ResultTable:
        """Request a mode; return its outcome by log, after waiting if the statement says so.

        Raises:
            UnauthorizedError: the caller may not request it.
            NotOfferedError: the source has only one mode.

        """
        wait_ms = duration_ms(statement.wait, "wait") if statement.wait else 0
        if wait_ms > WAIT_MS_MAX:
            message = f"a statement waits {WAIT_MS_MAX // _MS}s at most"
            raise StatementError("wait", message, "SHOW MODE CHANGES tells what became of it")
        name = self._commands.source_on(statement.word, statement.table).name
        request = self._commands.set_mode(name, statement.mode, node=statement.node)
        status = self._commands.status(name)
        wait_for_outcome(self._commands, status.job, request, seconds=wait_ms / _MS)
        return mode_changes(self._commands, [status], request)

    def alter_offsets(
        self, name: str, wanted: Sequence[Offset], *, dry_run: bool = False
    ) -> OffsetsChange:
        """Move positions of a stopped source; an offset `at` is a place as in SET POSITION.

        Raises as `set_position` does.
        """
        places = [(part.partition, part.offset) for part in wanted if _is_place(part)]
        if not places:
            return self._commands.alter_offsets(name, wanted, dry_run=dry_run)
        if len(places) < len(wanted):
            raise BadPositionError("offsets", "places and offsets do not go together")
        self._commands.seek(name, dry_run=dry_run)
        found: dict[str, Part] = {}
        for number, (partition, offset) in enumerate(places):
            if set(partition) - {SPLIT_KEY} or set(offset or ()) != {AT_KEY}:
                message = "a place is that of a whole split, or without one of all"
                raise BadPositionError(f"offsets[{number}].partition", message)
            split, place = partition.get(SPLIT_KEY), str((offset or {})[AT_KEY])
            found |= {part[0]: part for part in self._located(name, split, place)}
        return self._move(name, list(found.values()), dry_run=dry_run)

    def _located(self, name: str, split: str | None, place: str) -> Sequence[Part]:
        """Return, for each split, its name, the position at *place*, and its parts."""
        of_job = self._file_of(self._commands.status(name).job)
        question = {"verb": "locate", **of_job, "split": split, "target": place}
        found: Sequence[Part] = self._ask(question)
        if not found:
            splits = ", ".join(split.split for split in self._commands.status(name).splits)
            hint = f"there are: {splits or 'none'}"
            raise NotFoundError("split", f"split {split!r} does not exist", hint)
        return found

    def _move(self, name: str, found: Sequence[Part], *, dry_run: bool = False) -> OffsetsChange:
        positions = {split: _position(made) for split, made, _ in found}
        return self._commands.move(name, positions, dry_run=dry_run)

    def lags(
        self, jobs: Sequence[str], *, may_wait: bool = True
    ) -> Mapping[str, JobLag | StatementError]:
        """Return the lag of each of *jobs*, or why it is unknown.

        The pace of a job that reads and lags takes two looks: if there was none recently, this
        waits `MOMENT_SECONDS` and looks again, unless not *may_wait*.
        """
        found = {job: self._lag_or_error(job) for job in jobs}
        again = [
            job
            for job, lag in found.items()
            if isinstance(lag, JobLag) and lag.left_bytes and lag.pace is None and self._reads(job)
        ]
        if not again or not may_wait:
            return found
        time.sleep(MOMENT_SECONDS)
        return found | {job: self._lag_or_error(job) for job in again}

    def _reads(self, job: str) -> bool:
        return any(split.rate for split in file_job_status(self._notes, job).splits)

    def _lag_or_error(self, job: str) -> JobLag | StatementError:
        try:
            found = self._ask_lag({"verb": "lag", **self._file_of(job)})
        except StatementError as error:
            return error
        left: dict[str, tuple[int, int]] = {}
        problems: dict[str, str] = {}
        for partition, size_bytes, files, problem in found["parts"]:
            key = pairs_text(partition)
            if problem:
                problems[key] = problem
            else:
                left[key] = max(left.get(key, (0, 0)), (size_bytes, files))
        spaces = [LogSpace(**each) for each in found["spaces"]]
        lag = JobLag(
            left=left,
            problems=problems,
            oldest_us=found["oldest_us"],
            spaces={pairs_text(each.partition): each for each in spaces},
        )
        return replace(lag, pace=self._looks.add(job, lag.left_bytes))

    def _file_for(self, sink: str) -> Path | None:
        """Return the file that the jobs of a sink run with, or None if it is not known."""
        for source in self._commands.sources():
            if source.sink == sink:
                with contextlib.suppress(NotAvailableError):
                    return job_file(self._notes, self._commands.status(source.name).job)
        return self._file

    def _file_to_ask_with(self, source: SourceEntry) -> Path | None:
        """Return the file of the job of *source*, for checks of tables by its plugin.

        Returns None if the file is not known, or if the plugin cannot check tables.
        """
        _, plugin = source_of_class(source.config[CLASS_KEY])
        if not issubclass(plugin, TableChecks):
            return None
        status = self._commands.statuses().get(source.name)
        with contextlib.suppress(NotAvailableError):
            return job_file(self._notes, status.job if status else source.job)
        return self._file

    def _file_of(self, job: str) -> Mapping[str, str]:
        """Return a job and its file: the one that it ran with; before a run, the worker's."""
        try:
            path = job_file(self._notes, job)
        except NotAvailableError:
            if self._file is None:
                raise
            path = self._file.absolute()
        return {"job": job, "job_file": str(path)}


def _lag_rows(lag: JobLag) -> list[tuple[str, ...]]:
    oldest = "" if lag.oldest_us is None else time_text(lag.oldest_us // _MS)
    age = "" if lag.age_seconds is None else f"{lag.age_seconds:.1f}"
    left = lag.catch_up_seconds
    until = UNKNOWN if left is None else f"{left:.1f}"
    rows: list[tuple[str, ...]] = [
        (partition, str(size_bytes), str(files), oldest, age, until, "")
        for partition, (size_bytes, files) in lag.left.items()
    ]
    blank = ("",) * 5
    return rows + [(partition, *blank, why) for partition, why in lag.problems.items()]


def wait_for_outcome(commands: Commands, job: str, request: int, *, seconds: float) -> None:
    """Wait until each log has an outcome of a request for a mode, for at most *seconds*."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        changes = commands.mode_changes(job, request=request)
        if all(each.outcome is not ModeOutcome.PENDING for each in changes):
            return
        time.sleep(LOOK_SECONDS)


def unchecked(table: str, why: str, hint: str = "") -> StatementWarning:
    """Return the warning that no plugin has checked *table*."""
    said = f"table {table} was not checked for writes that are in no commit log: {why}"
    return StatementWarning("tables_unchecked", said, hint)


def _is_place(part: Offset) -> bool:
    return part.offset is not None and AT_KEY in part.offset


def _position(made: Part | None) -> EncodedPosition | None:
    if made is None:
        return None
    head, chunks = made
    content = {name: base64.b64decode(text) for name, text in chunks.items()}
    return EncodedPosition(base64.b64decode(head), content)


def _offset(offset: Mapping[str, int | str] | None) -> str:
    return "the beginning" if offset is None else pairs_text(offset)


def _effect(before: Part | None, after: Part | None) -> str:
    """Return what is read again or skipped, from the bytes and files left before and after."""
    if before is None or after is None:
        return "unknown"
    more_bytes, more_files = after[0] - before[0], after[1] - before[1]
    if more_bytes == 0:
        return "stays"
    verb = "reads again" if more_bytes > 0 else "passes over"
    files = f" in {abs(more_files)} more files" if more_files > 0 else ""
    files = f" and {abs(more_files)} files" if more_files < 0 else files
    return f"{verb} {abs(more_bytes)} bytes{files}"
