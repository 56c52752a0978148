"""A run into a topic of its own is compared with its shards: missing, extra, duplicate messages."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from headrace.connector.replay.runs import RUNS, SPACE, RunTable, ShardState
from headrace.connector.stores.open_control_store import open_notes
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.logs.gap_jobs import GapJob

ROWS = 40
SHARDS = 2


class TopicRun:
    """A job into a broker in this process, and a run of it into a topic of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], **sink: str) -> None:
        """Plan and execute the run; *sink* are more options of the sink."""
        self.broker = EmbeddedBroker()
        self.job = GapJob(folder)
        self.job.log(1, range(ROWS))
        servers = self.broker.bootstrap_servers
        given = {"plugin": "kafka", "bootstrap.servers": servers, "topic": "t", **sink}
        self.job.deliver(given, {})
        assert 0 == self.job.replay("plan", "--json", "--accept-gaps", "--shards", str(SHARDS))
        self.run: str = json.loads(capsys.readouterr().out)["run"]
        self.again()

    def again(self) -> None:
        """Execute the run again."""
        assert 0 == self.job.replay("run", self.run, "--master", "none")

    def verify(self) -> int:
        """Compare; return the exit status."""
        return self.job.replay("verify", self.run, "--master", "none")

    def states(self) -> list[ShardState]:
        """Return the states of its shards."""
        with closing(RunTable(self.job.folder / "state.db")) as table:
            return [row.state for row in table.shards(self.run)]

    def went_to(self, messages: Sequence[Message], others: Sequence[Message] = ()) -> None:
        """Change the run's topic to one with these messages, and messages of another run."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for each in messages:
            place = each.partition() or 0
            producer.produce("u.replay", each.value(), each.key(), place, headers=each.headers())
        for each in others:
            headers = {**dict(each.headers() or ()), "replay_id": b"r0"}
            producer.produce("u.replay", each.value(), each.key(), headers=headers)
        producer.flush(10)
        with (
            closing(open_notes(self.job.folder / "state.db", space=SPACE)) as notes,
            notes.transaction(),
        ):
            for name, text in notes.all(RUNS).items():
                notes.put(RUNS, name, text.replace('"topic":"t"', '"topic":"u"'))

    def messages(self) -> list[Message]:
        """Return what the run sent."""
        return consume(self.broker.bootstrap_servers, "t.replay")


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> TopicRun:
    """Return a run that is done."""
    return TopicRun(tmp_path, capsys)


def test_all_is_there(made: TopicRun, capsys: pytest.CaptureFixture[str]) -> None:
    """All shards pass; messages of another run in the same topic, and duplicates, do not matter."""
    assert 0 == made.verify()
    assert f"{SHARDS} PASS; {ROWS} changes" in capsys.readouterr().out
    messages = made.messages()
    made.went_to([*messages, *messages], others=messages)

    assert (0, [ShardState.PASS] * SHARDS) == (made.verify(), made.states())


@pytest.mark.parametrize("key", [{}, {"key": "primary"}, {"key.format": "avro"}])
def test_messages_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: dict[str, str]
) -> None:
    """Messages in JSON are compared like those in Avro, and missing ones are found."""
    made = TopicRun(tmp_path, capsys, format="json", **key)

    assert (0, [ShardState.PASS] * SHARDS) == (made.verify(), made.states())
    assert "unreadable" not in capsys.readouterr().err
    made.went_to(made.messages()[:-3])
    assert 4 == made.verify()
    assert 3 == capsys.readouterr().out.count("note: missing: forged.t INSERT mutation ")


@pytest.mark.parametrize("envelope", ["flat", "debezium"])
@pytest.mark.parametrize("codec", ["avro", "json"])
def test_every_envelope(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], envelope: str, codec: str
) -> None:
    """Messages are compared by what they say; missing ones are named as the logs name them."""
    made = TopicRun(tmp_path, capsys, envelope=envelope, format=codec)

    assert (0, [ShardState.PASS] * SHARDS) == (made.verify(), made.states())
    made.went_to(made.messages()[:-3])
    capsys.readouterr()
    assert 4 == made.verify()
    assert 3 == capsys.readouterr().out.count("note: missing: forged.t INSERT mutation ")


def test_a_run_whose_messages_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused, and its shards stay PASS."""
    chain = {"transforms": "k", "transforms.k.type": "ValueToKey", "transforms.k.fields": "index"}
    made = TopicRun(tmp_path, capsys, **chain)

    assert 2 == made.verify()
    assert "sink.transforms.k: changes keys" in capsys.readouterr().err
    assert [ShardState.PASS] * SHARDS == made.states()


def test_what_is_missing_is_named(made: TopicRun, capsys: pytest.CaptureFixture[str]) -> None:
    """Shards with missing changes are DIFF, by name; after another `run` they pass."""
    messages = made.messages()
    made.went_to(messages[:-3])

    assert 4 == made.verify()
    assert {ShardState.DIFF, ShardState.PASS} >= set(made.states())
    assert 3 == capsys.readouterr().out.count("note: missing: forged.t INSERT mutation ")
    made.again()
    assert (0, [ShardState.PASS] * SHARDS) == (made.verify(), made.states())


def test_what_is_in_no_shard_is_extra(made: TopicRun, capsys: pytest.CaptureFixture[str]) -> None:
    """Changes of the run that are in none of its shards are extra, with status 4."""
    with closing(RunTable(made.job.folder / "state.db")) as table:
        last = table.shards(made.run)[-1]
        lost = last.report["delivered"]
    with (
        closing(open_notes(made.job.folder / "state.db", space=SPACE)) as notes,
        notes.transaction(),
    ):
        notes.put(f"shards/{made.run}", str(SHARDS), None)

    assert lost > 0
    assert 4 == made.verify()
    assert f"extra: {lost} changes that the run sent are in no shard" in capsys.readouterr().err


def test_a_file_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run into a sink that keeps no keys is refused."""
    job = GapJob(tmp_path)
    job.log(1, range(3))
    assert 0 == job.replay("plan", "--json", "--accept-gaps", "--into-live")
    run = json.loads(capsys.readouterr().out)["run"]
    assert 0 == job.replay("run", run, "--master", "none")

    assert 2 == job.replay("verify", run, "--master", "none")
    assert "sink.plugin: keeps no keys" in capsys.readouterr().err
