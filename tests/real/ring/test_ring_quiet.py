"""Three real nodes that nothing happens to: the topic has every change once."""

import json
from collections import Counter
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main
from headrace.connector.serde.schemas.lookup import JobSchemas
from real.load import Load, make_tables
from real.ring_jobs import (
    agents,
    directories,
    into,
    job,
    published,
    received,
    selected,
    unlisted,
    wait_for,
)
from real.servers.ring import Ring
from real.stream import Worker

pytestmark = pytest.mark.real

WRITES = 50_000


def test_each_write_comes_once(
    ring: Ring, bootstrap_servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 50,000 at QUORUM with updates, deletions and batches; the fold of them is the table.

    One worker reads directories, the other one the agents of the nodes; they share the splits.
    What a worker repeats because its lease ended, as on a machine that stalls, is in the books.
    """
    with ring.connected() as cluster:
        session = cluster.connect()
        make_tables(session, "quiet")
        load = Load(session, "quiet")
        state = tmp_path / "state.db"
        given = {"state": str(state), "sink": into(bootstrap_servers, "quiet")}
        near = job(ring.contact_points, "quiet", directories(ring.nodes)) | given
        (tmp_path / "near").mkdir()
        (tmp_path / "far").mkdir()
        with agents(ring.nodes, tmp_path) as through:
            far = job(ring.contact_points, "quiet", through) | given
            with Worker(near, tmp_path / "near") as one, Worker(far, tmp_path / "far") as two:
                load.write(WRITES)
                wanted = load.expected.total()
                wait_for(lambda: published(bootstrap_servers, "quiet") >= wanted, "not all came")
                assert (0, 0) == (one.stop(), two.stop())
            with Worker(far, tmp_path / "far", "--until-idle") as again:
                assert 0 == again.wait()
        found = received(bootstrap_servers, "quiet", JobSchemas(state))

        capsys.readouterr()
        assert 0 == main(["verify", str(tmp_path / "far" / "job.yaml"), "--json"])
        counted = sum(json.loads(capsys.readouterr().out)["total"]["repeats"].values())
        assert [] == unlisted(load, found)
        assert Counter() == load.expected - found.facts
        assert counted >= (found.facts - load.expected - load.repeated).total()
        assert selected(load) == found.rows
