"""The topic of signals of a job with two processes, on a real broker."""

from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs forget one.

from headrace.plugins import Signal, Signals, parse_config
from headrace.plugins.testing.doubles import context
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from helpers.jobs.children import until

pytestmark = pytest.mark.real

PARTITIONS = 2


class _Job:
    """Two processes of a job, and how many signals were sent to it; each signal is its number."""

    def __init__(self, bootstrap_servers: str) -> None:
        topic = f"signals-{uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
        given = {"topic": "records", "signal.topic": topic, "signal.group.id": topic}
        config = parse_config(KafkaConfig, {"bootstrap.servers": bootstrap_servers, **given})
        self.topic, self.sent = topic, 0
        self.processes: list[Signals] = []
        for _ in range(2):
            signals = KafkaSink(config, context()).signals()
            assert signals is not None
            self.processes.append(signals)
        self.followed: tuple[list[int], list[int]] = [], []
        self.producer = Producer({"bootstrap.servers": bootstrap_servers})

    def send_to_each_partition(self) -> None:
        for partition in range(PARTITIONS):
            self.producer.produce(self.topic, b"%d" % self.sent, b"orders", partition=partition)
            self.sent += 1
        assert 0 == self.producer.flush(60)

    def take(self, number: int) -> list[Signal]:
        found = list(self.processes[number].take(0.1))
        self.followed[number].extend(int(signal.value or b"") for signal in found)
        return found

    def follow(self, number: int) -> None:
        for signal in self.take(number):
            self.processes[number].done(signal)

    def both_follow(self) -> bool:
        """Send one more to each partition: until the group is balanced one process has both."""
        self.send_to_each_partition()
        self.follow(0)
        self.follow(1)
        return all(self.followed)

    def all_are_followed(self) -> bool:
        self.follow(0)
        self.follow(1)
        return sum(map(len, self.followed)) == self.sent


def test_another_process_continues(bootstrap_servers: str) -> None:
    """Each signal is followed by one process; what one took and did not finish, by the other."""
    job = _Job(bootstrap_servers)
    until(job.both_follow, "one process has all partitions")
    until(job.all_are_followed, "signals are missing")
    assert list(range(job.sent)) == sorted(job.followed[0] + job.followed[1])

    job.send_to_each_partition()
    until(lambda: bool(job.take(0)), "the first process has no partition")
    job.processes[0].close()
    job.followed[1].clear()

    def continues() -> bool:
        job.follow(1)
        return len(job.followed[1]) == PARTITIONS

    until(continues, "the second process did not continue")
    job.processes[1].close()

    assert list(range(job.sent - PARTITIONS, job.sent)) == sorted(job.followed[1])
