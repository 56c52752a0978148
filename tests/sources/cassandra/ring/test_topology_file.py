"""When the file of the nodes is read, and what a file that cannot be read means."""

from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from headrace.plugins import ConfigError
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.ring.topology import Node
from headrace.sources.cassandra.ring.topology_file import LOOK_MS, TopologyFile

ONE = "a: {tokens: [1], dc: dc1, rack: rack2}\n"
TWO = ONE + "b: {tokens: [2, -3]}\n"
NODES = [Node("a", (1,), "dc1", "rack2"), Node("b", (2, -3))]


def test_a_changed_file_is_seen_at_the_next_look(tmp_path: Path) -> None:
    """It is looked at again when LOOK_MS have passed; one that did not change says nothing."""
    path = tmp_path / "topology.yaml"
    path.write_text(ONE)
    file = TopologyFile(str(path), context())

    assert NODES[:1] == file.changed(7)
    path.write_text(TWO)
    assert file.changed(7 + LOOK_MS - 1) is None
    assert NODES == file.changed(7 + LOOK_MS)
    assert file.changed(7 + 2 * LOOK_MS) is None


@pytest.mark.parametrize("content", [None, "a: {tokens: [1], dc: 7}", "[", ONE + ONE, "{}"])
def test_a_file_that_cannot_be_read_ends_only_the_start(
    tmp_path: Path, content: str | None
) -> None:
    """Later it is reported and changes nothing, until it can be read again."""
    path = tmp_path / "topology.yaml"
    path.write_text(ONE)
    file = TopologyFile(str(path), replace(context(), log=structlog.get_logger()))
    assert file.changed(0)
    path.unlink()
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigError, match="topology"):
        TopologyFile(str(path), context()).changed(0)
    with capture_logs() as logs:
        assert file.changed(LOOK_MS) is None
    assert ["topology_unread"] == [each["event"] for each in logs]
    path.write_text(TWO)
    assert NODES == file.changed(2 * LOOK_MS)
