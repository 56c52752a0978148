"""Exactly once, as far as the options decide: where states are kept, and under which id."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from headrace.connector.commands.cli import main
from headrace.plugins import parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.failures import TransactionsRefusedError
from helpers.jobs.deliveries import context
from helpers.servers.kafka_node import KafkaNode

pytestmark = pytest.mark.usefixtures("way")

OFFSETS = "could not be read yet: no answer yet from the brokers about topic headrace-offsets"


def test_where_states_are_kept() -> None:
    """In the topic of that name, by the id of that prefix, the job and the split."""
    given = {"topic": "changes", "offsets.storage.topic": "own", "transactional.id.prefix": "mine"}
    sink_context = context()
    with KafkaNode() as node:
        config = parse_config(KafkaConfig, given | {"bootstrap.servers": node.bootstrap_servers})
        writer = KafkaSink(config, sink_context).open_split("s1")
        writer.begin(sink_context.clock.monotonic_ms() + 1_000)
        writer.close()

    assert ["own"] == list(node.ordered)
    assert f"mine-{sink_context.job}-s1" in node.transactional_ids


def test_no_two_splits_have_one_id() -> None:
    """They would fence each other; what cannot be confused is the plain name of both."""
    pairs = {
        ("a", "b-in"): "",
        ("a-b", "in"): "",
        ("a", "in"): "headrace-a-in",
        ("a-b", "3-of-8"): "headrace-a-b-3-of-8",
        ("a-b-3", "of-8"): "",
    }
    with KafkaNode() as node:
        given = {"bootstrap.servers": node.bootstrap_servers, "topic": "changes"}
        config = parse_config(KafkaConfig, given)
        for job, split in pairs:
            sink_context = replace(context(), job=job)
            with closing(KafkaSink(config, sink_context).open_split(split)) as writer:
                writer.begin(sink_context.clock.monotonic_ms() + 1_000)
        asked = dict.fromkeys(node.transactional_ids)
        ids = [each for each in asked if each != "headrace-states"]  # The readers' group.

    assert len(pairs) == len(ids)
    for (job, split), expected in zip(pairs, ids, strict=True):
        assert expected.startswith(f"headrace-{job}-{split}")
    assert {plain for plain in pairs.values() if plain} <= set(ids)


def test_a_transaction_longer_than_brokers_allow() -> None:
    """It is a mistake that has a name and a hint, and no later owner of the split."""
    sink_context = context()
    with KafkaNode(transactions_error=KafkaError.INVALID_TRANSACTION_TIMEOUT) as node:
        given = {"bootstrap.servers": node.bootstrap_servers, "topic": "changes"}
        config = parse_config(KafkaConfig, given)
        writer = KafkaSink(config, sink_context).open_split("s1")
        with closing(writer), pytest.raises(TransactionsRefusedError) as refused:
            writer.begin(sink_context.clock.monotonic_ms() + 60_000)

    assert "lower transaction.timeout.ms" in refused.value.hint


def test_brokers_that_do_not_answer_fill_no_queue() -> None:
    """A commit that is tried again has its entries on their way once, with any room."""
    sink_context = context()
    with KafkaNode() as node:
        given = {"bootstrap.servers": node.bootstrap_servers, "topic": "changes"}
        config = parse_config(KafkaConfig, given | {"queue.buffering.max.messages": "2"})
        with closing(KafkaSink(config, sink_context).open_split("s1")) as writer:
            writer.begin(sink_context.clock.monotonic_ms() + 1_000)
            tried = [writer.commit({"head": b"1"}, 0) for _ in range(4)]
            more = [writer.commit({"head": b"1", "a": b"1", "b": b"1"}, 0) for _ in range(2)]

    assert not any(tried + more)


@pytest.mark.parametrize(("exactly_once", "expected"), [(False, ""), (True, OFFSETS)])
def test_states_are_kept_there_when_it_is_asked_for(
    tmp_path: Path,
    broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    *,
    exactly_once: bool,
    expected: str,
) -> None:
    """A broker that does not make their topic is waited for then, and only then."""
    (tmp_path / "in.jsonl").write_text("{}\n")
    sink = {
        "plugin": "kafka",
        "bootstrap.servers": broker.bootstrap_servers,
        "topic": "once",
        "format": "json",
        "exactly.once": exactly_once,
        "connect.timeout.ms": 300,
    }
    source = {"plugin": "files", "path": "in.jsonl"}
    runtime = {"retry_seconds_max": 1}
    job = {"job": "lines", "state": "state.db", "source": source, "sink": sink, "runtime": runtime}
    (tmp_path / "job.yaml").write_text(json.dumps(job))

    status = main(["--log-level", "error", "run", "--until-idle", str(tmp_path / "job.yaml")])

    assert (1 if exactly_once else 0) == status
    assert expected in capsys.readouterr().err
