"""A job reads each entry with its time's schema, also after a crash, and asks what no log tells."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

from headrace.plugins import Batch, Demand, EncodedPosition, Position
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.batch import MutationBatch
from headrace.sources.cassandra.log import read_mutations
from headrace.sources.cassandra.reading.deliveries import Deliveries
from headrace.sources.cassandra.reading.log_tables import LogTables
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import KeyspaceSchema, Schema
from headrace.sources.cassandra.schema.unlogged import Announcer
from headrace.sources.cassandra.schema_versions.log_schema import LogSchema
from headrace.sources.cassandra.schema_versions.schema_rows import SchemaRows
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from helpers.logs.forged import OTHER, SCHEMA, TABLE, UNKNOWN, insert, mutation, update
from helpers.logs.node_logs import batches, everything, forged_nodes, open_all, source
from helpers.logs.sample_log import segments
from helpers.recordings.corpora import recording
from helpers.settings.filled import filled
from helpers.settings.native_modules import long
from helpers.settings.seeds import is_soak

SCHEMAS = ("4.0-schema", "4.1-schema", "5.0-schema", "5.0-v8-schema", "6.0-v9-schema")
ONE_BY_ONE = Demand(records_max=1, linger_ms=1 << 30)
Fact = tuple[str, bytes, int, int]  # Document without origin, schema id, index, of.


def options_of(name: str, **more: object) -> dict[str, object]:
    """Return the options of a job over a recording of one node."""
    folder = recording(name)
    return {
        "nodes": {"node1": str(folder / "segments")},
        "schema": str(folder / "schema.cql"),
        "consistency": "ONE",
        **more,
    }


def facts(batch: Batch) -> list[Fact]:
    """Return what is delivered of a batch: as records, and as Avro's headers have it."""
    found = []
    encoded = batch.encode("avro")
    assert not encoded.quarantined
    for record, headers in zip(batch.records(), encoded.headers, strict=True):
        schema_id = dict(headers)["schemaId"]
        assert record.schema.schema_id == schema_id
        document = dict(record.document())
        text = json.dumps(document | {"mutation": str(document["mutation"])}, default=str)
        found.append((text, schema_id, int(document["index"]), int(document["of"])))
    return found


def expected_of(name: str) -> list[tuple[str, str, bytes]]:
    """Return table, keys and schema id of what is to be delivered, by reading the log directly."""
    tables = LogSchema(parse_schema((recording(name) / "schema.cql").read_text()))
    found = []
    for path in segments(recording(name) / "segments"):
        with path.open("rb") as stream:
            found += [
                (change.table.name, str(list(change.key_values())), change.table.schema_id)
                for mutation in read_mutations(stream, tables)
                for change in mutation.changes()
                if change.table.cdc
            ]
    return found


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "splits"),
    product(SCHEMAS, (1, 3))
    if is_soak()
    else [long("4.0-schema", 1), long("5.0-v8-schema", 3), ("6.0-v9-schema", 1)],
)
def test_a_crash_after_every_batch_changes_nothing(name: str, splits: int) -> None:
    """Names, values and schema ids are those of the entry's place; each id is announced before."""
    options = options_of(name, splits=splits)
    calm = [fact for batch in everything(options) for fact in facts(batch)]

    found: list[Fact] = []
    stored: dict[str, EncodedPosition] = {}
    restarts = 0
    while True:
        made = source(options)
        positions = {split: CdcState.decode(each) for split, each in stored.items()}
        readers = open_all(made, positions)
        came = False
        for split, reader in readers.items():
            batch = reader.read(ONE_BY_ONE)
            if isinstance(batch, Batch):
                announced = {schema.schema_id for schema in batch.schemas()}
                found += facts(batch)
                assert {fact[1] for fact in facts(batch)} <= announced
                assert isinstance(batch, MutationBatch)
                stored[split] = batch.end.encode()
                came = came or bool(len(batch.encode("avro")) or batch.more)
        made.close()
        if not came:
            break
        restarts += 1

    assert restarts > 20 // splits
    assert sorted(calm) == sorted(found)
    assert sorted(expected_of(name)) == sorted(
        (
            str(json.loads(text)["table"]).partition(".")[2],
            str([*json.loads(text)["key"], *(json.loads(text)["clustering"] or {})]),
            schema_id,
        )
        for text, schema_id, _, _ in found
    )
    assert len({fact[1] for fact in found}) > 6


@pytest.mark.parametrize("name", SCHEMAS)
def test_only_what_had_cdc_then_is_delivered(name: str) -> None:
    """Of the table whose CDC was switched on, off and on, two of four rows."""
    toggled = [
        json.loads(text)["columns"]["v"]["value"]
        for batch in everything(options_of(name))
        for text, _, _, _ in facts(batch)
        if "v" in json.loads(text)["columns"]
    ]

    assert ["on", "on again"] == [value for value in toggled if value.startswith(("on", "off"))]


def test_a_job_of_named_tables_follows_their_names() -> None:
    """Both lives of a table that was dropped and created again are delivered."""
    table = "jade_visit.jade_users"

    found = everything(options_of("5.0-schema", tables=(table,)))

    values = [json.loads(f[0])["columns"]["v"]["value"] for batch in found for f in facts(batch)]
    assert ["before truncate", "after truncate", "second life"] == values


def test_a_table_that_is_waited_for_begins_when_the_log_has_it(tmp_path: Path) -> None:
    """One that is not in the given schema is known once its CREATE was read, and is delivered."""
    before, _, _ = (
        (recording("5.0-schema") / "schema.cql")
        .read_text()
        .partition("CREATE TABLE jade_visit.jade_users")
    )
    (tmp_path / "old.cql").write_text(before)
    tables = ("jade_visit.dune_carts", "jade_visit.jade_users")
    more = {"schema": str(tmp_path / "old.cql"), "tables": tables, "tables_missing": "wait"}
    made = source(options_of("5.0-schema", **more))
    readers = open_all(made).values()
    assert ["jade_visit.jade_users"] == list(made.missing_tables())

    found = [json.loads(f[0]) for batch in batches(readers) for f in facts(batch)]

    assert {} == made.missing_tables()
    values = [f["columns"]["v"]["value"] for f in found if "v" in f["columns"]]
    assert ["before truncate", "after truncate", "second life"] == values
    made.close()


LATE = (
    f"CREATE TABLE forged.late (k blob PRIMARY KEY, v text) WITH cdc = true AND ID = {UNKNOWN};\n"
)


def forged(tmp_path: Path, raws: Sequence[bytes], **more: object) -> dict[str, object]:
    """Return the options of a job over forged logs of three nodes, the first of which has data."""
    logs = {"n1": raws, "n2": [], "n3": []}
    return forged_nodes(tmp_path, logs) | {"consistency": "ONE", "splits": 2} | more


def delivered(found: Sequence[Batch]) -> list[object]:
    """Return the values of `v`, in order."""
    return [r.document()["columns"]["v"]["value"] for batch in found for r in batch.records()]


def test_an_unknown_table_is_looked_for_once(tmp_path: Path) -> None:
    """When an entry of one comes, the file is read again; if the table is there it is delivered."""
    raws = [
        insert(b"a", b"1"),
        insert(b"b", b"2", table=UNKNOWN),
        insert(b"c", b"3", table=UNKNOWN),
    ]
    options = forged(tmp_path, raws)
    made = source(options)
    readers = open_all(made)
    (tmp_path / "schema.cql").write_text(SCHEMA + LATE)

    found = list(batches(readers.values()))

    assert ["0x31", "2", "3"] == sorted(map(str, delivered(found)))


def test_a_table_that_nobody_knows_is_counted(tmp_path: Path) -> None:
    """In the books of the first split, once however often its log is read again."""
    raws = [insert(b"a", b"1"), insert(b"b", b"2", table=UNKNOWN), insert(b"c", table=OTHER)]
    options = forged(tmp_path, raws)
    found = everything(options)
    ends: dict[str, Position] = {}
    for batch in found:
        assert isinstance(batch, MutationBatch)
        ends[batch.split] = batch.end

    assert ["0x31"] == delivered(found)
    counted = {"unknown_table": 1, "not_selected": 1, "counter": 0, "system": 0}
    assert counted == _skipped(ends["1-of-2"])
    assert {} == _skipped(ends["2-of-2"])

    made = source(options)
    later = list(batches(open_all(made, {"1-of-2": ends["1-of-2"]}).values()))
    made.close()
    for batch in filled(later):
        assert isinstance(batch, MutationBatch)
        assert _skipped(batch.end) == (counted if batch.split == "1-of-2" else {})


def _skipped(state: Position) -> dict[str, int]:
    """Return what of the first node's log was passed over, by reason."""
    prefix = "skipped.n1."
    return {k.removeprefix(prefix): n for k, n in state.books().items() if k.startswith(prefix)}


def test_counters_are_counted(tmp_path: Path) -> None:
    """Their entries are passed over under a reason of their own; other tables are delivered."""
    counters = (
        "CREATE TABLE forged.n (k blob PRIMARY KEY, n counter) WITH cdc = true"
        f" AND ID = {UNKNOWN};\n"
    )
    raws = [insert(b"a", b"1"), insert(b"b", b"2", table=UNKNOWN)]
    options = forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []}, SCHEMA + counters)

    (batch,) = everything(options | {"consistency": "ONE", "splits": 1})

    assert isinstance(batch, MutationBatch)
    assert ["0x31"] == delivered([batch])
    assert 1 == batch.end.books()["skipped.n1.counter"]


def test_an_entry_that_does_not_fit_makes_the_file_be_read_again(tmp_path: Path) -> None:
    """A column that came in a segment that was not read is found; what fits is not asked about."""
    options = forged(tmp_path, [insert(b"a", b"1"), insert(b"b", b"2")])
    (tmp_path / "schema.cql").write_text(SCHEMA.replace("v blob", "w blob"))
    made = source(options)
    readers = open_all(made)
    (tmp_path / "schema.cql").write_text(SCHEMA)

    found = list(batches(readers.values()))

    assert ["0x31", "0x32"] == sorted(map(str, delivered(found)))
    assert 2 == sum(len(batch.encode("avro")) for batch in found)
    assert not [lost for batch in found for lost in batch.quarantined()]


@dataclass
class Asked:
    """Where a schema was read, which counts how often it is asked again."""

    rows: SchemaRows
    fresh: Schema | None = None
    knows_gaps: bool = True
    asked: list[str] = field(default_factory=list)

    def again(self) -> Schema | None:
        """Return what is there now."""
        self.asked.append("again")
        return self.fresh

    def after_gap(self) -> Schema | None:
        """Likewise, unless nothing is learnt."""
        self.asked.append("gap")
        return self.fresh if self.knows_gaps else None


def tables_of(given: Asked, announcer: Announcer | None = None) -> LogTables:
    """Return the tables of a log, of a job that delivers all that has CDC."""
    numbers: list[str] = []

    def number(keyspace: KeyspaceSchema) -> int:
        if keyspace.name not in numbers:
            numbers.append(keyspace.name)
        return numbers.index(keyspace.name)

    deliveries = Deliveries((), number)
    if announcer is not None:
        deliveries = Deliveries((), number, announce=announcer.tell)
    return LogTables("n1", given, deliveries, context())  # type: ignore[arg-type]  # A stand-in.


def test_what_changed_in_segments_that_are_missing_is_asked() -> None:
    """A table that got CDC there is delivered from the next segment on, another one is known."""
    off = SCHEMA.replace("cdc = true", "cdc = false")
    given = Asked(SchemaRows.of(parse_schema(off)), parse_schema(SCHEMA + LATE))
    tables = tables_of(given)
    before = tables.routes

    tables.skipped_segments(Marker(5, 0))

    assert ({}, {TABLE.bytes, UNKNOWN.bytes}) == (before.selected, set(tables.routes.selected))
    assert (
        tables.epoch_at(Marker(4, 99)).number
        == before.epoch
        < tables.epoch_at(Marker(5, 30)).number
    )


@pytest.mark.parametrize(
    ("late", "event", "reason"),
    [
        (LATE.replace(";", " AND transactional_mode = 'full';"), "table_skipped", "accord"),
        (LATE.replace("v text", "v counter"), "table_skipped", "counter"),
        (
            f"{LATE}ALTER TABLE forged.late WITH transactional_mode = 'full';",
            "table_incomplete",
            "accord",
        ),
    ],
)
def test_a_table_that_comes_and_is_not_in_the_log_is_reported(
    late: str, event: str, reason: str
) -> None:
    """Once, when a log comes to the statement that made it so."""
    reported: list[tuple[str, str, str]] = []
    announcer = Announcer(
        lambda name, **about: reported.append((name, about["table"], about["reason"])),
        lambda _: None,
    )
    given = Asked(SchemaRows.of(parse_schema(SCHEMA)), parse_schema(SCHEMA + late))
    tables = tables_of(given, announcer)
    assert [] == reported

    for segment_id in (5, 9):
        tables.skipped_segments(Marker(segment_id, 0))
    tables_of(Asked(SchemaRows.of(parse_schema(SCHEMA + late))), announcer)

    assert [(event, "forged.late", reason)] == reported


def test_the_log_tells_which_keyspaces_are_logged() -> None:
    """Each node logs the options of its keyspaces; `durable_writes` is read from there."""
    known = LogSchema(Schema({}, {}))
    for path in segments(recording("6.0-v9-schema") / "segments"):
        with path.open("rb") as stream:
            for _ in read_mutations(stream, known):
                pass

    (keyspace,) = known.rows.schema.keyspaces.values()
    cells = [r[""].cells for g, r in known.rows.groups.items() if g.kind == "keyspaces"]
    assert [True] == [each["durable_writes"][1] for each in cells]
    assert keyspace.durable_writes


def test_options_of_a_table_and_its_keyspace_are_kept_in_a_version() -> None:
    """What tells that nothing is logged is part of the position, as the rest of the schema."""
    options = "durable_writes = false AND replication_type = 'tracked'"
    text = f"ALTER KEYSPACE forged WITH {options};{LATE}"
    late = text.replace(f"ID = {UNKNOWN}", f"ID = {UNKNOWN} AND transactional_mode = 'full'")
    rows = SchemaRows.decode(SchemaRows.of(parse_schema(SCHEMA + late)).encode())

    keyspace = rows.schema.keyspaces["forged"]
    assert (False, True) == (keyspace.durable_writes, keyspace.is_tracked)
    assert "full" == rows.schema.tables[UNKNOWN].transactional_mode


def test_nothing_new_moves_nothing() -> None:
    """A fresh look at the same tables leaves the epoch alone, drop times or not."""
    known = parse_schema(f"{SCHEMA}ALTER TABLE forged.t DROP v;")
    fresh = parse_schema(f"{SCHEMA}ALTER TABLE forged.t DROP v USING TIMESTAMP 5;")
    tables = tables_of(Asked(SchemaRows.of(known), fresh))
    before = tables.epoch

    tables.skipped_segments(Marker(5, 0))

    assert before is tables.epoch


def test_versions_are_stored_and_restored() -> None:
    """What is needed from a place on is kept; a file that was changed counts again."""
    given = Asked(SchemaRows().with_given(parse_schema(SCHEMA), b"one"))
    tables = tables_of(given)
    given.fresh = parse_schema(SCHEMA + LATE)
    assert tables.ask(UNKNOWN.bytes, Marker(5, 40))

    assert [Marker(0, 0), Marker(5, 40)] == [v.since for v in tables.versions(Marker(5, 0))]
    (kept,) = tables.versions(Marker(5, 40))
    assert kept is tables.versions(Marker(6, 0))[0]
    other = tables_of(given)
    other.restore([kept], Marker(6, 0))
    assert tables.epoch.given == other.epoch.given
    assert UNKNOWN in other.epoch.given.tables

    changed = tables_of(
        Asked(SchemaRows().with_given(parse_schema(SCHEMA.replace("v blob", "w int", 1)), b"two"))
    )
    changed.restore([kept], Marker(6, 0))
    (table,) = [t for t in changed.epoch.given.tables.values() if t.table_id == TABLE]
    assert ["k", "w"] == [column.name for column in table.columns]
    changed.restore((), Marker(6, 0))
    assert UNKNOWN not in changed.epoch.given.tables


def test_a_version_from_behind_the_place_is_not_in_force_yet() -> None:
    """A log that is read again goes by what stood before; what is known of later places stays so.

    So copies that are pending behind the place are read as what they are.
    """
    given = Asked(SchemaRows().with_given(parse_schema(SCHEMA), b"one"))
    tables = tables_of(given)
    given.fresh = parse_schema(SCHEMA + LATE)
    assert tables.ask(UNKNOWN.bytes, Marker(5, 40))
    stored = tables.versions(Marker(0, 0))

    again = tables_of(given)
    again.restore(stored, Marker(4, 0))

    assert UNKNOWN not in again.epoch.given.tables
    assert UNKNOWN in again.epoch_at(Marker(5, 50)).given.tables
    assert UNKNOWN not in again.epoch_at(Marker(5, 30)).given.tables
    assert 1 < len(again.versions(Marker(0, 0)))
    assert stored == again.versions(Marker(0, 0))


def test_a_selected_table_behind_an_unknown_one_is_kept(tmp_path: Path) -> None:
    """The entry goes the way of the table that it hides: agreed, then quarantined whole."""
    hidden = mutation(update(b"k", b"v", table=UNKNOWN), update(b"k", b"v"))
    alone = mutation(update(b"k", b"v", table=UNKNOWN), update(b"k", b"v", table=OTHER))

    (batch,) = everything(forged(tmp_path, [hidden, alone], splits=1))

    assert [hidden] == [lost.content for lost in batch.quarantined()]
    assert isinstance(batch, MutationBatch)
    assert 1 == batch.end.books()["skipped.n1.unknown_table"]
