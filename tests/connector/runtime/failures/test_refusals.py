"""A refused schema stops the data source of its table alone, and nothing of it is lost."""

import contextlib
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headrace.connector.control.catalogue import resumes_of
from headrace.connector.control.commands import Commands
from headrace.connector.control.status import ConnectorStatus
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.language.statements import CreateSink
from headrace.connector.runtime.failures.refusals import Refusals
from headrace.connector.serde.schemas.publishing import incompatible
from headrace.connector.stores import Publication, PublicationState, StoreUnavailableError
from headrace.connector.stores.job import state_of
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs import toys
from helpers.jobs.children import JobFolder, until
from helpers.jobs.deliveries import consume
from helpers.jobs.forked import running
from helpers.logs.gap_jobs import GapJob
from helpers.servers.registries import ask, registry
from helpers.stores.shared import Kept, shared_notes

T, OTHER = "forged.t", "forged.other"
GOOD, BAD = f"cdc.{T}", f"cdc.{OTHER}"
FORK = f"orders~{BAD}"
SOURCE = f"DATA_SOURCE cdc ON TABLE {OTHER}"
REFUSED = Publication(
    subject="u-value",
    schema_id=bytes(16),
    part="value",
    text="",
    state=PublicationState.REFUSED,
    problem="not after that one",
)


@dataclass
class Refused:
    """A job of two tables into Kafka, whose registry refuses one schema of `forged.other`."""

    job: GapJob
    broker: EmbeddedBroker
    address: str

    def statuses(self) -> Mapping[str, ConnectorStatus]:
        """Return how the sources fare."""
        with contextlib.closing(open_notes(state_of(self.job.path)[0])) as notes:
            return Commands(notes).statuses()

    def rows(self, table: str) -> list[int]:
        """Return the values of the rows that a table's topic has, sorted."""
        context = SerializationContext(f"cdc.{table}", MessageField.VALUE)
        with SchemaRegistryClient({"url": self.address, "timeout": 180}) as client:
            read = AvroDeserializer(client)
            messages = consume(self.broker.bootstrap_servers, f"cdc.{table}")
            found = [read(message.value(), context) for message in messages]
        return sorted(each["payload"]["v"][0] for each in found)

    def allow(self) -> None:
        """Let the registry take any schema of the table."""
        for part in ("key", "value"):
            path = f"/config/cdc.{OTHER}-{part}"
            assert 200 == ask(self.address, "PUT", path, {"compatibility": "NONE"})[0]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refused]:
    """Return such a job, which has published rows of the first table, and then meets both."""
    monkeypatch.chdir(tmp_path)
    broker = EmbeddedBroker()
    job = GapJob(tmp_path)
    job.from_statements()
    with registry(tmp_path / "registry.db") as address:
        made = ask(address, "POST", f"/subjects/cdc.{OTHER}-value/versions", {"schema": '"long"'})
        assert 200 == made[0]
        job.execute(
            f"CREATE DATA_SINK k WITH 'kafka://{broker.bootstrap_servers}' AND "
            f"topic = 'cdc.{{keyspace}}.{{table}}' AND schema.store = 'registry' AND "
            f"schema.store.url = '{address}' AND schema.framing = 'confluent';"
            f"CREATE DATA_SOURCE cdc ON TABLE {T} WITH k AND job = 'orders';"
            f"CREATE DATA_SOURCE cdc ON TABLE {OTHER} WITH k AND job = 'orders'"
        )
        job.log(0, range(3))
        assert 0 == job.run()
        job.log(1, range(3, 6), others=range(10, 13))
        job.log(2, range(6, 9), others=range(13, 16))
        yield Refused(job, broker, address)


def test_the_other_sources_go_on(refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the source of the refused table fails; this run and the next end with 1 and name it."""
    assert 1 == refused.job.run()
    assert ([*range(9)], []) == (refused.rows(T), refused.rows(OTHER))
    said = capsys.readouterr().err
    assert f"error [source_failed]: data source {BAD}: schema_incompatible: table {OTHER}" in said
    assert (
        f"subject.name.strategy to TopicRecordNameStrategy; then RESUME {SOURCE}. Nothing" in said
    )

    refused.job.log(3, range(20, 23), others=range(30, 33))
    assert 1 == refused.job.run()
    assert ([*range(9), *range(20, 23)], []) == (refused.rows(T), refused.rows(OTHER))
    assert f"error [source_failed]: data source {BAD}: " in capsys.readouterr().err


def test_its_status_says_what_to_do(refused: Refused) -> None:
    """The source is FAILED with code, time, subject and remedy; it is wanted to run as before."""
    assert 1 == refused.job.run()

    status = refused.statuses()
    assert (Observed.UNASSIGNED, "orders") == (status[GOOD].state, status[GOOD].job)
    start = f"headrace run {refused.job.path}"
    assert f"not_started: no worker runs job orders; start it: {start}" == status[GOOD].reason
    failed = status[BAD]
    assert (Observed.FAILED, Desired.RUNNING, FORK) == (failed.state, failed.desired, failed.job)
    assert re.match(
        rf"schema_incompatible: since 2\d\d\d-\S+Z table {OTHER}, subject cdc\.{OTHER}-value: "
        rf".*compatibility level BACKWARD.*; allow it at the store \(compatibility level .*; "
        rf"then RESUME {SOURCE}\. Nothing is lost",
        failed.reason,
    )


@pytest.mark.parametrize("job", ["orders", FORK])
def test_verify_names_it(refused: Refused, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line that `verify` prints of either job is about the source that failed."""
    assert 1 == refused.job.run()
    capsys.readouterr()
    assert 0 == refused.job.call("verify", "--job", job)

    first = f"data source {BAD}: schema_incompatible: table {OTHER}, subject "
    assert capsys.readouterr().out.startswith(first)
    (failed,) = refused.job.verified("--job", job)["failed_sources"]
    assert failed.startswith(first)


@pytest.mark.parametrize("verb", ["RESUME", "RESTART"])
def test_it_continues_where_it_stopped(refused: Refused, verb: str) -> None:
    """Each of its changes comes once it is mended; it keeps its own job, and the other its own."""
    assert 1 == refused.job.run()
    refused.job.log(3, range(20, 23), others=range(30, 33))
    assert 1 == refused.job.run()
    refused.allow()

    refused.job.execute(f"{verb} {SOURCE}")
    assert 0 == refused.job.run("--job", FORK)
    assert [*range(10, 16), *range(30, 33)] == refused.rows(OTHER)
    assert 0 == refused.job.run()
    assert {GOOD: "orders", BAD: FORK} == {n: s.job for n, s in refused.statuses().items()}
    refused.job.log(4, range(40, 43), others=range(50, 53))
    assert 0 == refused.job.run()
    assert 0 == refused.job.run("--job", FORK)
    assert [*range(9), *range(20, 23), *range(40, 43)] == refused.rows(T)
    assert [*range(10, 16), *range(30, 33), *range(50, 53)] == refused.rows(OTHER)


def test_it_fails_again_where_nothing_was_mended(
    refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own job notes the refusal too, and rests; the other job is left alone by it."""
    assert 1 == refused.job.run()
    refused.job.execute(f"RESUME {SOURCE}")
    assert Observed.FAILED is not refused.statuses()[BAD].state

    assert 1 == refused.job.run("--job", FORK)
    assert Observed.FAILED is refused.statuses()[BAD].state
    capsys.readouterr()
    assert 1 == refused.job.run("--job", FORK)
    said = capsys.readouterr().err
    assert f"error [source_failed]: data source {BAD}: schema_incompatible: " in said
    assert "split_claimed" not in said
    assert ([*range(9)], []) == (refused.rows(T), refused.rows(OTHER))


def test_another_option_of_the_sink_lets_it_go_on(refused: Refused) -> None:
    """After an alter of the sink its sources need no resume."""
    assert 1 == refused.job.run()

    refused.job.execute("ALTER DATA_SINK k WITH schema.on.incompatible = 'new_subject'")
    assert 0 == refused.job.run("--job", FORK)

    assert [*range(10, 16)] == refused.rows(OTHER)


@pytest.mark.parametrize("step", ["handed_over", "source_failed"])
def test_a_worker_that_dies_there(refused: Refused, step: str) -> None:
    """Before or after it noted the refusal: the next run parts the two, and publishes the rest."""
    child = JobFolder(refused.job.folder, str)
    assert -signal.SIGKILL == child.finish(crash_at=step), child.log()
    assert (step == "source_failed") is (Observed.FAILED is refused.statuses()[BAD].job_state)

    assert 1 == refused.job.run()
    assert FORK == refused.statuses()[BAD].job
    refused.allow()
    refused.job.execute(f"RESUME {SOURCE}")
    assert 0 == refused.job.run("--job", FORK)
    assert ([*range(9)], [*range(10, 16)]) == (refused.rows(T), refused.rows(OTHER))


def test_two_workers_meet_it(refused: Refused) -> None:
    """Both continue with the other table; the source rests, and continues when it is resumed."""
    with running(refused.job, "orders", "orders"):
        until(lambda: FORK == refused.statuses()[BAD].job, "it did not part")
        refused.job.log(3, range(20, 23), others=range(30, 33))
        until(lambda: 12 == len(refused.rows(T)), "the other table did not go on")
        assert Observed.FAILED is refused.statuses()[BAD].state
        # Splits move between the workers now and then, and have no owner meanwhile.
        until(lambda: Observed.RUNNING is refused.statuses()[GOOD].state, "it does not run")
        refused.allow()
        refused.job.execute(f"RESUME {SOURCE}")
        with running(refused.job, FORK):
            until(lambda: 9 == len(refused.rows(OTHER)), "it did not go on")

    assert [*range(9), *range(20, 23)] == refused.rows(T)
    assert [*range(10, 16), *range(30, 33)] == refused.rows(OTHER)


class Noted:
    """A job of two sources, whose worker started with the current target state."""

    def __init__(self, connection: NoteCopy) -> None:
        """Make them."""
        self.connection = connection
        self.commands = Commands(connection)
        self.commands.create_sink(CreateSink(name="k", uri="file:///a.jsonl"))
        for table in ("t", "u"):
            made = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": table}
            self.commands.create_source({"name": table, "sink": "k", "job": "j"} | made)
        self.board = connection.board
        self.clock = DrivenClock()

    def refusals(self, job: str = "j") -> Refusals:
        """Return those of a worker that begins now, and meets one."""
        wanted = self.board.wanted(job)
        made = Refusals(
            self.connection, job, wanted, resumes=resumes_of, clock=self.clock, log=context().log
        )
        made.take(incompatible("s.u", REFUSED))
        return made

    def failed(self) -> list[str]:
        """Return the sources that failed."""
        return [route.source for route in self.board.routes() if route.failure is not None]


@pytest.fixture(params=["file", "shared"])
def noted(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Noted]:
    """Return one over a state file, and one over notes that machines share."""
    (tmp_path / "toys").mkdir()
    toys.install(tmp_path / "toys", monkeypatch)
    path = tmp_path / "state.db"
    opened = open_notes(path) if request.param == "file" else shared_notes(Kept(path))
    with contextlib.closing(opened):
        yield Noted(opened)


def test_the_source_of_the_table_fails(noted: Noted) -> None:
    """It alone, and once, however many splits and workers meet it."""
    first, second = noted.refusals(), noted.refusals()
    first.take(incompatible("s.u", REFUSED))
    first.note()
    before = noted.board.routes()
    noted.clock.advance(1_000)
    second.note()

    assert (["u"], False) == (noted.failed(), first.waiting or second.waiting)
    assert before == noted.board.routes()
    assert noted.board.wanted("j").mixed


@pytest.mark.parametrize("verb", ["pause", "stop", "restart"])
def test_what_somebody_asks_for_meanwhile_counts(noted: Noted, verb: str) -> None:
    """A worker that started earlier notes nothing: the next run of the job meets it again."""
    late = noted.refusals()
    getattr(noted.commands, verb)("u")
    late.note()

    assert ([], False) == (noted.failed(), late.waiting)


@pytest.mark.parametrize("verb", ["pause", "stop", "resume", "restart", "alter_source"])
def test_each_request_of_a_state_ends_the_failure(noted: Noted, verb: str) -> None:
    """A second worker that met it before that notes it no more."""
    first, late = noted.refusals(), noted.refusals()
    first.note()
    assert ["u"] == noted.failed()
    if verb == "alter_source":
        noted.commands.alter_source("u", {"start": "earliest"})
    else:
        getattr(noted.commands, verb)("u")
    late.note()

    assert [] == noted.failed()


def test_a_job_of_one_source_fails_as_a_whole(noted: Noted) -> None:
    """Nothing is noted: its splits say why; a job that forked from another notes it."""
    noted.commands.drop_source("t")
    noted.refusals().note()
    assert [] == noted.failed()

    with noted.connection.transaction():
        noted.board.point("u", job="j~u", sink="k")
    noted.refusals("j~u").note()
    assert ["u"] == noted.failed()
    noted.commands.drop_source("u")
    noted.commands.create_source(
        {"name": "u", "sink": "k", "connector.class": "BrookBrookSource"}
        | {"keyspace": "s", "table": "u"}
    )
    assert [] == noted.failed()


def test_a_store_that_is_away_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was met is kept until the store answers."""
    toys.install(tmp_path, monkeypatch)
    kept = Kept(tmp_path / "state.db")
    with contextlib.closing(shared_notes(kept)) as connection:
        noted = Noted(connection)
        refusals = noted.refusals()
        kept.memory.away = True
        with pytest.raises(StoreUnavailableError):
            refusals.note()
        assert refusals.waiting
        kept.memory.away = False
        refusals.note()

        assert (["u"], False) == (noted.failed(), refusals.waiting)
