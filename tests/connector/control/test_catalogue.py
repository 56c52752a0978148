"""A job file without sink and tables takes them from the statements in its state file."""

import pytest

from headrace.connector.control.catalogue import engine_of, job_parts
from headrace.connector.control.errors import JobUndefinedError
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_script
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import ConfigError, parse_config
from helpers.jobs.toys import BusConfig

pytestmark = pytest.mark.parametrize("connection", ["file", "shared"], indirect=True)

SINKS = "CREATE DATA_SINK k WITH bus://a AND password = '${env:P}'; CREATE DATA_SINK n WITH bus://b"
FREE_A = "CREATE DATA_SOURCE flow ON TABLE ks.a WITH k"
FREE_B = 'CREATE DATA_SOURCE flow ON TABLE "Ks".b WITH k'
OTHER_SINK = "CREATE DATA_SOURCE flow ON TABLE ks.c WITH n"
MINE = "CREATE DATA_SOURCE flow ON TABLE ks.d WITH n AND job = 'mine'"
THEIRS = "CREATE DATA_SOURCE flow ON TABLE ks.e WITH k AND job = 'theirs'"


def execute(connection: NoteCopy, *texts: str) -> None:
    """Execute statements."""
    service = ControlService(connection)
    for parsed in parse_script(";".join(texts)):
        service.execute(parsed.statement)


@pytest.mark.parametrize(
    ("texts", "stop", "tables"),
    [
        ([FREE_A], "a", ["ks.a"]),
        ([FREE_A, FREE_B], "a", ["Ks.b", "ks.a"]),
        ([FREE_A, MINE], "b", ["ks.d"]),
        ([FREE_A, OTHER_SINK, MINE], "b", ["ks.d"]),
        ([FREE_A, THEIRS], "a", ["ks.a"]),
        ([OTHER_SINK, THEIRS], "b", ["ks.c"]),
    ],
    ids=["one", "two", "mine first", "mine among many", "not theirs", "their sink is no matter"],
)
def test_parts(connection: NoteCopy, texts: list[str], stop: str, tables: list[str]) -> None:
    """A job has the sources that name it, or else those that name no job."""
    execute(connection, SINKS, *texts)

    sink, found, *_ = job_parts(connection, "mine")

    assert tables == found
    assert ("bus", stop) == (sink["plugin"], sink["bus.stops"])


def test_the_engine_of_a_job(connection: NoteCopy) -> None:
    """It is that of the sources which name one; two that name different ones are refused."""
    flow = FREE_A.partition(" ON ")[0].removeprefix("CREATE ")
    execute(connection, SINKS, FREE_A, FREE_B)
    assert "" == engine_of(connection, "mine")
    execute(connection, f"ALTER {flow} ON TABLE ks.a WITH engine = 'worker'")
    assert "worker" == engine_of(connection, "mine")
    with pytest.raises(ConfigError, match=r"engine.*no micro-batches"):
        execute(connection, f"ALTER {flow} ON TABLE ks.a WITH engine = 'spark'")
    with pytest.raises(ConfigError, match="engine"):
        execute(connection, f"ALTER {flow} ON TABLE ks.a WITH engine = 'flink'")


def test_two_engines_of_a_job(connection: NoteCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources of one job that are to run on different engines are refused by name."""
    monkeypatch.setattr("headrace.connector.control.connector_config.MicroBatches", object)
    apart = [
        f"{each} AND engine = '{engine}'"
        for each, engine in ((FREE_A, "worker"), (FREE_B, "spark"))
    ]
    execute(connection, SINKS, *apart)
    with pytest.raises(JobUndefinedError, match="on spark and worker"):
        job_parts(connection, "mine")
    assert "" == engine_of(connection, "mine")


def test_sink_is_usable(connection: NoteCopy) -> None:
    """The sink's options are those that the plugin declares; secrets stay references."""
    execute(connection, SINKS, FREE_A)

    sink, *_ = job_parts(connection, "mine")

    assert "bus" == sink.pop("plugin")
    config = parse_config(BusConfig, sink)
    assert ("a", "${env:P}") == (config.stops, config.password)


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        ([], "no data source is defined for job mine", "CREATE DATA_SOURCE cdc"),
        ([THEIRS], "no data source is defined for job mine", "CREATE DATA_SOURCE cdc"),
        ([FREE_A, OTHER_SINK], "write into 2 sinks: k, n", "AND job = 'mine'"),
    ],
    ids=["nothing", "only theirs", "two sinks"],
)
def test_undefined(connection: NoteCopy, texts: list[str], message: str, hint: str) -> None:
    """A job that the statements do not define is a named error."""
    execute(connection, SINKS, *texts)

    with pytest.raises(JobUndefinedError) as caught:
        job_parts(connection, "mine")

    assert message in caught.value.message
    assert hint in caught.value.hint
    assert (2, "job_undefined") == (caught.value.exit_status, caught.value.code)


def test_untouched_state(connection: NoteCopy) -> None:
    """A state file without statements has no sources."""
    with pytest.raises(JobUndefinedError):
        job_parts(connection, "mine")


def test_a_source_that_begins_elsewhere_runs_beside(connection: NoteCopy) -> None:
    """A source with another start gets a job named after both; equal starts share a job."""
    late = "CREATE DATA_SOURCE flow ON TABLE ks.z WITH k AND start = 'latest'"
    same = "CREATE DATA_SOURCE flow ON TABLE ks.y WITH k AND start = 'latest'"
    execute(connection, SINKS, FREE_A, late)
    routes = {route.source: route.job for route in connection.board.routes()}
    assert {"flow.ks.a": "k", "flow.ks.z": "k~flow.ks.z"} == routes
    key, fork_key = (connection.store(job).job_key() for job in ("k", "k~flow.ks.z"))
    assert key == fork_key
    assert "latest" == job_parts(connection, "k~flow.ks.z").start
    assert job_parts(connection, "k").start is None

    execute(connection, "DROP DATA_SOURCE flow ON TABLE ks.a")
    execute(connection, "DROP DATA_SOURCE flow ON TABLE ks.z", late, same)
    routes = {route.source: route.job for route in connection.board.routes()}
    assert {"flow.ks.z": "k", "flow.ks.y": "k"} == routes


def test_a_job_reads_one_cluster(connection: NoteCopy) -> None:
    """Sources of a sink share a job if they read the same cluster; a job reads one cluster."""
    east = "CREATE DATA_SOURCE flow ON TABLE ks.b WITH k AND cluster = 'east'"
    more = "CREATE DATA_SOURCE flow ON TABLE ks.c WITH k AND cluster = 'east'"
    forced = "CREATE DATA_SOURCE flow ON TABLE ks.d WITH k AND cluster = 'east' AND job = 'k'"
    execute(connection, SINKS, FREE_A, east, more)
    assert ["ks.b", "ks.c"] == job_parts(connection, "k@east").tables
    assert ("east", "") == tuple(job_parts(connection, job).cluster for job in ("k@east", "k"))
    execute(connection, forced)

    with pytest.raises(JobUndefinedError, match="read 2 clusters"):
        job_parts(connection, "k")
