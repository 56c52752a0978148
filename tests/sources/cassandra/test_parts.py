"""What the parts of a job say and refuse before the first entry is read."""

import pytest
import structlog

from corpora import recording
from headrace.plugins import Context, parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.parts import Parts


def parts(log: structlog.stdlib.BoundLogger, consistency: str) -> Parts:
    """Return the parts of a job over the 5.0 ring."""
    folder = recording("5.0-ring")
    nodes = {name: str(folder / "segments" / name) for name in ("node1", "node2", "node3")}
    options = {"nodes": nodes, "schema": str(folder / "schema.cql"), "consistency": consistency}
    context = Context(job="j", clock=DrivenClock(), job_key=bytes(16), log=log)
    return Parts(parse_config(CassandraConfig, options), context)


@pytest.mark.parametrize(
    ("consistency", "warnings"),
    [("ONE", ["level_not_exact"]), ("QUORUM", []), ("ALL", ["level_not_exact"])],
)
def test_levels_that_are_not_exact_say_so(consistency: str, warnings: list[str]) -> None:
    """Where a repair's re-encoded copies can be counted wrongly, the log says so at the start."""
    capture = structlog.testing.LogCapture()
    log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        None, processors=[capture], wrapper_class=structlog.stdlib.BoundLogger
    )

    assert 3 == parts(log, consistency).groups.hosts

    assert warnings == [line["event"] for line in capture.entries]
