"""Large values in parts, and back."""

import msgspec

from headrace.connector.serde.large import Reassembler
from headrace.plugins import Delivery, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.messages import messages_of
from helpers.jobs.deliveries import Results, consume, context, delivery_of, drained

LARGE = bytes(range(256)) * 10_000


def test_a_delivery_of_small_values_is_its_own_messages() -> None:
    """Nothing is copied."""
    encoded = delivery_of((b"a", b"1"), (b"b", b"2")).encoded
    made = messages_of(encoded, topic_of=str, chunk_bytes=10, is_chunked=lambda _: True)

    assert made.values is encoded.values
    assert (0, 1) == (made.owner(0), made.owner(1))


def test_parts_and_tombstones_belong_to_their_records() -> None:
    """A value of just the bound is whole; its tombstone follows the last part."""
    encoded = delivery_of((b"a", b"12345"), (b"b", b"123456"), (b"c", b"")).encoded
    made = messages_of(
        msgspec.structs.replace(encoded, tombstones=[1]),
        topic_of=str,
        chunk_bytes=5,
        is_chunked=lambda _: True,
    )

    assert [b"12345", b"12345", b"6", None, b""] == list(made.values)
    assert [0, 1, 1, 1, 2] == [made.owner(number) for number in range(5)]
    assert [b"a", b"b", b"b", b"b", b"c"] == list(made.keys)


def test_other_tables_are_left_whole() -> None:
    """Which the broker, or its client, refuses."""
    encoded = delivery_of((b"a", b"123456")).encoded

    assert [b"123456"] == list(
        messages_of(encoded, topic_of=str, chunk_bytes=5, is_chunked=lambda _: False).values
    )


def test_a_large_value_arrives_in_parts(broker: EmbeddedBroker) -> None:
    """Under one key, in order, and a consumer joins them."""
    options = {
        "bootstrap.servers": broker.bootstrap_servers,
        "topic": "parts",
        "large.policy": "chunk",
    }
    writer = KafkaSink(parse_config(KafkaConfig, options), context()).open()
    results = Results()
    delivery = delivery_of((b"k", b"before"), (b"k", LARGE), (b"k", b"after"))

    writer.submit(Delivery(delivery.batch, delivery.encoded), results)

    assert drained(writer)
    assert [(range(3), [])] == results.all
    joiner = Reassembler()
    found = []
    for message in consume(broker.bootstrap_servers, "parts"):
        assert message.key() == b"k"
        headers = {
            name: content
            for name, content in dict(message.headers() or ()).items()
            if isinstance(content, bytes)
        }
        found.append(joiner.add(message.value() or b"", headers))
    assert [b"before", LARGE, b"after"] == [value for value in found if value is not None]
