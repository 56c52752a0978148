"""What the parts of a job say and refuse before the first entry is read."""

import ssl
from pathlib import Path
from uuid import UUID

import pytest
import structlog

from authority import Authority
from corpora import CORPORA, recording
from cql_node import CqlNode
from headrace.plugins import ConfigError, Context, parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.parts import Parts

NODES = ("node1", "node2", "node3")


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
    with pytest.raises(ConfigError, match="no table of the schema has CDC"):
        _ = parts(log, "QUORUM", schema=str(tmp_path / "one.cql")).tables
    with pytest.raises(ConfigError, match=r"s\.c holds counters"):
        _ = parts(log, "QUORUM", schema=str(tmp_path / "both.cql"), tables=["s.c"]).tables


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
        problem.message for problem in found.lacking().values()
    ]
    with pytest.raises(ConfigError, match=r"s\.nope is not in the schema; tables: s\.dry"):
        _ = chosen("s.nope", "s.dry").tables
    with pytest.raises(ConfigError, match=r"s\.nope is not in the schema"):
        _ = chosen("s.t", "s.nope", missing="fail").tables


def test_a_live_node_is_asked(tmp_path: Path) -> None:
    """By TLS and as somebody, when that is said; what it has not, the file has."""
    authority = Authority(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("node"))
    log, _ = captured()
    with CqlNode(users={"u": "p"}, tls=context) as node:
        access = {"username": "u", "password": "p", "tls_ca": str(authority.file)}
        made = parts(log, "QUORUM", contact_points=[node.point], **access)
        assert made.tables

    assert "SELECT * FROM system_schema.tables" in node.levels


def test_a_key_has_a_password_of_its_own() -> None:
    """The key store opens with one password, and the key in it with the other."""
    store = str(CORPORA / "keystores" / "secret.jceks")
    passwords = {"keystore_password": "cassandra", "key_password": "keypass"}
    log, _ = captured()

    made = parts(log, "QUORUM", keystore=store, **passwords)

    assert 16 == len(made.keys.key("testing:128").material)
