"""A history in Spark: what the page shows, and frames of which several queries are made."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace import history
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, beside, fill, recorded_history, settled
from helpers.histories.rows import TABLE, change, delivery
from helpers.settings.native_modules import ROOT

pytestmark = [pytest.mark.real, pytest.mark.spark]

PAGE: Final = ROOT / "docs" / "history.md"
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
IMAGES: Final = ("change", "pre", "post")


@pytest.fixture
def filtering(spark: SparkSession) -> Iterator[SparkSession]:
    """Return Spark with push-down of filters on; by default it is off."""
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Return the history of a recorded table."""
    return recorded_history(tmp_path_factory.mktemp("h"))


def loaded(spark: SparkSession, made: Kept, **options: str) -> DataFrame:
    """Return a frame of all changes with their images."""
    given = {"since": "2023-01-01", "include": ",".join(IMAGES), "shards": "2"} | options
    return spark.read.format("headrace.history").options(**given).load(made.sink.config.place)


def test_the_program_of_the_page(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What docs/history.md shows prints the update that changed a total."""
    clock = DrivenClock(time.time_ns() // 1_000_000 - DrivenClock(0).wall_ms())
    path = str(tmp_path / "history" / "orders_hist.db")
    made = Kept(clock, path=path, table=TABLE, include="pre,post", seed="empty")
    sent = [
        change(written_us=1, of=(7, 1), total=3),
        change("UPDATE", written_us=2, of=(7, 1), total=5),
    ]
    fill(made, [delivery(*sent)], per_commit=2, step_ms=0)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (program,) = (block for block in blocks if "pyspark" in block)
    assert '"history/orders_hist.db"' in program
    program = program.replace('"history/orders_hist.db"', repr(path))
    exec(compile(program, str(PAGE), "exec"), {})  # noqa: S102 (what the page tells to run)

    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("|20")]
    assert ["7", "3", "5"] == [each.strip() for each in line.strip("|").split("|")][1:]
    assert spark is SparkSession.getActiveSession()


def test_a_frame_in_several_queries(filtering: SparkSession, recorded: Kept) -> None:
    """Rows are the client's; counts, filters, pruned columns and a join of two views agree."""
    with history.connect(recorded.sink.config.place) as client:
        wanted = client.select(0, include=IMAGES).arrow()
    operations = wanted.column("op").to_pylist()
    updates, deletes = operations.count("update"), operations.count("delete")
    assert 0 < deletes < updates < len(operations)

    frame = loaded(filtering, recorded)
    assert wanted == frame.toArrow().cast(wanted.schema)
    assert [len(operations), updates, len(operations), deletes] == [
        frame.count(),
        frame.where("op = 'update'").count(),
        frame.count(),
        frame.where("op = 'delete'").count(),
    ]
    views = [frame.where(f"op = '{op}'").groupBy("op").count() for op in ("update", "delete")]
    joined = views[0].alias("a").crossJoin(views[1].alias("b")).collect()
    assert [("update", updates, "delete", deletes)] == [tuple(row) for row in joined]
    assert operations == [row.op for row in frame.select("op").collect()]
    assert deletes == loaded(filtering, recorded, operations="delete").count()


def test_a_frame_while_a_writer_commits(spark: SparkSession, tmp_path: Path) -> None:
    """Its queries have what was there at its load; what retention removes then is an error."""
    made = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty", retention="1h"))
    sent = [change(written_us=n, of=(n % 7, n), note=str(n)) for n in range(40)]
    fill(made, [delivery(*sent)], per_commit=10, step_ms=1_000)
    frame = loaded(spark, made)
    views = frame.where("id = 1"), frame.where("id = 1")
    writer = made.writer()
    for number in range(2):
        writer.submit(delivery(change(written_us=number, of=(1, 99), note="late")), settled)
        assert writer.commit({}, FOREVER_MS)
        assert 40 == frame.count()
    assert 6 == views[0].join(views[1], ["id", "at"]).count()
    assert 42 == loaded(spark, made).count()
    made.clock.advance(7_200_000)
    writer.submit(delivery(change(written_us=1, of=(1, 1))), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    with pytest.raises(PySparkException, match="were removed"):
        frame.count()
