"""A task that is attempted twice changes no answer: it failed, or a second one overtook it."""

import json
from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from cassandra.cluster import Session
from pyspark.sql import SparkSession

from headrace import history
from headrace.connector.commands.cli import main
from helpers.histories.kept import recorded_history
from helpers.recordings.corpora import recording
from real.servers.cassandra import Cassandra
from real.spark.spark_attempts import Query, failing_once, holding_python, loaded, speculating
from real.spark.spark_jobs import (
    NODES,
    RING,
    Names,
    by_worker,
    delivered,
    in_parquet,
    ring_job,
    stream_job,
)
from real.spark.spark_tables import framed_table

pytestmark = [pytest.mark.real, pytest.mark.spark]

NAMED: Final = ["`table`", "operation", "hex(mutation)", "`index`"]
# A task of a stream has delivered all of its split, and has not said so: it removes what an
# earlier attempt could not deliver.
SETTLED: Final = ("os.remove", r"\d+-\d+\.jsonl$")
# A task of a replay has written all rows of a table, and makes the file visible.
WRITTEN: Final = ("os.rename", r"replay-\w+-\w+-\d{5}-")


@pytest.fixture
def sources(
    topic_job: Path, node: Cassandra, session: Session, tmp_path: Path
) -> list[tuple[Query, list[list[object]]]]:
    """Return each data source of ours, with the rows that it has."""
    path = str(recording(RING) / "segments")
    ((table, _),) = Counter(str(name[0]) for name in by_worker().elements()).most_common(1)
    typed, of_one = {"table": table}, named(table=table)
    logged = by_worker(NODES[0]) + by_worker(NODES[1]) + by_worker(NODES[2])
    made = recorded_history(tmp_path)
    place = made.sink.config.place
    with history.connect(place) as client:
        shown = client.select(0).arrow()
    times = shown.column("write_time").cast(pa.int64()).to_pylist()  # Some are beyond a datetime.
    kept = sorted(list(each) for each in zip(shown.column("op").to_pylist(), times, strict=True))
    of_table = {"job": str(framed_table(tmp_path, node, session)), "table": "framed.t"}
    stored = Counter({("framed.t", "INSERT"): 30, ("framed.t", "UPDATE"): 4})
    return [
        (
            ("headrace.segments", {"path": path, "format": "none", "table": table}, NAMED),
            named(table=table),
        ),
        (("headrace.segments", {"path": path, "agreement": "none"}, NAMED), named(logged)),
        (("headrace.segments", {"path": path}, NAMED), named()),
        (("headrace.topic", {"job": str(topic_job)}, NAMED), named()),
        (("headrace.topic", {**typed, "job": str(topic_job)}, NAMED), of_one),
        (
            (
                "headrace.history",
                {"path": place, "shards": "2", "since": "2000-01-01T00:00:00Z"},
                ["op", "unix_micros(write_time)"],
            ),
            kept,
        ),
        (
            ("headrace.table", of_table, ["`table`", "operation"]),
            sorted(list(each) for each in stored.elements()),
        ),
    ]


def named(found: Names | None = None, table: str | None = None) -> list[list[object]]:
    """Return changes by what names them; those that a worker delivers, or *found*."""
    return sorted(
        [of_table, operation, mutation.hex().upper(), index]
        for of_table, operation, _, mutation, index in (found or by_worker()).elements()
        if isinstance(mutation, bytes) and table in (None, of_table)
    )


def test_tasks_that_fail_once(
    spark: SparkSession, sources: list[tuple[Query, list[list[object]]]]
) -> None:
    """Each data source of ours has the rows of a worker if each task fails amid its first try."""
    for query, wanted in sources:
        assert wanted == failing_once(loaded(spark, query)), query


def test_tasks_that_are_overtaken(
    master: str, sources: list[tuple[Query, list[list[object]]]], tmp_path: Path
) -> None:
    """So it has if Spark speculates, and a second attempt ends while the first is amid its rows."""
    queries = json.dumps([query for query, _ in sources])
    found = json.loads(speculating(master, ["rows", str(tmp_path), queries]).splitlines()[-1])

    for (query, wanted), rows in zip(sources, found, strict=True):
        assert wanted == rows, query


def test_a_stream_that_is_overtaken(master: str, tmp_path: Path) -> None:
    """Two attempts of one of two tasks deliver: only what its splits had in that batch comes twice.

    The books count it once.
    """
    job = stream_job(tmp_path, "stream")
    python = holding_python(tmp_path / "held", *SETTLED)
    command = ["run", str(job), "--engine", "spark", "--until-idle", "--batch-bytes", "3145728"]
    speculating(master, command, python)

    assert (tmp_path / "held" / "second").exists()
    found = delivered(job)
    repeats = found.total() - len(found)
    assert by_worker().total() == len(found)
    assert 0 < repeats < len(found) / 2
    assert 2 == max(found.values())
    assert counted(job) == len(found)


def counted(job: Path) -> int:
    """Return how many changes the books of a job have as delivered."""
    out = job.with_suffix(".verified")
    with pytest.MonkeyPatch.context() as patch, out.open("w") as file:
        patch.setattr("sys.stdout", file)
        assert 0 == main(["verify", str(job), "--json"])
    tables = json.loads(out.read_text())["total"]["tables"].values()
    return sum(int(table["delivered"]) for table in tables)


def test_a_replay_that_is_overtaken(
    master: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two attempts write the files of one shard: the folder has each change once."""
    job = ring_job(tmp_path, "ring", {"plugin": "null"})
    plan = ["replay", "plan", str(job), "--to-folder", "out", "--shards", "4", "--json"]
    assert 0 == main(plan)
    run = str(json.loads(capsys.readouterr().out)["run"])
    python = holding_python(tmp_path / "held", *WRITTEN)
    speculating(master, ["replay", "run", str(job), run], python)

    assert (tmp_path / "held" / "second").exists()
    assert by_worker() == in_parquet(tmp_path / "out")
    assert [] == list(tmp_path.glob("out/*/.*.part"))
