"""What a job does with its ring, on the command line: it is refused, or kept in the store."""

import json
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.sources.cassandra.ring.topology import Topology
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.gap_jobs import NODES, GapJob

EAST = {node: {"path": node, "dc": "east"} for node in NODES}
TWO = EAST | {"n3": {"path": "n3", "dc": "west"}}
QUARTER = 1 << 62


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job with something to read."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path)
    made.log(0, range(3))
    return made


def replicate(job: GapJob, said: str) -> None:
    """Let the schema have *said* as replication; without *said*, no keyspace."""
    path = job.folder / "schema.cql"
    made = f"CREATE KEYSPACE forged WITH replication = {said};" if said else ""
    path.write_text(re.sub("CREATE KEYSPACE.*;", made, path.read_text()))


@pytest.mark.parametrize(
    ("said", "source", "expected"),
    [
        ("", {}, "[topology]: keyspace forged: the schema has its tables, but not the keyspace"),
        (
            "{'class': 'SimpleStrategy', 'replication_factor': 'many'}",
            {},
            "[topology]: keyspace forged: replication {'class': 'SimpleStrategy', ",
        ),
        (
            "{'class': 'LocalStrategy'}",
            {},
            "[topology]: keyspace forged: replication {'class': 'LocalStrategy'} is not",
        ),
        (
            "{'class': 'SimpleStrategy', 'replication_factor': 2}",
            {},
            "[topology]: keyspace forged: 3 nodes but replication factor 2",
        ),
        (
            "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 3}",
            {"nodes": EAST},
            "[topology]: keyspace forged: level QUORUM needs the logs of all data centres",
        ),
        (
            "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': -1}",
            {"nodes": EAST},
            "[topology]: keyspace forged: replication {'class': 'NetworkTopologyStrategy', 'east'",
        ),
        (
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}",
            {"nodes": EAST},
            "[topology]: keyspace forged: replication {'class': 'NetworkTopologyStrategy', 'repl",
        ),
        (
            "{'class': 'NetworkTopologyStrategy', 'north': 3}",
            {"nodes": EAST},
            "[topology]: keyspace forged: level QUORUM needs 2 of 3 copies, the job reads 0",
        ),
        (
            "{'class': 'NetworkTopologyStrategy', 'east': 2, 'west': 1}",
            {"nodes": TWO, "consistency": "LOCAL_QUORUM"},
            "[config]: datacenter: is required for LOCAL_QUORUM",
        ),
        (
            "{'class': 'NetworkTopologyStrategy', 'east': 3}",
            {"nodes": EAST, "consistency": "LOCAL_QUORUM", "datacenter": "west"},
            "[config]: datacenter: no node is in west",
        ),
    ],
    ids=[
        "no keyspace",
        "no number",
        "another strategy",
        "no tokens",
        "a centre without nodes",
        "fewer than no copies",
        "no centre is named",
        "no node in the centre",
        "which centre",
        "unknown centre",
    ],
)
def test_an_unknown_replication_is_refused(
    job: GapJob,
    capsys: pytest.CaptureFixture[str],
    said: str,
    source: dict[str, object],
    expected: str,
) -> None:
    """A job with unknown replication publishes nothing, and ends with status 2."""
    replicate(job, said)
    job.change(**source)

    assert 2 == job.run()
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith(f"error {expected}")]
    assert not (job.folder / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({"n1": "n1", "n2": "n2", "n3": "link"}, "nodes.n3: is the directory of n1"),
        (
            {"n1": {"path": "n1", "host": "::1"}, "n2": {"path": "n2", "host": "::1"}},
            "source.nodes.n2.host: ::1 is n1 already",
        ),
        (
            {"n1": {"path": "n1", "host": "n2"}, "n2": "n2"},
            "source.nodes.n2.host: n2 is n1 already",
        ),
        (
            {"n1": {"url": "https://n1:9142"}, "n2": {"url": "https://n1:9142/"}},
            "nodes.n2: is the directory of n1",
        ),
    ],
    ids=["a link", "one host", "a host that is a name", "one agent"],
)
def test_one_log_never_counts_as_two(
    job: GapJob, capsys: pytest.CaptureFixture[str], nodes: dict[str, object], expected: str
) -> None:
    """A log that is given twice is refused by name: one copy would satisfy QUORUM."""
    (job.folder / "link").symlink_to("n1")
    job.change(nodes=nodes)

    assert 2 == job.run()
    (line,) = (each for each in capsys.readouterr().err.splitlines() if each.startswith("error "))
    assert line.endswith(expected)


@pytest.mark.parametrize("level", ["ONE", "QUORUM", "ALL"])
def test_logs_of_each_data_centre_are_needed(
    job: GapJob, capsys: pytest.CaptureFixture[str], level: str
) -> None:
    """Logs of every data centre are needed, unless LOCAL_QUORUM needs those of one only."""
    replicate(job, "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 1}")
    ring = {node: {"tokens": [place], "dc": "east"} for place, node in enumerate(NODES)}
    ring |= {"n9": {"tokens": [QUARTER], "dc": "west"}}
    (job.folder / "ring.yaml").write_text(yaml.safe_dump(ring))
    job.change(topology="ring.yaml", consistency=level)

    assert 2 == job.run()
    expected = f"keyspace forged: level {level} needs the logs of all data centres; none is given"
    assert f"error [topology]: {expected} of west" in capsys.readouterr().err
    job.change(consistency="LOCAL_QUORUM", datacenter="east")
    assert 0 == job.run()
    assert [0, 1, 2] == job.rows()


@pytest.mark.parametrize(
    ("names", "not_in_ring", "not_read"),
    [
        (("n1", "n2"), ["n3"], []),
        (("n1", "n2", "n3", "n4"), [], ["n4"]),
        (("n1", "n2", "N3"), ["n3"], ["N3"]),
    ],
)
def test_a_node_that_is_not_in_the_job_is_named(
    job: GapJob,
    capsys: pytest.CaptureFixture[str],
    names: Sequence[str],
    not_in_ring: Sequence[str],
    not_read: Sequence[str],
) -> None:
    """A node that is not in the job is named once; what the other nodes agree on is published."""
    ring = {node: {"tokens": [place]} for place, node in enumerate(names)}
    (job.folder / "ring.yaml").write_text(yaml.safe_dump(ring))
    job.change(topology="ring.yaml")

    assert 0 == job.run()
    lines = capsys.readouterr().err.splitlines()
    (reported,) = (json.loads(each) for each in lines if '"ring_differs"' in each)
    assert (not_in_ring, not_read) == (reported["not_in_ring"], reported["not_read"])
    assert [0, 1, 2] == job.rows()


def test_versions_of_the_ring_are_in_the_store(job: GapJob) -> None:
    """Each split stores the previous ring beside the new one, and when it was replaced."""
    ring = {node: {"tokens": [place * QUARTER]} for place, node in enumerate(NODES, start=-1)}
    moved = ring | {"n3": {"tokens": [QUARTER // 2]}}
    job.change(topology="ring.yaml")
    for number, each in enumerate((ring, moved), start=1):
        (job.folder / "ring.yaml").write_text(yaml.safe_dump(each))
        job.log(number, range(3 * number, 3 * number + 3))
        assert 0 == job.run()

    with closing(SqliteStore.open(job.folder / "state.db", job.name)) as store:
        states = [CdcState.decode(each.position) for each in store.states() if each.position]
    assert 2 == len(states)
    for state in states:
        kept = {
            Topology.decode(each.chunk.rows).nodes[-1].tokens[0]: each.superseded is None
            for each in state.topologies
        }
        assert {QUARTER // 2: True, QUARTER: False} == kept
