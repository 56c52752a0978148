"""Gaps (I10) of a job whose states are in the store in Cassandra, from its stop to its books."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import SEGMENT_ID
from helpers.jobs.children import RUN, SECONDS_MAX, until
from helpers.logs.gap_jobs import GapJob
from helpers.servers.ports import free_port
from real.ring_jobs import store_on
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real

GAP = f"n1:{SEGMENT_ID}:{END_OFFSET}"


@pytest.fixture
def job(tmp_path: Path, node: Cassandra, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job with three rows in each log."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path, f"job-{uuid.uuid4()}")
    made.keep_states_in(store_on(node, "gaps"))
    made.log(0, range(3))
    return made


def lose(job: GapJob) -> None:
    """Let a log lose a segment that no worker has read; the other two have what it held."""
    job.log(3, range(6, 9), nodes=["n1"])
    job.log(1, range(3, 6), nodes=["n2", "n3"])
    job.log(2, range(6, 9), nodes=["n2", "n3"])
    job.lose("n1", 0)


def states(job: GapJob) -> list[str]:
    """Return what the control records say became of the gap."""
    return sorted(str(notice["state"]) for notice in job.notices())


def test_a_gap_is_accepted(job: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """G08: it stops the job until a user says so; it is listed, audited and in the books."""
    assert 0 == job.run()
    lose(job)
    assert [4, 4] == [job.run(), job.run()]
    assert list(range(3)) == job.rows()[:3]
    capsys.readouterr()
    assert 4 == job.call("gaps", "--json")
    listed = json.loads(capsys.readouterr().out)
    assert [GAP, "open", "possible"] == [listed[name] for name in ("gap", "state", "kind")]
    assert "1-of-2,2-of-2" == listed["splits"]
    assert 2 == job.call("accept", "n1:7:7")

    assert 0 == job.call("accept", GAP)
    assert 0 == job.run()
    assert list(range(9)) == job.rows()
    assert 0 == job.call("gaps")
    assert ["open", "open", "passed", "passed"] == states(job)
    assert ["refused", "done"] == [line["outcome"] for line in job.audit()]
    assert 0 == job.call("verify", "--books")
    assert "gaps: n1 2" in capsys.readouterr().out


@contextmanager
def working(job: GapJob) -> Iterator[None]:
    """Run a worker through the block, which begins by itself nothing again that failed."""
    file = job.folder / "worker.yaml"
    document = yaml.safe_load(job.path.read_text())
    del document["job"]
    document["runtime"] = {"restarts_max": 0}
    file.write_text(yaml.safe_dump(document))
    with (job.folder / "log").open("ab") as log:
        worker = subprocess.Popen(  # noqa: S603 (headrace itself)
            [
                *(sys.executable, "-c", RUN, "worker", str(file)),
                *("--rest", f"127.0.0.1:{free_port()}"),
            ],
            stderr=log,
        )
    try:
        yield
        worker.terminate()
        assert 0 == worker.wait(SECONDS_MAX)
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_goes_on_when_it_is_accepted(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """It learns from the store that splits which it had given up may continue."""
    job.from_statements()
    job.execute(
        f"CREATE DATA_SINK k WITH 'file://{job.folder}/out.jsonl';"
        f"CREATE DATA_SOURCE cdc ON TABLE forged.t WITH k AND job = '{job.name}'"
    )
    assert 0 == job.run()
    lose(job)
    with working(job):
        until(lambda: ["open", "open"] == states(job), "not both splits stop")
        assert list(range(3)) == job.rows()[:3]
        log = job.folder / "log"
        until(lambda: '"again":false' in log.read_text(), "it is not given up")
        assert 0 == job.call("accept", GAP)
        until(lambda: list(range(9)) == job.rows(), "it does not go on")

    capsys.readouterr()
    assert 0 == job.call("gaps")
    assert capsys.readouterr().out.startswith(f"{GAP}\tpassed\texpire\t")
    assert 0 == job.call("verify")
