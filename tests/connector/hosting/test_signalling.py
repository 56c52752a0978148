"""Signals of a running job, through a broker in this process."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.connector.control.commands import Commands
from headrace.connector.hosting.host import Host
from headrace.connector.stores import StoreUnavailableError
from headrace.plugins import Signals
from headrace.plugins.testing.doubles import context
from headrace.sinks.kafka import KafkaSink
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.children import until
from helpers.jobs.filled_tables import OTHER as OTHER_TABLE
from helpers.jobs.filled_tables import RANGES, ROWS, Snapped, T, answering

FORK = f"orders~cdc.{T}"


class Signalled(Snapped):
    """A job whose sink is a topic, and the topic of its signals."""

    broker: EmbeddedBroker

    def send(self, *, key: str = "orders", **signal: object) -> None:
        """Send a signal."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        producer.produce("signals", json.dumps(signal).encode(), key.encode())
        assert 0 == producer.flush(60)

    def asked_for(self, kind: str, **data: object) -> None:
        """Send a signal about the job's table."""
        self.send(type=kind, data={"data-collections": [T], **data})

    def operations(self, count: int) -> list[str]:
        """Return `op` of the first *count* records in the topic."""
        options = {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "g"}
        consumer = Consumer({**options, "auto.offset.reset": "earliest", "log_level": 0})
        consumer.subscribe(["records"])
        found = [json.loads(each.value() or b"{}") for each in consumer.consume(count, timeout=60)]
        consumer.close()
        return [each["op"] for each in found]

    def counted(self, host: Host) -> dict[str, float]:
        """Return how many signals came, by their fates."""
        found = {m.name: m.samples for m in host.measures()}
        return {
            labels["fate"]: value
            for labels, value in found.get("headrace_signals_total", ())
            if isinstance(value, float)
        }

    @contextmanager
    def running(self) -> Iterator[Host]:
        """Run the job in the block."""
        host = self.host()
        thread = threading.Thread(target=lambda: host.run(until_idle=False))
        thread.start()
        try:
            yield host
        finally:
            host.stop()
            thread.join()


def _is_followed(made: Signalled, host: Host) -> bool:
    return made.counted(host) == {"followed": 1.0}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signalled]:
    """Return a job with a source on the table, whose sink has a topic of signals."""
    monkeypatch.chdir(tmp_path)
    with answering(tmp_path, monkeypatch) as node:
        found = Signalled(tmp_path, node)
        found.broker = EmbeddedBroker()
        found.job.from_statements()
        found.execute(
            f"CREATE DATA_SINK k WITH 'kafka://{found.broker.bootstrap_servers}?topic=records' "
            "AND signal.topic = 'signals' AND format = 'json' AND envelope = 'debezium';"
            f"CREATE DATA_SOURCE cdc ON TABLE {T} WITH k AND job = 'orders' "
            f"AND snapshot.ranges = {RANGES} AND snapshot.parallel = 1"
        )
        found.hold(T, ROWS)
        yield found


def test_a_snapshot(made: Signalled) -> None:
    """A signal that was sent before the job ran is followed: its rows come, read, with op `r`."""
    made.asked_for("execute-snapshot")
    with made.running() as host:
        until(lambda: [s["state"] for s in made.shown()] == ["COMPLETED"], "it never ended")
        until(partial(_is_followed, made, host), "it was not counted")

    assert made.only()["snapshot"].startswith("signal-")
    assert ["r"] * ROWS == made.operations(ROWS)
    line = (made.job.folder / "state.db.audit").read_text().splitlines()[-1]
    assert ("signal", "snapshot_source", "done") == tuple(
        json.loads(line)[name] for name in ("door", "verb", "outcome")
    )


def test_other_messages(made: Signalled) -> None:
    """The signal of another job, and other messages, are passed; the next signal is followed."""
    made.send(key="payments", type="execute-snapshot", data={"data-collections": [T]})
    made.send(type="log", data={})
    made.asked_for("execute-snapshot", type="blocking")
    made.asked_for("execute-snapshot")
    with made.running() as host:
        until(lambda: "followed" in made.counted(host), "it was never followed")
        assert {"followed": 1.0, "refused": 2.0, "other_job": 1.0} == made.counted(host)
    assert 1 == len(made.shown())


def test_a_state_that_cannot_be_changed(made: Signalled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal waits until the state can be changed, and is followed then."""
    ask, failed = Commands.snapshot_source, threading.Event()

    def asked(self: Commands, *given: object, **more: object) -> str:
        if not failed.is_set():
            failed.set()
            raise StoreUnavailableError("locked")
        return ask(self, *given, **more)  # type: ignore[arg-type]  # As it was called.

    monkeypatch.setattr(Commands, "snapshot_source", asked)
    monkeypatch.setattr("headrace.connector.hosting.signalling.PAUSE_SECONDS", 0.05)
    made.asked_for("execute-snapshot")
    with made.running():
        until(lambda: len(made.shown()) == 1, "it was never followed")
    assert failed.is_set()


def test_a_fork(made: Signalled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that a fork left reads the signals of both; the fork reads none."""
    read, jobs = KafkaSink.signals, list[str]()

    def signals(self: KafkaSink) -> Signals | None:
        jobs.append(self.context.job)
        return read(self)

    monkeypatch.setattr(KafkaSink, "signals", signals)
    made.execute(f"CREATE DATA_SOURCE cdc ON TABLE {OTHER_TABLE} WITH k AND job = 'orders'")
    with made.running():
        made.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {T}")
        until(lambda: FORK in {row[2] for row in made.execute("SHOW STATUS").rows}, "no fork")
        made.asked_for("execute-snapshot")
        until(lambda: len(made.shown()) == 1, "it was never followed")
    made.execute(f"RESUME DATA_SOURCE cdc ON TABLE {T}")
    fork = Host(made.job.path, log=context().log, job=FORK)
    thread = threading.Thread(target=lambda: fork.run(until_idle=False))
    thread.start()
    try:
        until(lambda: made.only()["state"] == "COMPLETED", "the fork never took it")
    finally:
        fork.stop()
        thread.join()
    assert {"orders"} == set(jobs)
