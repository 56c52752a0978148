"""`headrace forge-ring` writes the logs of three nodes, and a list of what it wrote."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.foundation.processes import COMMAND
from headrace.plugins import ConfigError
from headrace.sources.cassandra.forge.ring import Ring, main
from headrace.sources.cassandra.inspect import command
from helpers.jobs.children import SECONDS_MAX

Json = dict[str, Any]  # Any: JSON.


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    """Return a ring that was written to 30 times."""
    with contextlib.closing(Ring(tmp_path, seed=1)) as made:
        write(made, 30)
        yield made


def write(ring: Ring, count: int) -> None:
    """Write, and sync all nodes."""
    for _ in range(count):
        ring.write()
    for node in ring.nodes.values():
        node.sync()


def logged(folder: Path, node: str, capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:  # noqa: ANN401 (JSON)
    """Return the changes in the log of *node*, as the reader finds them."""
    arguments = [str(folder / node), "--schema", str(folder / "schema.cql")]
    assert status == command.main(arguments)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def writes(folder: Path) -> list[Json]:
    """Return the list."""
    return [json.loads(line) for line in (folder / "writes.jsonl").read_text().splitlines()]


def test_each_node_logs_each_write(
    ring: Ring, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The logs have the operations, times and keys of the list, while they are written."""
    wanted = [
        (each["operation"], each["timestampMicros"], each["key"]) for each in writes(tmp_path)
    ]

    assert {"INSERT", "UPDATE"} <= {operation for operation, _, _ in wanted}
    for node in ring.nodes:
        found = logged(tmp_path, node, capsys)
        assert wanted == [(each["op"], each["timestamp"], each["key"]) for each in found]


def test_a_node_that_was_down_gets_hints(
    ring: Ring, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It logs what it missed when it is up again."""
    ring.order(["stop", "node3"])
    write(ring, 5)
    assert 30 == len(logged(tmp_path, "node3", capsys))
    assert 35 == len(logged(tmp_path, "node1", capsys))

    assert "5 hints" in ring.order(["start", "node3"])
    write(ring, 1)
    assert 36 == len(logged(tmp_path, "node3", capsys))


def test_damage_is_of_one_entry_of_one_node(
    ring: Ring, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next entry has a wrong checksum; those before and after it can be read."""
    ring.order(["damage", "node2"])
    write(ring, 3)
    ring.close()

    assert 32 == len(logged(tmp_path, "node2", capsys, 1))
    assert 33 == len(logged(tmp_path, "node1", capsys))


def test_full_segments_are_followed_by_others(
    ring: Ring, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full one is completed; closing the ring completes the last ones."""
    for _ in range(9):
        write(ring, 100)
    ring.close()

    indexes = sorted((tmp_path / "node1").glob("*_cdc.idx"))
    assert len(indexes) > 1
    assert all("COMPLETED" in index.read_text() for index in indexes)
    assert len(writes(tmp_path)) == 930 == len(logged(tmp_path, "node1", capsys))


@pytest.mark.parametrize("words", ["", "stop", "stop node9", "halt node1", "stop node1 now"])
def test_orders_that_are_none(ring: Ring, words: str) -> None:
    """What is expected, and what was found, is the answer; nothing happens."""
    answer = ring.order(words.split())

    assert answer.startswith("expected stop, start, damage and one of node1, node2, node3, found ")
    assert repr(words) in answer
    assert all(node.hints is None for node in ring.nodes.values())


def test_a_folder_that_is_used(tmp_path: Path) -> None:
    """Logs of another ring are not written over; a folder that is missing would be made."""
    (tmp_path / "node1").mkdir()
    with pytest.raises(ConfigError, match="is not empty"):
        main([str(tmp_path)])
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="Not a directory"):
        main([str(tmp_path / "file" / "ring")])
    assert {"node1", "file"} == {each.name for each in tmp_path.iterdir()}


def test_the_command_writes_until_its_input_ends(tmp_path: Path) -> None:
    """It says that it is ready, takes orders, and completes its logs in the end."""
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [*COMMAND, "forge-ring", str(tmp_path), "--per-second", "200"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert "ready\n" == child.stdout.readline()
        child.stdin.write("stop node3\n")
        child.stdin.flush()
        assert "node3 is down" in child.stdout.readline()
        child.communicate(timeout=SECONDS_MAX)

    assert 0 == child.returncode
    assert writes(tmp_path)
    assert 3 == len(list(tmp_path.glob("node*/*_cdc.idx")))
