"""What a user of Spark reads when an option of a frame is wrong."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StringType, StructField, StructType

from headrace.connector.replay.frames.mistakes import NO_TRACE
from headrace.connector.replay.frames.sources import (
    HistorySource,
    SegmentSource,
    SinkTarget,
    TableSource,
    TopicSource,
)
from headrace.connector.replay.framing.block_rows import BLOCK_NAMES
from headrace.plugins import ConfigError

COLUMNS = StructType([StructField(name, StringType()) for name in ("table", "key", "value")])


def schema_of(source: DataSource) -> Any:  # noqa: ANN401 (a source's own)
    """Load a frame."""
    return source.schema()


def writer_of(source: DataSource) -> Any:  # noqa: ANN401 (a source's own)
    """Write a frame."""
    return source.writer(COLUMNS, overwrite=False)


def stream_of(source: DataSource) -> Any:  # noqa: ANN401 (a source's own)
    """Read a stream."""
    return source.streamReader(COLUMNS)


def stream_writer_of(source: DataSource) -> Any:  # noqa: ANN401 (a source's own)
    """Write a stream."""
    of_blocks = StructType([StructField(name, StringType()) for name in BLOCK_NAMES])
    return source.streamWriter(of_blocks, overwrite=False)


@pytest.fixture(autouse=True)
def _trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variable of this process back at the end."""
    monkeypatch.setenv(NO_TRACE, "")


@pytest.mark.parametrize(
    ("source", "use", "given", "near"),
    [
        (SegmentSource, schema_of, {"operation": "INSERT"}, "operations"),
        (SegmentSource, stream_of, {"batch_byte": "1", "format": "sink"}, "batch_bytes"),
        (TableSource, schema_of, {"tabel": "k.t"}, "table"),
        (TopicSource, schema_of, {"jobs": "j.yaml"}, "job"),
        (HistorySource, schema_of, {"sinc": "2h"}, "since"),
        (SinkTarget, writer_of, {"sufix": ".copy"}, "suffix"),
        (SinkTarget, stream_writer_of, {"jb": "j.yaml"}, "job"),
    ],
)
def test_an_unknown_option(
    source: type[DataSource],
    use: Callable[[DataSource], object],
    given: dict[str, str],
    near: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each format names it when the frame is loaded, with the option that was probably meant."""
    monkeypatch.delenv(NO_TRACE)
    with pytest.raises(ConfigError) as caught:
        use(source(given))

    (name,) = given.keys() - {"format"}
    assert str(caught.value).startswith(f"{name}: is not an option of ")
    assert str(caught.value).endswith(f"did you mean {near}?")
    assert "1" == os.environ[NO_TRACE]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "jsn"}, "did you mean json?"),
        ({"format": "none"}, "for a `table` only"),
        ({"shards": "many"}, "found 'many'"),
        ({"agreement": "all"}, "expected none, found 'all'"),
        ({"from": "yesterday"}, "expected a time, found 'yesterday'"),
    ],
)
def test_a_wrong_value(given: dict[str, str], message: str) -> None:
    """Values are checked at the load, before the folder is looked at."""
    with pytest.raises(ConfigError, match=message):
        SegmentSource({"path": "/", **given}).schema()


def test_a_sink_is_not_overwritten() -> None:
    """The error says which mode is right; missing columns are another mistake."""
    with pytest.raises(ConfigError, match=r"cannot be overwritten\nhint: mode"):
        SinkTarget({}).writer(COLUMNS, overwrite=True)
    with pytest.raises(ConfigError, match="columns key, table, value are missing"):
        SinkTarget({}).writer(StructType([]), overwrite=False)
