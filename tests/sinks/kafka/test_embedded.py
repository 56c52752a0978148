"""The embedded broker as a process."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from helpers.jobs.children import SECONDS_MAX, next_line

COMMAND = "import sys; from headrace.sinks.kafka.embedded import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a running broker process."""
    child = subprocess.Popen(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", COMMAND, "--port-file", str(tmp_path / "port")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        yield child
        child.kill()


def test_it_prints_where_it_listens_and_serves(
    process: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The one line it prints, and the port file, hold its bootstrap servers."""
    assert process.stdout
    line = next_line(process)

    assert line == (tmp_path / "port").read_text()
    client = Producer({"bootstrap.servers": line.strip(), "log_level": 0})
    assert client.list_topics(timeout=180).brokers


def test_it_ends_with_sigterm(process: subprocess.Popen[str]) -> None:
    """SIGTERM ends it with exit status 0."""
    assert process.stdout
    next_line(process)

    process.send_signal(signal.SIGTERM)

    assert process.wait(SECONDS_MAX) == 0


def test_it_ends_when_its_parent_does(process: subprocess.Popen[str]) -> None:
    """The end of standard input ends it, so a killed parent leaves nothing behind."""
    assert process.stdout
    assert process.stdin
    next_line(process)

    process.stdin.close()

    assert process.wait(SECONDS_MAX) == 0
