"""Places and tokens of sources that offer them, and of those that do not."""

from pathlib import Path

import pytest

from headrace.connector.foundation.offered import check_place, located, tokens_of
from headrace.plugins import ConfigError, NotOfferedError, NumberPosition, Split
from headrace.plugins.testing.doubles import MemoryConfig, MemorySource, context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.files import FileSource, FileSourceConfig


def test_every_source_has_its_beginning() -> None:
    """A source whose positions cannot be moved knows `earliest`, and no other place."""
    source = MemorySource(MemoryConfig(splits={"a": []}), context())

    assert located(source, Split("a"), NumberPosition(3), "earliest") is None
    check_place(MemorySource, "earliest")
    with pytest.raises(NotOfferedError, match="MemorySource can begin at `earliest` only"):
        located(source, Split("a"), None, "latest")
    with pytest.raises(NotOfferedError, match="does not offer Relocation"):
        check_place(MemorySource, "latest")


def test_a_source_finds_its_own_places(tmp_path: Path) -> None:
    """One whose positions can be moved is asked for all places."""
    path = tmp_path / "in.jsonl"
    path.write_text("{}\n")
    source = FileSource(FileSourceConfig(path=str(path)), context())
    (split,) = source.plan()

    assert located(source, split, None, "earliest") is None
    assert NumberPosition(3) == located(source, split, None, "latest")
    with pytest.raises(ConfigError, match="knows no position 'noon'"):
        located(source, split, None, "noon")
    with pytest.raises(ConfigError, match="position"):
        check_place(CassandraSource, "no place")


def test_tokens(tmp_path: Path) -> None:
    """Only a source whose splits are ranges of tokens has tokens of a split."""
    memory = MemorySource(MemoryConfig(splits={"1-of-2": []}), context())
    config = CassandraConfig(nodes={"n1": str(tmp_path)}, schema="schema.cql")
    ring = CassandraSource(config, context())
    found = tokens_of(ring, "1-of-2")

    assert tokens_of(memory, "1-of-2") is None
    assert found is not None
    assert (1, -(1 << 63), 0) == (found.number, found.first, found.behind)
