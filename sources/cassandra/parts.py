"""What the readers of a job share, each part made when it is first asked for. For one thread."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from headrace.plugins import ConfigError, Context, Problem, Quarantined, RecordSchema
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.atoms import AtomCutter
from headrace.sources.cassandra.batch import MutationBatch, Shapes
from headrace.sources.cassandra.changes import MutationDecoder
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.copies import Copies
from headrace.sources.cassandra.ddl import parse_schema
from headrace.sources.cassandra.directory import LogDirectory
from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.hold import Disposal, Hold
from headrace.sources.cassandra.intake import Intake
from headrace.sources.cassandra.keys import Keys
from headrace.sources.cassandra.layout import Catalogue
from headrace.sources.cassandra.pump import Pump
from headrace.sources.cassandra.records import Groups
from headrace.sources.cassandra.salvage import salvaged
from headrace.sources.cassandra.schema import (
    SYSTEM_KEYSPACES,
    KeyspaceSchema,
    Schema,
    TableSchema,
)
from headrace.sources.cassandra.state import CdcState
from headrace.sources.cassandra.table_plan import TablePlan
from headrace.sources.cassandra.topology import Node, replica_groups
from headrace.sources.cassandra.transcode import Transcoder

_CDC_HINT: Final = "ALTER TABLE … WITH cdc = true, then give the job the new schema"
_COUNTER_HINT: Final = "a log holds the totals of one node, neither what was added nor the count"
_SCHEMA_HINT: Final = "write it with cqlsh -e 'DESCRIBE SCHEMA WITH INTERNALS'"


class Parts:
    """See the module."""

    def __init__(self, config: CassandraConfig, context: Context) -> None:
        """Make nothing yet."""
        self.config = config
        self.context = context
        self._announced = False
        self._reported: set[bytes | str] = set()

    def check(self) -> None:
        """Find now what would stop every split later: the schema, tables, replicas, directories.

        Raises:
            ConfigError: an option does not fit the schema or another option.
            MissingRequirementError: a directory or a cluster is not there, or not for us.
            TopologyError: the replicas cannot be told.
            SegmentKeyError: the key store cannot be read.

        """
        _ = self.groups
        for log in self.logs.values():
            log.segments()
        _ = self.holds
        _ = self.keys

    @cached_property
    def splits(self) -> Sequence[str]:
        """The names of all splits: equal parts of the ring, numbered from its lowest token.

        Each says of how many it is one: other parts are other splits, never the same ones moved.
        """
        count = self.config.splits
        return [f"{number}-of-{count}" for number in range(1, count + 1)]

    @cached_property
    def schema(self) -> Schema:
        """The schema at hand: from the file, and from the live cluster where that is given."""
        schema = Schema({}, {})
        if self.config.schema is not None:
            schema = _schema_in(Path(self.config.schema))
        if self.config.contact_points:
            # Only here: the driver's imports would delay every start by a tenth of a second.
            from headrace.sources.cassandra.live import read_live_schema  # noqa: PLC0415

            live = read_live_schema(self.config.contact_points)
            schema = Schema(
                {**schema.keyspaces, **live.keyspaces}, {**schema.tables, **live.tables}
            )
        return schema

    @cached_property
    def tables(self) -> Sequence[TableSchema]:
        """The tables whose changes are delivered.

        By default all with CDC, also dropped ones: their changes can still be in the logs. Whose
        keyspace went with them is passed over: nothing says any more how many copies it had.
        Counters are passed over as well, with a warning.
        """
        if not self.config.tables:
            found = [
                table
                for table in self.schema.tables.values()
                if table.cdc
                and table.keyspace not in SYSTEM_KEYSPACES
                and not (table.is_dropped and table.keyspace not in self.schema.keyspaces)
            ]
            if all(table.is_counter for table in found):
                raise ConfigError([Problem("tables", "no table of the schema has CDC", _CDC_HINT)])
            for table in filter(lambda table: table.is_counter, found):
                self.context.log.warning(
                    "table_skipped", table=table.qualified, reason="counter", hint=_COUNTER_HINT
                )
            return [table for table in found if not table.is_counter]
        named = {name: self.schema.table(name) for name in self.config.tables}
        problems = [_table_problem(name, table) for name, table in named.items()]
        if any(problems):
            raise ConfigError(filter(None, problems))
        return [table for table in named.values() if table is not None]

    @cached_property
    def keyspaces(self) -> tuple[str, ...]:
        """The keyspaces of the delivered tables, in the order that numbers them."""
        return tuple(sorted({table.keyspace for table in self.tables}))

    @cached_property
    def logs(self) -> Mapping[str, LogDirectory]:
        """Each node's log, in the order that numbers the hosts."""
        paths = {
            n: v["path"] if isinstance(v, Mapping) else v for n, v in self.config.nodes.items()
        }
        owners: dict[str, str] = {}
        for name, path in paths.items():
            owner = owners.setdefault(os.path.realpath(str(path)), name)
            if owner != name:  # One copy would count for two.
                raise ConfigError([Problem(f"nodes.{name}", f"is the directory of {owner}")])
        commitlogs = {
            name: Path(str(node["commitlog"]))
            for name, node in self.config.nodes.items()
            if isinstance(node, Mapping) and "commitlog" in node
        }
        return {
            name: LogDirectory(Path(str(path)), commitlogs.get(name))
            for name, path in paths.items()
        }

    @cached_property
    def holds(self) -> Mapping[str, Hold]:
        """The job's hold in each node's directory; a spectator has none."""
        if self.context.spectator:
            return {}
        disposal = _disposal(self.config.disposal)
        holds = {n: Hold(log, self.context.job, disposal) for n, log in self.logs.items()}
        for hold in holds.values():
            hold.check()
            hold.register_all(self.splits)
        return holds

    @cached_property
    def groups(self) -> Groups:
        """Who holds what, and how many copies are needed."""
        nodes = [_node(name, given) for name, given in self.config.nodes.items()]
        level = self.config.consistency
        return replica_groups(nodes, self._keyspaces(), level)

    def _keyspaces(self) -> Sequence[KeyspaceSchema]:
        known = self.schema.keyspaces
        for name in self.keyspaces:
            if name not in known:
                raise TopologyError(
                    "the schema has its tables, but not the keyspace itself",
                    place=f"keyspace {name}",
                    hint=f"add CREATE KEYSPACE {name} WITH replication = … to the schema file, "
                    "or give contact_points",
                )
        return [known[name] for name in self.keyspaces]

    @cached_property
    def keys(self) -> Keys:
        """The keys of encrypted segments."""
        return Keys(self.config.key_options)

    @cached_property
    def copies(self) -> Copies:
        """Reads copies again from the logs."""
        return Copies(tuple(self.logs.values()), self.context.job_key, self.keys)

    @cached_property
    def pump(self) -> Pump:
        """The one reader of all logs."""
        catalogue = Catalogue(self.schema)
        config = self.config
        intake = Intake(catalogue, self.groups, self.context.job_key, config.splits)
        selected = {table.table_id for table in self.tables}
        for index, table in enumerate(catalogue.tables):
            if table.keyspace in self.keyspaces:
                treatment = codes.SELECTED if table.table_id in selected else codes.NEIGHBOUR
                intake.treat(index, treatment, self.keyspaces.index(table.keyspace))
        return Pump(
            intake,
            self.logs,
            self.context.clock.monotonic_ms,
            keys=self.keys,
            segments_per_batch_max=config.segments_per_batch_max,
        )

    @cached_property
    def shapes(self) -> Shapes:
        """The schemas of the records."""
        return Shapes(frozenset(table.table_id for table in self.tables))

    @cached_property
    def decoder(self) -> MutationDecoder:
        """Decodes for sinks that want records or JSON."""
        return MutationDecoder(self.schema)

    @cached_property
    def cutter(self) -> AtomCutter:
        """Cuts copies that are read again."""
        return AtomCutter(Catalogue(self.schema))

    @cached_property
    def transcoder(self) -> Transcoder:
        """Encodes Avro straight from raw mutations."""
        delivered = {table.table_id for table in self.tables}
        plans = [
            TablePlan(table, self.shapes.of(table).headers, delivered=table.table_id in delivered)
            for table in self.schema.tables.values()
        ]
        return Transcoder(self.schema, plans)

    def announce(self) -> Sequence[RecordSchema]:
        """Return the schemas of all records, the first time only."""
        if self._announced:
            return ()
        self._announced = True
        return [self.shapes.of(table).schema for table in self.tables]

    def recovered(self, lost: Quarantined) -> MutationBatch | None:
        """Return what was quarantined as a batch; None where no mutation is found in it."""
        outbox = salvaged(lost, self.decoder)
        if outbox is None:
            return None
        return MutationBatch(
            "",
            CdcState(0, 0, (), (), {}, {}),
            outbox,
            intake=self.pump.intake,
            more=False,
            nodes=(str(lost.origin["node"]),),
            decoder=self.decoder,
            transcoder=self.transcoder,
            shapes=self.shapes,
            announced=self.announce(),
        )

    def report(self) -> None:
        """Warn once of each damaged place, and of each table id that the schema lacks."""
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
        unknown = self.pump.intake.unknown
        for table_id in unknown.keys() - self._reported:
            self._reported.add(table_id)
            self.context.log.warning(
                "unknown_table",
                table_id=table_id.hex(),
                place=unknown[table_id],
                hint="dropped tables are skipped; for a new table give the job a fresh schema",
            )

    def close(self) -> None:
        """Close the logs, if they were opened."""
        for name in ("pump", "copies"):
            if name in self.__dict__:
                self.__dict__[name].close()


def _table_problem(name: str, table: TableSchema | None) -> Problem | None:
    if table is None:
        return Problem("tables", f"{name} is not in the schema", "keyspace.table, as in the schema")
    if table.is_counter:
        return Problem("tables", f"{name} holds counters", _COUNTER_HINT)
    return None if table.cdc else Problem("tables", f"{name} has no CDC", _CDC_HINT)


def _schema_in(path: Path) -> Schema:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem("schema", f"{path}: {error.strerror}", _SCHEMA_HINT)]) from error
    except UnicodeDecodeError as error:
        found = f"{path}: byte {error.start} is no UTF-8"
        raise ConfigError([Problem("schema", found, _SCHEMA_HINT)]) from error
    return parse_schema(text, place=str(path))


def _disposal(given: object) -> Disposal:
    if isinstance(given, Mapping):
        return Disposal(keep=False, archive=Path(str(given["archive"])))
    return Disposal(keep=given == "keep")


def _node(name: str, given: object) -> Node:
    if not isinstance(given, Mapping):
        return Node(name)
    tokens = tuple(given.get("tokens", ()))
    return Node(name, tokens, str(given.get("dc", "dc1")), str(given.get("rack", "rack1")))
