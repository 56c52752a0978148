"""The state of all jobs: the overview of `headrace status`, the figures of the books, the rings."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from headrace.connector.control.console.paging import Document
from headrace.connector.control.console.ring import ring_of
from headrace.connector.control.entries import SinkEntry, SourceEntry
from headrace.connector.control.health.document import document_of
from headrace.connector.control.health.overview import overview_of
from headrace.connector.control.job_files import job_file, source_class
from headrace.connector.control.service import ControlService
from headrace.connector.control.status import ConnectorStatus, SplitStatus, sink_status, time_text
from headrace.connector.foundation.job_file import read_job_file
from headrace.connector.foundation.states import Desired
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.statements import SteerSource, Verb
from headrace.connector.runtime.books.committed import KeptBooks
from headrace.connector.runtime.books.equations import SplitBooks, total
from headrace.connector.runtime.books.figures import figure_rows, figures_of, headline
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import HeadraceError

DIFFERENCES_MAX: Final = 100  # The others are in `headrace verify`.
TABLES_MAX: Final = 100
USERS_MAX: Final = 10


class KeptState:
    """Reads the state of all jobs; each look reads only changes since the last one.

    For one thread at a time.
    """

    def __init__(self) -> None:
        """Start without a state."""
        self._jobs: dict[str, _KeptJob] = {}

    def look(self, service: ControlService) -> Document:
        """Return the state; asks the sources for their lag, which may take seconds."""
        commands = service.commands
        overview = overview_of(service.notes, service, may_wait=False)
        entries = {entry.name: entry for entry in commands.sources()}
        found = dict(document_of(overview))
        sources = [{**each, **_steering(entries, each)} for each in found.pop("sources")]
        by_job = {line.status.job: line.status for line in overview.lines}
        by_name = {line.status.name: line.status for line in overview.lines}
        self._jobs = {job: self._jobs.get(job) or _KeptJob(job) for job in overview.lags}
        return {
            "time": time_text(time.time_ns() // 1_000_000),
            "said": overview.said,
            **found,
            "sources": sources,
            "sinks": [_sink(entries.values(), by_name, entry) for entry in commands.sinks()],
            "jobs": [kept.look(service.notes, by_job[job]) for job, kept in self._jobs.items()],
        }


def _steering(entries: Mapping[str, SourceEntry], source: Document) -> Document:
    """Return the statements that steer a source; those of services have none."""
    entry = entries.get(source["name"])
    verbs = [Verb.RESTART, Verb.PAUSE, Verb.STOP]
    if source["wanted"] != Desired.RUNNING.value:
        verbs = [Verb.RESUME]
    made = {
        verb.value: format_statement(SteerSource(verb=verb, word=entry.word, table=entry.table))
        for verb in verbs
        if entry is not None
    }
    return {"statement": entry.statement if entry else "", "steer": made}


def _sink(
    sources: Collection[SourceEntry], statuses: Mapping[str, ConnectorStatus], entry: SinkEntry
) -> Document:
    users = [source.name for source in sources if source.sink == entry.name]
    status = sink_status(entry.name, [statuses[user] for user in users if user in statuses])
    return {
        "name": entry.name,
        "plugin": entry.plugin,
        "state": status.state.value if users else "",
        "sources": users[:USERS_MAX],
        "sources_count": len(users),
        "reason": status.reason,
        "next": status.hint if users else f"CREATE DATA_SOURCE cdc ON TABLE … WITH {entry.name};",
        "statement": entry.statement,
    }


class _KeptJob:
    """The figures and the ring of a job."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._books = KeptBooks()
        self._of: object = None
        self._figures: Document = {}
        self._splits: Sequence[SplitStatus] = ()
        self._ring: Document | None = None

    def look(self, notes: NoteCopy, status: ConnectorStatus) -> Document:
        """Return figures and ring, or why they are unknown."""
        job = self._job
        found: Document = {"job": job, "problem": "", "ring": None, "headline": "", "figures": []}
        try:
            source = source_class(notes, job)
            if self._splits != status.splits:
                self._splits, self._ring = status.splits, ring_of(status.splits, source)
            found["ring"] = self._ring
            known = self._books.look(notes.store(job), source)
            if known is not self._of:
                self._of, self._figures = known, _figures(*known, command_name(notes, job))
        except HeadraceError as error:
            return {**found, "problem": f"{error.code}: {error.message}"}
        return {**found, **self._figures}


def _figures(books: Sequence[SplitBooks], differences: Sequence[str], called: str) -> Document:
    figures = figures_of(books, differences)
    rows = [{"what": w, "count": n, "note": note} for w, n, note in figure_rows(figures, called)]
    return {
        "headline": headline(figures),
        "figures": rows,
        "books": {
            table or "unknown tables": dict(counts.fates)
            for split in [total(books)]
            for table, counts in sorted(split.counters.items())[:TABLES_MAX]
        },
        "balance": not differences,
        "differences": list(differences[:DIFFERENCES_MAX]),
    }


def command_name(notes: NoteCopy, job: str) -> str:
    """Return a command's arguments for *job*: its file, and its name if the file has none.

    Raises NotAvailableError.
    """
    path = job_file(notes, job)
    return str(path) if read_job_file(path).job == job else f"{path} --job {job}"
