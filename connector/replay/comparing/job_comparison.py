"""Compares the logs of a job with its topics, and these with its tables, by its own options."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self

from headrace.connector.control.jobs import JobText, table_source
from headrace.connector.control.runs.options import ReconcileOptions
from headrace.connector.replay.comparing.bucket_sums import (
    SLICE_US,
    Comparison,
    known_as_sent,
    parts_of,
)
from headrace.connector.replay.comparing.reconciling import (
    Gather,
    Outcome,
    ReadLogs,
    Sides,
    Times,
    reconcile,
)
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.planning import Bounds, Planned, planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec, inside, origin_of, plugin_of
from headrace.connector.replay.stream.checkpoint import known_schemas
from headrace.plugins import NO_ORIGIN, Operation, RecordSchema, SinkOptions, TableReading
from headrace.plugins.config.command_line import flag_of

_SLICES: Final = 24  # Slices of a time that is bounded on both sides.
_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class JobComparison:
    """The plan of a comparison of a job; `compare` executes it once."""

    text: JobText
    given: ReconcileOptions
    selection: Selection
    plan: Planned
    at_s: int
    known: Mapping[bytes, RecordSchema]
    called: Callable[[str], str]

    @classmethod
    def planned(
        cls,
        text: JobText,
        given: ReconcileOptions,
        selection: Selection,
        *,
        called: Callable[[str], str] = flag_of,
    ) -> Self:
        """Plan the comparison of the changes in *selection*; without an end up to now.

        *called* formats names of options.

        Raises:
            ConfigError: options are wrong, or the job cannot be compared.

        """
        origin, directory = origin_of(text.source), str(text.directory)
        known = known_as_sent(text.sink, directory, origin, known_schemas(text), text.bounds)
        _check_operations(text, selection, called("operations"))
        at_s = time.time()
        if selection.to_us is None:  # Records in flight are not missing.
            selection = replace(selection, to_us=int(at_s - given.grace) * _US)
        bounds = Bounds(after=given.after, until=given.until)
        plan = planned(SourceSpec.of_job(text), selection, bounds=bounds)
        return cls(text, given, selection, plan, int(at_s), known, called)

    def compare(
        self, gather: Gather, logs: ReadLogs, *, pause: Callable[[float], None] = time.sleep
    ) -> Outcome:
        """Return the differences; *logs* reads the logs of `plan`, and *gather* runs other tasks.

        *pause* waits for a number of seconds, until records in flight have arrived. Raises
        ShardFailedError.
        """
        text, given, selection = self.text, self.given, self.selection
        comparison = Comparison(
            sink=dict(text.sink),
            origin=origin_of(text.source),
            directory=str(text.directory),
            buckets=given.buckets,
            selection=selection,
            at_s=self.at_s,
            slice_us=_slice_us(selection),
        )
        why_not = self.called("no_table") if given.no_table else _why_no_table(text, selection)
        sides = Sides(
            self.plan.shards,
            partial(parts_of, comparison),
            lambda tables: [] if why_not else _ranges(text, selection, tables, given.table_shards),
            tables=selection.tables | frozenset(text.source.get("tables", ())),
            is_whole=not (selection.tokens or given.after or given.until),
        )
        times = Times(time.time, pause, given.grace)
        outcome = reconcile(sides, comparison, gather, logs, known=self.known, times=times)
        if why_not:
            outcome.notes.append(f"tables were not compared: {why_not}")
        return outcome


def _check_operations(text: JobText, selection: Selection, key: str) -> None:
    """Raise for a selection of one of two operations that Debezium's envelope merges."""
    alike = {Operation.DELETE.value, Operation.DELETE_PARTITION.value}
    if text.sink.get("envelope") == "debezium" and len(alike & selection.operations) == 1:
        said = "Debezium's envelope has the same `op` for DELETE and DELETE_PARTITION"
        raise bad_option(key, said, "name both")


def _why_no_table(text: JobText, selection: Selection) -> str:
    """Return why a topic cannot be folded and compared with tables; empty when it can."""
    plugin = plugin_of(text.source)
    if not issubclass(plugin, TableReading):
        return "the job's source has no tables that can be read"
    if problem := plugin.table_problem(text.source):
        return f"{problem.key}: {problem.message}"
    if selection.operations or selection.tokens:
        return "operations or tokens are selected, and rows are of all of them"
    with (
        inside(str(text.directory)),
        sink_and_encoder(text.sink, "reconcile", NO_ORIGIN) as (sink, _),
    ):
        encoding = sink.encoding()
        has_chain = bool(isinstance(sink.config, SinkOptions) and sink.config.transforms)
    if has_chain or (encoding.codec, encoding.envelope) != ("avro", "cep44"):
        return "only Avro in the envelope cep44, without transforms, tells enough to be folded"
    return ""


def _ranges(
    text: JobText, selection: Selection, tables: Sequence[str], count: int
) -> Sequence[Shard]:
    """Return the ranges of tokens of all *tables*, *count* of each."""
    keys = Selection(keys=selection.keys)
    chosen = [table for table in tables if not selection.tables or table in selection.tables]
    found: list[Shard] = []
    for table in chosen:
        spec = SourceSpec(
            given=table_source(text, table), directory=str(text.directory), job=text.name
        )
        found += planned(spec, keys, shards=count).shards
    return found


def _slice_us(selection: Selection) -> int:
    """Return the length of a slice of time, in µs."""
    if selection.from_us is None or selection.to_us is None:
        return SLICE_US
    return min(SLICE_US, max(1, (selection.to_us - selection.from_us) // _SLICES))
