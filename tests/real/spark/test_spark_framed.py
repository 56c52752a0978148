"""Streams and replays on Spark whose logs are read once, beside a worker of the same logs."""

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.connector.commands.bulk import run_on_spark
from headrace.connector.commands.cli import main
from real.spark.spark_jobs import delivered, ring_job, stream_job

pytestmark = pytest.mark.real

SHARDS = 9


def of_worker(folder: Path) -> Counter[str]:
    """Return what a worker delivers."""
    job = stream_job(folder, "worker")
    assert 0 == main(["run", str(job), "--until-idle"])
    return delivered(job)


@pytest.mark.parametrize(("sink", "cores"), [("files", 2), ("files", 8), ("null", 2)])
def test_a_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str, cores: int
) -> None:
    """A job with many splits delivers what a worker delivers, in several micro-batches.

    With few cores tasks read the logs in one pass each, with more they get blocks of them.
    """
    assert spark is SparkSession.getActiveSession()
    monkeypatch.setattr(run_on_spark, "width", lambda _: cores)
    given = {"plugin": sink, **({"path": "out.jsonl"} if sink == "files" else {})}
    job = ring_job(tmp_path, "out", given, splits=SHARDS)

    command = ["run", str(job), "--engine", "spark", "--until-idle"]
    assert 0 == main([*command, "--batch-bytes", "1500000"])
    if sink == "files":
        assert of_worker(tmp_path) == delivered(job)
    assert 0 == main(["verify", str(job)])
    assert 1 < len(list((tmp_path / "state.db.spark/out/offsets/commits").glob("[0-9]*")))


def test_a_replay(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A replay whose tasks take several shards delivers what a worker delivers."""
    assert spark is SparkSession.getActiveSession()
    job = ring_job(tmp_path, "out", {"plugin": "files", "path": "out.jsonl"})
    assert 0 == main(["replay", "plan", str(job), "--into-live", "--shards", "24", "--json"])
    run = json.loads(capsys.readouterr().out)["run"]
    assert 0 == main(["replay", "run", str(job), run])

    assert of_worker(tmp_path) == delivered(job)
