"""Waiting for a line of a child process tells a slow child from one that has ended."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from helpers.jobs.children import next_line
from helpers.settings.native_modules import ROOT

ENDS = "print('one'); print('two')"
WAITS = "import sys; print('one', flush=True); sys.stdin.read()"
BENCH = """
import subprocess, sys
from bench.errors import ProbeFailedError
from bench.starting import ready_line
with subprocess.Popen(
    [sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
) as child:
    try:
        print(ready_line(child, "stdout", sys.argv[2], seconds=float(sys.argv[3])), end="")
    except ProbeFailedError as error:
        print(str(error).rpartition("] ")[2])
"""


@contextmanager
def child_of(script: str) -> Iterator[subprocess.Popen[str]]:
    """Run *script* in a process whose input stays open."""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(  # noqa: S603 (our own interpreter)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child


def test_the_line_is_found() -> None:
    """What comes before the wanted line is passed over."""
    with child_of(ENDS) as child:
        assert "two\n" == next_line(child, holding="tw")


def test_a_child_that_ended_is_not_called_late() -> None:
    """The failure says that the stream ended, and what came."""
    message = r"did not print that line before its stdout ended, only \['one\\n', 'two\\n'\]"
    with child_of(ENDS) as child, pytest.raises(AssertionError, match=message):
        next_line(child, holding="three")


def test_a_silent_child_is_killed() -> None:
    """The failure names the bound; nothing waits for the child any longer."""
    with (
        child_of(WAITS) as child,
        pytest.raises(AssertionError, match=r"did not print that line within 0\.5 s, only \["),
    ):
        next_line(child, holding="three", seconds=0.5)

    assert 0 > child.returncode


@pytest.mark.parametrize(
    ("script", "holding", "seconds", "said"),
    [
        (ENDS, "tw", 60, "two\n"),
        (ENDS, "three", 60, "ended before it had started; it printed ['one\\n', 'two\\n']\n"),
        (WAITS, "three", 0.5, "did not start within 0.5 s; it printed [{}]\n"),
    ],
)
def test_benchmarks_wait_no_longer_either(
    script: str, holding: str, seconds: float, said: str
) -> None:
    """What a benchmark starts is ready in time, or the error says why it is not."""
    command = [sys.executable, "-c", BENCH, script, holding, str(seconds)]
    printed = subprocess.run(  # noqa: S603 (our own interpreter)
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=120
    ).stdout

    assert printed in {said.replace("{}", "'one\\n'"), said.replace("{}", "")}
