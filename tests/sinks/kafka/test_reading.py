"""Reading a topic back, as those do who compare."""

from headrace.plugins import parse_config
from headrace.sinks.kafka import KafkaConfig
from headrace.sinks.kafka.reading import messages
from helpers.servers.kafka_node import KafkaNode, Ordered, Transaction


def test_what_was_aborted_is_not_read() -> None:
    """No consumer of what is committed sees it: it is not in the topic."""
    transactions = [
        Transaction(b"1", b"a"),
        Transaction(b"2", b"b", is_committed=False),
        Transaction(b"3", b"c"),
    ]
    with KafkaNode(transactions=transactions) as node:
        node.ordered["t"] = Ordered(1, 1, {})
        given = {"bootstrap.servers": node.bootstrap_servers, "topic": "t"}
        config = parse_config(KafkaConfig, given)
        found = [each for some in messages(config, "t:0") for each in some]

    assert [(0, b"1", b"a"), (4, b"3", b"c")] == [(m.place, m.key, m.value) for m in found]
