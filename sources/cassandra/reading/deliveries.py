"""Which tables a job delivers, and how, in each epoch of its logs.

An epoch's routes and plans are made when the first log enters it, by one rule: the table has CDC,
the job delivers it, it holds no counters, and its replicas are known. For one thread. No I/O.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.plugins import Headers, RecordSchema
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER
from headrace.plugins.records.columns import TableType
from headrace.sources.cassandra.agreement.intake import Routes
from headrace.sources.cassandra.columns.writer import ColumnWriter, MessageColumns
from headrace.sources.cassandra.encode.avro_schema import message_schemas
from headrace.sources.cassandra.encode.json_changes import JsonChanges
from headrace.sources.cassandra.encode.table_plan import EpochPlans, TablePlan
from headrace.sources.cassandra.logs.reread import Copy
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.system_schema import KEYSPACE
from headrace.sources.cassandra.schema.tables import SYSTEM_KEYSPACES, KeyspaceSchema, TableSchema
from headrace.sources.cassandra.schema_versions.epochs import Epoch, Epochs

_ROUTES, _PLANS, _LEFT_OUT = "routes", "plans", "left out"  # Keys of values stored with an epoch.
RESCUES_MAX: Final = 1_000  # Maximum of epochs whose misfits cause a new read of the schema.
UNKNOWN_MAX: Final = 1_000  # Unknown table ids remembered for reports.

# The number of a keyspace, or -1 if its replicas cannot be determined; its schema is current.
Number = Callable[[KeyspaceSchema], int]
# Receives the keyspaces of an epoch that a log entered: their replication is in force.
Follow = Callable[[Mapping[str, KeyspaceSchema]], None]
# Receives a selected table with CDC, as of the epoch that a log entered, and its keyspace.
Announce = Callable[[TableSchema, KeyspaceSchema | None], None]
# Reads the schema again; returns the epochs of the logs afterwards.
Refresh = Callable[[], Iterable[int]]


class TableShape(msgspec.Struct, frozen=True):
    """The common properties of all records of one version of a table."""

    schema: RecordSchema
    headers: Headers


class Deliveries:
    """Decides which tables are delivered, as described for the module."""

    def __init__(  # noqa: PLR0913 (what it asks and tells others, each with a default)
        self,
        names: Collection[str],
        number: Number,
        *,
        current: Refresh = tuple,
        refresh: Refresh = tuple,
        follow: Follow = lambda _: None,
        announce: Announce = lambda _table, _keyspace: None,
    ) -> None:
        """Deliver the tables `keyspace.table` in *names*, or all with CDC when it is empty.

        *current* returns the epochs of the logs.
        """
        self.epochs = Epochs()
        self.schemas: list[RecordSchema] = []  # Of all records so far, in order of first use.
        self.follow = follow
        self._current = current
        self._refresh = refresh
        self._announce = announce
        self.listed: set[str] = set()  # Tables with lists that are not frozen, as `keyspace.table`.
        self.unknown: dict[bytes, str] = {}  # Unknown tables next to delivered ones; and where.
        self._names = frozenset(names)
        self._number = number
        self._shapes: dict[tuple[bytes, bytes], TableShape] = {}
        self._plans: dict[TableSchema, TablePlan] = {}
        self._asked: set[int] = set()
        self._writers: dict[tuple[TableType, bool], ColumnWriter] = {}
        self._message_columns: MessageColumns | None = None
        self._json_changes: JsonChanges | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are delivered; empty means all with CDC."""
        return tuple(sorted(self._names))

    def has_delivered(self, epoch: int, copy: Copy) -> bool:
        """Return whether a mutation changes a delivered table, or cannot be decoded."""
        try:
            mutation = self.epochs[epoch].decoder.decode(
                copy.raw,
                messaging=copy.messaging,
                segment_id=copy.segment,
                position=copy.position,
            )
        except BadMutationError:
            return True
        return any(self.delivers(update.table) for update in mutation.updates)

    def delivers(self, table: TableSchema) -> bool:
        """Return whether changes of this version of a table are delivered."""
        return self._asks_for(table) and not table.is_counter

    def _asks_for(self, table: TableSchema) -> bool:
        if not table.cdc or table.keyspace in SYSTEM_KEYSPACES:
            return False
        return not self._names or table.qualified in self._names

    def shape(self, table: TableSchema) -> TableShape:
        """Return the shape of the records of *table*; versions with one schema id share it."""
        key = table.table_id.bytes, table.schema_id
        made = self._shapes.get(key)
        if made is None:
            of_messages = message_schemas(table)
            schema = RecordSchema(table.qualified, table.text, table.schema_id, *of_messages)
            made = TableShape(schema, ((SCHEMA_ID_HEADER, schema.schema_id),))
            self._shapes[key] = made
            self.schemas.append(schema)
            if any(column.is_list for column in table.columns):
                self.listed.add(table.qualified)
        return made

    def routes_of(self, epoch: Epoch) -> Routes:
        """Return the routes of the entries logged in *epoch*."""
        routes = epoch.derived.get(_ROUTES)
        if not isinstance(routes, Routes):
            routes = epoch.derived[_ROUTES] = self._routes(epoch)
        return routes

    def _routes(self, epoch: Epoch) -> Routes:
        routes = Routes(epoch.catalogue, epoch.number)
        numbers: dict[str, int] = {}
        tables = epoch.catalogue.tables
        for table in tables:
            known = epoch.given.keyspaces.get(table.keyspace)
            keyspace = known or KeyspaceSchema(table.keyspace, {})
            if self._asks_for(table):
                self._announce(table, known)
            if self.delivers(table) and table.keyspace not in numbers:
                numbers[table.keyspace] = self._number(keyspace)
        for index, table in enumerate(tables):
            number = numbers.get(table.keyspace, -1)
            if table.keyspace == KEYSPACE:
                routes.treat(index, constants.SCHEMA, 0)
            elif number >= 0:
                routes.treat(index, self._treatment(table), number)
            if number >= 0 and self.delivers(table):
                self.shape(table)
        return routes

    def left_out(self, epoch: Epoch) -> tuple[Collection[bytes], Collection[bytes]]:
        """Return the ids of the tables of *epoch* that are not delivered, and of schema tables.

        Entries that contain only tables of the first kind still count.
        """
        found = epoch.derived.get(_LEFT_OUT)
        if not isinstance(found, tuple):
            tables = epoch.catalogue.tables
            kept = {t.table_id.bytes for t in tables if t.keyspace == KEYSPACE}
            passed = {t.table_id.bytes for t in tables if not self.delivers(t)} - kept
            found = epoch.derived[_LEFT_OUT] = frozenset(passed), frozenset(kept)
        return found

    def _treatment(self, table: TableSchema) -> int:
        if self.delivers(table):
            return constants.SELECTED
        return constants.COUNTER if table.cdc and table.is_counter else constants.NEIGHBOUR

    # ---- for the encoders ----

    def plans_of(self, epoch: int) -> EpochPlans:
        """Return the encoder's plans for an epoch; unchanged tables share plans."""
        derived = self.epochs[epoch].derived
        made = derived.get(_PLANS)
        if not isinstance(made, EpochPlans):
            catalogue = self.epochs[epoch].catalogue
            wanted = [table for table in catalogue.tables if self.delivers(table)]
            self._plans = {t: self._plans.get(t) or self._plan(t) for t in wanted}
            made = derived[_PLANS] = EpochPlans(catalogue, self._plans)
        return made

    @property
    def message_columns(self) -> MessageColumns:
        """The writer of messages as columns, the same for all batches."""
        if self._message_columns is None:
            self._message_columns = MessageColumns(self)
        return self._message_columns

    @property
    def json_changes(self) -> JsonChanges:
        """The writer of change JSON, the same for all batches."""
        if self._json_changes is None:
            self._json_changes = JsonChanges(self, self._tables_of)
        return self._json_changes

    def _tables_of(self, epoch: int) -> Sequence[TableSchema]:
        return self.epochs[epoch].catalogue.tables

    def column_writer(self, target: TableType, *, with_messages: bool) -> ColumnWriter:
        """Return the writer of typed columns for *target*, the same for all batches."""
        made = self._writers.get((target, with_messages))
        if made is None:
            made = self._writers[target, with_messages] = ColumnWriter(
                self, self._tables_of, target, with_messages=with_messages
            )
        return made

    def _plan(self, table: TableSchema) -> TablePlan:
        return TablePlan(table, self.shape(table).headers, delivered=True)

    def others(self, epoch: int) -> Iterable[int]:
        """Yield other epochs for a mutation that does not fit *epoch*; it may be a later one's.

        First come the current epochs of the logs; then, once per epoch, those after the schema was
        read again.
        """
        tried = {epoch}
        for number in self._current():
            if number not in tried:
                tried.add(number)
                yield number
        if epoch not in self._asked and len(self._asked) < RESCUES_MAX:
            self._asked.add(epoch)
            for number in self._refresh():
                if number not in tried:
                    tried.add(number)
                    yield number

    def hides(self, epoch: int, raw: bytes) -> bool:
        """Return whether *raw* contains the id of a delivered table."""
        return self.routes_of(self.epochs[epoch]).hidden(raw) >= 0

    def pass_over(self, error: UnknownTableError) -> None:
        """Record an unknown table in a mutation whose other tables were delivered."""
        if len(self.unknown) < UNKNOWN_MAX:
            self.unknown.setdefault(error.table_id, "beside a table that is delivered")
