"""The shared parts of a job's readers: configuration, and result of `build`. For one thread."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from headrace.plugins import ConfigError, Context, Demand, HeadraceError, News, Problem, Quarantined
from headrace.sources.cassandra.agreement.intake import Intake
from headrace.sources.cassandra.batch import MutationBatch
from headrace.sources.cassandra.commitlog.manifest import Manifest
from headrace.sources.cassandra.config import (
    KEEP,
    LIVE,
    WAIT,
    CassandraConfig,
    tables_named,
    tables_with_cdc,
)
from headrace.sources.cassandra.encode.list_modes import READ
from headrace.sources.cassandra.encode.quarantine import salvaged
from headrace.sources.cassandra.encode.transcode import Transcoder
from headrace.sources.cassandra.errors import (
    AgentUnavailableError,
    LogUnreadableError,
    TopologyError,
)
from headrace.sources.cassandra.framed.blocks import BlockFile
from headrace.sources.cassandra.framed.log import FramedLog
from headrace.sources.cassandra.keystore.keys import Keys
from headrace.sources.cassandra.logs.directory import LogDirectory, LogReader
from headrace.sources.cassandra.logs.folder_watch import FolderWatch, Inotify
from headrace.sources.cassandra.logs.index_files import ReportedFlaws
from headrace.sources.cassandra.logs.pins import FOLDER, HoldDeniedError
from headrace.sources.cassandra.logs.reread import Copies
from headrace.sources.cassandra.logs.seek import acquaint
from headrace.sources.cassandra.reading.deliveries import Deliveries
from headrace.sources.cassandra.reading.lists import ROWS_MAX, Lists
from headrace.sources.cassandra.reading.log_tables import LogTables
from headrace.sources.cassandra.reading.pump import Pump
from headrace.sources.cassandra.reading.ring_part import RingPart
from headrace.sources.cassandra.reading.segment_index import IndexFolder, Searcher, SectionFilter
from headrace.sources.cassandra.reading.stream_watch import follower
from headrace.sources.cassandra.reading.topology_versions import Nodes, Replicas
from headrace.sources.cassandra.reading.written_logs import WrittenLogs
from headrace.sources.cassandra.retention.disposal import SegmentRetention
from headrace.sources.cassandra.retention.hold import Hold, store_mark
from headrace.sources.cassandra.ring.splits import SPLITS_MIN, names
from headrace.sources.cassandra.ring.topology import Coverage, Topology, coverage, local_datacenter
from headrace.sources.cassandra.ring.topology_file import TopologyFile, nodes_of
from headrace.sources.cassandra.schema.tables import KeyspaceSchema, Schema, TableSchema
from headrace.sources.cassandra.schema.unlogged import Announcer
from headrace.sources.cassandra.schema_versions.given_schema import GivenSchema
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker

if TYPE_CHECKING:  # Loaded only for jobs with such a node.
    from headrace.sources.cassandra.agent.client import RemoteHold, RemoteLog
    from headrace.sources.cassandra.reading.cursor import LogCursor, Spared

BULK_ROOM: Final = 4  # In bulk work a pass may exceed a split's records by this fraction.
STRIDE_SPLITS: Final = 8  # From this number on, a split's turn is too small if all logs are read.


class Parts:
    """The shared parts of a job's readers."""

    def __init__(self, config: CassandraConfig, context: Context, count: int) -> None:
        """Open nothing yet; the ring is divided into *count* parts."""
        self.config = config
        self.context = context
        self.count = count
        self.part = RingPart(count)
        self.elapsed_ms: int | None = None
        """How much split time advances, instead of the clock."""
        self.spared: Mapping[str, Spared] = {}
        """The parts of logs that are skipped."""
        self.framed: BlockFile | None = None
        """The framed entries of the logs, for the one split that is read."""
        self.reading: Reading | None = None
        """The reader of the logs; None until something is read."""
        self._logs: dict[str, LogDirectory | RemoteLog] = {}
        self.inotify = Inotify()
        self._ring: Nodes | None = None
        self.cdc_bytes_max: int | None = None
        """The maximum size of each node's `cdc_raw`, if a node reported it."""
        self._reported_changes = 0
        self._reported: set[bytes | str] = set()
        self._unreachable: set[str] = set()
        self._reported_silent: set[str] = set()
        self._absent: frozenset[str] = frozenset()
        self._reported_ring: Topology | None = None
        self._looked_ring: Topology | None = None
        self._reported_names: frozenset[str] = frozenset()
        self._reported_coverage: tuple[Topology | None, Mapping[str, Coverage | None]] = (None, {})
        self._reported_flaws: dict[str, Sequence[HeadraceError]] = dict.fromkeys(config.nodes, ())
        self._flaws_reported: dict[str, ReportedFlaws] = defaultdict(ReportedFlaws)
        self._missing_tables: Mapping[str, Problem] = {}
        self._generations: dict[str, int] = {}
        self.holds: dict[str, Hold | RemoteHold] = {}  # Those that were opened.

    def check(self) -> None:
        """Check for errors that would stop every split: the schema, tables, replicas, directories.

        Raises:
            ConfigError: an option does not fit the schema or another option.
            MissingRequirementError: a directory or a cluster is missing or not accessible.
            TopologyError: the replicas cannot be determined.
            SegmentKeyError: the key store cannot be read.

        """
        self._check_streams()
        self._report_unread()
        _ = self.keys
        self.replicas.check_width()
        if not self.replicas.all_read_all:  # A reader checks the logs of its own split.
            return
        for node, log in self.logs.items():
            is_named = node in self.config.absent
            with contextlib.suppress(LogUnreadableError if is_named else AgentUnavailableError):
                log.check()  # Other nodes do not depend on it.
        self.reserve(self.splits)

    def reserve(self, splits: Sequence[str]) -> None:
        """Write a pin that needs everything for each of *splits* that has none yet."""
        for node in self.logs:
            if (hold := self.hold_of(node)) is not None:
                with self._tolerating(node):
                    hold.register_all(splits)

    def _check_streams(self) -> None:
        settings = self.given.settings
        self.cdc_bytes_max = settings.cdc_bytes_max
        if settings.repair_is_logged and self.config.streamed is None:
            said = "the nodes log what repair streams to them (cdc_on_repair_enabled: true)"
            hint = "publish: what is older than the memory comes again; suppress: it does not"
            raise ConfigError([Problem("streamed", said, hint)])

    @cached_property
    def splits(self) -> Sequence[str]:
        """The names of all splits."""
        return names(self.count)

    @property
    def split_records_max(self) -> int:
        """The number of records that one split remembers."""
        config = self.config
        return config.records_max // (SPLITS_MIN if config.splits is None else self.count)

    @cached_property
    def given(self) -> GivenSchema:
        """The source of the schema that the job is configured with."""
        file = None if self.config.schema is None else Path(self.config.schema)
        return GivenSchema(file, self.config.contact, self.context)

    def built(self) -> "Reading":
        """Return the reading of the logs; build it on the first call."""
        if self.reading is None:
            self.reading = build(self)
        return self.reading

    @property
    def schema(self) -> Schema:
        """The configured schema: after all statements of the file, or the current one."""
        return self.given.schema

    @cached_property
    def tables(self) -> Sequence[TableSchema]:
        """The tables whose changes are delivered from the start; see `config`."""
        if not self.config.tables:
            return tables_with_cdc(self.schema, self.announcer)
        found, self._missing_tables = tables_named(
            self.schema,
            self.config.tables,
            self.announcer,
            waits=self.config.tables_missing == WAIT,
        )
        return found

    @cached_property
    def announcer(self) -> Announcer:
        """Warns of tables whose writes are in no log."""
        return Announcer(self.context.log.warning, self.schema.tables.get)

    def missing_tables(self) -> Mapping[str, Problem]:
        """Return the tables that the job waits for, and why: no log has them either.

        This includes named tables whose writes are not logged now.
        """
        schemas = self.reading.deliveries.schemas if self.reading is not None else ()
        reported = {schema.table for schema in schemas}
        skipped = dict(self.announcer.skipped)  # Reading a log may add to it.
        missing_tables = {
            name: why for name, why in self._missing_tables.items() if name not in reported
        }
        named = {name: skipped[name] for name in self.config.tables if name in skipped}
        return {**missing_tables, **{name: why.problem(name) for name, why in named.items()}}

    @cached_property
    def keyspaces(self) -> list[str]:
        """The keyspaces of the tables that are delivered from the start."""
        return sorted({table.keyspace for table in self.tables})

    @cached_property
    def logs(self) -> "Mapping[str, LogDirectory | RemoteLog]":
        """Each node's log, in the order that numbers the hosts."""
        self._logs = self._made_logs()
        return self._logs

    def _made_logs(self) -> "dict[str, LogDirectory | RemoteLog]":
        owners: dict[object, str] = {}
        logs: dict[str, LogDirectory | RemoteLog] = {}
        exchange = None
        for name, given in self.config.nodes.items():
            node = given if isinstance(given, Mapping) else {"path": given}
            if "url" in node:
                place: object = str(node["url"]).rstrip("/")
                exchange = exchange or _remote().Exchange()
                access, now_ms = self.config.agent_access, self.context.clock.monotonic_ms
                agent = _remote().Agent(str(node["url"]), access, now_ms)
                logs[name] = _remote().RemoteLog(agent, exchange)
            else:
                place = _identity(str(node["path"]))
                path, commitlog, hold = (
                    Path(str(node[key])) if key in node else None
                    for key in ("path", "commitlog", "hold")
                )
                logs[name] = LogDirectory(
                    path or Path(),
                    commitlog,
                    hold=hold,
                    may_be_gone=name in self.config.absent,
                    watch=FolderWatch(self.inotify, self.context.clock.monotonic_ms),
                )
            owner = owners.setdefault(place, name)
            if owner != name:  # One copy would count as two.
                raise ConfigError([Problem(f"nodes.{name}", f"is the directory of {owner}")])
        return logs

    def limit(
        self, until: CdcState | None, tokens: Sequence[tuple[int, int]], elapsed_ms: int
    ) -> None:
        """End each log at its marker in *until*, and leave out other tokens; see `Source.limit`."""
        self.elapsed_ms = elapsed_ms
        self.part = RingPart(self.count, tuple(tokens))
        if until is not None:
            self.know(until)
            for node, log in self.logs.items():
                marker = until.markers.get(node, Marker(0, 0))
                log.end_at(marker.segment_id, marker.offset)

    def spare(self, wanted: SectionFilter) -> None:
        """Skip sections of indexed segments without anything that *wanted* selects."""
        folder = IndexFolder(self.context.cache)
        self.spared = {
            node: partial(folder.spared, node, log, wanted)
            for node, log in self.logs.items()
            if isinstance(log, LogDirectory)
        }

    def read_logs(self) -> Mapping[str, LogReader]:
        """Return the logs for reading; framed parts are not framed again."""
        if self.framed is None:
            return self.logs
        copies = Copies(self.logs, self.context.job_key, self.keys)
        return {node: FramedLog(node, log, self._blocks, copies) for node, log in self.logs.items()}

    def _blocks(self) -> BlockFile:
        assert self.framed is not None  # noqa: S101 (else logs are read directly)
        return self.framed

    def know(self, state: CdcState | None) -> None:
        """Pass the manifests of a state to the logs: old segments, and log generations."""
        if state is not None:
            acquaint(self.logs, state)
            for node, stored in state.manifests.items():
                before = self._generations.get(node, 0)
                self._generations[node] = max(before, Manifest(stored).generation)

    @property
    def searcher(self) -> Searcher:
        """Determines and stores the content of segments."""
        epoch = self.built().deliveries.epochs.of(self.schema)
        return Searcher(IndexFolder(self.context.cache), self.keys, epoch)

    def tables_of(self, node: str) -> LogTables:
        """Return the tables at the start of a node's log."""
        return LogTables(node, self.given, self.built().deliveries, self.context)

    @cached_property
    def mark(self) -> str:
        """Identifies the job's state in pins beside logs."""
        return store_mark(self.context.job_key)

    def hold_of(self, node: str) -> "Hold | RemoteHold | None":
        """Return the job's hold in a node's directory; a read-only job has none."""
        if self.context.read_only:
            return None
        if node not in self.holds:
            self.holds[node] = self._made_hold(node)
        return self.holds[node]

    def _made_hold(self, node: str) -> "Hold | RemoteHold":
        log, context = self.logs[node], self.context
        if not isinstance(log, LogDirectory):
            made: RemoteHold = _remote().RemoteHold(log.agent, context.job, self.mark)
            return made
        folder = log.path / FOLDER
        if self.config.disposal == KEEP:
            return Hold(folder, context.job, store=self.mark)
        retention = SegmentRetention(log, self.config.disposal_of, context.clock, context.log)
        with self._tolerating(node):
            retention.check()
        return Hold(folder, context.job, store=self.mark, retention=retention)

    def _tolerating(self, node: str) -> "contextlib.suppress":
        """Continue without the hold of a node in `absent`."""
        return contextlib.suppress(*((HoldDeniedError,) if node in self.config.absent else ()))

    @cached_property
    def replicas(self) -> Replicas:
        """The replicas of each range, by topology version, and the number of copies needed."""
        known, config = self.schema.keyspaces, self.config
        for name in self.keyspaces:
            if name not in known:
                raise TopologyError(
                    "the schema has its tables, but not the keyspace itself",
                    place=f"keyspace {name}",
                    hint=f"add CREATE KEYSPACE {name} WITH replication = … to the schema file, "
                    "or give contact_points",
                )
        self._ring = self._made_ring()
        seen = None if self._ring is None else self._ring.changed(0)
        nodes = seen or nodes_of(config.nodes)
        keyspaces = [known[name] for name in self.keyspaces]
        local = local_datacenter(nodes, config.consistency, config.datacenter)
        current = Topology.of(nodes, keyspaces, config.consistency, local)
        return Replicas(tuple(config.nodes), current, self.keyspaces, self.count)

    def _made_ring(self) -> Nodes | None:
        """Return a reporter of ring changes; None if the ring never changes."""
        config = self.config
        if config.topology is None:
            return None
        if config.topology != LIVE:
            return TopologyFile(config.topology, self.context)
        # Imported here: a job with its ring from a file starts without the driver.
        from headrace.sources.cassandra.ring.live_ring import LiveRing  # noqa: PLC0415

        return LiveRing(config.contact, config.names, self.context)

    def keyspaces_of(self, stored: Sequence[str]) -> Sequence[str]:
        """Return the numbered keyspaces, with those of a *stored* state if they are known.

        A keyspace that no longer has a delivered table may have one again.
        """
        known = self.schema.keyspaces
        for name in stored:
            if name in known:
                self.number(known[name])
        return self.replicas.keyspaces

    def number(self, keyspace: KeyspaceSchema) -> int:
        """Return the number of a keyspace, which may be new; -1 if its replicas are unknown."""
        try:
            return self.replicas.number(keyspace)
        except TopologyError as error:
            self.context.log.warning(
                "keyspace_skipped", keyspace=keyspace.name, error=error.message, hint=error.hint
            )
            return -1

    @cached_property
    def keys(self) -> Keys:
        """The keys of encrypted segments."""
        return Keys(self.config)

    def recovered(self, lost: Quarantined) -> MutationBatch | None:
        """Return a quarantined mutation as a batch; None if its bytes contain none."""
        made = self.built()
        epoch = made.deliveries.epochs.of(self.schema)
        made.deliveries.routes_of(epoch)
        agreed = salvaged(lost, epoch)
        if agreed is None:
            return None
        return MutationBatch(
            "",
            CdcState(0, 0, (), (), {}, {}),
            agreed,
            intake=made.pump.intake,
            more=False,
            nodes=(str(lost.origin["node"]),),
            deliveries=made.deliveries,
            transcoder=made.transcoder,
            announced=made.deliveries.schemas[:],
            lists=made.lists,
        )

    def follow(self) -> None:
        """Update the holds and the ring before logs are read.

        Raises:
            TopologyError: in the current ring the logs read cannot meet the level.

        """
        if self.config.disposal != KEEP:
            for hold in self.holds.values():
                hold.tick()
        now_ms = self.context.clock.monotonic_ms()
        nodes = None if self._ring is None else self._ring.changed(now_ms)
        if nodes is not None:
            self.replicas.follow_nodes(nodes)

    def run_pass(self, demand: Demand) -> None:
        """Read the logs, and report findings. Raises as `Pump.run_pass` does."""
        self.built().pump.run_pass(self._bounded(demand))
        self.report()

    def look(self, demand: Demand) -> News:
        """Read the logs. Return which splits may have something new."""
        self.follow()
        made = self.built()
        pump = made.pump
        if self._looked_ring is not self.replicas.current:
            self._looked_ring = self.replicas.current
            pump.wake_all()
        moves = pump.moves
        self.inotify.hold()
        try:
            numbers = pump.look(self._bounded(demand))
        finally:
            self.inotify.go_on()
        self.report()
        is_read = pump.moves != moves  # Otherwise more of it waits for room.
        news = [self.splits[number] for number in numbers]
        more, readable = pump.more and is_read, made.written.descriptor
        return News(news, more=more, is_still=self._is_still, readable=readable)

    def _is_still(self) -> bool:
        """Return whether a look would find nothing new; see `Pump.is_still`."""
        self.inotify.hold()
        try:
            return self.built().pump.is_still()
        finally:
            self.inotify.go_on()

    def _bounded(self, demand: Demand) -> Demand:
        if self.built().lists is None:
            return demand
        return replace(demand, records_max=min(demand.records_max, ROWS_MAX))

    def report(self) -> None:
        """Warn once about each damaged place, and about each table id that is not in the schema."""
        reading = self.built()
        pump = reading.pump
        if self._reported_changes != pump.changes:
            self._reported_changes = pump.changes
            self._report_unreachable(pump.unreachable)
            self._report_absent(pump.absent())
        if self.replicas.current is not self._reported_ring:
            self._reported_ring = self.replicas.current
            self._report_ring()
            self._report_unread()
        for node, log in self._logs.items():
            self._report_log(node, log)
        damage = pump.damage
        for place in damage.keys() - self._reported:
            self._reported.add(place)
            error = damage[place]
            self.context.log.warning(
                "log_damaged",
                place=place,
                error_code=error.code,
                error=error.message,
                hint="its bytes are in the quarantine; the copies of other nodes still count",
            )
        unknown = {**reading.deliveries.unknown, **pump.intake.unknown}
        for table_id in unknown.keys() - self._reported:
            self._reported.add(table_id)
            self.context.log.warning(
                "unknown_table",
                table_id=table_id.hex(),
                place=unknown[table_id],
                hint="dropped tables are skipped; for a new table give the job a fresh schema",
            )

    def _report_unreachable(self, unreachable: Mapping[str, HeadraceError]) -> None:
        for node in unreachable.keys() - self._unreachable:
            self.context.log.warning(
                "log_unreachable",
                node=node,
                error=str(unreachable[node]),
                hint="the other logs are read; nothing expires before it is taken for absent",
            )
        for node in self._unreachable - unreachable.keys():
            self.context.log.info("log_reachable", node=node)
        self._unreachable = set(unreachable)

    def _report_absent(self, absent: frozenset[str]) -> None:
        for node in sorted(absent - self._absent):
            self.context.log.warning(
                "log_absent",
                node=node,
                hint="mutations without its copies no longer wait and expire; "
                "what it logs meanwhile counts if it is back within dedup_window_seconds",
            )
        self._absent = absent

    def _report_log(self, node: str, log: "LogDirectory | RemoteLog") -> None:
        if log.manifest.generation > self._generations.get(node, 0):
            self._generations[node] = log.manifest.generation
            self.context.log.warning(
                "log_generation_started",
                node=node,
                generation=log.manifest.generation,
                hint="segments with lower ids than before: the node was set up again, or its "
                "clock set back; they are read from their start",
            )
        if log.is_reported is False and node not in self._reported_silent:
            self._reported_silent.add(node)
            self.context.log.info(
                "agent_cannot_tell",
                node=node,
                hint="the agent is older and does not tell when there is more: its log is read at "
                "each tick in mode realtime, too, until the agent is updated",
            )
        # An agent warns about its own flaws.
        if isinstance(log, LogDirectory) and log.flaws is not self._reported_flaws[node]:
            self._reported_flaws[node] = log.flaws
            self._flaws_reported[node].tell(log.flaws, self.context.log, node=node)

    def _report_ring(self) -> None:
        ring, read = self.replicas.current.names(), frozenset(self.config.nodes)
        if ring not in {read, self._reported_names}:
            self.context.log.warning(
                "ring_differs",
                not_in_ring=sorted(read - ring),
                not_read=sorted(ring - read),
                hint="names that differ, or a node that left or is yet to come",
            )
        self._reported_names = ring

    def _report_unread(self) -> None:
        """Warn about keyspaces with copies in logs that are not read."""
        ring, read = self.replicas.current, tuple(self.config.nodes)
        if ring is self._reported_coverage[0] or self.context.read_only:
            return
        found = {name: coverage(ring, name, read) for name in self.replicas.keyspaces}
        for name, each in found.items():
            if each is None or each == self._reported_coverage[1].get(name):
                continue
            self.context.log.warning(
                "replicas_unread",
                keyspace=name,
                copies=each.copies,
                read=each.read,
                consistency=ring.level,
                needed=each.needed,
                not_read=list(each.unread),
                hint=self._unread_hint(each),
            )
        self._reported_coverage = ring, found

    def unread_copies(self) -> Iterator[tuple[str, tuple[Coverage, str]]]:
        """Yield each keyspace with copies in unread logs, and the effect."""
        ring, read = self.replicas.current, tuple(self.config.nodes)
        for name in self.replicas.keyspaces:
            if (found := coverage(ring, name, read)) is not None:
                yield name, (found, self._unread_hint(found))

    def _unread_hint(self, found: Coverage) -> str:
        fate = "dropped" if self.config.expired == "drop" else "published as it is"
        short = f"wait, and be {fate} after expiry_seconds ({self.config.expiry_seconds})"
        return (
            f"a change is sure to be published if {found.sure} of {found.copies} nodes have "
            f"it; another one may {short if found.needed > 1 else 'never be seen'}: "
            "give the other nodes under source.nodes"
        )

    def close(self) -> None:
        """Close the logs if they were opened."""
        if self.reading is not None:
            self.reading.close()
        if self._ring is not None:
            self._ring.close()
        for log in self._logs.values():
            log.close()
        if self.framed is not None:
            self.framed.close()
        self.inotify.close()


class Reading(msgspec.Struct, frozen=True):
    """Reads the logs of a job, and makes batches."""

    pump: Pump
    """The single reader of all logs."""
    deliveries: Deliveries
    """Which tables are delivered, and how."""
    copies: Copies
    """Reads copies again from the logs."""
    transcoder: Transcoder
    """Encodes Avro directly from raw mutations."""
    lists: Lists | None
    """Reads lists from their tables, if that is configured."""
    written: WrittenLogs
    """Reports writes to logs."""

    def close(self) -> None:
        """Close all files and connections."""
        self.written.close()
        self.pump.close()
        self.copies.close()
        if self.lists is not None:
            self.lists.close()


def build(parts: Parts) -> Reading:
    """Build the reading of a job's logs; read nothing yet."""
    config, context, given = parts.config, parts.context, parts.given
    cursors: dict[str, LogCursor] = {}  # Of the logs read, by node; the pump's.

    def epochs() -> Sequence[int]:
        """Return the current epochs of the logs, the newest first."""
        return sorted({each.tables.epoch.number for each in cursors.values()}, reverse=True)

    def refreshed() -> Sequence[int]:
        """Read the configured schema again, pass it to all logs, and return their epochs."""
        fresh = given.again()
        for cursor in cursors.values():
            cursor.tables.refreshed(fresh, cursor.marker)
        return epochs()

    deliveries = Deliveries(
        config.tables,
        parts.number,
        current=epochs,
        refresh=refreshed,
        follow=parts.replicas.follow_replication,
        announce=parts.announcer.tell,
    )
    intake = Intake(len(config.nodes), context.job_key, parts.count)
    pump = Pump(
        intake,
        parts.read_logs(),
        context.clock.monotonic_ms,
        wall_ms=context.clock.wall_ms,
        keys=parts.keys,
        tables=lambda node: LogTables(node, given, deliveries, context),
        home=parts.replicas.home,
        segments_per_batch_max=config.segments_per_batch_max,
        gaps=config.gaps,
        unavailable_policy=config.unavailable_policy,
        # In bulk work a missing directory is a permanent error.
        bears=AgentUnavailableError if context.read_only else LogUnreadableError,
        records_max=parts.split_records_max,
        cursors=cursors,
        listed=follower(intake, cursors, parts.logs, context),
        elapsed_ms=parts.elapsed_ms,
        spared=parts.spared,
        stride=1 if parts.framed is None else max(1, parts.count // STRIDE_SPLITS),
        # Over a whole log, some split is always full.
        records_room=parts.split_records_max // BULK_ROOM if context.read_only else 0,
    )
    copies = Copies(parts.logs, context.job_key, parts.keys)
    written = WrittenLogs(parts.logs, cursors, parts.inotify)
    lists = lists_of(config, context)
    return Reading(pump, deliveries, copies, Transcoder(deliveries), lists, written)


def lists_of(config: CassandraConfig, context: Context) -> Lists | None:
    """Return the reader of lists in their tables, if configured; None for a read-only job."""
    if config.lists != READ or context.read_only:
        return None
    # Imported here: a job that queries no cluster starts without the driver.
    from headrace.sources.cassandra.reading.list_query import CqlLists  # noqa: PLC0415

    query = CqlLists(
        config.contact,
        consistency=config.lists_consistency or config.consistency,
        concurrency=config.lists_concurrency,
        seconds_max=config.lists_seconds_max,
    )
    return Lists(query, context, unread=config.lists_unread)


def _identity(path: str) -> object:
    """Return an identity of a directory that is the same for any path, even a second mount."""
    try:
        found = os.stat(path)  # noqa: PTH116 (the given path)
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def _remote() -> ModuleType:
    from headrace.sources.cassandra.agent import client  # noqa: PLC0415 (slow to import, rarely needed)

    return client
