"""A job on Spark: what is refused before Spark starts, and how failures of Spark are reported."""

from pathlib import Path

import pytest
import yaml

from headrace.connector.commands.bulk.run_on_spark import failure_of
from headrace.connector.replay.errors import JobBusyError
from headrace.connector.replay.stream.checkpoint import checkpoint_of
from helpers.logs.gap_jobs import GapJob


@pytest.fixture
def job(tmp_path: Path) -> GapJob:
    """Return a job over one segment."""
    made = GapJob(tmp_path, splits=1)
    made.log(1, range(3))
    return made


def on_spark(job: GapJob, *arguments: str) -> int:
    """Return the exit status of the job on Spark, which must end before Spark starts."""
    return job.call("run", "--engine", "spark", "--master", "an unknown master", *arguments)


@pytest.mark.parametrize("arguments", [("--metrics", "h:1"), ("--batch-bytes", "0")])
def test_arguments(
    job: GapJob, capsys: pytest.CaptureFixture[str], arguments: tuple[str, str]
) -> None:
    """A metrics address that is none, and batches of 0 bytes, are refused."""
    assert 2 == on_spark(job, *arguments)
    assert f"{arguments[0]}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "options", "said"),
    [
        (
            "source",
            {"plugin": "files", "path": "*.cql", "nodes": None, "schema": None, "splits": None},
            "cannot be read in micro-batches",
        ),
    ],
)
def test_what_is_left_to_workers(
    job: GapJob,
    capsys: pytest.CaptureFixture[str],
    section: str,
    options: dict[str, object],
    said: str,
) -> None:
    """An option that a stream does not support is refused by name, and nothing is written."""
    document = yaml.safe_load(job.path.read_text())
    changed = document[section] | options
    document[section] = {name: each for name, each in changed.items() if each is not None}
    job.path.write_text(yaml.safe_dump(document))

    assert 2 == on_spark(job)
    assert said in capsys.readouterr().err
    assert not (job.folder / "out.jsonl").exists()


def test_a_worker_does_not_run_what_spark_is_ahead_in(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker would deliver again what Spark committed, and did not copy into the state yet."""
    folder = checkpoint_of(job.folder / "state.db", "orders").spark
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True)
        (folder / kind / "0").write_text('v1\n{"parts": [], "rested_ms": 0}')

    assert 2 == job.run()
    assert "orders runs on Spark" in capsys.readouterr().err


def test_a_worker_does_not_run_beside_spark(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a driver runs the job, a worker is refused."""
    with checkpoint_of(job.folder / "state.db", "orders").running():
        assert 1 == job.run()

    assert "error [job_busy]: job orders: Spark runs it" in capsys.readouterr().err


def test_one_driver_at_a_time(job: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """A second driver of a job is refused."""
    checkpoint = checkpoint_of(job.folder / "state.db", "orders")
    with checkpoint.running():
        assert 1 == on_spark(job)

    assert JobBusyError.code in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "code", "status"),
    [
        ("x\nheadrace.sources.cassandra.errors.LogGapError: node n2: lost\n", "stream_failed", 1),
        ("headrace.plugins.errors.ConfigError: sink.path: is required", "config", 2),
        ("headrace.plugins.errors.MissingRequirementError: no brokers", "environment", 3),
        ("java.lang.OutOfMemoryError: heap", "stream_failed", 1),
    ],
)
def test_what_failed_is_named(said: str, code: str, status: int) -> None:
    """A headrace error in Spark's report keeps its message and its exit status."""
    failure = failure_of(said)

    assert (code, status) == (failure.code, failure.exit_status)
    assert said.strip().rpartition("Error: ")[2] in failure.message


def test_hints_are_kept() -> None:
    """The hint of a task's error is printed as the task wrote it."""
    failure = failure_of("headrace.connector.replay.errors.LogShortError: a\nhint: b\n\tat java")

    assert ("log_short: a", "b") == (failure.message, failure.hint)
