"""The watch of dead letters, an app of its own, with a real broker."""

import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.streams.dead_letters.letters import DeadLetter
from helpers.jobs.deliveries import consume
from helpers.servers.pages import page_of
from helpers.servers.ports import free_ports
from helpers.settings.native_modules import ROOT
from helpers.streams.published import published, send
from real.servers.process import EndedError, ServerProcess

pytestmark = pytest.mark.real

DEAD = {"large.bytes": "1000", "errors.deadletterqueue.topic.name": "watch-dead"}
MODULE = [sys.executable, "-m", "headrace.connector.streams.dead_letters"]


def page(port: int) -> Mapping[str, Any]:
    """Return what the app shows; nothing while it does not answer."""
    return page_of(port, "/dead-letters/") or {}


def shown(port: int) -> Counter[tuple[str, str]]:
    """Return how many the app counted, by code and table."""
    found: Counter[tuple[str, str]] = Counter()
    for window in page(port).get("windows", ()):
        found[window["code"], window["table"]] += window["count"]
    return found


def test_it_counts_and_ends_at_too_many(tmp_path: Path, bootstrap_servers: str) -> None:
    """The page has what came, a repeat once; the program of the page gets each. A bound ends it."""
    job = published(tmp_path, bootstrap_servers, "watch", **DEAD)
    sent = consume(bootstrap_servers, "watch-dead")
    expected: Counter[tuple[str, str]] = Counter()
    for message in sent:
        headers: Any = message.headers()
        letter = DeadLetter.of("", 0, None, None, headers)
        expected[letter.code, letter.table] += 1
    send(bootstrap_servers, "watch-dead", sent[:1], sent[0].partition() or 0)
    text = (ROOT / "docs" / "consumers.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (program,) = (block for block in blocks if "dead_letter" in block)
    (tmp_path / "letters.py").write_text(program)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "faust", "-A", "letters", "worker", "-l", "info"]
    process = ServerProcess([*command, "--web-port", str(port)], tmp_path)
    try:
        process.wait_until(lambda: shown(port) == expected)
        log = tmp_path / "output.log"
        process.wait_until(lambda: log.read_text().count("lost: ") == len(sent))
    finally:
        process.stop()

    (tmp_path / "bound").mkdir()
    bounded = [*MODULE, str(job), "--max", "1", "--port", str(port), "--name", "watch-bounded"]
    process = ServerProcess(bounded, tmp_path / "bound")
    with pytest.raises(EndedError, match="2 within 3600 s, allowed are 1"):
        process.wait_until(lambda: False)
    assert 4 == process.status()
