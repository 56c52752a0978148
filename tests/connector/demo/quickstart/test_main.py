"""The quickstart as a user runs it: it checks itself, loses nothing, and leaves nothing."""

import json
import os
import re
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.commands.cli import main
from headrace.connector.demo.quickstart.screen import Screen
from headrace.connector.foundation.processes import COMMAND
from helpers.jobs.children import SECONDS_MAX
from helpers.settings.leftovers import spotless

FIRST_SECONDS_MAX = 30  # Two on a quiet machine.
CHECK = re.compile(r"^check: (\d+) writes, (\d+) received; (.*): passed$", re.MULTILINE)
AGAIN = re.compile(r"(\d+) came again, of at most (\d+) that are named as possibly repeated")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return an environment for a quickstart, and see that it leaves no process and no file."""
    with spotless(tmp_path / "tmp") as made:
        yield made


def test_ctrl_c_after_the_worker_was_killed_loses_nothing(environment: dict[str, str]) -> None:
    """Each write is received once, or is counted as possibly repeated; a first change is soon."""
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [*COMMAND, "quickstart", "--break", "worker"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        said = ""
        while "is killed" not in said:
            line = child.stdout.readline()
            assert line, said
            said += line
        os.killpg(child.pid, signal.SIGINT)  # As a terminal does.
        rest, errors = child.communicate(timeout=SECONDS_MAX)
    said += rest

    assert (0, "") == (child.returncode, errors), said
    (first,) = re.findall(r"^First change after (\S+) s\.$", said, re.MULTILINE)
    assert float(first) < FIRST_SECONDS_MAX
    (found,) = CHECK.findall(said)
    written, received = int(found[0]), int(found[1])
    again, named = map(int, (AGAIN.findall(found[2]) or [("0", "0")])[0])
    assert 0 < written == received - again
    assert again <= named
    assert re.search(rf"^  changes published  +{written}$", said, re.MULTILINE)
    assert said.count("INSERT  shop.orders") > 5
    assert "Another worker starts" in said
    assert 3 == len(re.findall(r"^  headrace (?:quickstart|demo)", said, re.MULTILINE))


def test_a_write_that_is_not_received_fails(environment: dict[str, str]) -> None:
    """The status is 1, and the write is shown; one damaged segment takes nothing away."""
    done = subprocess.run(  # noqa: S603 (headrace itself)
        [*COMMAND, "quickstart", "--seconds", "1", "--break", "segment", "--withhold", "5"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )

    assert 1 == done.returncode
    assert re.search(r"1 writes were not received; lost: \[\"shop\.orders\"", done.stderr)
    assert re.search(r"^check: .*: FAILED$", done.stdout, re.MULTILINE)
    assert re.search(r"^  dead-lettered  +1  headrace dlq list", done.stdout, re.MULTILINE)
    assert re.search(r"^  lost  +0$", done.stdout, re.MULTILINE)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """Run in this process; return what console and registry had when the screen named them."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    pages: list[Any] = []  # Any: JSON.
    notice = Screen.notice

    def look(screen: Screen, text: str) -> None:
        notice(screen, text)
        if (found := re.search(r"registry: (http://\S+)/subjects", text)) is not None:
            with urllib.request.urlopen(f"{found[1]}/subjects") as answer:  # noqa: S310
                pages.append(json.load(answer))
        elif (found := re.search(r"http://\S+/", text)) is not None:
            with urllib.request.urlopen(f"{found[0]}console/overview.json") as answer:  # noqa: S310
                pages.append(json.load(answer))

    monkeypatch.setattr(Screen, "notice", look)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield pages
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("replica", ["A node stops.", "The node returns."]),
        ("broker", ["The broker stops answering.", "The broker answers again."]),
    ],
)
def test_what_breaks_is_mended_and_nothing_is_lost(
    seen: list[Any], capsys: pytest.CaptureFixture[str], broken: str, said: list[str]
) -> None:
    """Each write is received once; the console shows the source while it runs."""
    status = main(["quickstart", "--seconds", "2.5", "--break", broken])
    printed = capsys.readouterr().out

    assert 0 == status, printed
    assert said == [text for text in said if f">>> {text}" in printed]
    (found,) = CHECK.findall(printed)
    assert "each once" == found[2]
    assert 0 < int(found[0]) == int(found[1])
    page, subjects = seen
    (source,) = page["sources"]["rows"]
    assert ("cdc.shop.orders", "changes", "quickstart") == (
        *(source[key] for key in ("name", "sink", "job")),
    )
    assert 8 == page["ring"]["splits"]
    assert {"changes-headrace.shop.orders.Change", "changes-headrace.shop.orders.Key"} == {
        *subjects
    }
