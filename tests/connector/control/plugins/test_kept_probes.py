"""Processes that are asked again and again: kept, bounded, ended, and replaced when they end."""

import contextlib
import os
from collections.abc import Iterator, Mapping

import pytest

from headrace.connector.control.errors import NotAvailableError
from headrace.connector.control.plugins import kept_probes, probing
from headrace.connector.control.plugins.kept_probes import KeptProbes

SAYS_ITS_NUMBER = """
import json, os, sys
for line in sys.stdin:
    what = json.loads(line)["verb"]
    if what == "end": sys.exit(7)
    if what == "hang": sys.stdin.read()
    print(json.dumps({"answer": os.getpid()}), flush=True)
    if what == "last": break
"""


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeptProbes]:
    """Return probes whose processes answer with their numbers."""
    monkeypatch.setattr(probing, "_CODE", SAYS_ITS_NUMBER)
    with contextlib.closing(KeptProbes()) as made:
        yield made


def question(verb: str = "lag", job: str = "j") -> Mapping[str, object]:
    """Return a question about a job."""
    return {"verb": verb, "job": job, "job_file": "job.yaml"}


def lives(number: int) -> bool:
    """Say whether a process is there."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_for_each_job(probes: KeptProbes) -> None:
    """A job's process is asked again; another job has another one; none outlives the probes."""
    first, other = probes.ask_lag(question()), probes.ask_lag(question(job="k"))

    assert first != other
    assert [first, other] == [probes.ask_lag(question()), probes.ask_lag(question(job="k"))]
    probes.close()
    assert [False, False] == [lives(first), lives(other)]


def test_one_that_ended_is_replaced(probes: KeptProbes) -> None:
    """After a process ended that was not asked for long, the next question starts another one."""
    first = probes.ask_lag(question("last"))

    assert first != probes.ask_lag(question())


def test_one_that_ends_without_an_answer(probes: KeptProbes) -> None:
    """That is a named error, for this job and this time."""
    probes.ask_lag(question())
    with pytest.raises(NotAvailableError, match="ended its process with status 7"):
        probes.ask_lag(question("end"))

    assert isinstance(probes.ask_lag(question()), int)


def test_one_that_hangs(probes: KeptProbes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended when its time is over, and the next question has another one."""
    first = probes.ask_lag(question())
    monkeypatch.setattr(probing, "SECONDS_MAX", 0.2)
    with pytest.raises(NotAvailableError, match=r"did not answer within 0\.2 s"):
        probes.ask_lag(question("hang"))
    monkeypatch.undo()
    monkeypatch.setattr(probing, "_CODE", SAYS_ITS_NUMBER)

    assert not lives(first)
    assert isinstance(probes.ask_lag(question()), int)


def test_they_are_bounded(probes: KeptProbes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs beyond the bound are asked in a process of one question each."""
    monkeypatch.setattr(kept_probes, "PROBES_MAX", 1)
    monkeypatch.setattr(probing, "ask", lambda asked: asked["job"])
    first = probes.ask_lag(question())

    assert "k" == probes.ask_lag(question(job="k"))
    assert first == probes.ask_lag(question())
    probes.ask_lag(question("last"))
