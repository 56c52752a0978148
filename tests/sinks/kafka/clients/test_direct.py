"""Both ways to produce do the same, and what is not copied is kept."""

import gc
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from headrace.plugins import Delivery, EncodedRecords, Headers, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink, clients
from headrace.sinks.kafka.clients import Client, new_client
from headrace.sinks.kafka.clients.confluent import ConfluentClient
from headrace.sinks.kafka.config import PROMISES
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.messages import Messages
from helpers.jobs.deliveries import NO_BROKER, Results, consume, context, delivery_of, drained
from helpers.servers.kafka_clients import DIRECT, WAYS, choose
from helpers.servers.mock_cluster import MockCluster

SECONDS_MAX = 60
TOPICS = ("one", "two", "three")
SHARED: Headers = (("schemaId", bytes(16)), ("table", b"ks.t"))
needs_machine_code = pytest.mark.skipif(DIRECT not in WAYS, reason="it is machine code")


@dataclass
class Heard:
    """Messages to one topic, and what a client said of them."""

    messages: Messages
    times: bytearray = field(init=False)
    count: int = 0
    failed: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Expect a report of each."""
        self.times = bytearray(len(self.messages.values))

    def reported(self, count: int, failed: Sequence[tuple[int, KafkaError]]) -> None:
        """See `Reports`."""
        self.count += count
        self.failed += [(number, error.code()) for number, error in failed]


def heard_of(topic: str, values: list[bytes | None]) -> Heard:
    """Return messages of these values."""
    count = len(values)
    return Heard(Messages([b"k"] * count, values, [SHARED] * count, [topic] * count, count, str))


def client_of(servers: str, **more: str) -> Client:
    """Return a client in the way that is chosen."""
    options = {**PROMISES, "bootstrap.servers": servers, "log_level": "0"}
    given = {key.replace("_", "."): value for key, value in more.items()}
    return new_client(options | given, lambda _error: None, place="here")


def polled(client: Client) -> None:
    """Poll until nothing is on its way."""
    for _ in range(SECONDS_MAX * 10):
        client.poll(100)
        if not len(client):
            return
    pytest.fail("messages are still on their way")


def some_records(seed: int, prefix: str) -> EncodedRecords:
    """Return records of every form that a message has."""
    chance = random.Random(seed)  # noqa: S311 (a test)
    count = 300
    headers: list[Headers] = [
        chance.choice((SHARED, (), (("index", b"%d" % n), ("empty", b"")))) for n in range(count)
    ]
    keys = [chance.choice((None, b"", b"k%d" % (n % 7))) for n in range(count)]
    values = [chance.randbytes(chance.choice((0, 1, 40, 400, 4_000))) for _ in range(count)]
    topics = [f"{prefix}.{chance.choice(TOPICS)}" for _ in range(count)]
    tombstones = [n for n in range(count) if keys[n] and chance.random() < 0.2]
    return EncodedRecords(
        keys, values, headers, ["ks.t"] * count, tombstones=tombstones, topics=topics
    )


def by_partition(messages: list[Message]) -> list[tuple[object, ...]]:
    """Return what messages with a key are; without one, any partition takes them."""
    given = (m for m in messages if m.key() is not None)
    found = [(m.partition(), m.key(), m.value(), m.headers()) for m in given]
    return sorted(found, key=lambda message: repr(message[0]))


def test_both_ways_write_the_same(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition, key, value, headers and order of every message of each key, and the results."""
    written, results = {}, {}
    for way in WAYS:
        choose(way, monkeypatch)
        given = {"bootstrap.servers": broker.bootstrap_servers, "topic": "same.{table}"}
        writer = KafkaSink(parse_config(KafkaConfig, given), context()).open()
        results[way] = Results()
        for seed in range(5):
            encoded = some_records(seed, f"same-{way}")
            writer.submit(Delivery(delivery_of().batch, encoded), results[way])
        assert drained(writer)
        writer.close()
        written[way] = [
            by_partition(consume(broker.bootstrap_servers, f"same-{way}.{topic}"))
            for topic in TOPICS
        ]

    assert all(results[way].all == [(range(300), [])] * 5 for way in WAYS)
    assert all(len(each) > 200 for each in written[WAYS[0]])
    assert all(written[way] == written[WAYS[0]] for way in WAYS)


def test_both_ways_refuse_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, and messages, in the same words."""
    said = {}
    for way in WAYS:
        choose(way, monkeypatch)
        with pytest.raises(Exception, match="acks") as caught:
            client_of(NO_BROKER, acks="some")
        client = client_of(NO_BROKER, message_max_bytes="2000")
        heard = heard_of("t", [b"1", b"x" * 5_000, b"3"])
        number, error = client.produce(heard, 0, 3)
        assert error is not None
        with pytest.raises(KafkaException) as late:
            client.cluster(None, 200)
        said[way] = str(caught.value), number, error.code(), error.str(), late.value.args[0].code()
        client.close()

    assert 1 == said[WAYS[0]][1]
    assert {said[WAYS[0]]} == set(said.values())


@pytest.mark.usefixtures("way")
def test_what_is_purged_is_reported() -> None:
    """Each message once, as failed."""
    client = client_of(NO_BROKER)
    heard = heard_of("t", [b"1", None, b"3"])

    assert (3, None) == client.produce(heard, 0, 3)
    client.purge(waits=True)
    polled(client)

    assert (b"\1\1\1", 3) == (bytes(heard.times), heard.count)
    assert {0, 1, 2} == {number for number, _ in heard.failed}
    client.close()
    client.close()


@needs_machine_code
def test_values_are_kept_until_they_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not copied; the caller may drop them."""
    choose(DIRECT, monkeypatch)
    with MockCluster() as cluster:
        client = client_of(cluster.bootstrap_servers, partitioner="consistent")
        client.cluster("t", 10_000)
        cluster.down()
        heard = heard_of("t", [b"%d" % number * 1_000 for number in range(200)])
        expected = list(heard.messages.values)
        assert (200, None) == client.produce(heard, 0, 200)
        kept = [b"".join([bytes(value or b"")]) for value in expected]
        copies = [bytes(bytearray(value or b"")) for value in expected]
        del expected, kept
        heard.messages = heard_of("t", []).messages
        gc.collect()
        others = [bytes([number % 256]) * 1_000 for number in range(5_000)]
        cluster.up()
        polled(client)
        found = [message.value() for message in consume(cluster.bootstrap_servers, "t")]
        client.close()

    assert len(others) == 5_000
    assert copies == found


@needs_machine_code
def test_what_is_not_bytes_ends_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages before it are on their way, and are reported."""
    choose(DIRECT, monkeypatch)
    client = client_of(NO_BROKER)
    heard = heard_of("t", [b"1", b"2", "3"])  # type: ignore[list-item]  # On purpose.

    with pytest.raises(TypeError, match="expected bytes, found str"):
        client.produce(heard, 0, 3)
    client.purge(waits=True)
    polled(client)
    client.close()

    assert (b"\1\1\0", 2) == (bytes(heard.times), heard.count)


@needs_machine_code
@pytest.mark.parametrize(("begin", "end"), [(-1, 1), (0, 4), (2, 1)])
def test_no_other_message_is_read(monkeypatch: pytest.MonkeyPatch, begin: int, end: int) -> None:
    """Numbers beyond the columns are refused."""
    choose(DIRECT, monkeypatch)
    client = client_of(NO_BROKER)

    with pytest.raises(IndexError):
        client.produce(heard_of("t", [b"1", b"2", b"3"]), begin, end)
    client.close()


def test_without_machine_code_confluent_kafka_produces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where librdkafka is not the one that is known."""
    monkeypatch.setattr(clients, "why_not_direct", lambda: "another version")
    client = client_of(NO_BROKER)

    assert isinstance(client, ConfluentClient)
    client.close()
