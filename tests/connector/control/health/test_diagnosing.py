"""Checks run at once and in bounded time, and what one does hides no other."""

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from headrace.connector.control.health import requirements
from headrace.connector.control.health.diagnosing import Asked, diagnose, run_checks
from headrace.connector.control.jobs import read_job
from headrace.connector.runtime.making import made_sink, read_only_context
from headrace.connector.runtime.schemas import examined_store
from headrace.plugins import CheckResult, ConfigError, Finding, MissingRequirementError, Problem
from headrace.plugins.diagnosis import Check
from helpers.jobs import toys

PASSED, FAILED = CheckResult.PASSED, CheckResult.FAILED
OVER = threading.Event()


def hang() -> Iterable[Finding]:
    """Wait until the test is over."""
    OVER.wait()
    return [Finding("late", PASSED, "late")]


def refuse() -> Iterable[Finding]:
    """Find one thing, then fail with an error that has a name."""
    yield Finding("first", PASSED, "fine")
    raise MissingRequirementError("it is gone", place="/x", hint="mount it")


def mistake() -> Iterable[Finding]:
    """Fail with two mistakes of a configuration."""
    raise ConfigError([Problem("a", "is wrong", "do b"), Problem("", "c is missing")])


def broken() -> Iterable[Finding]:
    """Fail as a program does that is wrong."""
    raise ZeroDivisionError("secret")


def test_each_check_is_reported() -> None:
    """One that hangs and those that fail are findings beside those of the others, in order."""
    runs: list[Callable[[], Iterable[Finding]]] = [hang, refuse, mistake, broken]
    asked = [Asked(Check("g", run.__name__, run), toys.BusSink) for run in runs]
    try:
        found = [each.finding for each in run_checks(asked, 0.2)]
    finally:
        OVER.set()

    assert ["hang", "first", "refuse", "mistake", "mistake", "broken"] == [f.check for f in found]
    assert [FAILED, PASSED, *[FAILED] * 4] == [f.result for f in found]
    assert "sink 'bus' (BusSink): no answer within 0.2 s" == found[0].message
    assert ("/x: it is gone", "mount it") == (found[2].message, found[2].hint)
    assert [("a: is wrong", "do b"), ("c is missing", "")] == [
        (f.message, f.hint) for f in found[3:5]
    ]
    assert found[5].message.startswith("sink 'bus' (BusSink): raised ZeroDivisionError")
    assert f"{Path(__file__).name}:" in found[5].message


@pytest.mark.parametrize("line", ["odd", "1"])
def test_secrets_of_a_plugin_are_not_shown(tmp_path: Path, line: str) -> None:
    """A sink whose check fails, or says its password, is shown without it; so is the rest."""
    (tmp_path / "in.jsonl").write_bytes(b"{}\n")
    (tmp_path / "secret.properties").write_text("p=canary\n")
    (tmp_path / "job.yaml").write_text(
        f"job: j\nstate: state.db\nsource: {{plugin: brook, path: {tmp_path}/in.jsonl}}\n"
        f"sink: {{plugin: bus, bus.stops: a, line: {line}, "
        f"password: '${{file:{tmp_path}/secret.properties:p}}'}}\n"
    )
    found = diagnose(read_job(tmp_path / "job.yaml"))
    (sink,) = [each.finding for each in found if each.group == "sink 'bus'"]

    assert "canary" not in str(found)
    assert (line == "odd") is (sink.result is FAILED)
    assert "ValueError" in sink.message or "***" in sink.message
    assert "can start, with" in next(e.finding.message for e in found if e.group == "job")
    assert not (tmp_path / "state.db").exists()


@pytest.mark.parametrize(
    ("topic", "strategy", "subjects"),
    [
        ("a", "TopicNameStrategy", {"a-value": ["s.t", "s.u"], "a-key": ["s.t", "s.u"]}),
        ("a", None, {}),
        ("a", "RecordNameStrategy", {}),
        (
            "{table}",
            None,
            {"t-key": ["s.t"], "t-value": ["s.t"], "u-key": ["s.u"], "u-value": ["s.u"]},
        ),
    ],
)
def test_subjects(
    tmp_path: Path, topic: str, strategy: str | None, subjects: dict[str, list[str]]
) -> None:
    """A schema store is asked about the subjects that are named after topics, with their tables."""
    sink = {
        "plugin": "kafka",
        "bootstrap.servers": "127.0.0.1:1",
        "topic": topic,
        "format": "avro",
        "schema.store": "registry",
        "schema.store.url": "http://127.0.0.1:1",
        **({"subject.name.strategy": strategy} if strategy else {}),
    }
    job = {"job": "j", "state": "s", "source": {"plugin": "brook", "path": "in"}, "sink": sink}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    made = read_job(tmp_path / "job.yaml")
    context = read_only_context("j", bytes(16))
    found = examined_store(made, context, made_sink(made, context), ["s.t", "s.u"])

    assert found is not None
    assert subjects == found[1]


@pytest.mark.parametrize(
    ("needs", "result", "said"),
    [
        (["pyyaml>=6", "pytest; extra == 'test'"], PASSED, "all 1 libraries are there"),
        (["pyyaml >=5,<6"], FAILED, "is here, <6,>=5 is needed"),
        (["pyyaml != 6.0.2.post1, ~= 6.0"], PASSED, "all 1 libraries are there"),
        (["pywin32; sys_platform == 'win32'", "pyyaml"], PASSED, "all 1 libraries are there"),
        (["pyjwt[crypto]>=900.1"], FAILED, "is here, >=900.1 is needed"),
        (["no-such-library>=2"], FAILED, "no-such-library is missing"),
    ],
)
def test_libraries(
    monkeypatch: pytest.MonkeyPatch, needs: list[str], result: CheckResult, said: str
) -> None:
    """A library that is missing, or too old or too new, is a failure with the command for it."""
    monkeypatch.setattr(requirements, "requires", lambda _: needs)
    _, found = requirements.library_findings()

    assert (result, True) == (found.result, said in found.message)
    assert (result is FAILED) is found.hint.startswith("pip install '")
