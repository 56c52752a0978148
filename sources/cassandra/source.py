"""The Cassandra source: a ring divided into equal splits, read from all replicas' logs."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from headrace.plugins import (
    Backlog,
    Batch,
    ConfigError,
    Context,
    Demand,
    Document,
    EncodedPosition,
    Finding,
    HeadraceError,
    JobTraces,
    Locality,
    LogFraming,
    LogSearch,
    LogSpace,
    LogSpaces,
    MicroBatches,
    Nearness,
    News,
    PartialReading,
    Position,
    Problem,
    Quarantined,
    Reader,
    Realtime,
    Recovery,
    Relocation,
    Resplitting,
    Source,
    Split,
    TableChecks,
    Tables,
    TableWarning,
    TokenRange,
    TokenRanges,
    TypedColumns,
)
from headrace.plugins.diagnosis import Check, Diagnosis, Examined
from headrace.plugins.metrics import Measure
from headrace.plugins.records.columns import TableType, TypedChanges
from headrace.plugins.traces import Trace
from headrace.sources.cassandra.agent.metrics import directories, measures_of
from headrace.sources.cassandra.agent.traces import forget, traces_of
from headrace.sources.cassandra.columns.column_types import table_type
from headrace.sources.cassandra.columns.from_avro import typed_values
from headrace.sources.cassandra.config import CassandraConfig, warnings_of
from headrace.sources.cassandra.encode.list_modes import READ
from headrace.sources.cassandra.encode.origin import ORIGIN
from headrace.sources.cassandra.framed.blocks import BlockFile
from headrace.sources.cassandra.framed.log_framing import KEY_BYTES, LogFramer, LogPart
from headrace.sources.cassandra.framed.sharing import shares_of
from headrace.sources.cassandra.framed.sorting import EntrySorter
from headrace.sources.cassandra.job_options import JobOptions
from headrace.sources.cassandra.logs import seek
from headrace.sources.cassandra.logs.archive_checks import flaws
from headrace.sources.cassandra.logs.batch_ends import ahead
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.logs.seek import Logs, acquaint, backlog, located, spared_bytes
from headrace.sources.cassandra.logs.space import spaces
from headrace.sources.cassandra.reader import CassandraReader
from headrace.sources.cassandra.reading.segment_index import SectionFilter
from headrace.sources.cassandra.resources import Parts
from headrace.sources.cassandra.ring.locality import shares
from headrace.sources.cassandra.ring.log_slots import LOG_SLOTS_MAX
from headrace.sources.cassandra.ring.splits import (
    arc_of,
    count_for,
    count_in,
    names,
    number_of,
    parts_of,
    token_range,
)
from headrace.sources.cassandra.state import resharding
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from headrace.sources.cassandra.state.gaps import START
from headrace.sources.cassandra.state.resharding import Share
from headrace.sources.cassandra.unread import unread_of


class CassandraSource(
    Source,
    Relocation,
    TokenRanges,
    Resplitting,
    Realtime,
    Locality,
    JobTraces,
    Recovery,
    Tables,
    TableChecks,
    PartialReading,
    LogSpaces,
    MicroBatches,
    LogSearch,
    LogFraming,
    TypedColumns,
    Diagnosis,
    JobOptions,
):
    """The source of one job. All its readers share one pump, so each log is read once."""

    word = "cdc"
    config_class = CassandraConfig
    bookkeeping = BOOKKEEPING
    stages = ("durable", "framed", "agreed")
    origin = ORIGIN
    config: CassandraConfig

    def __init__(self, config: CassandraConfig, context: Context) -> None:
        """Open nothing yet."""
        super().__init__(config, context)
        self._parts = Parts(config, context, config.splits or count_for(1, len(config.nodes)))
        self._is_fit = config.splits is not None  # Whether the number of splits is final.

    def plan(self) -> Sequence[Split]:
        """Divide the ring into equal parts, from the lowest token; see `Parts.check`."""
        self._fit()
        self._parts.check()
        return [
            Split(name)
            for number, name in enumerate(self._parts.splits)
            if self._parts.part.has_split(number)
        ]

    @classmethod
    def token_range(cls, split_id: str) -> TokenRange | None:
        """Return the range of a split, as described for `splits.token_range`."""
        return token_range(split_id)

    def resplit(
        self, states: Mapping[str, Position | None]
    ) -> Mapping[str, Position | None] | None:
        """Merge the parts of each state for the tokens of its split, by split; see `resharding`."""
        if not all(map(arc_of, states)):
            return None
        return resharding.resplit(_shares(states), self._parts.splits)

    def follow(self, splits: Sequence[str]) -> None:
        """Divide the ring into as many parts as other workers did."""
        count = count_in(splits)
        if count is not None:
            self._is_fit = True
            self._cut(count)

    def _fit(self) -> None:
        """Divide the ring into more parts if each would have to read too many logs."""
        if not self._is_fit:
            self._is_fit = True
            self._cut(self._fitting(self._parts.count))

    def _cut(self, count: int) -> None:
        if count != self._parts.count:
            self._parts.close()
            self._parts = Parts(self.config, self.context, count)

    def sized(self, workers: int) -> Sequence[str] | None:
        """Return the splits that suit the ring and the workers, unless a number is configured."""
        if self.config.splits is not None:
            return None
        least = count_for(workers, len(self.config.nodes))
        return names(self._fitting(least))

    def _fitting(self, least: int) -> int:
        """Return *least*, or more if each split would have to read too many logs."""
        is_small = len(self.config.nodes) <= LOG_SLOTS_MAX  # Then the ring is not queried.
        return least if is_small else self._parts.replicas.fitting(least)

    def look(self, demand: Demand) -> News:
        """Run a pass over the logs for all splits."""
        return self._parts.look(demand)

    def written_logs(self) -> Collection[str]:
        """Return the nodes whose logs are read here, or whose agents report writes."""
        return self._parts.built().written.names()

    def silent_logs(self) -> Collection[str]:
        """Return the nodes whose agents are too old to report writes."""
        return self._parts.built().written.others()

    def follow_writes(self, logs: Collection[str]) -> None:
        """Make the agents of these nodes report writes; inotify always reports them."""
        self._parts.built().written.follow(logs)

    def is_written(self, logs: Collection[str]) -> bool:
        """Return whether an event or a response reports a write of *logs*, or a check is due."""
        return self._parts.built().written.are_written(logs)

    def descriptor(self) -> int | None:
        """Return that of inotify and of responses, if all directories read are watched."""
        return self._parts.built().written.descriptor()

    def unread_bytes(self, logs: Collection[str]) -> int:
        """Return the number of durable bytes after the cursors."""
        return self._parts.built().written.unread_bytes(logs)

    def untaken_bytes(self) -> int:
        """Return the size of the agreed mutations that no split has taken."""
        return self._parts.built().pump.intake.held

    def buffer_bytes(self) -> int:
        """Return four times the size of the largest segment."""
        return self._parts.built().written.buffer_bytes()

    def nearness(self) -> Nearness:
        """Return the nodes whose logs are read from directories, and their shares of the splits."""
        parts = self._parts
        here = [node for node, log in parts.logs.items() if isinstance(log, LogDirectory)]
        current, keyspaces = parts.replicas.current, parts.replicas.keyspaces
        return Nearness(here, shares(current, keyspaces, parts.splits))

    def open(self, split: Split, resume: Position | None) -> Reader:
        """Start to read *split*, after *resume* or from the oldest segments."""
        assert resume is None or isinstance(resume, CdcState)  # noqa: S101 (from decode_position)
        if resume is not None and self.context.read_only:
            self._parts.know(resume)
            resume = self._parts.searcher.with_schemas(
                resume, self._parts.logs, self._parts.tables_of
            )
        return CassandraReader(self._parts, self._parts.splits.index(split.split_id), resume)

    @classmethod
    def decode_position(cls, encoded: EncodedPosition) -> Position:
        """Decode a CDC state."""
        return CdcState.decode(encoded)

    def backlog(self, split: Split, position: Position | None) -> Sequence[Backlog]:
        """Return the data after the marker in each node's log, for all splits."""
        del split
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        left, spared_of = backlog(self._logs_of(position), position), self._parts.spared
        if not spared_of:
            return left
        markers = position.markers if position else {}
        found = []
        for part in left:
            node = part.partition["node"]
            if part.problem:
                found.append(part)
                continue
            log, spared = self._parts.logs[node], spared_of.get(node)
            passed = spared_bytes(log, markers.get(node, START), spared) if spared else 0
            found.append(msgspec.structs.replace(part, size_bytes=max(0, part.size_bytes - passed)))
        return found

    def locate(self, split: Split, position: Position | None, target: str) -> Position:
        """Move all logs to a time, or one to a segment and offset; see `survey.located`."""
        del split
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        return located(self._parts.logs, position or self._nowhere(), target)

    @classmethod
    def check_place(cls, target: str) -> None:
        """Check a place, as described for `survey.check_place`."""
        seek.check_place(target)

    def ahead(self, position: Position | None, size_bytes: int) -> Position:
        """Advance all logs to what was logged at about the same time; see `batch_ends`."""
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        logs, begun = self._logs_of(position), position or self._nowhere()
        return ahead(logs, begun, size_bytes, self._parts.keys)

    def _logs_of(self, position: CdcState | None) -> Logs:
        """Return the logs that a split at *position* reads."""
        logs = self._parts.logs
        if position is None or len(logs) <= LOG_SLOTS_MAX:
            return logs
        return {node: log for node, log in logs.items() if node in position.hosts}

    def stretches(
        self, position: Position | None, size_bytes: int
    ) -> Sequence[tuple[Position | None, Position]]:
        """Divide the log of a single node that is a directory; see `survey.stretches`."""
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        ((node, log), *others) = self._parts.logs.items()
        if others or not isinstance(log, LogDirectory):
            return ()
        begun = position or self._nowhere()
        acquaint(self._parts.logs, begun)
        cut = seek.stretches(log, begun.markers.get(node, START), size_bytes)
        manifests = {node: log.manifest.stored}

        def at(marker: Marker) -> CdcState:
            return replace(begun, markers={node: marker}, manifests=manifests)

        return [(None if first == START else at(first), at(last)) for first, last in cut]

    def cut(self, parts: int) -> None:
        """Divide the ring into *parts* parts, regardless of the configuration."""
        self.config = replace(self.config, splits=parts)
        self._is_fit = True
        self._parts.close()
        self._parts = Parts(self.config, self.context, parts)

    def search(self) -> int:
        """Index the kept segments of logs that are directories; see `segment_index`."""
        return self._parts.searcher.index(self._parts.logs, self._parts.tables_of)

    def spare(self, tables: Collection[str], from_us: int | None, to_us: int | None) -> None:
        """Skip sections of indexed segments without changes of these tables and times."""
        self._parts.spare(SectionFilter(frozenset(tables), from_us, to_us))

    def log_parts(self, positions: Sequence[Position | None], size_bytes: int) -> Sequence[bytes]:
        """Divide the logs, if all are directories; see `seek.stretches`."""
        known = [each for each in positions if isinstance(each, CdcState)]
        logs = self._parts.logs
        if not all(isinstance(log, LogDirectory) for log in logs.values()):
            return ()
        for position in known:
            self._parts.know(position)
            if len(logs) > LOG_SLOTS_MAX and not logs.keys() <= position.markers.keys():
                return ()  # Its split does not read all logs.
        begins = dict.fromkeys(logs, START)
        if len(known) == len(positions):
            begins = {n: min(each.markers.get(n, START) for each in known) for n in logs}
        cut = {node: seek.stretches(log, begins[node], size_bytes) for node, log in logs.items()}
        read, key = [node for node, found in cut.items() if found], os.urandom(KEY_BYTES)
        return [
            msgspec.msgpack.encode(LogPart(node, begin, end, read, key))
            for node, found in cut.items()
            for begin, end in found
        ]

    def frame(
        self, log_parts: Sequence[bytes], splits: Sequence[str]
    ) -> Iterator[tuple[str, bytes]]:
        """Frame parts of nodes' logs; see `log_framing`."""
        parts = self._parts
        sorter = EntrySorter(parts.count, [parts.splits.index(split) for split in splits])
        framer = LogFramer(sorter, parts.keys, parts.spared)
        for encoded in log_parts:
            part = msgspec.msgpack.decode(encoded, type=LogPart)
            replicas = parts.replicas
            book = number_of(replicas.home(part.node), parts.count)
            shares = shares_of(
                replicas.current, replicas.keyspaces, parts.schema, part.node, part.read
            )
            for number, block in framer.frame(parts.logs[part.node], part, book, shares):
                yield parts.splits[number], block

    def read_framed(self, file: Path) -> None:
        """Read the blocks in *file* instead of the logs."""
        before, self._parts.framed = self._parts.framed, BlockFile(file)
        if before is not None:
            before.close()

    def divide(
        self, split: Split, position: Position | None, parts: int
    ) -> Mapping[str, Position | None]:
        """Divide a split's part of the ring into equal parts, and its state with it."""
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        if self.config.lists == READ:
            said, hint = "are read from their tables by workers only", "leave it out: lists: cells"
            raise ConfigError([Problem("lists", said, hint)])
        cut = parts_of(split.split_id, parts)
        if len(cut) == 1:
            return {split.split_id: position}
        return resharding.resplit(_shares({split.split_id: position}), cut)

    def reunite(
        self,
        split: Split,
        position: Position | None,
        begun: Mapping[str, Position | None],
        ended: Mapping[str, Position],
    ) -> Position:
        """Merge the states of a split's parts, and add their increments to its books."""
        (whole,) = _shares({split.split_id: position})
        return resharding.reunited(whole, _shares(begun), _shares(ended))

    def _nowhere(self) -> CdcState:
        """Return the state of a split that has read nothing."""
        nodes, keyspaces = self._parts.config.nodes, self._parts.replicas.keyspaces
        return CdcState(0, 0, tuple(nodes), tuple(keyspaces), {}, {})

    def limit(
        self,
        *,
        until: Position | None = None,
        tokens: Sequence[tuple[int, int]] = (),
        elapsed_ms: int = 0,
    ) -> None:
        """End each log at its marker in *until*, and leave out other tokens.

        Split time advances by *elapsed_ms* when the logs are read to these ends.
        """
        assert until is None or isinstance(until, CdcState)  # noqa: S101 (from decode_position)
        self._fit()
        self._parts.limit(until, tokens, elapsed_ms)

    def traces(self, *, everywhere: bool = True) -> Sequence[Trace]:
        """Return the pins in all directories, including those of agents; see `traces_of`."""
        parts = self._parts
        return traces_of(parts.logs, self.context.job, parts.mark, everywhere=everywhere)

    def forget(self, traces: Sequence[Trace]) -> None:
        """Remove pins in the nodes' directories, including those of agents."""
        forget(self._parts.logs, traces)

    def unread(self) -> Sequence[HeadraceError]:
        """Return the errors of unreadable logs, except those in `absent`."""
        reading, absent = self._parts.reading, self.config.absent
        away = reading.pump.unreachable.items() if reading is not None else ()
        return [error for node, error in away if node not in absent]

    def missing_tables(self) -> Mapping[str, Problem]:
        """Return the tables that the job waits for: neither in the schema nor in the logs."""
        return self._parts.missing_tables()

    def unreadable(self) -> Mapping[str, Problem]:
        """Return the logs that cannot be read now, by node; see `unread.unread_of`."""
        return unread_of(self._parts)

    def log_spaces(self) -> Sequence[LogSpace]:
        """Return the space of each `cdc_raw`; on other machines, as their agents report it."""
        bytes_max, logs = self._parts.cdc_bytes_max, self._parts.logs
        found = spaces(here := directories(self.config.nodes), bytes_max)
        if len(here) == len(logs):
            return found
        # Imported only here: a running job does not use it.
        from headrace.sources.cassandra.diagnosis.agents import agent_spaces  # noqa: PLC0415

        return [*found, *agent_spaces(logs, bytes_max)]

    def checks(self, about: Examined) -> Sequence[Check]:
        """Return checks of the nodes, of replicas and types, and of each node's log and disk."""
        # Imported only here: a running job does not use it.
        from headrace.sources.cassandra.diagnosis.checks import checks_of  # noqa: PLC0415

        del about
        return checks_of(self.config, self.context, self._parts.count)

    def measures(self) -> Sequence[Measure]:
        """Return metrics of the data read, and of the space of the nodes' directories."""
        return measures_of(self._parts)

    def tables(self) -> Sequence[str]:
        """Return the tables of the configured schema that are delivered."""
        return [table.qualified for table in self._parts.tables]

    def check_tables(self, tables: Sequence[str]) -> Sequence[TableWarning]:
        """Return a warning for each table of which the configured schema shows a loss."""
        return warnings_of(self._parts.schema, tables)

    def flaws(self, *, from_ms: int | None = None, to_ms: int | None = None) -> Sequence[Finding]:
        """Return the missing segments, and those in two logs; see `archive.flaws`."""
        return flaws(self._parts.logs, from_ms=from_ms, to_ms=to_ms)

    def table_type(self, table: str) -> TableType:
        """Return the types of a table of the configured schema."""
        found = self._parts.schema.table(table)
        if found is None:
            said = f"{table} is not in the schema"
            raise ConfigError([Problem("table", said, "keyspace.table, as in the schema")])
        return table_type(found)

    def typed_values(
        self, target: TableType, values: Sequence[Document], schema_texts: Mapping[bytes, str]
    ) -> TypedChanges:
        """Make typed columns of the values."""
        return typed_values(target, values, schema_texts)

    def reserve(self, splits: Sequence[str]) -> None:
        """Pin the whole logs for each split that has no pin."""
        self._parts.reserve(splits)

    def retire(self, splits: Sequence[str]) -> None:
        """Remove the pins of these splits of the job."""
        for node in self._parts.logs:
            if (hold := self._parts.hold_of(node)) is not None:
                hold.withdraw(splits)

    def recover(self, lost: Quarantined) -> Batch | None:
        """Decode again, with the current schema, a mutation or the intact part of a damaged one."""
        return self._parts.recovered(lost)

    @property
    def crossed_bytes(self) -> int:
        """Bytes sent to agents and received from them so far, in bodies and headers."""
        logs = self._parts.logs.values()
        return sum(0 if isinstance(log, LogDirectory) else log.agent.crossed_bytes for log in logs)

    def close(self) -> None:
        """Close the logs."""
        self._parts.close()


def _shares(states: Mapping[str, Position | None]) -> Sequence[Share]:
    """Return the parts of the ring that states cover, by the names of their splits."""
    shares = []
    for number, (name, state) in enumerate(states.items()):
        arc = arc_of(name)
        assert arc is not None  # noqa: S101 (a split's name)
        assert state is None or isinstance(state, CdcState)  # noqa: S101 (from decode_position)
        shares.append(Share(arc, (number,), state))
    return shares
