"""Places in the logs are found by name, time and number; what lies behind them is measured."""

import dataclasses
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins import ConfigError, parse_config
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import write_segment
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.logs.pins import FOLDER
from headrace.sources.cassandra.logs.seek import backlog, located
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from helpers.logs.forged import insert
from helpers.logs.node_logs import batches, forged_nodes

EMPTY = CdcState(0, 0, ("n1", "n2"), ("ks",), {}, {})


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, LogDirectory]:
    """Return two nodes: of n1 two final segments and a live one, of n2 one that is both's."""
    for node, segment_id, size, index, written in [
        ("n1", 5, 100, "100\nCOMPLETED", 1_000),
        ("n1", 6, 200, "200\nCOMPLETED", 2_000),
        ("n1", 7, 400, "300", 3_000),
        ("n2", 6, 50, "50\nCOMPLETED", 1_500),
    ]:
        write_segment(tmp_path / node, bytes(size), segment_id=segment_id, index=index)
        os.utime(tmp_path / node / f"CommitLog-7-{segment_id}.log", (written, written))
    return {node: LogDirectory(tmp_path / node) for node in ("n1", "n2")}


def test_backlog(logs: dict[str, LogDirectory]) -> None:
    """What is left is counted from the marker to what is durable."""

    def left(**markers: Marker) -> list[tuple[int, int]]:
        state = CdcState(0, 0, ("n1", "n2"), ("ks",), markers, {})
        return [(part.size_bytes, part.files) for part in backlog(logs, state)]

    assert [(600, 3), (50, 1)] == [(p.size_bytes, p.files) for p in backlog(logs, None)]
    assert [(600, 3), (50, 1)] == left()
    assert [(560, 3), (50, 1)] == left(n1=Marker(5, 40))
    assert [(300, 1), (0, 0)] == left(n1=Marker(6, END_OFFSET), n2=Marker(6, END_OFFSET))
    assert [(0, 0), (50, 1)] == left(n1=Marker(7, 300))
    assert [(301, 2), (50, 1)] == left(n1=Marker(6, 1_000_000))  # Packed: more than the file has.


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("earliest", {}),
        ("Latest", {"n1": Marker(7, 300), "n2": Marker(6, END_OFFSET)}),
        ("1970-01-01T00:00:00Z", {"n1": Marker(5, 0), "n2": Marker(6, 0)}),
        ("1970-01-01 00:25:00", {"n1": Marker(6, 0), "n2": Marker(6, 0)}),
        ("1970-01-01T02:25:01+02:00", {"n1": Marker(6, 0), "n2": Marker(6, END_OFFSET)}),
        ("2026-01-01", {"n1": Marker(7, 300), "n2": Marker(6, END_OFFSET)}),
        ("7:12", {"n1": Marker(7, 12)}),
        ("n2:6:7", {"n2": Marker(6, 7)}),
        ("n1=5:1, n2=6:2", {"n1": Marker(5, 1), "n2": Marker(6, 2)}),
    ],
)
def test_located(logs: dict[str, LogDirectory], target: str, expected: dict[str, Marker]) -> None:
    """A place moves the logs that it names, and leaves the others where they are."""
    assert expected == located(logs, EMPTY, target).markers


def test_pending_is_booked(logs: dict[str, LogDirectory]) -> None:
    """What was pending before a move is forgotten, and counted."""
    before = CdcState(0, 0, ("n1", "n2"), ("ks",), {}, {"mutations.pending": 3})

    assert 3 == located(logs, before, "earliest").counters["mutations.expired"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere", "is not a position"),
        ("", "is not a position"),
        ("6:0", "is in the logs of n1, n2"),
        ("n3:6:0", "node 'n3' is unknown"),
        ("n2:7:0", "no log of n2 has segment 7"),
        ("8:0", "no log of any node has segment 8"),
        ("6:-1", "is not a position"),
        ("9" * 400 + ":1", "is not a position"),
    ],
)
def test_refused(logs: dict[str, LogDirectory], target: str, message: str) -> None:
    """What is not a place is a named error."""
    with pytest.raises(ConfigError, match=message) as caught:
        located(logs, EMPTY, target)
    assert "position" == caught.value.problems[0].key


@given(st.text() | st.text("0123456789:=,n-TZ "))
def test_any_text(target: str) -> None:
    """Any text is a place or a named error."""
    try:
        located({}, EMPTY, target)
    except ConfigError as error:
        key = error.problems[0].key
    else:
        key = "position"

    assert "position" == key


def test_nothing_there(tmp_path: Path) -> None:
    """A log without segments has nothing behind anything, and starts at its end."""
    (tmp_path / "n1").mkdir()
    logs = {"n1": LogDirectory(tmp_path / "n1")}

    assert [(0, 0)] == [(part.size_bytes, part.files) for part in backlog(logs, None)]
    assert {} == located(logs, EMPTY, "latest").markers


@pytest.mark.parametrize("read_only", [False, True])
def test_a_read_only_source_leaves_nothing(tmp_path: Path, *, read_only: bool) -> None:
    """Who only looks reads the same, and leaves no hold in the directory."""
    nodes = {node: [insert(b"k", b"v")] for node in ("node1", "node2", "node3")}
    config = parse_config(CassandraConfig, forged_nodes(tmp_path, nodes))
    source = CassandraSource(config, dataclasses.replace(context(), read_only=read_only))
    found = list(batches([source.open(split, None) for split in source.plan()]))
    source.close()

    assert 1 == sum(len(list(batch.records())) for batch in found)
    assert read_only is not (tmp_path / "node1" / FOLDER).exists()


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (" latest ", ""),
        ("2026-01-31T12:00:00Z", ""),
        ("123:5", ""),
        ("n1:123:5, n2=7:0", ""),
        ("whenever", "'whenever' is not a position"),
        ("123:5,n:a", "'n:a' is not a position"),
        ("", "'' is not a position"),
    ],
)
def test_what_is_no_place_in_any_log(target: str, problem: str) -> None:
    """It is known without a log, and refused as where there is one."""
    if not problem:
        CassandraSource.check_place(target)
        return
    with pytest.raises(ConfigError, match=problem):
        CassandraSource.check_place(target)
