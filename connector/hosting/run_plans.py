"""Plans the runs that statements request: their shards and their targets."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from headrace.connector.control.catalogue import Catalogue
from headrace.connector.control.entries import SPARK, SourceEntry
from headrace.connector.control.jobs import JobText, job_text, table_source
from headrace.connector.control.runs.orders import checked
from headrace.connector.replay.delivery import Target
from headrace.connector.replay.planning import (
    Planned,
    check_archive,
    in_lake,
    planned,
    planned_replay,
)
from headrace.connector.replay.runs import Run, RunTable
from headrace.connector.replay.selection import Selection, operations_in, token_range
from headrace.connector.replay.shards import Shard, SourceSpec, inside
from headrace.connector.stores.asked_runs import AskedRun, Order, RunKind
from headrace.connector.stores.job import Job
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import ConfigError, RowReading


class Asked(msgspec.Struct, frozen=True):
    """A requested run with its source, and the parts of its job."""

    run: AskedRun
    entry: SourceEntry
    text: JobText

    @classmethod
    def of(cls, run: AskedRun, job: Job, notes: NoteCopy) -> "Asked":
        """Read source and job. Raises as reading a job does."""
        assert job.file is not None  # noqa: S101 (a job that a host runs has a file)
        text = job_text(job.file, job.name, notes=notes)
        return cls(run, Catalogue(notes).source(run.source), text)

    @property
    def order(self) -> Order:
        """The order of the run."""
        return self.run.order

    @property
    def is_on_spark(self) -> bool:
        """Whether it runs on Spark: by its own options, or by its source's."""
        given = checked(self.order.kind, self.order.options)
        return (given.engine or self.text.engine) == SPARK

    @property
    def at_once(self) -> int:
        """How many shards are delivered concurrently."""
        return self.entry.options.snapshot_parallel if self._is_snapshot else 1

    @property
    def _is_snapshot(self) -> bool:
        return self.order.kind is RunKind.SNAPSHOT

    def planned_in(self, runs: RunTable) -> Run:
        """Return the run with its target, after adding it if it is not in the table.

        Raises:
            RunBusyError: another process plans it.
            HeadraceError: it cannot be planned.

        """
        name = self.run.name
        with runs.executing(f"plan-{name}"):  # Two concurrent plans would both read it.
            known = next((run for run in runs.runs() if run.run == name), None)
            if known is not None:
                target = self._rows_target() if self._is_snapshot else known.target
                return replace(known, target=target)
            target, shards, facts = self._snapshot() if self._is_snapshot else self._replay()
            facts |= {"table": self.entry.table_text, "shards": len(shards), "is_asked": True}
            kind, made_ms = str(self.order.kind), self.run.asked_ms
            run = Run(run=name, kind=kind, made_ms=made_ms, target=target, facts=facts)
            runs.add(run, shards)
            return run

    def selection(self) -> Selection:
        """Return the selection of changes of a run over the logs. Raises ConfigError."""
        given = checked(self.order.kind, self.order.options)
        table = self.entry.table_text
        return Selection(
            tables=frozenset({table} if table else ()),
            operations=operations_in(given.operations, "operations"),
            from_us=self.order.from_us,
            to_us=self.order.to_us,
            tokens=(token_range(given.token_range),) if given.token_range else (),
        )

    def _rows_target(self) -> Target:
        given = checked(self.order.kind, self.order.options)
        self._check_folder(given)
        target = Target.of_job(self.text, folder=given.to_folder, suffix=given.suffix)
        rate = given.rate or self.entry.options.snapshot_rate
        return in_lake(replace(target, rate=rate), given, called=str)

    def _snapshot(self) -> tuple[Target, Sequence[Shard], dict[str, object]]:
        options, target = self.entry.options, self._rows_target()
        text, table = self.text, self.entry.table_text
        given = table_source(text, table, page_rows=options.snapshot_page_rows)
        spec = SourceSpec(given=given, directory=str(text.directory), job=text.name)
        return target, self._ranges(spec, options.snapshot_ranges), {}

    def _ranges(self, spec: SourceSpec, ranges: int) -> Sequence[Shard]:
        """Return token ranges; for a partition that of its token, and none if it has no rows."""
        tokens = self.order.tokens
        if (key := self.order.key) is not None:
            with inside(spec.directory), contextlib.closing(spec.open()) as source:
                token = RowReading.of(source).token_of(key)
            if token is None:
                return ()
            tokens, ranges = ((token - 1, token),), 1
        return planned(spec, Selection(tokens=tokens), shards=ranges).shards

    def _replay(self) -> tuple[Target, Sequence[Shard], dict[str, object]]:
        given = checked(self.order.kind, self.order.options)
        self._check_folder(given)
        target, plan = planned_replay(self.text, given, self.selection(), called=str)
        check_archive(plan, given, self.run.name, "accept_gaps = true")
        return target, plan.shards, {"findings": findings_of(plan)}

    def _check_folder(self, given: object) -> None:
        """Raise if the folder is outside those that the worker's file allows to statements."""
        if self.text.bounds is not None and (found := self.text.bounds.problems(given)):
            raise ConfigError(found)


def findings_of(plan: Planned) -> list[str]:
    """Return the findings of the checks of the logs, once each."""
    return list(dict.fromkeys(finding.message for finding in plan.findings))
