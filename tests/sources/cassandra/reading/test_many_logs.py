"""More logs than a pass had turns for: all are read, in one pass if they are small, and it ends."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import yaml

from headrace.plugins import Batch, Demand, Idle, Reader
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.reading import pump
from helpers.jobs.children import JobFolder
from helpers.logs.forged import SCHEMA, insert
from helpers.logs.large_ring import keys, replicas, ring_of, tokens_of
from helpers.logs.node_logs import forged_nodes, open_all, source

LOGS = 40
RING = 600
TURNS = 8  # Of small logs that bring something, in one pass.
DEMAND = Demand(linger_ms=1 << 30, bytes_max=1 << 16)  # Less than half a pass.
WHOLE = "1\nCOMPLETED"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Reader]:
    """Return the readers of two splits over so many empty logs, one copy of which is enough."""
    monkeypatch.setattr(pump, "PASS_BYTES_MAX", TURNS * pump._TURN_BYTES)  # noqa: SLF001 (its unit)
    nodes = {name_of(number): str(tmp_path / name_of(number)) for number in range(LOGS)}
    for path in nodes.values():
        Path(path).mkdir()
    everywhere = SCHEMA.replace("'replication_factor': '3'", f"'replication_factor': '{LOGS}'")
    given = forged_nodes(tmp_path, {}, everywhere) | {
        "nodes": nodes,
        "consistency": "ONE",
        "splits": 2,
    }
    return open_all(source(given))


def name_of(number: int) -> str:
    """Return the name of a node."""
    return f"n{number:02}"


def write(folder: Path, node: int, rows: range, at: int = 0) -> None:
    """Let a node log rows in segment number *at*."""
    raws = [insert(b"k%d" % n, b"%c" % n) for n in rows]
    made = segment([raws], segment_id=SEGMENT_ID + at)
    write_segment(folder / name_of(node), made.content, segment_id=SEGMENT_ID + at, index=WHOLE)


def read(readers: Mapping[str, Reader]) -> tuple[list[str], bool]:
    """Ask each split once; return what was published, and whether more is to be read."""
    came: list[str] = []
    more = False
    for reader in readers.values():
        found = reader.read(DEMAND)
        assert isinstance(found, Batch | Idle)
        more |= found.more
        if isinstance(found, Batch):
            came += [record.document()["columns"]["v"]["value"] for record in found.records()]
    return came, more


def read_all(readers: Mapping[str, Reader], passes_max: int) -> list[str]:
    """Return what is published until nothing is left."""
    came: list[str] = []
    for _ in range(passes_max):
        found, more = read(readers)
        came += found
        if not (found or more):
            return sorted(came)
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("node", [0, TURNS, LOGS - 1])
def test_a_log_behind_many_that_have_nothing_is_read(
    logs: dict[str, Reader], tmp_path: Path, node: int
) -> None:
    """A turn that brings nothing takes no other log's place."""
    write(tmp_path, node, range(3))

    assert ["0x00", "0x01", "0x02"] == sorted(read(logs)[0])
    assert ([], False) == read(logs)


def test_a_log_that_was_read_before_is_read_on(logs: dict[str, Reader], tmp_path: Path) -> None:
    """Neither does one that has nothing more, and whose last entry is older."""
    for node in range(LOGS):
        write(tmp_path, node, range(node, node + 1))
    before = read_all(logs, LOGS)
    write(tmp_path, LOGS - 1, range(LOGS, LOGS + 1), at=1)

    assert [f"0x{n:02x}" for n in range(LOGS)] == before
    assert [f"0x{LOGS:02x}"] == read_all(logs, 4)


def test_what_a_pass_leaves_is_reported(logs: dict[str, Reader], tmp_path: Path) -> None:
    """While logs are unread each answer says that there is more, also where it has nothing."""
    for node in range(LOGS):
        write(tmp_path, node, range(1))
    passes = 0
    while read(logs)[1]:
        passes += 1
        assert passes <= LOGS

    assert passes >= LOGS // TURNS - 1
    assert ([], False) == read(logs)


def last_read(options: Mapping[str, object]) -> str:
    """Return the node whose log a process takes up last that owns all splits."""
    made = source(options)
    for split in sorted(made.plan(), key=lambda each: each.split_id):
        made.open(split, None)
    (*_, last) = made._parts.built().pump.cursors  # noqa: SLF001 (what is open)
    made.close()
    return last.node


@pytest.mark.long
def test_a_run_until_idle_reads_all_logs_of_a_large_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with 600 logs reads one behind 599 that have nothing, too, and ends."""
    monkeypatch.chdir(tmp_path)
    tokens = tokens_of(RING)
    ring = {node: {"tokens": list(owned)} for node, owned in tokens.items()}
    (tmp_path / "ring.yaml").write_bytes(msgspec.yaml.encode(ring))
    (tmp_path / "schema.cql").write_text(SCHEMA)
    for node in tokens:
        (tmp_path / node).mkdir()
    options: dict[str, object] = {
        "nodes": {node: node for node in tokens},
        "schema": "schema.cql",
        "topology": "ring.yaml",
        "consistency": "ONE",
        "splits": 128,
    }
    last = last_read(options)
    owners = ring_of(tokens)
    mine = [key for key in keys("k", 1_500) if last in replicas(owners, key)]
    made = segment([[insert(key) for key in mine]])
    write_segment(tmp_path / last, made.content, index=WHOLE)
    job = {
        "job": "large",
        "state": "state.db",
        "source": {"plugin": "cassandra", **options},
        "sink": {"plugin": "files", "path": "out.jsonl"},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    folder = JobFolder(tmp_path, lambda line: str(line["key"]))

    assert mine
    assert 0 == folder.finish()
    assert len(mine) == sum(folder.changes().values())
