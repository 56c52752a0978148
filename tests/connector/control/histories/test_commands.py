"""Statements about histories, on the files that workers fill."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.control.access.permission import (
    CALLER,
    Caller,
    Role,
    RoleGuard,
    UnauthorizedError,
)
from headrace.connector.control.connector_config import sink_options
from headrace.connector.control.service import ControlService
from headrace.connector.history.errors import HistoryMissingError
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.rendering import ResultTable
from headrace.plugins import ConfigError, HeadraceError
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, settled
from helpers.histories.rows import change, delivery

CREATE = "CREATE CDC h ON shop.orders INCLUDE (CHANGE, PRE, POST) WITH seed = 'empty'"
NOW_US = 1_700_000_000_000_000
ALL = "WHERE CDC_TIME() >= '2023-01-01'"


class Control:
    """Executes statements on a state file."""

    def __init__(self, folder: Path) -> None:
        """Open it."""
        self.service = ControlService.open(folder / "state.db")

    def __call__(self, *parts: str) -> ResultTable:
        """Execute the statement of these parts; `$ALL` is a WHERE that all changes meet."""
        return self.service.execute(parse_statement(" ".join(parts).replace("$ALL", ALL)))

    def first(self, *parts: str) -> list[str]:
        """Return the first column of the answer."""
        return [row[0] for row in self(*parts).rows]

    def fill(self, name: str = "h") -> Kept:
        """Write three changes of two rows into a history, as a worker does."""
        options = sink_options(self.service.commands.sink(name).config)
        kept = Kept(DrivenClock(), **options)
        writer = kept.writer()
        sent = (
            change(written_us=NOW_US, of=(7, 1), note="a", total=1),
            change("UPDATE", written_us=NOW_US + 1, of=(7, 1), note="b"),
            change(written_us=NOW_US + 2, of=(8, 1), total=2),
        )
        for each in sent:
            writer.submit(delivery(each), settled)
            kept.clock.advance(1_000)
            assert writer.commit({}, FOREVER_MS)
        writer.close()
        return kept


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    """Return the control of an empty state file."""
    made = Control(tmp_path)
    yield made
    made.service.close()


def test_a_history_is_a_sink_and_a_source(control: Control, tmp_path: Path) -> None:
    """Its file is beside the state; a worker finds both; its statement makes it again."""
    control(CREATE)
    (source,) = control.service.commands.sources()
    assert ("cdc.shop.orders.h", "h") == (source.name, source.sink)
    (listed,) = control("DESCRIBE CDC").rows
    statement = (
        "CREATE CDC h ON shop.orders INCLUDE (CHANGE, PRE, POST) "
        f"WITH path = '{tmp_path}/history/h.db' AND seed = 'empty';"
    )
    assert ("h", "shop.orders", statement) == (listed[0], listed[1], listed[3])
    control("DROP CDC h")
    control(statement)
    assert listed[3] == control("DESCRIBE CDC").rows[0][3]


def test_phoenix_spelling_means_the_same(control: Control) -> None:
    """SALT_BUCKETS are buckets, and all are the four images."""
    control("Create CDC x on shop.orders INCLUDE (all) INDEX = GLOBAL SALT_BUCKETS=3")
    (row,) = control("DESCRIBE CDC x").rows
    assert "INCLUDE (CHANGE, PRE, POST, LATEST)" in row[-1]
    assert "buckets = 3" in row[-1]


def test_a_table_may_have_several(control: Control) -> None:
    """Beside one that goes elsewhere; each has its own source."""
    control("CREATE DATA_SINK k WITH 'null://'")
    control("CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH k")
    control(CREATE)
    control(CREATE.replace("h ON", "g ON"))
    assert 3 == len(control.service.commands.sources())
    control("DROP CDC g")
    assert ["k", "h"] == [source.sink for source in control.service.commands.sources()]


def test_creating_is_all_or_nothing(control: Control) -> None:
    """A source that cannot be made leaves no sink."""
    with pytest.raises(ConfigError, match="no keyspace"):
        control("CREATE CDC h ON orders")
    with pytest.raises(ConfigError, match="start"):
        control("CREATE CDC h ON shop.orders WITH start = 'nowhere'")
    assert not control.service.commands.sinks()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (CREATE, r"cdc: CDC h already exists\n.*DROP CDC h"),
        (CREATE.replace("h ON", "IF NOT EXISTS h ON") + " AND buckets = 9", "is another"),
        ("CREATE CDC i ON shop.orders WITH bucket = 1", "did you mean buckets"),
        ("CREATE CDC i ON shop.orders WITH retention = 1", "expected a duration"),
        ("ALTER CDC h WITH buckets = 9", "cannot be changed"),
        ("ALTER CDC h WITH files = 2", "cannot be changed"),
        ("ALTER CDC i WITH retention = '1d'", "CDC i does not exist"),
        ("DROP CDC i", "CDC i does not exist"),
        ("DESCRIBE CDC i", "there are: h"),
        ("SELECT * FROM i $ALL", "CDC i does not exist"),
    ],
)
def test_what_cannot_be_done_is_named(control: Control, statement: str, message: str) -> None:
    """Each with the part of the statement that is wrong."""
    control(CREATE)
    with pytest.raises(ConfigError, match=message):
        control(statement)


def test_what_may_be_there_or_not(control: Control) -> None:
    """IF EXISTS and IF NOT EXISTS change nothing where there is nothing to do."""
    control(CREATE)
    control(CREATE.replace("h ON", "IF NOT EXISTS h ON"))
    control("DROP CDC IF EXISTS i PURGE")
    control("ALTER CDC IF EXISTS i WITH retention = '1d'")
    assert 1 == len(control("DESCRIBE CDC").rows)


def test_alter_changes_what_it_names(control: Control) -> None:
    """Images and retention; the rest stays."""
    control(CREATE)
    control("ALTER CDC h INCLUDE (LATEST) WITH retention = '3d'")
    (row,) = control("DESCRIBE CDC").rows
    assert "INCLUDE (LATEST)" in row[3]
    assert "seed = 'empty' AND retention = '3d'" in row[3]


def test_a_select_shows_changes_with_their_images(control: Control) -> None:
    """In a table, a row for each, with the columns that the history includes."""
    control(CREATE)
    control.fill()
    found = control("SELECT * FROM h $ALL")
    named = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert ("cdc_time", "seq", "partition_id", "id", "at", "op") == found.columns[:6]
    assert "latest" not in found.columns
    second = named[1]
    assert ("7", "update", '{"note": "b"}') == (second["id"], second["op"], second["change"])
    assert {"note": "a", "total": 1} == json.loads(second["pre"])
    assert {"note": "b", "total": 1} == json.loads(second["post"])
    assert "2023-11-14T22:13:20.000001Z" == second["write_time"]
    assert ["safe_until"] == [name for name, _ in found.footer]


def test_a_select_chooses(control: Control) -> None:
    """Columns, images, keys, operations, times, order, and the number of rows."""
    control(CREATE)
    control.fill()
    ids = control.first
    assert ["7", "7", "8"] == ids("SELECT id FROM h $ALL")
    assert ["8"] == ids("SELECT id FROM h $ALL AND id = 8")
    assert ["7"] == ids("SELECT id FROM h $ALL AND op = 'update'")
    assert ["7", "7", "8"] == ids("SELECT id FROM h $ALL AND op = 'upsert'")
    assert ["8", "7"] == ids("SELECT id FROM h $ALL ORDER BY CDC_TIME() DESC LIMIT 2")
    assert ["7"] == ids("SELECT id FROM h $ALL AND CDC_TIME() < 1700000002500")
    written = "WRITE_TIME() > '2023-11-14T22:13:20Z' AND WRITE_TIME() <= 1700000000000001"
    assert ["7"] == ids("SELECT id FROM h $ALL AND ", written)
    posts = ids("SELECT post FROM h $ALL AND id = 8")
    assert ['{"note": null, "total": 2}'] == posts


def test_a_select_chooses_what_expired(control: Control) -> None:
    """By its type of event, alone or beside operations; what `op` shows has all of it."""
    control(CREATE + " AND ttl_events = true AND retention = '9999d'")
    options = sink_options(control.service.commands.sink("h").config)
    kept = Kept(DrivenClock(), **options)
    writer = kept.writer()
    soon_s = NOW_US // 1_000_000 + 60
    kept_row = change(written_us=NOW_US, of=(8, 1), total=2)
    writer.submit(delivery(change(written_us=NOW_US, of=(7, 1), expires=soon_s)), settled)
    writer.submit(delivery(kept_row), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    found = control("SELECT JSON FROM h $ALL AND op = 'TTL_DELETE'").rows
    documents = [json.loads(row[0]) for row in found]
    assert [({"id": 7, "at": 1}, "ttl_delete")] == [(d["key"], d["event_type"]) for d in documents]
    both = "SELECT op FROM h $ALL AND op IN ('insert', 'ttl_delete')"
    assert ["insert", "insert", "delete"] == control.first(both)
    assert ["delete"] == control.first("SELECT op FROM h $ALL AND op = 'delete'")
    assert [] == control.first("SELECT op FROM h $ALL AND op = 'ttl_update'")


def test_a_change_may_be_written_at_any_time(control: Control) -> None:
    """Outside of the years 1 to 9999 its number of µs is shown, which a query can compare."""
    control(CREATE)
    kept = control.fill()
    writer = kept.writer()
    writer.submit(delivery(change(written_us=1 << 60, of=(9, 1), total=2)), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    far = f"$ALL AND WRITE_TIME() > {NOW_US + 9}"
    assert [str(1 << 60)] == control.first("SELECT write_time FROM h", far)
    assert str(1 << 60) == json.loads(control.first("SELECT JSON FROM h", far)[0])["write_time"]


def test_pages_continue_behind_their_tokens(control: Control) -> None:
    """Until there is no token."""
    control(CREATE)
    control.fill()
    first = control("SELECT id FROM h $ALL LIMIT 2")
    token = dict(first.footer)["next_token"]
    second = control("SELECT id FROM h $ALL LIMIT 2 AFTER", repr(token))
    assert (("7",), ("7",), ("8",)) == first.rows + second.rows
    assert "next_token" not in dict(second.footer)


def test_json_has_the_names_of_phoenix(control: Control) -> None:
    """A hint replaces what the history includes; the column of Phoenix has its document."""
    control(CREATE)
    control.fill()
    hint = "/*+ CDC_INCLUDE(PRE, LATEST) */"
    (row,) = control("SELECT", hint, "JSON FROM h $ALL AND op = 'update'").rows
    document = json.loads(row[0])
    assert {"id": 7, "at": 1} == document["key"]
    assert {"note": "a", "total": 1} == document["pre_image"]
    assert {"note": "b", "total": 1} == document["latest_image"]
    assert "upsert" == document["event_type"]
    assert {"change_image", "post_image"}.isdisjoint(document)
    times = "PHOENIX_ROW_TIMESTAMP() >= TO_DATE('2023-01-01') AND op = 'update'"
    (row,) = control('SELECT "CDC JSON" FROM h WHERE', times).rows
    assert {"event_type", "pre_image", "change_image", "post_image"} == json.loads(row[0]).keys()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "cdc_time: the time is not bounded below"),
        ("WHERE CDC_TIME() < NOW()", "cdc_time: the time is not bounded below"),
        ("WHERE CDC_TIME() >= 'x'", "cdc_time: expected a time, found 'x'"),
        ("WHERE CDC_TIME() IN (1)", r"CDC_TIME\(\) has no IN"),
        ("WHERE CDC_TIME() > NOW() - 5", "cdc_time: expected a duration, found '5'"),
        ("$ALL AND WRITE_TIME() > TRUE", "write_time: expected a time"),
        ("$ALL AND PARTITION_ID() > 1", "compared once, by = or IN"),
        ("$ALL AND PARTITION_ID() = 'x'", "partition_id: expected a number of a bucket"),
        ("$ALL AND op = 'upset'", "op: 'upset' is not an operation"),
        ("$ALL AND op IN ('insert', 'ttl_upsert')", "op: 'ttl_upsert' is not an operation"),
        ("$ALL AND id > 7", "id: a column of the key is compared once"),
        ("$ALL AND note = 'a'", "note: cannot be compared"),
        ("$ALL AND PARTITION_ID() = 8", r"partition_id: bucket 8 does not exist\n.* 0 to 7"),
        ("$ALL AND PARTITION_ID() IN (0, -1)", "partition_id: bucket -1 does not exist"),
        ("$ALL AND id = '7'", "id: is a whole number, found '7'"),
        ("$ALL AND at = TRUE", "at: is a whole number, found True"),
        ("$ALL AFTER 'x'", "after: 'x' is not a token"),
    ],
)
def test_a_wrong_query_is_named(control: Control, where: str, message: str) -> None:
    """By the part of it that is wrong."""
    control(CREATE)
    control.fill()
    with pytest.raises(ConfigError, match=message):
        control("SELECT * FROM h", where)


def test_an_unknown_column_is_named(control: Control) -> None:
    """With those that there are."""
    control(CREATE)
    control.fill()
    with pytest.raises(ConfigError, match="nope: column 'nope' does not exist"):
        control("SELECT nope FROM h $ALL")


def test_tail_goes_on_from_its_token(control: Control) -> None:
    """It returns what is there, then what comes; it waits no longer than it may."""
    control(CREATE)
    kept = control.fill()
    first = control("TAIL h FROM '2023-01-01' LIMIT 2")
    token = dict(first.footer)["next_token"]
    second = control(f"TAIL h AFTER '{token}' WAIT 1ms")
    assert [2, 1] == [len(first.rows), len(second.rows)]
    token = dict(second.footer)["next_token"]
    nothing = control(f"TAIL h AFTER '{token}' WAIT 1ms")
    assert () == nothing.rows
    token = dict(nothing.footer)["next_token"]
    writer = kept.writer()
    writer.submit(delivery(change(written_us=NOW_US, of=(9, 1))), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    found = control(f"TAIL h JSON AFTER '{token}' WAIT 1ms")
    assert [{"id": 9, "at": 1}] == [json.loads(row[0])["key"] for row in found.rows]


def test_poll_reads_one_range_after_the_other(control: Control) -> None:
    """Each answer says where the next range begins."""
    control(CREATE)
    control.fill()
    found: list[tuple[str, ...]] = []
    at = "1700000001000"
    for _ in range(4):
        answer = control(f"POLL h EVERY 1s SAFETY 1s FROM {at}")
        found += answer.rows
        at = dict(answer.footer)["next_from"]
    assert "1700000005000" == at
    assert 3 == len(found)
    with pytest.raises(ConfigError, match="every: both durations are at most 30s"):
        control("POLL h EVERY 20s SAFETY 20s")


def test_purge_removes_the_file_of_the_history_alone(control: Control, tmp_path: Path) -> None:
    """DROP without it leaves the file; a file of something else stays in any case."""
    control(CREATE)
    control.fill()
    control("DROP CDC h")
    file = tmp_path / "history" / "h.db"
    assert file.exists()
    control(CREATE)
    control("DROP CDC h PURGE")
    assert [] == list(file.parent.iterdir())
    other = tmp_path / "other"
    other.write_text("precious")
    control(CREATE + f" AND path = '{other}'")
    with pytest.raises(HeadraceError):
        control("DROP CDC h PURGE")
    assert "precious" == other.read_text()


def test_the_file_is_for_its_owner(control: Control, tmp_path: Path) -> None:
    """It has the values of rows."""
    control(CREATE)
    control.fill()
    assert 0o600 == (tmp_path / "history" / "h.db").stat().st_mode & 0o777


def test_a_history_without_a_file_says_so(control: Control) -> None:
    """No worker has run its job yet: DESCRIBE shows that, SELECT fails."""
    control(CREATE)
    described = control("DESCRIBE CDC h")
    shown = dict(zip(described.columns, described.rows[0], strict=True))
    assert "nothing yet: no worker has run its job" == shown["kept"]
    with pytest.raises(HistoryMissingError):
        control("SELECT * FROM h $ALL")


def test_describe_shows_what_is_kept(control: Control) -> None:
    """How many changes, of which times, and with which images since when."""
    control(CREATE)
    control.fill()
    described = control("DESCRIBE CDC h")
    shown = dict(zip(described.columns, described.rows[0], strict=True))
    assert ("3", "") == (shown["changes"], shown["floor"])
    assert "2023-11-14T22:13:22.000Z" == shown["first_arrival"]
    assert "2023-11-14T22:13:24.000Z" == shown["last_arrival"]
    assert "change, latest, post, pre since the beginning" == shown["kept"]


def test_only_who_may_read_the_table_may_select(control: Control) -> None:
    """As for PREVIEW; a viewer may describe."""
    control(CREATE)
    control.fill()
    control.service.serve(Caller(name="eve", role=Role.VIEWER), RoleGuard())
    try:
        assert control("DESCRIBE CDC").rows
        for statement in ("SELECT * FROM h $ALL", "TAIL h WAIT 1ms", "DROP CDC h"):
            with pytest.raises(UnauthorizedError):
                control(statement)
    finally:
        CALLER.set(Caller())
