"""The Cassandra source: a ring cut into equal splits, read from the logs of all its replicas."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from headrace.plugins import (
    Backlog,
    Batch,
    ConfigError,
    Context,
    Document,
    EncodedPosition,
    Finding,
    HeadraceError,
    Nearness,
    Position,
    Problem,
    Quarantined,
    Reader,
    Source,
    Split,
)
from headrace.plugins.columns import TableType, TypedChanges
from headrace.plugins.measures import Measure
from headrace.plugins.traces import Trace
from headrace.sources.cassandra import merging, survey
from headrace.sources.cassandra.archive import flaws
from headrace.sources.cassandra.avro_changes import typed_values
from headrace.sources.cassandra.column_types import table_type
from headrace.sources.cassandra.config import READ, CassandraConfig
from headrace.sources.cassandra.directory import LogDirectory
from headrace.sources.cassandra.gaps import START
from headrace.sources.cassandra.hold import store_mark
from headrace.sources.cassandra.measuring import measures_of
from headrace.sources.cassandra.merging import Share
from headrace.sources.cassandra.nearness import shares
from headrace.sources.cassandra.parts import Parts
from headrace.sources.cassandra.reader import CassandraReader
from headrace.sources.cassandra.ring_part import RingPart
from headrace.sources.cassandra.seats import SEATS_MAX
from headrace.sources.cassandra.segment_index import IndexFolder, Wish
from headrace.sources.cassandra.splits import arc_of, count_for, count_in, names, parts_of
from headrace.sources.cassandra.state import CdcState, Marker
from headrace.sources.cassandra.survey import Logs, acquaint, ahead, backlog, located, spared_bytes
from headrace.sources.cassandra.traces import forget, traces_of
from headrace.sources.cassandra.unread import unread_of


class CassandraSource(Source):
    """See the module. All its readers share one pump, and so each log is read once."""

    word = "cdc"
    config_class = CassandraConfig
    config: CassandraConfig

    def __init__(self, config: CassandraConfig, context: Context) -> None:
        """Open nothing yet."""
        super().__init__(config, context)
        self._parts = Parts(config, context, config.splits or count_for(1, len(config.nodes)))
        self._is_fit = config.splits is not None  # Into how many parts the ring is cut.

    def plan(self) -> Sequence[Split]:
        """Cut the ring into equal parts, from its lowest token; see `Parts.check`."""
        self._fit()
        self._parts.check()
        return [
            Split(name)
            for number, name in enumerate(self._parts.splits)
            if self._parts.part.has_split(number)
        ]

    def resplit(
        self, states: Mapping[str, Position | None]
    ) -> Mapping[str, Position | None] | None:
        """Merge what each state says of the tokens of its split, by split; see `merging`."""
        if not all(map(arc_of, states)):
            return None
        return merging.resplit(_shares(states), self._parts.splits)

    def follow(self, splits: Sequence[str]) -> bool:
        """Cut the ring into as many parts as others did."""
        count = count_in(splits)
        if count is not None:
            self._is_fit = True
            self._cut(count)
        return count is not None

    def _fit(self) -> None:
        """Cut the ring into more parts, if too many logs would be read for each."""
        if not self._is_fit:
            self._is_fit = True
            self._cut(self._fitting(self._parts.count))

    def _cut(self, count: int) -> None:
        if count != self._parts.count:
            self._parts.close()
            self._parts = Parts(self.config, self.context, count)

    def sized(self, workers: int) -> Sequence[str] | None:
        """Return the splits that suit the ring and so many workers, unless a number is given."""
        if self.config.splits is not None:
            return None
        least = count_for(workers, len(self.config.nodes))
        return names(self._fitting(least))

    def _fitting(self, least: int) -> int:
        """Return so many splits, or more where each would have to read too many logs."""
        is_small = len(self.config.nodes) <= SEATS_MAX  # Then nobody has to be asked for the ring.
        return least if is_small else self._parts.replicas.fitting(least)

    def nearness(self) -> Nearness:
        """Return whose logs are read from their directories, and what these nodes replicate."""
        parts = self._parts
        here = [node for node, log in parts.logs.items() if isinstance(log, LogDirectory)]
        current, keyspaces = parts.replicas.current, parts.replicas.keyspaces
        return Nearness(here, shares(current, keyspaces, parts.splits))

    def open(self, split: Split, resume: Position | None) -> Reader:
        """Begin to feed *split*, after *resume* or from the oldest segments."""
        assert resume is None or isinstance(resume, CdcState)  # noqa: S101 (from decode_position)
        if resume is not None and self.context.spectator:
            self._parts.know(resume)
            resume = self._parts.searcher.with_schemas(
                resume, self._parts.logs, self._parts.tables_of
            )
        return CassandraReader(self._parts, self._parts.splits.index(split.split_id), resume)

    @classmethod
    def decode_position(cls, encoded: EncodedPosition) -> Position:
        """Read a CDC state."""
        return CdcState.decode(encoded)

    def backlog(self, split: Split, position: Position | None) -> Sequence[Backlog]:
        """Return what each node's log holds after the marker, for whichever split."""
        del split
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        left, reading = backlog(self._logs_of(position), position), self._parts.reading
        if reading is None or not reading.spared:
            return left
        markers = position.markers if position else {}
        found = []
        for part in left:
            node = part.partition["node"]
            if part.problem:
                found.append(part)
                continue
            log, spared = self._parts.logs[node], reading.spared.get(node)
            passed = spared_bytes(log, markers.get(node, START), spared) if spared else 0
            found.append(replace(part, size_bytes=max(0, part.size_bytes - passed)))
        return found

    def locate(self, split: Split, position: Position | None, target: str) -> Position:
        """Move all logs to a time, or one to a segment and offset; see `survey.located`."""
        del split
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        return located(self._parts.logs, position or self._nowhere(), target)

    @classmethod
    def check_place(cls, target: str) -> None:
        """See `survey.check_place`."""
        survey.check_place(target)

    def ahead(self, position: Position | None, size_bytes: int) -> Position:
        """Go on by whole segments, and what is durable of the newest; see `survey.ahead`."""
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        return ahead(self._logs_of(position), position or self._nowhere(), size_bytes)

    def _logs_of(self, position: CdcState | None) -> Logs:
        """Return the logs that a split at *position* reads."""
        logs = self._parts.logs
        if position is None or len(logs) <= SEATS_MAX:
            return logs
        return {node: log for node, log in logs.items() if node in position.hosts}

    def stretches(
        self, position: Position | None, size_bytes: int
    ) -> Sequence[tuple[Position | None, Position]]:
        """Cut the log of an only node that is a directory; see `survey.stretches`."""
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        ((node, log), *others) = self._parts.logs.items()
        if others or not isinstance(log, LogDirectory):
            return ()
        begun = position or self._nowhere()
        acquaint(self._parts.logs, begun)
        cut = survey.stretches(log, begun.markers.get(node, START), size_bytes)
        manifests = {node: log.manifest.stored()}

        def at(marker: Marker) -> CdcState:
            return replace(begun, markers={node: marker}, manifests=manifests)

        return [(None if first == START else at(first), at(last)) for first, last in cut]

    def search(self) -> int:
        """Index what is kept of the logs that are directories; see `segment_index`."""
        return self._parts.searcher.index(self._parts.logs, self._parts.tables_of)

    def spare(self, tables: Collection[str], from_us: int | None, to_us: int | None) -> None:
        """Pass over sections of indexed segments that have nothing of these."""
        folder, wish = IndexFolder(self.context.cache), Wish(frozenset(tables), from_us, to_us)
        self._parts.pump.spared = {
            node: partial(folder.spared, node, log, wish)
            for node, log in self._parts.logs.items()
            if isinstance(log, LogDirectory)
        }

    def divide(
        self, split: Split, position: Position | None, parts: int
    ) -> Mapping[str, Position | None]:
        """Cut a split's part of the ring into equal ones, and its state with it."""
        assert position is None or isinstance(position, CdcState)  # noqa: S101 (from decode_position)
        if self.config.lists == READ:
            said, hint = "are read from their tables by workers only", "leave it out: lists: cells"
            raise ConfigError([Problem("lists", said, hint)])
        cut = parts_of(split.split_id, parts)
        if len(cut) == 1:
            return {split.split_id: position}
        return merging.resplit(_shares({split.split_id: position}), cut)

    def reunite(
        self,
        split: Split,
        position: Position | None,
        begun: Mapping[str, Position | None],
        ended: Mapping[str, Position],
    ) -> Position:
        """Merge the states of a split's parts, and add to its books what theirs have more."""
        (whole,) = _shares({split.split_id: position})
        return merging.reunited(whole, _shares(begun), _shares(ended))

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
        """End every log at its marker in *until*, and leave out other tokens.

        Split time grows by *elapsed_ms* when the logs are read to these ends.
        """
        assert until is None or isinstance(until, CdcState)  # noqa: S101 (from decode_position)
        self._fit()
        self._parts.elapsed_ms = elapsed_ms
        self._parts.part = RingPart(self._parts.count, tuple(tokens))
        if until is not None:
            self._parts.know(until)
            for node, log in self._parts.logs.items():
                marker = until.markers.get(node, Marker(0, 0))
                log.end_at(marker.segment_id, marker.offset)

    def traces(self, *, everywhere: bool = True) -> Sequence[Trace]:
        """Return the notes in all directories, also of agents; see `traces_of`."""
        mark = store_mark(self.context.job_key)
        return traces_of(self._parts.logs, self.context.job, mark, everywhere=everywhere)

    def forget(self, traces: Sequence[Trace]) -> None:
        """Remove notes in the nodes' directories, also those of agents."""
        forget(self._parts.logs, traces)

    def unread(self) -> Sequence[HeadraceError]:
        """Return why logs cannot be read; not of those that the job goes without by `absent`."""
        pump, absent = self._parts.reading, self.config.absent
        away = pump.unreachable.items() if pump is not None else ()
        return [error for node, error in away if node not in absent]

    def lacking(self) -> Mapping[str, Problem]:
        """Return the tables that are waited for: by the schema that is given, and by the logs."""
        return self._parts.lacking()

    def unreadable(self) -> Mapping[str, Problem]:
        """Return the logs that cannot be read now, by node; see `unread.unread_of`."""
        return unread_of(self._parts)

    def measures(self) -> Sequence[Measure]:
        """Return how much was read, and how full the nodes' directories are."""
        return measures_of(self._parts)

    def tables(self) -> Sequence[str]:
        """Return the tables that are delivered, of the schema that is given."""
        return [table.qualified for table in self._parts.tables]

    def flaws(self, *, from_ms: int | None = None, to_ms: int | None = None) -> Sequence[Finding]:
        """Look for segments that are missing, or in two logs; see `archive.flaws`."""
        return flaws(self._parts.logs, from_ms=from_ms, to_ms=to_ms)

    def table_type(self, table: str) -> TableType:
        """Return the types of a table of the schema that is given."""
        found = self._parts.schema.table(table)
        if found is None:
            said = f"{table} is not in the schema"
            raise ConfigError([Problem("table", said, "keyspace.table, as in the schema")])
        return table_type(found)

    def typed_values(
        self, target: TableType, values: Sequence[Document], texts: Mapping[bytes, str]
    ) -> TypedChanges:
        """Make changes of the values again, and typed columns of these."""
        return typed_values(target, values, texts)

    def read_until(self, position: Position) -> None:
        """Read no log beyond its marker in *position*."""
        assert isinstance(position, CdcState)  # noqa: S101 (from `meeting`)
        self._parts.pump.read_until(position.markers)

    def retire(self, splits: Sequence[str] | None = None) -> None:
        """Withdraw what the job, or of it these splits, needs of the logs."""
        for node in self._parts.logs:
            if (hold := self._parts.hold_of(node)) is not None:
                hold.withdraw(self._parts.splits if splits is None else splits)

    def recover(self, lost: Quarantined) -> Batch | None:
        """Decode anew, by the schema of now, a mutation or what is whole in a damaged part."""
        return self._parts.recovered(lost)

    @property
    def crossed_bytes(self) -> int:
        """Bytes that went to agents and came from them so far, in bodies and headers."""
        logs = self._parts.logs.values()
        return sum(0 if isinstance(log, LogDirectory) else log.agent.crossed_bytes for log in logs)

    @classmethod
    def first_position(cls) -> None:
        """Return nothing: where the logs begin shows when they are read."""

    def close(self) -> None:
        """Close the logs."""
        self._parts.close()


def _shares(states: Mapping[str, Position | None]) -> Sequence[Share]:
    """Return what states say of the ring, by the names of their splits."""
    shares = []
    for number, (name, state) in enumerate(states.items()):
        arc = arc_of(name)
        assert arc is not None  # noqa: S101 (a split's name)
        assert state is None or isinstance(state, CdcState)  # noqa: S101 (from decode_position)
        shares.append(Share(arc, (number,), state))
    return shares
