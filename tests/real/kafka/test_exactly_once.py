"""Exactly once: after any death a consumer of what is committed sees every change one time."""

import contextlib
import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs forget one.
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import (
    Context,
    Delivery,
    Disposition,
    Headers,
    TransactionalWriter,
    parse_config,
)
from headrace.plugins.testing import TransactionalDriver, TransactionalSuite
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.kafka.bounds import size_of
from headrace.sinks.kafka.clients import Client, OnError, new_client
from helpers.jobs.children import SECONDS_MAX, JobFolder, ring_job, stop, until, write_lines
from helpers.jobs.committed import change, committed, counted
from helpers.jobs.deliveries import Results, SystemClock, context, delivery_of
from helpers.jobs.forked import fork_after_a_death
from helpers.logs.gap_jobs import GapJob
from helpers.settings.native_modules import ROOT
from helpers.stores.file_rows import heads
from real.ring_jobs import wait_for
from real.servers.kafka import Kafka

pytestmark = pytest.mark.real

FILES, LINES = 4, 1_000
RING_CHANGES = 6_451
RUNTIME = {
    "tick_min_ms": 5,
    "commit_max_seconds": 0.05,
    "batch_records_max": 40,
    "lease_seconds": 60,
}
# Of the steps of a run, those before, within and after a transaction.
STEPS = ("loaded:3", "encoded:40", "submitted:40", "settled:40", "commit_heads:5", "committed:6")


@dataclass(frozen=True)
class Stream:
    """A job into a topic of its own."""

    job: JobFolder
    bootstrap_servers: str
    topic: str

    def counts(self) -> Counter[Hashable]:
        """Return how often a consumer of what is committed sees each line."""
        found = committed(self.bootstrap_servers, self.topic)
        return counted(found, lambda value: tuple(json.loads(value).values())[:2])

    def total(self, *, uncommitted: bool = False) -> int:
        """Return how many lines it sees, or one that does not wait for commits."""
        level = {"isolation_level": "read_uncommitted"} if uncommitted else {}
        return len(committed(self.bootstrap_servers, self.topic, **level))

    def progress_of(self, child: subprocess.Popen[bytes]) -> Callable[[], bool]:
        """Return what says whether it has committed from now on, or has ended."""
        before = self._commits()
        return lambda: child.poll() is not None or self._commits() > before

    def _commits(self) -> int:
        state = self.job.path / "state.db"
        with contextlib.suppress(sqlite3.OperationalError):  # It is not whole yet.
            return sum(head.seq for head in heads(state).values()) if state.exists() else 0
        return 0

    def has(self, lines: int, *, uncommitted: bool = False) -> Callable[[], bool]:
        """Return what says whether it sees so many lines of each file."""
        return lambda: self.total(uncommitted=uncommitted) >= FILES * lines


def once(lines: int = LINES) -> dict[tuple[int, int], int]:
    """Return what `counts` should be."""
    return {(name, n): 1 for name in range(FILES) for n in range(lines)}


def stream_of(bootstrap_servers: str, folder: Path, **sink: object) -> Stream:
    """Return a job that copies a few files, and has not run yet."""
    topic = f"once-{uuid4().hex}"
    write_lines(folder, FILES, range(LINES))
    job = {
        "job": topic,
        "state": "state.db",
        "source": {"plugin": "files", "path": "in*.jsonl"},
        "sink": _sink_of(bootstrap_servers, topic) | sink,
        "runtime": RUNTIME,
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return Stream(JobFolder(folder, lambda line: str(line["n"])), bootstrap_servers, topic)


def _sink_of(bootstrap_servers: str, topic: str, *, exactly_once: bool = True) -> dict[str, object]:
    return {
        "plugin": "kafka",
        "bootstrap.servers": bootstrap_servers,
        "topic": topic,
        "format": "json",
        "exactly.once": exactly_once,
    }


@pytest.fixture
def stream(bootstrap_servers: str, tmp_path: Path) -> Stream:
    """Return a job into the session's broker."""
    return stream_of(bootstrap_servers, tmp_path)


class KafkaDriver(TransactionalDriver):
    """One split of a job of its own."""

    def __init__(self, bootstrap_servers: str, topic: str = "") -> None:
        """Choose a topic, if none is given."""
        self._topic = topic or f"suite-{uuid4().hex}"
        self._clock = SystemClock()
        options = {"bootstrap.servers": bootstrap_servers, "topic": self._topic}
        self._config = parse_config(KafkaConfig, options | {"exactly.once": True})
        KafkaSink(self._config, self._context()).open().close()  # Which makes the topic.

    def writer(self) -> TransactionalWriter:
        """Return a writer of the split."""
        return KafkaSink(self._config, self._context()).open_split("split")

    def seen(self) -> Sequence[bytes]:
        """Return what a consumer gets."""
        found = committed(self._config.bootstrap_servers, self._topic)
        return [message.value() or b"" for message in found]

    def deadline_ms(self) -> int:
        """Return a moment a minute from now."""
        return self._clock.monotonic_ms() + 60_000

    def _context(self) -> Context:
        return replace(context(), job=self._topic, clock=self._clock)


@pytest.mark.usefixtures("way")
class TestKafkaTransactions(TransactionalSuite):
    """The suite, against a real broker: the embedded one shows what was aborted."""

    @pytest.fixture
    def driver(self, bootstrap_servers: str) -> KafkaDriver:
        """Return a driver with an empty topic."""
        return KafkaDriver(bootstrap_servers)


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(stream: Stream, step: str) -> None:
    """K03: before, within and after a transaction, what follows SIGKILL is not a second time."""
    assert -signal.SIGKILL == stream.job.finish(crash_at=step), stream.job.log()
    assert 0 == stream.job.finish(), stream.job.log()

    assert once() == stream.counts()


def test_killed_at_random_moments(stream: Stream) -> None:
    """K03: however often the process is killed, every line is there once.

    Twice out of three times soon after it has committed, else wherever its start has come to.
    """
    moment = random.Random(0)  # noqa: S311 (a test's dice)
    kills = 0
    while True:
        with stream.job.running("--until-idle") as child:
            if kills % 3:
                until(stream.progress_of(child), "it does not go on")
                time.sleep(moment.uniform(0.0, 0.3))  # The moment is the test.
            else:
                time.sleep(moment.uniform(0.1, 2.0))  # Likewise.
        if -signal.SIGKILL != child.wait():
            break
        kills += 1
        assert kills < 100, stream.job.log()
    assert 0 == stream.job.finish(), stream.job.log()

    assert once() == stream.counts()


def test_a_paused_owner_is_kept_out(stream: Stream) -> None:
    """An owner that was stopped in a transaction wakes up after another has taken over.

    Nothing proves it dead, so its leases must run out; what it had open is aborted, and what it
    sends is refused.
    """
    job_file = stream.job.path / "job.yaml"
    document = json.loads(job_file.read_text())
    document["runtime"] |= {"lease_seconds": 2, "commit_max_seconds": 1.5}
    job_file.write_text(json.dumps(document))
    lines = LINES
    with stream.job.running() as first:
        until(stream.has(lines), "it never delivered")
        while stream.has(lines)():  # Until it is stopped with a transaction open.
            first.send_signal(signal.SIGCONT)
            write_lines(stream.job.path, FILES, range(lines, lines + 50))
            lines += 50
            until(stream.has(lines, uncommitted=True), "it never sent")
            until(lambda: stream.job.pause(first), "it never ceased to write")
        with stream.job.running():
            until(lambda: all(t > 1 for _, t in stream.job.leases().values()), "no take-over")
            first.send_signal(signal.SIGCONT)
            write_lines(stream.job.path, FILES, range(lines, lines + 50))
            lines += 50
            until(stream.has(lines), "something is missing")

    assert once(lines) == stream.counts()


def test_a_full_queue_is_waited_for(bootstrap_servers: str, tmp_path: Path) -> None:
    """What the client has no room for is sent as it is, when there is room; so beside a bad one."""
    stream = stream_of(bootstrap_servers, tmp_path, **{"queue.buffering.max.messages": 10})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    small = NewTopic(stream.topic, 2, 1, config={"max.message.bytes": "40000"})
    admin.create_topics([small])[stream.topic].result(30)
    for name in range(FILES):
        with (tmp_path / f"in{name}.jsonl").open("a") as file:
            file.write(json.dumps({"file": name, "n": LINES, "more": "x" * 80_000}) + "\n")

    assert 0 == stream.job.finish(), stream.job.log()
    assert once() == stream.counts()


def test_a_broker_that_dies_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """K04: the outcome of commits under way is unknown; it is looked up, not guessed."""
    (tmp_path / "job").mkdir()
    moment = random.Random(7)  # noqa: S311 (a test's dice)
    rounds, more = 3, 100
    with Kafka(tmp_path / "broker") as kafka:
        stream = stream_of(kafka.bootstrap_servers, tmp_path / "job")
        with stream.job.running() as child:
            until(lambda: stream.total() > 0, "it never delivered")
            for start in range(LINES, LINES + rounds * more, more):
                write_lines(stream.job.path, FILES, range(start, start + more))
                time.sleep(moment.uniform(0.0, 0.3))  # The moment is the test.
                kafka.kill()
                kafka.start()
            assert child.poll() is None, stream.job.log()
            wait_for(stream.has(LINES + rounds * more), "something is missing")
            assert 0 == stop(child), stream.job.log()

        assert once(LINES + rounds * more) == stream.counts()


def test_a_record_too_large_for_the_topic(bootstrap_servers: str, tmp_path: Path) -> None:
    """The brokers refuse a batch for it: only this record is dead-lettered, once."""
    stream = stream_of(bootstrap_servers, tmp_path)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    small = NewTopic(stream.topic, 2, 1, config={"max.message.bytes": "40000"})
    admin.create_topics([small])[stream.topic].result(30)
    large = {"file": 0, "n": LINES, "more": random.Random(0).randbytes(50_000).hex()}  # noqa: S311
    with (tmp_path / "in0.jsonl").open("a") as file:
        file.write(json.dumps(large) + "\n")
    expected = once(LINES + 50)
    del expected[0, LINES]
    for name in range(FILES):
        with (tmp_path / f"in{name}.jsonl").open("a") as file:
            numbers = range(LINES + (not name), LINES + 50)
            file.writelines(f'{{"file": {name}, "n": {n}}}\n' for n in numbers)

    assert 0 == stream.job.finish(), stream.job.log()
    store = SqliteStore.open(tmp_path / "state.db", stream.topic)
    (kept,) = store.losses()
    store.close()

    assert "kafka_msg_size_too_large" == kept.loss.code
    assert expected == stream.counts()


def test_records_are_measured_as_brokers_measure_them(bootstrap_servers: str) -> None:
    """What is as large as the topic's bound is taken, and what is one byte larger is not."""
    topic, bound = f"bound-{uuid4().hex}", 40_000
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    small = NewTopic(topic, 1, 1, config={"max.message.bytes": str(bound)})
    admin.create_topics([small])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    outcomes: dict[int, list[object]] = {bound: [], bound + 1: []}
    forms: list[tuple[bytes | None, Headers]] = [
        (None, ()),
        (b"k" * 70, (("a", b"b" * 200), ("c" * 64, b""))),
    ]
    for key, headers in forms:
        for size, came in outcomes.items():
            value = bytes(size - size_of(key, bytes(39_000), headers) + 39_000)
            assert size == size_of(key, value, headers)
            heard: Callable[..., None] = lambda error, _, came=came: came.append(error)  # noqa: E731
            producer.produce(topic, value, key, headers=list(headers), on_delivery=heard)
            assert not producer.flush(30)  # Each in a batch of its own.
    too_large = [error.code() for error in outcomes[bound + 1] if isinstance(error, KafkaError)]

    assert [None] * len(forms) == outcomes[bound]
    assert [KafkaError.MSG_SIZE_TOO_LARGE] * len(forms) == too_large


@pytest.mark.parametrize(
    ("compression", "level"),
    [("none", -1), ("gzip", -1), ("lz4", -1), ("snappy", -1), ("zstd", -1), ("lz4", 9)],
)
def test_one_of_a_hundred_is_too_large_for_the_topic(
    bootstrap_servers: str, tmp_path: Path, compression: str, level: int
) -> None:
    """Each is dead-lettered without an aborted transaction; if compressed enough, it arrives."""
    given = {"compression.type": compression, "compression.level": level}
    stream = stream_of(bootstrap_servers, tmp_path, **given)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    small = NewTopic(stream.topic, 2, 1, config={"max.message.bytes": "40000"})
    admin.create_topics([small])[stream.topic].result(30)
    dice = random.Random(0)  # noqa: S311 (not a secret)
    bad = range(50, LINES, 100)
    for name in range(FILES):
        lines = (tmp_path / f"in{name}.jsonl").read_text().splitlines()
        for n in bad:
            lines[n] = json.dumps({"file": name, "n": n, "more": dice.randbytes(80_000).hex()})
        if compression != "none":
            lines[0] = json.dumps({"file": name, "n": 0, "more": "x" * 100_000})
        (tmp_path / f"in{name}.jsonl").write_text("\n".join(lines) + "\n")

    assert 0 == stream.job.finish(), stream.job.log()
    with contextlib.closing(SqliteStore.open(tmp_path / "state.db", stream.topic)) as store:
        kept = [found.loss.code for found in store.losses()]

    assert ["kafka_msg_size_too_large"] * FILES * len(bad) == kept
    assert {k: v for k, v in once().items() if k[1] not in bad} == stream.counts()
    assert FILES == stream.job.log().count("split_started")


@pytest.mark.usefixtures("way")
def test_only_the_invalid_record_of_a_batch_is_rejected(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was compacted since takes no record without a key; which one is found.

    librdkafka reports the error for the whole batch. The producers that follow send batches again.
    """
    made: list[Mapping[str, str]] = []

    def recorded(options: Mapping[str, str], on_error: OnError, *, place: str) -> Client:
        made.append(options)
        return new_client(options, on_error, place=place)

    monkeypatch.setattr("headrace.sinks.kafka.writer.new_client", recorded)
    topic = f"compacted-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    compacted = ConfigResource(ConfigResource.Type.TOPIC, topic)
    compacted.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    )
    driver = KafkaDriver(bootstrap_servers, topic)
    delivery = delivery_of((b"a", b"1"), (None, b"2"), (b"c", b"3"))

    with contextlib.closing(driver.writer()) as writer:
        assert {} == _verdict(driver, writer, delivery)
        assert writer.commit({}, driver.deadline_ms())
        admin.incremental_alter_configs([compacted])[compacted].result(30)
        results = [_verdict(driver, writer, delivery) for _ in range(3)]
        assert writer.commit({}, driver.deadline_ms())

    assert [
        dict.fromkeys(range(3), Disposition.RETRY),
        dict.fromkeys((1, 2), Disposition.RETRY),
        {1: Disposition.REJECT},
    ] == results
    assert [b"1", b"1", b"2", b"3", b"3"] == sorted(driver.seen())
    assert [True] * 4 == ["batch.num.messages" not in options for options in made]


@pytest.mark.usefixtures("way")
def test_a_record_without_a_key_for_a_compacted_topic_is_never_sent(
    bootstrap_servers: str,
) -> None:
    """It is dead-lettered, and the transaction continues with the other records."""
    topic = f"compacted-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    compacted = NewTopic(topic, 1, 1, config={"cleanup.policy": "delete,compact"})
    admin.create_topics([compacted])[topic].result(30)
    driver = KafkaDriver(bootstrap_servers, topic)

    with contextlib.closing(driver.writer()) as writer:
        found = _verdict(driver, writer, delivery_of((b"a", b"1"), (None, b"2"), (b"c", b"3")))
        assert writer.commit({}, driver.deadline_ms())

    assert {1: Disposition.REJECT} == found
    assert [b"1", b"3"] == sorted(driver.seen())


@pytest.mark.usefixtures("way")
def test_a_bound_that_was_lowered_condemns_no_batch(bootstrap_servers: str) -> None:
    """What fitted the bound that was asked for is sent record by record when it is refused."""
    topic = f"lowered-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "40000"})])[
        topic
    ].result(30)
    driver = KafkaDriver(bootstrap_servers, topic)
    large = delivery_of(*((b"%d" % n, bytes(1_000)) for n in range(9)), (b"9", bytes(3_000)))
    lowered = ConfigResource(ConfigResource.Type.TOPIC, topic)
    lowered.add_incremental_config(
        ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    )

    with contextlib.closing(driver.writer()) as writer:
        assert {} == _verdict(driver, writer, delivery_of((b"a", b"1")))
        assert writer.commit({}, driver.deadline_ms())
        admin.incremental_alter_configs([lowered])[lowered].result(30)
        first, _, last = (_verdict(driver, writer, large) for _ in range(3))
        assert writer.commit({}, driver.deadline_ms())

    assert dict.fromkeys(range(10), Disposition.RETRY) == first
    assert {9: Disposition.REJECT} == last
    assert 10 == len(driver.seen())


def _verdict(
    driver: KafkaDriver, writer: TransactionalWriter, delivery: Delivery
) -> dict[int, Disposition]:
    """Begin, send *delivery* and return what becomes of the records that failed."""
    until(lambda: writer.begin(driver.deadline_ms()) is not None, "it does not begin")
    results = Results()
    writer.submit(delivery, results)
    assert writer.drain(driver.deadline_ms())
    ((_, failures),) = results.all
    return {failure.index: failure.disposition for failure in failures}


def test_a_ring_is_delivered_once(bootstrap_servers: str, tmp_path: Path) -> None:
    """Copies that wait, and what is known of published ones, are in the transaction too."""
    topic = f"ring-{uuid4().hex}"
    job = ring_job(tmp_path, "5.0-ring")
    document = yaml.safe_load((tmp_path / "job.yaml").read_text())
    document |= {"job": topic, "sink": _sink_of(bootstrap_servers, topic)}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    for step in ("settled:40", "commit_chunks:20", "commit_heads:30", "submitted:60"):
        assert -signal.SIGKILL == job.finish(crash_at=step), job.log()
    assert 0 == job.finish(), job.log()
    found = counted(committed(bootstrap_servers, topic), change)

    assert RING_CHANGES == len(found)
    assert {1} == set(found.values())


def test_a_source_that_is_stopped_alone_after_a_death(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    """The worker died between a commit and its copy: the part begins behind that commit."""
    job = GapJob(tmp_path, f"part-{uuid4().hex}")
    where = f"kafka://{bootstrap_servers}?topic={job.name}&format=json&exactly.once=true"
    fork_after_a_death(job, where, crash_at="commit_heads:1")
    found = counted(committed(bootstrap_servers, job.name), change)

    assert 6 == len(found)
    assert {1} == set(found.values())


def test_a_topic_of_positions_that_was_deleted(stream: Stream) -> None:
    """The next run says what is left and what continues; what it says continues loses nothing."""
    positions = _positions_in(stream.job)
    assert 0 == stream.job.finish(), stream.job.log()
    admin = AdminClient({"bootstrap.servers": stream.bootstrap_servers})
    admin.delete_topics([positions], operation_timeout=30, request_timeout=40)
    until(lambda: positions not in admin.list_topics(timeout=10).topics, "it was not deleted")
    write_lines(stream.job.path, FILES, range(LINES, LINES + 10))

    assert 1 == stream.job.finish(), stream.job.log()
    log = stream.job.log()
    assert "error [state_lost]" in log
    assert "the store has a copy, of commit " in log
    assert "set offsets.storage.topic to the name of a new topic" in log
    _positions_in(stream.job)
    assert 0 == stream.job.finish(), stream.job.log()
    assert once(LINES + 10) == stream.counts()


def test_a_write_ahead_log_that_was_removed(stream: Stream) -> None:
    """A job that has just started continues from the topic of positions, and repeats nothing."""
    path = stream.job.path / "state.db"
    with stream.job.running() as child:
        until(stream.has(LINES), "it never delivered")
        child.kill()
        child.wait()
    Path(f"{path}-wal").unlink()

    assert 1 == stream.job.finish(), stream.job.log()
    assert f"run `rm {path}-shm` and start again" in stream.job.log()
    Path(f"{path}-shm").unlink()
    write_lines(stream.job.path, FILES, range(LINES, LINES + 10))
    assert 0 == stream.job.finish(), stream.job.log()
    assert once(LINES + 10) == stream.counts()


def _positions_in(job: JobFolder) -> str:
    """Give the job a new topic of positions, and return its name."""
    file = job.path / "job.yaml"
    document = json.loads(file.read_text())
    document["sink"]["offsets.storage.topic"] = name = f"positions-{uuid4().hex}"
    file.write_text(json.dumps(document))
    return name


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_state_topic_that_forgets_is_refused(
    bootstrap_servers: str, tmp_path: Path, policy: str
) -> None:
    """A topic whose old messages are deleted is not a place for positions, compacted or not."""
    name = f"forgets-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = NewTopic(name, 1, 1, config={"cleanup.policy": policy})
    admin.create_topics([wanted])[name].result(30)
    stream = stream_of(bootstrap_servers, tmp_path, **{"offsets.storage.topic": name})

    assert 3 == stream.job.finish(), stream.job.log()
    assert f"its cleanup.policy is '{policy}'" in stream.job.log()
    assert f"--alter --topic {name} --add-config cleanup.policy=compact" in stream.job.log()


def test_its_price_can_be_measured(bootstrap_servers: str) -> None:
    """The benchmark prints the CPU of either way and their ratio; `make bench-once` judges it."""
    short = ["--lines", str(LINES), "--runs", "1", "--no-alarm"]
    printed = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-m", "bench.once", "--bootstrap-servers", bootstrap_servers, *short],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS_MAX,
    ).stdout

    least, once_, ratio = printed.splitlines()
    assert least.startswith(f"{LINES} records, at least once: CPU ")
    assert once_.startswith(f"{LINES} records, exactly once: CPU ")
    assert re.fullmatch(r"exactly once: \d+\.\d\d x the CPU \(goal: at most 1\.3\)", ratio)
