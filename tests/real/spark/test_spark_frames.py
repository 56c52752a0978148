"""One frame of Spark in several queries: each answer is that of the whole frame.

What is right is computed from what Cassandra's own reader found in the recorded logs.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import pytest
from cassandra.cluster import Session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType

from headrace.connector.demo.expected import expected_changes
from headrace.connector.demo.recording import Recording
from helpers.recordings.corpora import recording
from helpers.settings.native_modules import ROOT
from real.servers.cassandra import Cassandra
from real.spark.spark_jobs import RING, by_worker
from real.spark.spark_tables import framed_table

pytestmark = [pytest.mark.real, pytest.mark.spark]

PAGE: Final = ROOT / "docs" / "spark.md"
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
UPDATES: Final = "operation = 'UPDATE'"
INSERTS: Final = "operation = 'INSERT'"

# What names a change, besides its table.
NAMED: Final = ("operation", "hex(mutation)", "`index`")
Query = tuple[str, dict[str, str], list[str]]


@pytest.fixture(params=["true", "false"])
def filtering(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Return Spark with push-down of filters on, and with the default, off."""
    spark.conf.set(PUSHDOWN, request.param)
    yield spark
    spark.conf.unset(PUSHDOWN)
    spark.catalog.clearCache()


@cache
def justified() -> Counter[tuple[str, str]]:
    """Return how many changes the recorded logs justify, by table and operation."""
    found: Counter[tuple[str, str]] = Counter()
    for change, count in expected_changes(Recording(recording(RING))).items():
        table, _, reported = msgspec.json.decode(change)
        found[table, reported["operationType"]] += count
    return found


def wanted(operation: str | None = None, table: str | None = None) -> int:
    """Return how many changes there are, of an operation or a table."""
    return sum(
        count
        for (of_table, of_operation), count in justified().items()
        if table in (None, of_table) and operation in (None, of_operation)
    )


def largest_table() -> str:
    """Return the table with the most changes."""
    return max({table for table, _ in justified()}, key=lambda table: wanted(table=table))


def segments(spark: SparkSession, **options: str) -> DataFrame:
    """Return a new frame of the ring's logs."""
    reader = spark.read.format("headrace.segments").options(shard_bytes="1", **options)
    return reader.load(str(recording(RING) / "segments"))


def topic(spark: SparkSession, job: Path, **options: str) -> DataFrame:
    """Return a new frame of the topic."""
    return spark.read.format("headrace.topic").options(job=str(job), **options).load()


def counts(table: str | None = None) -> tuple[int, int, int]:
    """Return how many changes there are, and how many updates and inserts of them."""
    return wanted(table=table), wanted("UPDATE", table), wanted("INSERT", table)


def check_queries(frame: DataFrame, whole: int, updates: int, inserts: int) -> None:
    """Count all, some, all and others of one frame, then of two filtered views joined."""
    assert 0 < updates < whole
    assert 0 < inserts < whole

    assert [whole, updates, whole, inserts, whole] == [
        frame.count(),
        frame.where(UPDATES).count(),
        frame.count(),
        frame.where(INSERTS).count(),
        frame.count(),
    ]
    views = [view.groupBy("operation").count() for view in map(frame.where, (UPDATES, INSERTS))]
    both = views[0].alias("a").crossJoin(views[1].alias("b")).collect()
    assert [("UPDATE", updates, "INSERT", inserts)] == [tuple(row) for row in both]


@pytest.mark.parametrize("shards", ["4", "16"])
def test_segments(filtering: SparkSession, shards: str) -> None:
    """A frame of all tables answers a query as if it were the first, also after others.

    So it does where its tasks read the logs once for all.
    """
    check_queries(segments(filtering, shards=shards), *counts())


def test_the_program_of_the_page(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """What docs/spark.md shows prints the number of changes of each table and operation."""
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    archive = '"/archive/cluster1"'
    assert archive in program
    program = program.replace(archive, repr(str(recording(RING) / "segments")))
    exec(compile(program, str(PAGE), "exec"), {})  # noqa: S102 (what the page tells to run)

    lines = [line.strip("|").split("|") for line in capsys.readouterr().out.splitlines()]
    found = {(row[0].strip(), row[1].strip()): row[2].strip() for row in lines if len(row) == 3}
    assert spark is SparkSession.getActiveSession()
    assert {("table", "operation"): "count"} | {k: str(n) for k, n in justified().items()} == found


def test_segments_of_one_table(filtering: SparkSession) -> None:
    """So does a frame with typed columns."""
    table = largest_table()

    check_queries(segments(filtering, table=table, format="none"), *counts(table))


def test_segments_by_table(filtering: SparkSession) -> None:
    """Filters on table and write time leave the frame as it is, too."""
    frame = segments(filtering)
    table = largest_table()
    of_table = frame.where(f"`table` = '{table}'")

    assert wanted(table=table) == of_table.count()
    assert wanted() == frame.count()
    assert 0 == frame.where("write_time < '1970-01-02'").count()
    assert wanted() == frame.where("write_time >= '1970-01-02'").count() == frame.count()
    assert wanted() == of_table.count() + frame.where(f"`table` <> '{table}'").count()


def test_two_frames_at_once(spark: SparkSession) -> None:
    """The tasks of two frames, in one query, are of two plans: each gets its rows."""
    table = largest_table()
    one, other = (segments(spark, shards="16", table=table, format="none") for _ in range(2))
    both = one.unionByName(other)

    assert [(table, 2 * wanted(table=table))] == both.groupBy("table").count().collect()
    assert (
        wanted(table=table)
        == one.select("mutation", "index").intersect(other.select("mutation", "index")).count()
    )
    assert table == one.limit(1).collect()[0]["table"]


@pytest.mark.spark_few
def test_a_cached_frame(filtering: SparkSession) -> None:
    """A frame cached after a filtered query holds all changes, and a cached view its own."""
    frame = segments(filtering)
    view = frame.where(UPDATES).cache()

    assert wanted("UPDATE") == view.count()
    check_queries(frame.cache(), *counts())
    assert wanted("UPDATE") == view.count()


@pytest.mark.spark_few
def test_views_in_sql(filtering: SparkSession) -> None:
    """Two filtered views in one statement of SQL have their own rows each."""
    segments(filtering).createOrReplaceTempView("changes")
    found = filtering.sql(
        "SELECT (SELECT count(*) FROM changes WHERE operation = 'UPDATE'), "
        "(SELECT count(*) FROM changes), "
        "(SELECT count(*) FROM changes WHERE operation = 'INSERT')"
    ).collect()

    assert (wanted("UPDATE"), wanted(), wanted("INSERT")) == tuple(found[0])


def test_each_log_for_itself(filtering: SparkSession) -> None:
    """Without agreement a frame answers alike before and after a filtered query."""
    frame = segments(filtering, agreement="none")
    before = frame.count()
    some = frame.where(UPDATES).count()

    assert before == frame.count()
    assert wanted() < before
    assert wanted("UPDATE") < some < before


def test_a_topic(filtering: SparkSession, topic_job: Path) -> None:
    """A frame of what a sink wrote answers a query as if it were the first, also of one table."""
    table = largest_table()

    check_queries(topic(filtering, topic_job), *counts())
    check_queries(topic(filtering, topic_job, table=table), *counts(table))


def test_a_table(
    filtering: SparkSession, node: Cassandra, session: Session, tmp_path: Path
) -> None:
    """A frame of a table's rows answers alike: here 30 rows, and static columns of 4 partitions."""
    job = framed_table(tmp_path, node, session)
    reader = filtering.read.format("headrace.table").options(job=str(job), table="framed.t")

    check_queries(reader.load(), 34, 4, 30)


def test_options_narrow(spark: SparkSession) -> None:
    """The options `operations` and `tables` give what the filters give."""
    table = largest_table()

    assert wanted("UPDATE") == segments(spark, operations="UPDATE").count()
    assert wanted(table=table) == segments(spark, tables=table).count()


@pytest.fixture
def frames(topic_job: Path) -> list[Query]:
    """Return the sources that can be read here, each with the columns that name a change."""
    path, names = str(recording(RING) / "segments"), ["`table`", *NAMED]
    table = largest_table()
    return [
        ("headrace.segments", {"path": path}, names),
        ("headrace.segments", {"path": path, "table": table, "format": "none"}, names),
        ("headrace.topic", {"job": str(topic_job)}, names),
        ("headrace.topic", {"job": str(topic_job), "table": table}, names),
    ]


def named_by_worker(options: dict[str, str]) -> list[list[object]]:
    """Return the rows of `frames` that a worker delivers."""
    wanted = by_worker()
    return sorted(
        [table, operation, mutation.hex().upper(), index]
        for table, operation, _, mutation, index in wanted.elements()
        if isinstance(mutation, bytes) and options.get("table") in (None, table)
    )


def test_pruned_columns(filtering: SparkSession, frames: list[Query]) -> None:
    """A query of some columns has the rows of all, with the columns in any order."""
    for name, options, columns in frames:
        frame = filtering.read.format(name).options(**options).load()
        found = frame.selectExpr(*reversed(columns)).collect()
        assert named_by_worker(options) == sorted(list(row)[::-1] for row in found)


@pytest.mark.spark_few
def test_filters_are_not_scoped(spark: SparkSession) -> None:
    """Why no reader of ours takes filters: this Spark keeps those of a query for the next ones.

    If this fails, this Spark gives each query its own filters, and readers of ours may take them.
    """
    spark.dataSource.register(letters())
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = spark.read.format("letters").load()
        counts = [frame.count(), frame.where("letter = 'a'").count(), frame.count()]
    finally:
        spark.conf.unset(PUSHDOWN)

    assert [2, 1, 1] == counts


def letters() -> type[DataSource]:
    """Return a source of two rows whose reader takes filters, as Spark's documentation shows it.

    Its classes are local ones: Spark sends these to its other processes whole.
    """

    class Reader(DataSourceReader):
        wanted: object = None

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
            for each in filters:
                if isinstance(each, EqualTo):
                    self.wanted = each.value
                else:
                    yield each

        def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
            del partition
            return ((each,) for each in "ab" if self.wanted in (None, each))

    class Letters(DataSource):
        @classmethod
        def name(cls) -> str:
            return "letters"

        def schema(self) -> str:
            return "letter string"

        def reader(self, schema: StructType) -> Reader:
            del schema
            return Reader()

    return Letters
