"""Tables of lakes have each change once, or the newest state of each row, after any failure."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import catalog
from pyiceberg.utils.config import Config

from headrace.connector.lake.errors import LakeBusyError, LakeFileError, LakeSchemaError
from headrace.connector.lake.staging import CommitsFile
from headrace.connector.lake.writer import LakeTransactions
from headrace.connector.serde.codecs.records import writer_of
from headrace.plugins import (
    Batch,
    CheckResult,
    ConfigError,
    Delivery,
    EncodedRecords,
    RecordSchema,
    TransactionalWriter,
    parse_config,
)
from headrace.plugins.records.codecs import CONTROL_TABLE, SCHEMA_ID_HEADER
from headrace.plugins.testing import SinkDriver, SinkSuite, TransactionalDriver, TransactionalSuite
from helpers.histories.kept import FOREVER_MS, settled
from helpers.histories.lakes import KINDS, LakeBox
from helpers.histories.rows import SCHEMA, TABLE, change, delivery
from helpers.histories.whole_changes import schema_of, whole
from helpers.jobs.children import JobFolder
from helpers.logs.gap_jobs import GapJob
from helpers.settings.leftovers import open_files
from helpers.settings.seeds import soaked

NOW_US = 1_700_000_000_000_000
MODES = ("append", "upsert")


class Driver(TransactionalDriver):
    """A lake of one kind in one mode."""

    def __init__(self, box: LakeBox) -> None:
        """Write to *box*."""
        self._box = box

    def writer(self) -> TransactionalWriter:
        """Return a new writer."""
        return self._box.sink().open_split("1-of-1")

    def delivery(self, values: Sequence[bytes]) -> Delivery:
        """Write each value into a row of its own."""
        return delivery(
            *(
                change(
                    written_us=NOW_US, of=(1, int.from_bytes(each[:3], "big")), note=each.decode()
                )
                for each in values
            )
        )

    def seen(self) -> Sequence[bytes]:
        """Return that column of all rows."""
        return [note.encode() for note in notes(self._box)]

    def deadline_ms(self) -> int:
        """Return a moment far ahead."""
        return FOREVER_MS


def notes(box: LakeBox) -> list[str]:
    """Return the column `note` of all rows, or of all changes."""
    rows = box.rows()
    return sorted(row["note"] if "note" in row else row["change"]["note"] for row in rows)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Return a kind of lake."""
    return str(request.param)


@pytest.fixture(params=MODES)
def box(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LakeBox:
    """Return a lake of each kind, in each mode."""
    return LakeBox(kind, tmp_path, str(request.param), monkeypatch)


@pytest.fixture
def upserted(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeBox:
    """Return a lake of each kind with the newest rows."""
    return LakeBox(kind, tmp_path, "upsert", monkeypatch)


@pytest.fixture
def appended(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeBox:
    """Return a lake of each kind with a row for each change."""
    return LakeBox(kind, tmp_path, "append", monkeypatch)


class TestTransactions(TransactionalSuite):
    """Both kinds obey the contract of sinks that are written exactly once, in both modes."""

    @pytest.fixture
    def driver(self, box: LakeBox) -> TransactionalDriver:
        """Return the driver."""
        return Driver(box)


class Rows(SinkDriver):
    """The writer of rows that belong to no split."""

    def __init__(self, box: LakeBox) -> None:
        """Write to *box*."""
        self._box = box

    def sink(self) -> Any:  # noqa: ANN401 (one of two)
        """Return a new sink."""
        return self._box.sink()

    def schemas(self) -> Mapping[bytes, RecordSchema]:
        """Return the schema of the table."""
        return {SCHEMA.schema_id: SCHEMA}

    def encode(self, batch: Batch) -> EncodedRecords:
        """Return an INSERT for each record, whose row has its key and number."""
        made = [self._change(each.key["id"], each.value["n"]) for each in batch.records()]  # type: ignore[index]  # The suite's records have keys.
        return delivery(*made).encoded

    def written(self) -> Sequence[tuple[bytes | None, bytes]]:
        """Return the same changes, made of the rows."""
        made = [self._change(row["id"], row["at"]) for row in self._box.rows()]
        encoded = delivery(*made).encoded
        return list(zip(encoded.keys, encoded.values, strict=True))

    def _change(self, key: int, number: int) -> Mapping[str, Any]:
        return change(written_us=NOW_US + number, of=(key, number), note=str(number))


class TestSink(SinkSuite):
    """Both kinds obey the contract of sinks."""

    @pytest.fixture
    def driver(self, appended: LakeBox) -> SinkDriver:
        """Return the driver."""
        return Rows(appended)


def test_each_change_is_a_row(appended: LakeBox) -> None:
    """It has the key in columns of its own, what was written as a struct, and where it was read."""
    appended.commit(
        change(written_us=NOW_US, of=(1, 2), note="a"),
        change("DELETE", written_us=NOW_US + 1, of=(1, 2)),
        change("DELETE_RANGE", written_us=NOW_US + 2, of=(1,), between=(2, 3)),
    )

    first, second, third = sorted(appended.rows(), key=lambda row: row["write_time"])
    assert (1, 2, "INSERT", ["note"], 0, "node1", 1) == tuple(
        first[name] for name in ("id", "at", "operation", "written", "index", "node", "position")
    )
    assert {"id": 1, "at": 2, "note": "a", "total": None} == first["change"]
    assert (16, "DELETE", None) == (len(second["mutation"]), second["operation"], second["change"])
    assert (1, None, 2, 3) == (
        third["id"],
        third["at"],
        third["bounds"]["start"]["values"]["at"],
        third["bounds"]["end"]["values"]["at"],
    )
    table = appended.table()
    assert table is not None
    assert pa.timestamp("us", "UTC") == table.schema.field("write_time").type


def test_the_newest_of_each_column_wins(upserted: LakeBox) -> None:
    """Late older writes do not win, in the same commit or a later one; deletions remove rows."""
    upserted.commit(
        change(written_us=NOW_US + 5, note="new", total=1),
        change(written_us=NOW_US, of=(1, 2), note="x"),
        change("UPDATE", written_us=NOW_US + 3, note="old", total=9),
    )
    upserted.commit(change("UPDATE", written_us=NOW_US + 4, note="older"))
    assert ["new", "x"] == notes(upserted)

    upserted.commit(
        change("UPDATE", written_us=NOW_US + 6, total=7),
        change("DELETE", written_us=NOW_US + 9, of=(1, 2)),
    )
    upserted.commit(change(written_us=NOW_US + 8, of=(1, 2), note="late"))
    assert [(1, 1, "new", 7)] == [
        tuple(row[name] for name in ("id", "at", "note", "total")) for row in upserted.rows()
    ]


def test_deletions_of_many_rows(upserted: LakeBox) -> None:
    """A deleted range or partition removes its older rows, and keeps out those that come late."""
    upserted.commit(
        *(change(written_us=NOW_US, of=(1, at), note=str(at)) for at in range(1, 6)),
        change(written_us=NOW_US, of=(2, 1), note="other"),
        change(written_us=NOW_US + 9, of=(1, 3), note="newer"),
    )
    upserted.commit(change("DELETE_RANGE", written_us=NOW_US + 5, of=(1,), between=(2, 4)))
    assert ["1", "5", "newer", "other"] == notes(upserted)

    upserted.commit(
        change("DELETE_PARTITION", written_us=NOW_US + 6, of=(1,)),
        change(written_us=NOW_US + 1, of=(1, 4), note="late"),
    )
    assert ["newer", "other"] == notes(upserted)


def test_many_rows_are_replaced(upserted: LakeBox) -> None:
    """A commit may replace thousands of rows: no filter of a library has all of their keys."""
    rows = range(4_000)
    for written_us, note in ((NOW_US, "old"), (NOW_US + 1, "new")):
        upserted.commit(
            *(change(written_us=written_us, of=(n % 7, n), note=note) for n in rows),
        )

    found = upserted.rows()
    assert (len(rows), {"new"}) == (len(found), {row["note"] for row in found})


@pytest.mark.parametrize(
    ("kind_of_key", "values"),
    [("frozen<list<int>>", ([1], [1, 2])), ("text", ("it's", 'say "yes"')), ("double", (0.5, 1e9))],
)
def test_types_of_keys(upserted: LakeBox, kind_of_key: str, values: tuple[Any, Any]) -> None:
    """Rows are found again by keys of any type."""
    ddl = STATIC.replace("(id int", f"(id {kind_of_key}")
    for written_us, key in enumerate((*values, values[0])):
        writer = upserted.writer()
        writer.submit(of_schema(ddl, NOW_US + written_us, key=key, note=str(written_us)), settled)
        assert writer.commit({}, FOREVER_MS)
        writer.close()

    assert ["1", "2"] == notes(upserted)


STATIC = """
CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TABLE shop.orders (id int, at int, note text, total int, extra text, s text static,
PRIMARY KEY (id, at)) WITH ID = 00000000-0000-1000-8000-000000000001 AND cdc = true;
"""


def of_schema(
    ddl: str, written_us: int, *, key: object = 1, at: int | None = 1, **columns: object
) -> Delivery:
    """Return a change of a row of `shop.orders` as *ddl* has it."""
    schema = schema_of(ddl)
    payload = dict.fromkeys(_columns(schema)) | {"id": key, "at": at}
    made = whole(
        "INSERT" if at else "UPDATE",
        written_us,
        payload,
        columns,
        sourceKeyspace="shop",
        sourceTable="orders",
        schemaUuid=schema.schema_id,
        isStatic=at is None,
    )
    encoded = EncodedRecords(
        [b"k"],
        [writer_of(schema.value)(made)],
        [((SCHEMA_ID_HEADER, schema.schema_id),)],
        [TABLE],
    )
    return Delivery(delivery().batch, encoded, {schema.schema_id: schema})


def _columns(schema: RecordSchema) -> list[str]:
    (payload,) = [each for each in schema.value["fields"] if each["name"] == "payload"]
    return [each["name"] for each in payload["type"]["fields"]]


def test_new_columns_are_added(box: LakeBox) -> None:
    """Columns that ALTER TABLE adds are added to the lake's table; older rows have null there.

    What comes late with the older schema takes nothing away.
    """
    writer = box.writer()
    for number, deliveries in enumerate(
        (
            [delivery(change(written_us=NOW_US, of=(1, 7), note="before"))],
            [
                of_schema(STATIC, NOW_US + 1, note="after", extra="e"),
                of_schema(STATIC, NOW_US + 2, at=None, s="static"),
            ],
            [delivery(change("UPDATE", written_us=NOW_US, total=5))],
        )
    ):
        for each in deliveries:
            writer.submit(each, settled)
        assert writer.commit({"head": b"%d" % number}, FOREVER_MS)
    writer.close()

    if box.mode == "upsert":
        assert {"before": (None, "static", None), "after": ("e", "static", 5)} == {
            row["note"]: (row["extra"], row["s"], row["total"]) for row in box.rows()
        }
    else:
        changes = [row["change"] for row in box.rows()]
        assert {None, "e"} == {each["extra"] for each in changes}
        assert {None, "static"} == {each["s"] for each in changes}


def test_a_column_of_another_type(box: LakeBox) -> None:
    """It is named, and nothing is committed."""
    box.commit(change(written_us=NOW_US, note="1"))
    writer = box.writer()
    writer.submit(of_schema(STATIC.replace("total int", "total text"), NOW_US + 1), settled)

    column = "change" if box.mode == "append" else "total"
    with pytest.raises(LakeSchemaError, match=f"the column {column} has the type"):
        writer.commit({"head": b"2"}, FOREVER_MS)
    writer.close()
    assert ["1"] == notes(box)
    assert {"head": b"1"} == box.sink().open_split("1-of-1").begin(FOREVER_MS)


def test_control_records_and_unknown_schemas(appended: LakeBox) -> None:
    """Control records become no rows; a change without its schema stops the split."""
    writer = appended.writer()
    notice = EncodedRecords([b"k"], [b"{}"], [()], [CONTROL_TABLE])
    writer.submit(Delivery(delivery().batch, notice), settled)
    with pytest.raises(LakeSchemaError, match="unknown schema"):
        writer.submit(
            Delivery(delivery().batch, delivery(change(written_us=NOW_US)).encoded), settled
        )
    writer.close()


@pytest.mark.parametrize("step", ["add", "unstage"])
def test_a_death_amid_a_commit(box: LakeBox, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided is added by the next writer: nothing is lost, and nothing is there twice."""
    died = box.writer()
    assert isinstance(died, LakeTransactions)
    died.submit(delivery(change(written_us=NOW_US, note="1")), settled)
    of = died if step == "add" else died._file  # noqa: SLF001 (it dies there)
    with monkeypatch.context() as patched:
        patched.setattr(of, f"_{step}" if step == "add" else step, dead, raising=True)
        with pytest.raises(KeyboardInterrupt):
            died.commit({"head": b"1"}, FOREVER_MS)

    later = box.sink().open_split("1-of-1")
    assert {"head": b"1"} == later.begin(FOREVER_MS)
    later.submit(delivery(change(written_us=NOW_US, of=(1, 2), note="2")), settled)
    assert later.commit({"head": b"2"}, FOREVER_MS)
    assert ["1", "2"] == notes(box)
    later.close()
    died.close()


def dead(*_: object) -> None:
    """Stand for the death of the process."""
    raise KeyboardInterrupt


def test_a_lake_that_cannot_be_written_now(box: LakeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is not decided until its rows were added, which is tried again."""
    writer = box.writer()
    assert isinstance(writer, LakeTransactions)
    writer.submit(delivery(change(written_us=NOW_US, note="1")), settled)
    with monkeypatch.context() as patched:
        patched.setattr(writer, "_add", busy)
        assert not writer.commit({"head": b"1"}, FOREVER_MS)
        assert [] == notes(box)
    assert writer.commit({"head": b"1"}, FOREVER_MS)
    assert ["1"] == notes(box)
    writer.close()


@pytest.mark.parametrize("step", ["_add", "stage"])
def test_rows_of_no_split_are_tried_again(
    appended: LakeBox, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be added, or not even be staged, is added once, with what came meanwhile."""
    writer = appended.sink().open()
    results: list[int] = []

    def submit(note: str) -> None:
        row = delivery(change(written_us=NOW_US, note=note))
        writer.submit(row, lambda delivered, _=(): results.append(len(delivered)))

    with monkeypatch.context() as patched:
        patched.setattr(LakeTransactions if step == "_add" else CommitsFile, step, busy)
        for note in ("1", "2"):
            submit(note)
            assert not writer.drain(FOREVER_MS)
        assert ([], []) == (results, notes(appended))
    assert writer.drain(FOREVER_MS)
    assert ([1, 1], ["1", "2"]) == (results, notes(appended))
    writer.close()


def busy(*_: object) -> None:
    """Stand for a lake that refuses."""
    raise LakeBusyError("somebody else commits", place="there")


def test_others_add_rows_meanwhile(box: LakeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers wait for one another; one that waits too long tries again later."""
    monkeypatch.setattr("headrace.connector.lake.staging.ADDING_SECONDS", 0.01)
    one, other = box.writer("1-of-2"), box.writer("2-of-2")
    assert isinstance(one, LakeTransactions)
    for writer, at in ((one, 1), (other, 2)):
        writer.submit(delivery(change(written_us=NOW_US, of=(1, at), note=str(at))), settled)
    with one._file.adding():  # noqa: SLF001 (another process would)
        assert not other.commit({"head": b"1"}, FOREVER_MS)
    assert other.commit({"head": b"1"}, FOREVER_MS)
    assert one.commit({"head": b"1"}, FOREVER_MS)
    assert ["1", "2"] == notes(box)
    one.close()
    other.close()


@pytest.mark.parametrize("uri", ["delta", "iceberg"])
def test_statements_make_a_lake(tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`CREATE DATA_SINK` takes a lake by its URI, and the job's books balance."""
    box = LakeBox(uri, tmp_path, "append", monkeypatch)
    job = GapJob(tmp_path)
    job.log(1, range(40))
    job.from_statements()
    text = {"delta": f"delta://{tmp_path}/lake", "iceberg": "iceberg://lake/cdc"}[uri]
    job.execute(
        f"CREATE DATA_SINK l WITH '{text}'; CREATE DATA_SOURCE cdc ON TABLE forged.t WITH l;"
    )

    assert 0 == job.run()
    assert {b"k%d" % n for n in range(40)} == {row["k"] for row in box.rows("forged.t")}
    assert 40 == len(box.rows("forged.t"))
    assert 0 == job.call("verify")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "step", "mode"),
    [
        ("delta", "lake_staged", "upsert"),
        ("iceberg", "lake_added", "append"),
        *soaked(("delta", "lake_added", "append"), ("iceberg", "lake_staged", "upsert")),
    ],
)
def test_kill_amid_a_commit(
    tmp_path: Path, kind: str, mode: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After kill -9 between writing and committing, each row is there once."""
    box = LakeBox(kind, tmp_path, mode, monkeypatch)
    job = GapJob(tmp_path)
    job.log(1, range(40))
    job.deliver({"plugin": kind, **box.options()}, {})
    child = JobFolder(tmp_path, str)

    assert -signal.SIGKILL == child.finish(crash_at=step), child.log()
    job.log(2, range(40, 60))
    assert 0 == child.finish(), child.log()
    assert {b"k%d" % n for n in range(60)} == {row["k"] for row in box.rows("forged.t")}
    assert 60 == len(box.rows("forged.t"))
    assert 0 == job.call("verify")


def test_where_positions_are(appended: LakeBox) -> None:
    """They are in the folder of Delta tables, and for Iceberg where the option says."""
    appended.commit(change(written_us=NOW_US, note="1"))

    place = {"delta": "lake/_headrace.db", "iceberg": "positions-cdc.db"}[appended.kind]
    assert (appended.folder / place).is_file()
    assert str(appended.folder / place) == appended.sink().open_split("1").place


def test_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transforms, and what names no folder, are refused; a URI gives the rest."""
    box = LakeBox("delta", tmp_path, "append", monkeypatch)
    config_class = box.sink().config_class
    for given, said in (
        ({"path": "/"}, "names no folder"),
        ({"path": "x", "mode": "merge"}, "mode"),
        (
            {"path": "x", "transforms": "t", "transforms.t.type": "Filter"},
            "transforms: tables of a lake",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_config(config_class, given)
    iceberg = LakeBox("iceberg", tmp_path, "append", monkeypatch).sink()
    assert {"catalog": "c", "namespace": "a.b"} == iceberg.config_of_uri("c", "/a/b")


def test_what_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown catalog, and a file that cannot be made, are named."""
    box = LakeBox("iceberg", tmp_path, "append", monkeypatch)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "nothing")
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    (finding,) = box.sink().check()
    assert (CheckResult.FAILED, True) == (finding.result, "catalog lake" in finding.message)
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(LakeFileError, match="lake"):
        LakeBox("delta", tmp_path, "append", monkeypatch).sink().open()


def test_a_file_that_is_no_database_does_not_stay_open(tmp_path: Path) -> None:
    """It is refused as such."""
    place = tmp_path / "commits.db"
    place.write_bytes(b"x" * 5_000)
    with pytest.raises(LakeFileError, match="not a database") as refused:
        CommitsFile(place)
    assert 0 == open_files(tmp_path), refused  # Its frames would hold a connection.
