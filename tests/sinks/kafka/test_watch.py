"""Topics that vanish while records go to them; a real broker's ids are in tests/real."""

from dataclasses import replace

from structlog import wrap_logger
from structlog.testing import LogCapture

from headrace.plugins import parse_config
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sinks.kafka import KafkaConfig
from headrace.sinks.kafka.watch import LOOK_MS, TopicWatch
from helpers.jobs.children import until
from helpers.servers.kafka_node import KafkaNode, Ordered


def test_a_topic_that_is_deleted_is_reported_once() -> None:
    """Each time it vanishes, with the command that creates it; not again at every look."""
    clock, capture = DrivenClock(), LogCapture()
    log = wrap_logger(None, processors=[capture])
    with KafkaNode() as node:
        given = {"bootstrap.servers": node.bootstrap_servers, "topic": "t"}
        lent = replace(context(clock), log=log)
        watch = TopicWatch(parse_config(KafkaConfig, given), lent)
        watch.add("t")
        for there in (True, False, False, True, False):
            node.ordered.clear()
            if there:
                node.ordered["t"] = Ordered(1, 1, {})
            clock.advance(LOOK_MS)
            until(watch.look, "the broker did not answer", seconds=60)
        watch.close()

    assert ["topic_missing"] * 2 == [entry["event"] for entry in capture.entries]
    command = f"`kafka-topics --bootstrap-server {node.bootstrap_servers} --create --topic t`"
    assert f"create it ({command}), then start again. What was" in capture.entries[0]["hint"]
