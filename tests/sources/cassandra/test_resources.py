"""What the parts of a job say and refuse before the first entry is read."""

import ssl
import struct
from pathlib import Path
from uuid import UUID

import pytest
import structlog

from headrace.plugins import ConfigError, Context, parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.resources import Parts
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.recordings.corpora import CORPORA, recording
from helpers.servers.authority import Authority
from helpers.servers.cql_node import BOOLEAN, INT, TEXT, TEXT_MAP, CqlNode, pieces, rows

NODES = ("node1", "node2", "node3")
UUID_TYPE = b"\x00\x0c"


def parts(log: structlog.stdlib.BoundLogger, consistency: str, **options: object) -> Parts:
    """Return the parts of a job over the 5.0 ring."""
    folder = recording("5.0-ring")
    nodes = {name: str(folder / "segments" / name) for name in NODES}
    given = {"nodes": nodes, "schema": str(folder / "schema.cql"), "consistency": consistency}
    context = Context(job="j", clock=DrivenClock(), job_key=bytes(16), log=log)
    return Parts(parse_config(CassandraConfig, given | options), context, 8)


def captured() -> tuple[structlog.stdlib.BoundLogger, structlog.testing.LogCapture]:
    """Return a log and what is kept of it."""
    capture = structlog.testing.LogCapture()
    log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        None, processors=[capture], wrapper_class=structlog.stdlib.BoundLogger
    )
    return log, capture


def test_w03_counters_are_passed_over_by_name(tmp_path: Path) -> None:
    """W03: a counter table with CDC is warned of and not delivered; another one is."""
    counters = "CREATE TABLE s.c (k int PRIMARY KEY, n counter) WITH cdc = true AND ID = "
    text = f"{counters} 00000000-0000-1000-8000-000000000001;"
    other = text.replace("counter", "int").replace("s.c", "s.t").replace("1;", "2;")
    (tmp_path / "both.cql").write_text(text + other)
    (tmp_path / "one.cql").write_text(text)
    log, capture = captured()

    found = parts(log, "QUORUM", schema=str(tmp_path / "both.cql")).tables
    assert ["s.t"] == [table.qualified for table in found]
    (warning,) = capture.entries
    assert ("table_skipped", "s.c", "counter") == (
        warning["event"],
        warning["table"],
        warning["reason"],
    )
    with pytest.raises(ConfigError, match=r"s\.c holds counters"):
        _ = parts(log, "QUORUM", schema=str(tmp_path / "one.cql")).tables
    with pytest.raises(ConfigError, match=r"s\.c holds counters"):
        _ = parts(log, "QUORUM", schema=str(tmp_path / "both.cql"), tables=["s.c"]).tables


MODES = [
    ("full", None, "table_skipped"),
    ("mixed_reads", None, "table_skipped"),
    ("test_interop_read", None, "table_skipped"),
    ("one_to_come", None, "table_skipped"),
    ("full", "mixed_reads", "table_skipped"),
    ("full", "off", "table_incomplete"),
    ("off", "full", "table_incomplete"),
    ("off", "unsafe", "table_incomplete"),
    ("unsafe", None, "table_incomplete"),
    ("unsafe_writes", None, "table_incomplete"),
    ("test_unsafe", None, "table_incomplete"),
    ("test_unsafe_writes", None, "table_incomplete"),
    ("off", "none", ""),
    ("FULL", "NONE", "table_skipped"),
]
KEYSPACE = "CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy'}"


def table(name: str, number: int, more: str = "") -> str:
    """Return DDL of a table with CDC."""
    made = f"CREATE TABLE s.{name} (k int PRIMARY KEY) WITH cdc = true AND ID = "
    return f"{made}{UUID(int=number)}{more};"


@pytest.mark.parametrize(("mode", "migrates_from", "event"), MODES)
def test_tables_that_accord_writes_are_reported(
    tmp_path: Path, mode: str, migrates_from: str | None, event: str
) -> None:
    """What goes through Accord is in no commit log; a table by name is refused if that is all."""
    options = f" AND transactional_mode = '{mode}'"
    if migrates_from is not None:
        options += f" AND transactional_migration_from = '{migrates_from}'"
    path = tmp_path / "s.cql"
    path.write_text(table("t", 1) + table("a", 2, options))
    log, capture = captured()

    found = parts(log, "QUORUM", schema=str(path)).tables

    assert ("s.a" in [each.qualified for each in found]) == (event != "table_skipped")
    reported = [(said["event"], said["table"], said["reason"]) for said in capture.entries]
    assert reported == ([(event, "s.a", "accord")] if event else [])
    if event == "table_skipped":
        with pytest.raises(ConfigError, match=r"s\.a is transactional: its writes are in no"):
            _ = parts(log, "QUORUM", schema=str(path), tables=["s.a"]).tables
    else:
        named = parts(log, "QUORUM", schema=str(path), tables=["s.a"]).tables
        assert ["s.a"] == [each.qualified for each in named]


def test_a_named_table_lacks_as_long_as_nothing_of_it_is_logged(tmp_path: Path) -> None:
    """Beside others it is not delivered, and its data source says why; so it is later."""
    path = tmp_path / "s.cql"
    path.write_text(table("t", 1) + table("a", 2, " AND transactional_mode = 'full'"))
    log, _ = captured()
    given = {"schema": str(path), "tables": ("s.t", "s.a"), "tables_missing": "wait"}
    made = parts(log, "QUORUM", **given)

    assert ["s.t"] == [each.qualified for each in made.tables]
    assert ["s.a"] == list(made.missing_tables())
    later = parse_schema(table("t", 1, " AND transactional_mode = 'full'")).table("s.t")
    assert later is not None
    made.announcer.tell(later, None)
    assert ["s.a", "s.t"] == list(made.missing_tables())
    assert made.missing_tables()["s.t"].message.startswith("s.t is transactional")


@pytest.mark.parametrize(
    ("options", "altered", "reason"),
    [
        ("durable_writes = false", "durable_writes = true", "durable_writes"),
        ("replication_type = 'tracked'", "replication_type = 'untracked'", "tracked"),
    ],
)
def test_keyspaces_whose_writes_are_in_no_commit_log_are_reported(
    tmp_path: Path, options: str, altered: str, reason: str
) -> None:
    """Their tables take CDC, and Cassandra logs nothing of them."""
    path = tmp_path / "s.cql"
    other = "CREATE KEYSPACE o WITH replication = {'class': 'SimpleStrategy'};"
    made = f"{KEYSPACE} AND {options};{other}{table('a', 1)}{table('t', 2).replace('s.t', 'o.t')}"
    path.write_text(made)
    log, capture = captured()

    assert ["o.t"] == [t.qualified for t in parts(log, "QUORUM", schema=str(path)).tables]
    (said,) = capture.entries
    assert ("table_skipped", "s.a", reason) == (said["event"], said["table"], said["reason"])
    with pytest.raises(ConfigError, match="its writes are in no commit log"):
        _ = parts(log, "QUORUM", schema=str(path), tables=["s.a"]).tables

    path.write_text(f"{made}ALTER KEYSPACE s WITH {altered};")
    assert 2 == len(parts(log, "QUORUM", schema=str(path)).tables)


def test_an_altered_mode_begins_a_migration(tmp_path: Path) -> None:
    """As Cassandra does it, unless the statement says where it migrates from."""
    path = tmp_path / "s.cql"
    alter = "ALTER TABLE s.a WITH transactional_mode = 'full'"
    log, capture = captured()
    for more in ("", " AND transactional_migration_from = 'none'"):
        path.write_text(f"{table('t', 1)}{table('a', 2)}{alter}{more};")
        _ = parts(log, "QUORUM", schema=str(path)).tables

    assert ["table_incomplete", "table_skipped"] == [said["event"] for said in capture.entries]


def test_a_table_that_is_not_there_is_waited_for_beside_others(tmp_path: Path) -> None:
    """Where tables may be missing the others are delivered; if all are missing it fails."""
    text = "CREATE TABLE s.{} (k int PRIMARY KEY) WITH cdc = {} AND ID = {};"
    tables = (("t", "true"), ("dry", "false"))
    made = [text.format(*table, UUID(int=number)) for number, table in enumerate(tables)]
    (tmp_path / "s.cql").write_text("".join(made))
    log, _ = captured()

    def chosen(*names: str, missing: str = "wait") -> Parts:
        given = {"tables": names, "tables_missing": missing}
        return parts(log, "QUORUM", schema=str(tmp_path / "s.cql"), **given)

    found = chosen("s.t", "s.nope", "s.dry")
    assert ["s.t"] == [table.qualified for table in found.tables]
    assert ["s.nope is not in the schema", "s.dry has no CDC"] == [
        problem.message for problem in found.missing_tables().values()
    ]
    with pytest.raises(ConfigError, match=r"s\.nope is not in the schema; tables: s\.dry"):
        _ = chosen("s.nope", "s.dry").tables
    with pytest.raises(ConfigError, match=r"s\.nope is not in the schema") as caught:
        _ = chosen("s.t", "s.nope", missing="fail").tables
    assert "give keyspace.table as the schema has it" == caught.value.hint
    with pytest.raises(ConfigError) as caught:
        _ = chosen("s.dri", missing="fail").tables
    assert "did you mean s.dry?" == caught.value.hint


def test_a_live_node_is_asked(tmp_path: Path) -> None:
    """By TLS and as someone, when that is said; what it has not, the file has."""
    authority = Authority(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("node"))
    log, _ = captured()
    with CqlNode(users={"u": "p"}, tls=context) as node:
        access = {"username": "u", "password": "p", "tls_ca": str(authority.file)}
        made = parts(log, "QUORUM", contact_points=[node.point], **access)
        assert made.tables

    assert "SELECT * FROM system_schema.tables" in node.levels


DESCRIBED = (
    b"CREATE TABLE s.a (k int PRIMARY KEY) WITH comment = 'transactional_mode = ''off'' '"
    b" AND transactional_mode = 'full' AND transactional_migration_from = 'none';"
)
SIX: dict[str, bytes] = {
    "SELECT * FROM system_schema.keyspaces": rows(
        {"keyspace_name": TEXT, "replication": TEXT_MAP, "durable_writes": BOOLEAN},
        [b"s", struct.pack(">i", 1) + pieces(b"class", b"SimpleStrategy"), b"\1"],
    ),
    "SELECT * FROM system_schema.tables": rows(
        {
            "keyspace_name": TEXT,
            "table_name": TEXT,
            "id": UUID_TYPE,
            "cdc": BOOLEAN,
            "fast_path": TEXT_MAP,
        },
        *([b"s", name, UUID(int=i).bytes, b"\1", None] for i, name in enumerate((b"t", b"a"), 1)),
    ),
    "SELECT * FROM system_schema.columns": rows(
        {
            **dict.fromkeys(("keyspace_name", "table_name", "column_name", "kind", "type"), TEXT),
            "position": INT,
        },
        *([b"s", name, b"k", b"partition_key", b"int", bytes(4)] for name in (b"t", b"a")),
    ),
    "DESCRIBE TABLE s.a": rows({"create_statement": TEXT}, [DESCRIBED]),
    "DESCRIBE TABLE s.t": rows({"create_statement": TEXT}, [b"CREATE TABLE s.t (k int);"]),
}


def test_a_node_of_60_is_asked_to_describe_tables_with_cdc() -> None:
    """Its `system_schema` has no modes, nor has its log: what was given at the start counts."""
    log, capture = captured()
    with CqlNode(answers=SIX) as node:
        made = parts(log, "QUORUM", contact_points=[node.point], schema=None)
        assert ["s.t"] == [table.qualified for table in made.tables]
    assert [("table_skipped", "s.a", "accord")] == [
        (said["event"], said["table"], said["reason"]) for said in capture.entries
    ]

    logged = parse_schema(table("a", 2)).table("s.a")
    assert logged is not None
    made.announcer.tell(logged, None)
    assert ["s.a"] == list(made.announcer.skipped)


def test_a_key_has_a_password_of_its_own() -> None:
    """The key store opens with one password, and the key in it with the other."""
    store = str(CORPORA / "keystores" / "secret.jceks")
    passwords = {"keystore_password": "cassandra", "key_password": "keypass"}
    log, _ = captured()

    made = parts(log, "QUORUM", keystore=store, **passwords)

    assert 16 == len(made.keys.key("testing:128").material)


@pytest.mark.parametrize(
    ("level", "expired", "fate"),
    [
        ("QUORUM", "drop", "wait, and be dropped after expiry_seconds (14400)"),
        ("QUORUM", "publish", "wait, and be published as it is"),
        ("ONE", "drop", "may never be seen"),
    ],
)
def test_a_replica_that_nobody_reads_is_reported_once(level: str, expired: str, fate: str) -> None:
    """The start says how many copies of which keyspace are read, and what follows for the level."""
    log, capture = captured()
    made = parts(log, level, expired=expired, nodes=nodes_of("node1", "node3"))
    made.check()
    made.report()
    reported = [entry for entry in capture.entries if entry["event"] == "replicas_unread"]

    assert 1 == len(reported), capture.entries
    (warning,) = reported
    assert ("warning", 3, 2, []) == (
        *(warning["log_level"], warning["copies"], warning["read"], warning["not_read"]),
    )
    assert made.keyspaces == [warning["keyspace"]]
    assert fate in warning["hint"]


def test_all_replicas_are_read() -> None:
    """Where all copies are read there is nothing to tell."""
    log, capture = captured()
    made = parts(log, "QUORUM")
    made.check()
    made.report()

    assert [] == [entry for entry in capture.entries if entry["event"] == "replicas_unread"]


def nodes_of(*names: str) -> dict[str, str]:
    """Return where these nodes of the 5.0 ring have their logs."""
    return {name: str(recording("5.0-ring") / "segments" / name) for name in names}
