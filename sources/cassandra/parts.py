"""What the readers of a job share, each part made when it is first asked for. For one thread."""

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from headrace.plugins import ConfigError, Context, HeadraceError, Problem, Quarantined
from headrace.sources.cassandra.batch import MutationBatch
from headrace.sources.cassandra.config import LIVE, READ, WAIT, CassandraConfig
from headrace.sources.cassandra.copies import Copies
from headrace.sources.cassandra.deliveries import Deliveries
from headrace.sources.cassandra.directory import LogDirectory, identity
from headrace.sources.cassandra.errors import (
    AgentUnavailableError,
    LogUnreadableError,
    TopologyError,
)
from headrace.sources.cassandra.given_schema import GivenSchema
from headrace.sources.cassandra.hold import Hold, store_mark
from headrace.sources.cassandra.index_files import FlawsTold
from headrace.sources.cassandra.intake import Intake
from headrace.sources.cassandra.keeper import Keeper
from headrace.sources.cassandra.keys import Keys
from headrace.sources.cassandra.lists import Lists
from headrace.sources.cassandra.log_tables import LogTables
from headrace.sources.cassandra.manifest import Manifest
from headrace.sources.cassandra.named_tables import tables_named, tables_with_cdc
from headrace.sources.cassandra.needs import HoldDeniedError
from headrace.sources.cassandra.pump import Pump
from headrace.sources.cassandra.receiving import follower
from headrace.sources.cassandra.replicas import Nodes, Replicas
from headrace.sources.cassandra.ring_part import RingPart
from headrace.sources.cassandra.salvage import salvaged
from headrace.sources.cassandra.schema import KeyspaceSchema, Schema, TableSchema
from headrace.sources.cassandra.segment_index import IndexFolder, Searcher
from headrace.sources.cassandra.splits import SPLITS_MIN, names
from headrace.sources.cassandra.state import CdcState
from headrace.sources.cassandra.survey import acquaint
from headrace.sources.cassandra.topology import Coverage, Topology, coverage, local_datacenter
from headrace.sources.cassandra.topology_file import TopologyFile, node_of
from headrace.sources.cassandra.transcode import Transcoder
from headrace.sources.cassandra.unlogged import Announcer

if TYPE_CHECKING:  # What is on other machines is loaded when a job has such a node.
    from headrace.sources.cassandra.remote import RemoteHold, RemoteLog


class Parts:
    """See the module."""

    def __init__(self, config: CassandraConfig, context: Context, count: int) -> None:
        """Make nothing yet; the ring is cut into *count* parts."""
        self.config = config
        self.context = context
        self.count = count
        self.part = RingPart(count)
        self.elapsed_ms: int | None = None
        """By how much split time grows, instead of by the clock."""
        self.cdc_bytes_max: int | None = None
        """How large each node's `cdc_raw` may become, if one of them told."""
        self._reported: set[bytes | str] = set()
        self._unreachable: set[str] = set()
        self._absent: frozenset[str] = frozenset()
        self._told_ring: frozenset[str] = frozenset()
        self._told_coverage: tuple[Topology | None, Mapping[str, Coverage | None]] = (None, {})
        self._told_flaws: dict[str, FlawsTold] = defaultdict(FlawsTold)
        self._lacking: Mapping[str, Problem] = {}
        self._incarnations: dict[str, int] = {}
        self.holds: dict[str, Hold | RemoteHold] = {}  # Those that were asked for.

    def check(self) -> None:
        """Find now what would stop every split later: the schema, tables, replicas, directories.

        Raises:
            ConfigError: an option does not fit the schema or another option.
            MissingRequirementError: a directory or a cluster is not there, or not for us.
            TopologyError: the replicas cannot be told.
            SegmentKeyError: the key store cannot be read.

        """
        self._check_streams()
        self._report_unread()
        _ = self.keys
        self.replicas.check_width()
        if not self.replicas.all_read_all:  # Who reads a split looks at its logs, nobody at all.
            return
        for node, log in self.logs.items():
            is_named = node in self.config.absent
            with contextlib.suppress(LogUnreadableError if is_named else AgentUnavailableError):
                log.segments()  # The others do not wait for it.
        for node in self.logs:
            if (hold := self.hold_of(node)) is not None:
                with self._tolerating(node):
                    hold.register_all(self.splits)

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
        """How many records one split remembers."""
        config = self.config
        return config.records_max // (SPLITS_MIN if config.splits is None else self.count)

    @cached_property
    def given(self) -> GivenSchema:
        """Where the schema is read that the job is given."""
        file = None if self.config.schema is None else Path(self.config.schema)
        return GivenSchema(file, self.config.contact, self.context)

    @property
    def reading(self) -> Pump | None:
        """What reads the logs, once something is read."""
        return self.__dict__.get("pump")

    @property
    def schema(self) -> Schema:
        """The schema that is given: of the end of the file's statements, or of now."""
        return self.given.schema

    @cached_property
    def tables(self) -> Sequence[TableSchema]:
        """The tables whose changes are delivered from the beginning; see `named_tables`."""
        if not self.config.tables:
            return tables_with_cdc(self.schema, self.announcer)
        found, self._lacking = tables_named(
            self.schema,
            self.config.tables,
            self.announcer,
            waits=self.config.tables_missing == WAIT,
        )
        return found

    @cached_property
    def announcer(self) -> Announcer:
        """What tells of tables whose writes are in no log."""
        return Announcer(self.context.log.warning, self.schema.tables.get)

    def lacking(self) -> Mapping[str, Problem]:
        """Return the tables that are waited for, and why: no log has told of them either.

        With them those that are named, and of which nothing is logged by now.
        """
        made = self.__dict__.get("deliveries")
        told = {schema.table for schema in made.schemas} if made is not None else frozenset()
        skipped = dict(self.announcer.skipped)  # A log may come to more meanwhile.
        lacking = {name: why for name, why in self._lacking.items() if name not in told}
        named = {name: skipped[name] for name in self.config.tables if name in skipped}
        return {**lacking, **{name: why.problem(name) for name, why in named.items()}}

    @cached_property
    def keyspaces(self) -> list[str]:
        """The keyspaces of the tables that are delivered from the beginning."""
        return sorted({table.keyspace for table in self.tables})

    @cached_property
    def logs(self) -> "Mapping[str, LogDirectory | RemoteLog]":
        """Each node's log, in the order that numbers the hosts."""
        owners: dict[object, str] = {}
        logs: dict[str, LogDirectory | RemoteLog] = {}
        access, exchange = self.config.agent_access, None
        for name, given in self.config.nodes.items():
            node = given if isinstance(given, Mapping) else {"path": given}
            if "url" in node:
                place: object = str(node["url"]).rstrip("/")
                exchange = exchange or _remote().Exchange()
                agent = _remote().Agent(str(node["url"]), access, self.context.clock.monotonic_ms)
                logs[name] = _remote().RemoteLog(agent, exchange)
            else:
                place = identity(str(node["path"]))
                path, commitlog, hold = (
                    Path(str(node[key])) if key in node else None
                    for key in ("path", "commitlog", "hold")
                )
                logs[name] = LogDirectory(
                    path or Path(), commitlog, hold=hold, may_be_gone=name in self.config.absent
                )
            owner = owners.setdefault(place, name)
            if owner != name:  # One copy would count for two.
                raise ConfigError([Problem(f"nodes.{name}", f"is the directory of {owner}")])
        return logs

    def know(self, state: CdcState | None) -> None:
        """Let the logs know what a state knows of them: what is old, and in which incarnation."""
        if state is not None:
            acquaint(self.logs, state)
            for node, stored in state.manifests.items():
                before = self._incarnations.get(node, 0)
                self._incarnations[node] = max(before, Manifest(stored).incarnation)

    @property
    def searcher(self) -> Searcher:
        """What finds out what segments hold, and keeps it."""
        epoch = self.deliveries.epochs.of(self.schema)
        return Searcher(IndexFolder(self.context.cache), self.keys, epoch)

    def tables_of(self, node: str) -> LogTables:
        """Return the tables of a node's log as it begins."""
        return LogTables(node, self.given, self.deliveries, self.context)

    def hold_of(self, node: str) -> "Hold | RemoteHold | None":
        """Return the job's hold in a node's directory; a spectator has none."""
        if self.context.spectator:
            return None
        if node not in self.holds:
            log, context, mark = self.logs[node], self.context, store_mark(self.context.job_key)
            disposal = self.config.disposal_of
            made: Hold | RemoteHold = (
                Hold(Keeper(log, disposal, context.clock, context.log), context.job, store=mark)
                if isinstance(log, LogDirectory)
                else _remote().RemoteHold(log.agent, context.job, mark)
            )
            with self._tolerating(node):
                made.check()
            self.holds[node] = made
        return self.holds[node]

    def _tolerating(self, node: str) -> "contextlib.suppress":
        """Go without the hold of a node that is absent."""
        return contextlib.suppress(*((HoldDeniedError,) if node in self.config.absent else ()))

    @cached_property
    def replicas(self) -> Replicas:
        """Who holds what, by which version of the topology, and how many copies are needed."""
        known, config = self.schema.keyspaces, self.config
        for name in self.keyspaces:
            if name not in known:
                raise TopologyError(
                    "the schema has its tables, but not the keyspace itself",
                    place=f"keyspace {name}",
                    hint=f"add CREATE KEYSPACE {name} WITH replication = … to the schema file, "
                    "or give contact_points",
                )
        nodes = self._ring.changed(0) or [node_of(*named) for named in config.nodes.items()]
        keyspaces = [known[name] for name in self.keyspaces]
        local = local_datacenter(nodes, config.consistency, config.datacenter)
        current = Topology.of(nodes, keyspaces, config.consistency, local)
        return Replicas(tuple(config.nodes), current, self.keyspaces, self.count)

    @cached_property
    def _ring(self) -> Nodes:
        config = self.config
        if config.topology != LIVE:
            return TopologyFile(config.topology, self.context)
        # Only here: a job that has its ring from a file starts without the driver.
        from headrace.sources.cassandra.live_ring import LiveRing  # noqa: PLC0415

        return LiveRing(config.contact, config.names, self.context)

    def keyspaces_of(self, stored: Sequence[str]) -> Sequence[str]:
        """Return the keyspaces that have numbers, those of a *stored* state too if they are known.

        A keyspace that has no delivered table any more may have one again.
        """
        known = self.schema.keyspaces
        for name in stored:
            if name in known:
                self._number(known[name])
        return self.replicas.keyspaces

    def _number(self, keyspace: KeyspaceSchema) -> int:
        """Return the number of a keyspace, which may be new; -1 when its replicas are not told."""
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
        return Keys(self.config.key_options)

    @cached_property
    def copies(self) -> Copies:
        """Reads copies again from the logs."""
        return Copies(self.logs, self.context.job_key, self.keys)

    @cached_property
    def deliveries(self) -> Deliveries:
        """Which tables are delivered, and how."""
        made = Deliveries(self.config.tables, self._number)
        made.current = self._epochs
        made.announce = self.announcer.tell
        made.follow = self.replicas.follow_replication
        made.refresh = self._refreshed
        return made

    def _epochs(self) -> Sequence[int]:
        """Return the epochs that the logs are in, the youngest first."""
        numbers = {cursor.tables.epoch.number for cursor in self.pump.cursors}
        return sorted(numbers, reverse=True)

    def _refreshed(self) -> Sequence[int]:
        """Read anew what was given, let all logs know, and return the epochs that they are in."""
        fresh = self.given.again()
        for cursor in self.pump.cursors:
            cursor.tables.refreshed(fresh, cursor.marker)
        return self._epochs()

    @cached_property
    def pump(self) -> Pump:
        """The one reader of all logs."""
        config = self.config
        made = Pump(
            Intake(len(config.nodes), self.context.job_key, self.count),
            self.logs,
            self.context.clock.monotonic_ms,
            keys=self.keys,
            tables=self.tables_of,
            home=self.replicas.home,
            segments_per_batch_max=config.segments_per_batch_max,
            gaps=config.gaps,
            patience=config.patience,
            # Bulk work that lacks a directory is wrong for good.
            bears=AgentUnavailableError if self.context.spectator else LogUnreadableError,
        )
        made.listed = follower(made, self.logs, self.context)
        made.elapsed_ms = self.elapsed_ms
        made.records_max = self.split_records_max
        return made

    @cached_property
    def transcoder(self) -> Transcoder:
        """Encodes Avro straight from raw mutations."""
        return Transcoder(self.deliveries)

    @cached_property
    def lists(self) -> Lists | None:
        """Reads lists from their tables, if that is wanted; a spectator asks nobody."""
        config = self.config
        if config.lists != READ or self.context.spectator:
            return None
        # Only here: a job that asks no cluster starts without the driver.
        from headrace.sources.cassandra.list_query import CqlLists  # noqa: PLC0415

        query = CqlLists(
            config.contact,
            consistency=config.lists_consistency or config.consistency,
            concurrency=config.lists_concurrency,
            seconds_max=config.lists_seconds_max,
        )
        return Lists(query, self.context, unread=config.lists_unread)

    def recovered(self, lost: Quarantined) -> MutationBatch | None:
        """Return what was quarantined as a batch; None where no mutation is found in it."""
        epoch = self.deliveries.epochs.of(self.schema)
        self.deliveries.routes_of(epoch)
        outbox = salvaged(lost, epoch)
        if outbox is None:
            return None
        return MutationBatch(
            "",
            CdcState(0, 0, (), (), {}, {}),
            outbox,
            intake=self.pump.intake,
            more=False,
            nodes=(str(lost.origin["node"]),),
            deliveries=self.deliveries,
            transcoder=self.transcoder,
            announced=self.deliveries.schemas[:],
            lists=self.lists,
        )

    def follow(self) -> None:
        """Look after the holds and the ring, before logs are read on.

        Raises:
            TopologyError: in the ring of now the level cannot be met from the logs that are read.

        """
        for hold in self.holds.values():
            hold.tick()
        now_ms = self.context.clock.monotonic_ms()
        nodes = self._ring.changed(now_ms)
        if nodes is not None:
            self.replicas.follow_nodes(nodes)

    def report(self) -> None:
        """Warn once of each damaged place, and of each table id that the schema lacks."""
        self._report_unreachable(self.pump.unreachable)
        self._report_absent(self.pump.absent())
        self._report_incarnations()
        self._report_ring()
        self._report_unread()
        self._report_indexes()
        damage = self.pump.damage
        for place in damage.keys() - self._reported:
            self._reported.add(place)
            error = damage[place]
            self.context.log.warning(
                "log_damaged",
                place=place,
                error_code=error.code,
                error=error.message,
                hint="its bytes are in the quarantine; the copies of other nodes count as ever",
            )
        unknown = {**self.deliveries.unknown, **self.pump.intake.unknown}
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
                hint="nobody waits for it any more: what lacks its copies expires; "
                "what it logs meanwhile counts if it is back within memory_seconds",
            )
        self._absent = absent

    def _report_incarnations(self) -> None:
        for node, log in self.logs.items():
            if log.manifest.incarnation > self._incarnations.get(node, 0):
                self._incarnations[node] = log.manifest.incarnation
                self.context.log.warning(
                    "log_begins_anew",
                    node=node,
                    incarnation=log.manifest.incarnation,
                    hint="segments with lower ids than before: the node was set up anew, or its "
                    "clock set back; they are read from their beginning",
                )

    def _report_indexes(self) -> None:
        for node, log in self.logs.items():
            flaws = log.flaws if isinstance(log, LogDirectory) else ()  # An agent tells of its own.
            self._told_flaws[node].tell(flaws, self.context.log, node=node)

    def _report_ring(self) -> None:
        ring, read = self.replicas.current.names(), frozenset(self.config.nodes)
        if ring not in {read, self._told_ring}:
            self.context.log.warning(
                "ring_differs",
                not_in_ring=sorted(read - ring),
                not_read=sorted(ring - read),
                hint="names that differ, or a node that left or is yet to come",
            )
        self._told_ring = ring

    def _report_unread(self) -> None:
        """Warn of keyspaces that have copies in logs that are not read."""
        ring, read = self.replicas.current, tuple(self.config.nodes)
        if ring is self._told_coverage[0] or self.context.spectator:
            return
        found = {name: coverage(ring, name, read) for name in self.replicas.keyspaces}
        for name, each in found.items():
            if each is None or each == self._told_coverage[1].get(name):
                continue
            fate = "dropped" if self.config.expired == "drop" else "published as it is"
            short = f"wait, and be {fate} after expiry_seconds ({self.config.expiry_seconds})"
            self.context.log.warning(
                "replicas_unread",
                keyspace=name,
                copies=each.copies,
                read=each.read,
                consistency=ring.level,
                needed=each.needed,
                not_read=list(each.unread),
                hint=f"a change is sure to be published if {each.sure} of {each.copies} nodes have "
                f"it; another one may {short if each.needed > 1 else 'never be seen'}: "
                "give the other nodes under source.nodes",
            )
        self._told_coverage = ring, found

    def close(self) -> None:
        """Close the logs, if they were opened."""
        for name in ("pump", "copies", "_ring", "lists"):
            if self.__dict__.get(name) is not None:
                self.__dict__[name].close()
        for log in self.__dict__.get("logs", {}).values():
            log.close()


def _remote() -> ModuleType:
    from headrace.sources.cassandra import remote  # noqa: PLC0415 (needs a while, seldom needed)

    return remote
