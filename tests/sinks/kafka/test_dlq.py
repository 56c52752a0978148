"""`headrace dlq`, with what a broker's limit dead-lettered."""

import json
import re
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume

BIG = "x" * 5_000


@pytest.fixture
def job(tmp_path: Path, broker: EmbeddedBroker, topic: str) -> Path:
    """Return a job that was run and had one of its three lines rejected as too large."""
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"n": n, "text": t}) + "\n" for n, t in enumerate(("a", BIG, "c")))
    )
    write(tmp_path / "job.yaml", broker, topic, bytes_max=2_000)
    assert 0 == headrace("run", "--until-idle", str(tmp_path / "job.yaml"))
    return tmp_path / "job.yaml"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return the name of a topic of the test's own."""
    return re.sub(r"\W", "-", f"dlq-{request.node.name}")


def write(
    path: Path, broker: EmbeddedBroker, topic: str, *, bytes_max: int, **options: object
) -> None:
    """Write a job whose messages have a bound in bytes; underscores stand for dots."""
    sink = {
        "plugin": "kafka",
        "bootstrap.servers": broker.bootstrap_servers,
        "topic": topic,
        "format": "json",
        "message.max.bytes": bytes_max,
        **{key.replace("_", "."): value for key, value in options.items()},
    }
    source = {"plugin": "files", "path": "in.jsonl"}
    path.write_text(
        json.dumps({"job": "lines", "state": "state.db", "source": source, "sink": sink})
    )


def headrace(*arguments: str) -> int:
    """Run the command."""
    return main(["--log-level", "error", *arguments])


def test_it_is_listed_and_shown(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line each, or an object each; all about one, with its bytes."""
    capsys.readouterr()

    assert 0 == headrace("dlq", "list", "--json", str(job))
    found = json.loads(capsys.readouterr().out)
    assert ("dead_letter", "KAFKA_PRODUCE", "kafka_msg_size_too_large") == (
        found["kind"],
        found["stage"],
        found["code"],
    )
    assert 0 == headrace("dlq", "list", "--code", "other", str(job))
    assert "no dead letters match\n" == capsys.readouterr().out
    content = job.with_name("content")
    assert 0 == headrace("dlq", "show", str(job), str(found["number"]), "--content", str(content))
    assert "code: kafka_msg_size_too_large" in capsys.readouterr().out
    assert BIG.encode() in content.read_bytes()


def test_it_is_sent_again(
    job: Path, broker: EmbeddedBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What still fails stays; once the limit is raised it arrives, and leaves the quarantine."""
    assert 1 == headrace("dlq", "redrive", "--all", str(job))
    assert "kafka_msg_size_too_large" in capsys.readouterr().out
    write(job, broker, topic, bytes_max=100_000)

    assert 0 == headrace("dlq", "redrive", "--all", "--dry-run", str(job))
    assert 2 == len(consume(broker.bootstrap_servers, topic))
    assert 0 == headrace("dlq", "redrive", "--all", str(job))

    found = [message.value() or b"" for message in consume(broker.bootstrap_servers, topic)]
    assert 1 == sum(BIG.encode() in value for value in found)
    assert 3 == len(found)
    capsys.readouterr()
    assert 0 == headrace("dlq", "list", str(job))
    assert "no dead letters\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [("redrive",), ("redrive", "1", "--all"), ("show", "999")],
    ids=["nothing named", "both named", "unknown number"],
)
def test_mistakes_are_named(job: Path, arguments: tuple[str, ...]) -> None:
    """They have status 2."""
    verb, *rest = arguments

    assert 2 == headrace("dlq", verb, str(job), *rest)


def test_a_sink_without_topics_takes_no_topic_for_dead_letters(tmp_path: Path) -> None:
    """The option is refused before anything runs."""
    sink = {"plugin": "files", "path": "out", "errors.deadletterqueue.topic.name": "dead"}
    (tmp_path / "in.jsonl").write_text("")
    source = {"plugin": "files", "path": "in.jsonl"}
    made = {"job": "lines", "state": "state.db", "source": source, "sink": sink}
    (tmp_path / "job.yaml").write_text(json.dumps(made))

    assert 2 == headrace("run", "--until-idle", str(tmp_path / "job.yaml"))


@pytest.mark.parametrize("reported", [True, False])
def test_what_happened_stands_in_headers(
    tmp_path: Path, broker: EmbeddedBroker, topic: str, *, reported: bool
) -> None:
    """A dead letter comes to the topic for dead letters, by default with the cause."""
    (tmp_path / "in.jsonl").write_text("no JSON\n")
    write(tmp_path / "job.yaml", broker, topic, bytes_max=2_000)
    made = json.loads((tmp_path / "job.yaml").read_text())
    dead = f"{topic}-dead"
    made["sink"] |= {
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.context.headers.enable": reported,
    }
    (tmp_path / "job.yaml").write_text(json.dumps(made))

    assert 0 == headrace("run", "--until-idle", str(tmp_path / "job.yaml"))

    (message,) = consume(broker.bootstrap_servers, dead)
    assert reported is ("__connect.errors.stage" in dict(message.headers() or []))


def test_the_topic_has_what_is_too_large(
    tmp_path: Path, broker: EmbeddedBroker, topic: str
) -> None:
    """Whole where only `large.bytes` forbade it; without its value where no message takes it."""
    lines = [BIG, 2 * BIG]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in lines))
    bounds = {"bytes_max": 8_000, "large_bytes": 2_000}
    dead = f"{topic}-dead"
    name = {"errors_deadletterqueue_topic_name": dead}
    write(tmp_path / "job.yaml", broker, topic, **bounds, **name)  # type: ignore[arg-type]

    assert 0 == headrace("run", "--until-idle", str(tmp_path / "job.yaml"))

    found = [
        (message.value() or b"", dict(message.headers() or []))
        for message in consume(broker.bootstrap_servers, dead)
    ]
    (whole, known), (bare, reported) = sorted(found, key=lambda pair: not pair[0])
    assert (True, b"") == (BIG.encode() in whole, bare)
    left_out = {
        "__headrace.errors.topic": topic.encode(),
        "__headrace.errors.value.refused": b"kafka_msg_size_too_large",
    }
    assert left_out.items() <= reported.items()
    assert 2 * len(BIG) < int(reported["__headrace.errors.value.bytes"] or 0)
    assert not left_out.keys() & known.keys()


def test_it_is_sent_again_where_a_transform_had_it_go(
    tmp_path: Path, broker: EmbeddedBroker, topic: str
) -> None:
    """Not to the topic of its table."""
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": BIG}) + "\n")
    moved = f"{topic}-moved"
    routed = {
        "transforms": "move",
        "transforms_move_type": "RegexRouter",
        "transforms_move_regex": ".*",
        "transforms_move_replacement": moved,
    }
    write(tmp_path / "job.yaml", broker, topic, bytes_max=2_000, **routed)
    assert 0 == headrace("run", "--until-idle", str(tmp_path / "job.yaml"))
    write(tmp_path / "job.yaml", broker, topic, bytes_max=100_000, **routed)

    assert 0 == headrace("dlq", "redrive", "--all", str(tmp_path / "job.yaml"))

    assert [0, 1] == [len(consume(broker.bootstrap_servers, each)) for each in (topic, moved)]
