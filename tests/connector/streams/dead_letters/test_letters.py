"""Dead letters of a topic are typed records, counted once each, with a warning and a bound."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from structlog.testing import capture_logs

from headrace.connector.commands.cli import main
from headrace.connector.streams.dead_letters.__main__ import main as watch_main
from headrace.connector.streams.dead_letters.app import DeadLetterCounts, TooManyDeadLettersError
from headrace.connector.streams.dead_letters.letters import DeadLetter, dead_letter_sink
from headrace.plugins import ConfigError
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.streams.published import published

DEAD = {"large.bytes": "1000", "errors.deadletterqueue.topic.name": "dead"}
HOUR_MS = 3_600_000


@dataclass
class Place:
    """A job that was run, and the topic of its dead letters."""

    job: Path
    servers: str
    messages: Sequence[Message]

    def letters(self) -> list[DeadLetter]:
        """Return what the topic has."""
        return [letter_of(message) for message in self.messages]


def letter_of(message: Message) -> DeadLetter:
    """Return the dead letter that a message is."""
    headers: Any = message.headers()
    topic: Any = message.topic()
    partition: Any = message.partition()
    offset: Any = message.offset()
    content = message.key(), message.value()
    return DeadLetter.of(topic, partition, *content, headers, offset=offset)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return a job of which values of more than 1000 bytes are dead letters."""
    broker = EmbeddedBroker()
    servers = broker.bootstrap_servers
    job = published(tmp_path_factory.mktemp("dead"), servers, "alive", **DEAD)
    yield Place(job, servers, consume(servers, "dead"))
    del broker


def test_they_are_those_of_dlq(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Number, code, table, stage, place, reason and size are those that `headrace dlq` lists."""
    capsys.readouterr()
    assert 0 == main(["dlq", "list", "--json", str(place.job)])
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = ("number", "code", "table", "stage", "place", "split", "kind")
    expected = [[*map(each.get, names), each["message"], each["bytes"]] for each in listed]

    found = sorted(place.letters(), key=lambda letter: letter.number or 0)
    assert len(expected) > 1
    assert expected == [
        [*(getattr(letter, name) for name in names), letter.reason, len(letter.value or b"")]
        for letter in found
    ]
    assert {"published-alive"} == {letter.job for letter in found}
    # Its own headers are those of the record.
    assert {letter.table.encode() for letter in found} == {
        letter.headers["table"] for letter in found
    }
    assert {"schemaId", "table", "token"} == set(found[0].headers)


def test_what_the_topic_refused_is_said() -> None:
    """Of a value that no message takes, the record has size, reason and destination."""
    own = {"topic": b"orders", "value.bytes": b"70000", "value.refused": b"kafka_msg_size"}
    given = {f"__headrace.errors.{name}": content for name, content in own.items()}
    letter = DeadLetter.of("dead", 0, b"k", b"", given, offset=1)

    assert ("orders", 70_000, "kafka_msg_size") == (
        *(letter.destination, letter.value_bytes, letter.refused),
    )


def test_a_message_without_headers_is_a_dead_letter() -> None:
    """What is not known is empty; each such message counts."""
    bare = [DeadLetter.of("dead", 0, None, b"x", None, offset=offset) for offset in (0, 1)]
    counts = DeadLetterCounts({}, {})

    assert ("", "", None, None) == (bare[0].code, bare[0].table, bare[0].number, bare[0].lost_ms)
    assert [True, True, False] == [counts.take(letter) for letter in (*bare, bare[1])]


def test_each_counts_once_and_the_first_is_warned_of(place: Place) -> None:
    """By code, table and window; a second message of one is not counted. No contents are shown."""
    letters = place.letters()
    moved = [replace(letter, offset=letter.offset + 1000) for letter in letters]
    later = replace(letters[0], number=10_000, lost_ms=(letters[0].lost_ms or 0) + HOUR_MS)
    counts = DeadLetterCounts({}, {})
    with capture_logs() as logs:
        for letter in (*letters, *moved, later):
            counts.take(letter)

    by_table = Counter((letter.code, letter.table) for letter in letters)
    by_table[later.code, later.table] += 1
    found: Counter[tuple[str, str]] = Counter()
    for window, count in counts.windows().items():
        found[window.code, window.table] += count
        assert 0 == window.begin_s % 3600
    assert by_table == found
    assert len(counts.windows()) == len(logs) == len(by_table) + 1
    assert {"dead_letter_seen"} == {each["event"] for each in logs}
    shown = counts.json()
    assert [letter.number for letter in (*letters, later)] == [n["number"] for n in shown["newest"]]
    assert not {"key", "value", "headers"} & set(shown["newest"][0])


def test_a_window_has_a_bound(place: Place) -> None:
    """One more than allowed within a window is an error; the next window counts from nothing."""
    first, second, *_ = place.letters()
    later = replace(second, lost_ms=(second.lost_ms or 0) + HOUR_MS, number=10_000)
    names: dict[bytes, bytes] = {}
    sums: dict[bytes, bytes] = {}
    counts = DeadLetterCounts(names, sums, count_max=1)
    assert counts.take(first)
    assert counts.take(later)

    again = DeadLetterCounts(names, sums, count_max=1)  # It counts on from what was kept.
    with pytest.raises(TooManyDeadLettersError, match="2 within 3600 s"):
        again.take(second)
    assert 4 == TooManyDeadLettersError.exit_status


def test_without_a_topic_there_is_nothing_to_watch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the option."""
    options = {"bootstrap.servers": "b:1", "topic": "t"}
    with pytest.raises(ConfigError, match=r"errors\.deadletterqueue\.topic\.name"):
        dead_letter_sink(options)
    source = {"plugin": "files", "path": "in"}
    job = {"job": "j", "state": "s.db", "source": source, "sink": {"plugin": "kafka", **options}}
    (tmp_path / "job.yaml").write_text(json.dumps(job))

    assert 2 == watch_main([str(tmp_path / "job.yaml")])
    assert "errors.deadletterqueue.topic.name" in capsys.readouterr().err
