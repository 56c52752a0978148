"""What the parts of a job say and refuse before the first entry is read."""

from pathlib import Path

import pytest
import structlog

from corpora import recording
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
    return Parts(parse_config(CassandraConfig, given | options), context)


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
