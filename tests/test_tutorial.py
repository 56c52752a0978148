"""The tutorial, as a stranger follows it: each command of the page, in its order."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from headrace.connector.foundation.processes import COMMAND
from helpers.jobs.children import SECONDS_MAX, until
from helpers.settings.native_modules import ROOT

PAGE: Final = (ROOT / "docs" / "tutorial.md").read_text()
LINES: Final = re.findall(
    r"^    (\S.*)$", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL), re.MULTILINE
)
COMMANDS: Final = [
    "headrace forge-ring ring",
    "headrace embedded-broker",
    "headrace doctor job.yaml",
    "headrace run job.yaml",
    "headrace status job.yaml",
    "headrace verify job.yaml",
    "headrace run job.yaml",
    "stop node3",
    "start node3",
    "headrace run job.yaml --until-idle",
    "headrace verify job.yaml --sink",
]
(YAML,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Terminals:
    """The commands of the page, in one folder."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        """Run nothing yet; what was started ends with *stack*."""
        self.folder = folder
        self._stack = stack

    def start(self, line: str) -> subprocess.Popen[str]:
        """Start what continues until it is ended; return it."""
        child = self._stack.enter_context(
            subprocess.Popen(  # noqa: S603 (headrace itself)
                [*COMMAND, *line.split()[1:]],
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        self._stack.callback(child.kill)
        return child

    def done(self, line: str, status: int = 0) -> str:
        """Return what a command printed, which ends with *status*."""
        done = self._run([*COMMAND, *line.split()[1:]])
        assert status == done.returncode, done.stdout + done.stderr
        return done.stdout

    def python(self) -> str:
        """Return what the program of the page printed."""
        done = self._run([sys.executable, "-c", PYTHON])
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 (headrace itself)
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def published(self) -> int:
        """Return how many changes are published, as `verify` prints it."""
        said = self.done("headrace verify job.yaml")
        (count,) = re.findall(r"changes published +([\d,]+)", said)
        return int(count.replace(",", ""))


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    """Return terminals in an empty folder."""
    with contextlib.ExitStack() as stack:
        yield Terminals(tmp_path, stack)


def said(child: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def typed(child: subprocess.Popen[str], line: str) -> None:
    """Type a line."""
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def test_the_page(terminals: Terminals) -> None:
    """Through a kill -9 and a node that is away, all that was written is in the topic."""
    assert COMMANDS == LINES
    ring = terminals.start("headrace forge-ring ring")
    assert "ready" == said(ring)
    address = said(terminals.start("headrace embedded-broker"))
    (terminals.folder / "job.yaml").write_text(YAML.replace("127.0.0.1:9092", address))
    assert "0 failed, 2 warnings" in terminals.done("headrace doctor job.yaml")

    first = terminals.start("headrace run job.yaml")
    until((terminals.folder / "state.db").exists, "the run did not start")
    until(lambda: terminals.published() > 0, "nothing is published")
    assert 5 == terminals.python().count(" shop.orders orders(")
    shown = terminals.done("headrace status job.yaml")
    assert f":{first.pid}" in shown
    os.kill(first.pid, signal.SIGKILL)
    first.wait(SECONDS_MAX)
    assert "start it: headrace run" in terminals.done("headrace status job.yaml", 1)

    second = terminals.start("headrace run job.yaml")
    typed(ring, "stop node3")
    assert "node3 is down" in said(ring)
    before = terminals.published()
    until(lambda: terminals.published() > before, "nothing is published without node3")
    typed(ring, "start node3")
    assert "node3 is up again" in said(ring)
    ring.communicate(timeout=SECONDS_MAX)
    second.send_signal(signal.SIGINT)
    assert second.wait(SECONDS_MAX) in {0, 128 + signal.SIGINT}

    assert "0 lost" in terminals.done("headrace run job.yaml --until-idle")
    written = (terminals.folder / "ring" / "writes.jsonl").read_text().count("\n")
    assert f"{written} of {written} delivered changes" in terminals.done(
        "headrace verify job.yaml --sink"
    )
