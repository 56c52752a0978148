"""Producing into the embedded broker, and what happens when it is gone."""

import json
import subprocess
import sys

import msgspec
import pytest
from confluent_kafka import KafkaError

from headrace.plugins import Delivery, Disposition, Failure, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink, KafkaWriter
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.failures import BrokerUnreachableError, QueueFullError, WriterClosedError
from headrace.sinks.kafka.messages import messages_of
from headrace.sinks.kafka.outstanding import Outstanding
from helpers import FOLDER
from helpers.jobs.deliveries import (
    NO_BROKER,
    Results,
    SystemClock,
    consume,
    context,
    delivery_of,
    drained,
)
from helpers.servers.kafka_clients import faulty

pytestmark = pytest.mark.usefixtures("way")

# Murmur2 as Kafka's own Java tests pin it.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

# Says for each address how many threads a client has, and the names of those that outlive it.
CLOSES = f"""
import contextlib, json, sys
from pathlib import Path
sys.path.append({FOLDER!r})
from helpers.jobs.children import until
from helpers.jobs.deliveries import Results, context, delivery_of
from headrace.plugins import parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaWriter

def others():
    return [path for path in Path("/proc/self/task").iterdir() if path != main]

(main,) = Path("/proc/self/task").iterdir()
for servers in sys.argv[1:]:
    options = {{"topic": "changes", "bootstrap.servers": servers}}
    writer = KafkaWriter(parse_config(KafkaConfig, options), context())
    writer.submit(delivery_of((b"a", b"1")), Results())
    count = len(others())
    writer.close()
    with contextlib.suppress(AssertionError):
        # The kernel lists one that has ended, and was joined, for a moment more.
        until(lambda: not others(), "")
    print(json.dumps([count, [(path / "comm").read_text() for path in others()]]))
"""


def config_of(bootstrap_servers: str, **librdkafka: object) -> KafkaConfig:
    """Return a configuration; underscores in keys stand for dots."""
    given = {key.replace("_", "."): value for key, value in librdkafka.items()}
    return parse_config(
        KafkaConfig, {"topic": "changes", "bootstrap.servers": bootstrap_servers, **given}
    )


def writer_of(bootstrap_servers: str, **librdkafka: object) -> KafkaWriter:
    """Return a writer that has not waited for a broker."""
    return KafkaWriter(config_of(bootstrap_servers, **librdkafka), context())


def test_every_message_arrives_with_its_key_value_and_headers(
    broker: EmbeddedBroker, way: str
) -> None:
    """A message is the encoded key, the encoded value and the delivery's headers."""
    writer = KafkaSink(
        config_of(broker.bootstrap_servers, topic=f"arrives-{way}"), context()
    ).open()
    results = Results()
    headers = (("schemaId", bytes(range(16))), ("part", b"\x00"))

    writer.submit(delivery_of((b"a", b"1"), (b"b", b""), (None, b"3"), headers=headers), results)

    assert drained(writer)
    assert [(range(3), [])] == results.all
    found = consume(broker.bootstrap_servers, f"arrives-{way}")
    assert {(b"a", b"1"), (b"b", b""), (None, b"3")} == {(m.key(), m.value()) for m in found}
    assert all(list(headers) == message.headers() for message in found)


def test_keys_go_where_java_producers_put_them(broker: EmbeddedBroker, way: str) -> None:
    """A key's partition is its positive murmur2 modulo the number of partitions."""
    writer = KafkaSink(config_of(broker.bootstrap_servers, topic=f"placed-{way}"), context()).open()

    writer.submit(delivery_of(*((key, b"") for key in JAVA_HASHES)), Results())

    assert drained(writer)
    found = consume(broker.bootstrap_servers, f"placed-{way}")
    expected = {key: (hashed & 0x7FFFFFFF) % 4 for key, hashed in JAVA_HASHES.items()}
    assert expected == {message.key(): message.partition() for message in found}


def test_records_of_a_key_arrive_in_order(broker: EmbeddedBroker, way: str) -> None:
    """One key's messages keep the order of submission across deliveries (I4)."""
    writer = KafkaSink(
        config_of(broker.bootstrap_servers, topic=f"ordered-{way}"), context()
    ).open()
    results = Results()
    values = [str(number).encode() for number in range(3_000)]

    for start in range(0, 3_000, 100):
        part = values[start : start + 100]
        writer.submit(delivery_of(*((b"key", value) for value in part)), results)

    assert drained(writer)
    assert [(range(100), [])] * 30 == results.all
    assert values == [m.value() for m in consume(broker.bootstrap_servers, f"ordered-{way}")]


def test_a_record_too_large_is_rejected_alone(broker: EmbeddedBroker) -> None:
    """What exceeds message.max.bytes is a reject with its index; its neighbours are delivered."""
    writer = writer_of(broker.bootstrap_servers, message_max_bytes=2_000)
    results = Results()

    writer.submit(delivery_of((b"a", b"1"), (b"b", b"x" * 5_000), (b"c", b"3")), results)

    assert drained(writer)
    ((delivered, failures),) = results.all
    assert {0, 2} == delivered
    assert [(1, Disposition.REJECT, "kafka_msg_size_too_large")] == [
        (failure.index, failure.disposition, failure.code) for failure in failures
    ]


def test_a_tombstone_follows_its_record(broker: EmbeddedBroker, way: str) -> None:
    """It has the key and no value, comes next, and is not a record of its own in the result."""
    writer = KafkaSink(config_of(broker.bootstrap_servers, topic=f"buried-{way}"), context()).open()
    results = Results()
    plain = delivery_of((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    encoded = msgspec.structs.replace(plain.encoded, tombstones=(0, 2))

    writer.submit(Delivery(plain.batch, encoded), results)

    assert drained(writer)
    assert [(range(3), [])] == results.all
    found = consume(broker.bootstrap_servers, f"buried-{way}")
    assert [b"1", None, b"2", b"3", None] == [message.value() for message in found]
    assert {b"a"} == {message.key() for message in found}


def test_a_record_and_its_tombstone_fail_once() -> None:
    """When neither arrives, or there is no room for one of them, the record is to be retried."""
    options = {"queue_buffering_max_messages": 3, "delivery_timeout_ms": 500}
    writer, results = writer_of(NO_BROKER, submit_timeout_ms=0, **options), Results()
    plain = delivery_of((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))

    writer.submit(
        Delivery(plain.batch, msgspec.structs.replace(plain.encoded, tombstones=(0, 1, 2))), results
    )

    assert drained(writer)
    ((delivered, failures),) = results.all
    assert not delivered
    assert [0, 1, 2] == [failure.index for failure in failures]
    assert {Disposition.RETRY} == {failure.disposition for failure in failures}


@pytest.mark.parametrize(
    ("skipped", "twice", "arrived"),
    [
        ({b"2"}, set(), {0, 2}),
        ({b"1", b"2", b"3"}, set(), set()),
        ({b"2"}, {b"1"}, {2}),
        ({None}, set(), {1, 2}),
    ],
    ids=["one skipped", "all skipped", "one for another", "a tombstone skipped"],
)
def test_a_message_that_is_not_reported_once_did_not_arrive(  # noqa: PLR0913, PLR0917 (parameters)
    broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    skipped: set[bytes | None],
    twice: set[bytes | None],
    arrived: set[int],
) -> None:
    """Its record is in no result, which is there as soon as the client has no message left."""
    faulty(way, monkeypatch, skipped=skipped, twice=twice)
    writer, results = writer_of(broker.bootstrap_servers, topic="faulty"), Results()
    plain = delivery_of((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    encoded = msgspec.structs.replace(plain.encoded, tombstones=(0,) if None in skipped else ())

    writer.submit(Delivery(plain.batch, encoded), results)

    assert drained(writer)
    assert [(arrived, [])] == results.all


def test_an_empty_delivery_settles_at_once(broker: EmbeddedBroker) -> None:
    """Nothing to write is delivered."""
    writer, results = writer_of(broker.bootstrap_servers), Results()

    writer.submit(delivery_of(), results)

    assert [(range(0), ())] == results.all


def test_without_a_broker_every_record_is_to_be_retried() -> None:
    """When librdkafka gives up, each index fails once, equal records too."""
    writer, results = writer_of(NO_BROKER, delivery_timeout_ms=500), Results()

    writer.submit(delivery_of((b"a", b"1"), (b"b", b"2"), (b"a", b"1")), results)

    assert drained(writer)
    ((delivered, failures),) = results.all
    assert not delivered
    assert [(0, Disposition.RETRY), (1, Disposition.RETRY), (2, Disposition.RETRY)] == [
        (failure.index, failure.disposition) for failure in failures
    ]


def test_a_writer_that_hurries_does_not_linger(broker: EmbeddedBroker) -> None:
    """What is submitted is sent while `drain` waits, however long librdkafka would linger."""
    writer, results = writer_of(broker.bootstrap_servers, linger_ms=60_000), Results()
    writer.hurry(hurries=True)
    writer.submit(delivery_of((b"a", b"1")), results)

    assert writer.drain(SystemClock().monotonic_ms() + 20_000)
    assert [(range(1), [])] == results.all


def test_drain_ends_at_its_deadline() -> None:
    """A drain whose deadline has passed returns False at once while something is unsettled."""
    writer, results = writer_of(NO_BROKER), Results()
    writer.submit(delivery_of((b"a", b"1")), results)

    assert not writer.drain(0)
    assert [] == results.all


def test_a_full_queue_refuses_a_delivery_whole() -> None:
    """When not even the first record finds room, nothing of the delivery was taken."""
    options = {"queue_buffering_max_messages": 2, "submit_timeout_ms": 0}
    writer, first, second = writer_of(NO_BROKER, **options), Results(), Results()
    writer.submit(delivery_of((b"a", b"1"), (b"b", b"2")), first)

    with pytest.raises(QueueFullError, match="stayed full for 0 ms"):
        writer.submit(delivery_of((b"c", b"3")), second)
    assert [] == first.all == second.all


def test_a_queue_that_fills_up_fails_the_rest_for_retry() -> None:
    """After the first record without room none is tried, so that nothing overtakes it (I4)."""
    options = {"queue_buffering_max_messages": 2, "delivery_timeout_ms": 500}
    writer, results = writer_of(NO_BROKER, submit_timeout_ms=0, **options), Results()

    writer.submit(delivery_of((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4")), results)

    assert drained(writer)
    ((delivered, failures),) = results.all
    assert not delivered
    codes = ["kafka_msg_timed_out"] * 2 + ["kafka_queue_full"] * 2
    assert list(enumerate(codes)) == [(failure.index, failure.code) for failure in failures]


def test_a_closed_writer_settles_nothing_more() -> None:
    """What was unsettled at close stays so, and nothing can be submitted."""
    writer, results = writer_of(NO_BROKER, delivery_timeout_ms=200), Results()
    writer.submit(delivery_of((b"a", b"1")), results)

    writer.close()
    writer.close()

    assert drained(writer)
    assert [] == results.all
    with pytest.raises(WriterClosedError):
        writer.submit(delivery_of((b"a", b"1")), results)


def test_a_closed_writer_leaves_no_thread(broker: EmbeddedBroker) -> None:
    """The client's threads end with `close`, also when something was unsettled."""
    # In a process of its own: here clients of other tests begin and end threads at any time.
    command = [sys.executable, "-c", CLOSES, broker.bootstrap_servers, NO_BROKER]

    said = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603 (ours)

    threads, left = zip(*map(json.loads, said.stdout.splitlines()), strict=True)
    assert all(threads)
    assert ([], []) == left


def test_an_unreachable_broker_is_a_named_error_in_time() -> None:
    """Opening fails within connect.timeout.ms, with the place, the cause and a hint."""
    clock = SystemClock()
    began_ms = clock.monotonic_ms()

    with pytest.raises(BrokerUnreachableError) as caught:
        KafkaSink(config_of(NO_BROKER, connect_timeout_ms=300), context()).open()

    assert clock.monotonic_ms() - began_ms < 5_000
    assert caught.value.exit_status == 3
    assert caught.value.place == "kafka://127.0.0.1:1?topic=changes"
    assert "within 300 ms" in caught.value.message
    assert "start the broker" in caught.value.hint


@pytest.mark.parametrize(
    ("singly", "expected"), [(False, Disposition.RETRY), (True, Disposition.REJECT)]
)
def test_a_batch_refused_as_too_large_is_tried_one_by_one(
    *, singly: bool, expected: Disposition
) -> None:
    """A broker's "too large" condemns a record only if it travelled alone."""
    results: list[list[Failure]] = []
    outstanding = Outstanding(
        messages_of(
            delivery_of((b"a", b"1"), (b"b", b"2")).encoded,
            topic_of=str,
            chunk_bytes=100,
            is_chunked=lambda _table: False,
        ),
        lambda _outstanding, _delivered, failures: results.append(failures),
        singly=singly,
    )

    outstanding.times[:] = (1, 1)
    outstanding.reported(1, [])
    outstanding.reported(1, [(1, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))])

    assert [[(1, expected)]] == [[(f.index, f.disposition) for f in found] for found in results]


def test_a_value_beyond_the_bound_is_a_dead_letter(broker: EmbeddedBroker, way: str) -> None:
    """Also where the brokers would take it; its neighbours continue."""
    config = config_of(broker.bootstrap_servers, topic=f"bounded-{way}", large_bytes=1_000)
    writer = KafkaSink(config, context()).open()
    results = Results()

    writer.submit(delivery_of((b"a", bytes(1_000)), (b"b", bytes(1_001)), (b"c", b"")), results)

    assert drained(writer)
    ((delivered, (failure,)),) = results.all
    assert ({0, 2}, 1, Disposition.REJECT) == (delivered, failure.index, failure.disposition)
    assert "kafka_msg_size_too_large" == failure.code
    assert {b"a", b"c"} == {m.key() for m in consume(broker.bootstrap_servers, f"bounded-{way}")}
