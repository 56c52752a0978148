"""The Sidecar's paths configure a running job, and stop it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.control.commands import Commands
from headrace.connector.control.service import ControlService
from headrace.connector.control.services import ROUTE
from headrace.connector.foundation.states import Observed
from headrace.connector.language.statements import Show, Subject
from headrace.connector.rest.server import RestServer
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.testing.doubles import context
from helpers.jobs.shells import lookout_on
from helpers.recordings.corpora import recording
from helpers.servers.rest_server import Client, RestWorker, eventually, serving, supervised

WORKER = """\
state: state.db
source:
  plugin: cassandra
  nodes: {{n1: {{path: {folder}/segments, dc: here}}, n2: {{path: {folder}/none, dc: there}}}}
  schema: {folder}/schema.cql
  consistency: ONE
  splits: 2
runtime: {{tick_min_ms: 5, lease_seconds: 0.6, restart_pause_seconds: 0.1}}
"""
CDC = {"topic": "changes", "log_only": "true", "datacenter": "here"}
PATH = "/api/v1/services/{}/config"


@pytest.fixture
def sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestWorker]:
    """Return a worker over a recorded node that serves the Sidecar's paths alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worker.yaml").write_text(WORKER.format(folder=recording("5.0-ops")))
    state = tmp_path / "state.db"
    server = RestServer(state, log=context().log)
    with (
        closing(open_notes(state)) as notes,
        serving(server, services_only=True) as address,
        supervised(tmp_path / "worker.yaml", state),
    ):
        yield RestWorker(tmp_path, Client(address.port), Commands(notes))


def wait(worker: RestWorker, state: Observed, generation: int = 0) -> None:
    """Wait until the job is in *state*, and its splits run *generation*."""
    for _ in eventually():
        status = worker.commands.statuses().get(ROUTE)
        runs = {split.generation for split in status.splits} if status else set()
        if status and status.state is state and (not generation or runs == {generation}):
            return
    raise AssertionError(status)


def test_configures_a_running_job(sidecar: RestWorker) -> None:
    """PUT starts the job and changes it while it runs; DELETE stops it, and positions stay."""
    client = sidecar.client
    assert {"config": {}} == client("GET", PATH.format("cdc")).json
    assert 200 == client("PUT", PATH.format("cdc"), {"config": CDC}).status
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    assert {"config": kafka} == client("PUT", PATH.format("kafka"), {"config": kafka}).json
    wait(sidecar, Observed.RUNNING)
    changed = {**CDC, "micro_batch_delay_millis": "10"}
    assert 200 == client("PUT", PATH.format("cdc"), {"config": changed}).status
    wait(sidecar, Observed.RUNNING, sidecar.commands.statuses()[ROUTE].generation)
    assert {"cdc": changed, "kafka": kafka} == client("GET", "/api/v1/services").json["services"]
    assert 200 == client("DELETE", PATH.format("cdc")).status
    wait(sidecar, Observed.STOPPED)
    assert {"config": {}} == client("GET", PATH.format("cdc")).json
    assert 404 == client("DELETE", PATH.format("cdc")).status
    assert 200 == client("PUT", PATH.format("cdc"), {"config": CDC}).status
    wait(sidecar, Observed.RUNNING)


def test_only_these_paths(sidecar: RestWorker) -> None:
    """The Sidecar's port serves nothing else."""
    assert 404 == sidecar.client("GET", "/connectors").status
    assert 404 == sidecar.client("GET", PATH.format("none")).status
    assert 400 == sidecar.client("PUT", PATH.format("cdc"), {"config": {"x": "y"}}).status
    assert 400 == sidecar.client("PUT", PATH.format("cdc"), CDC).status


def test_lists_cope_with_the_job_of_services(sidecar: RestWorker) -> None:
    """Every SHOW has the job of the services among the others, and every list of REST answers."""
    for name, config in (("cdc", CDC), ("kafka", {"bootstrap.servers": "127.0.0.1:1"})):
        assert 200 == sidecar.client("PUT", PATH.format(name), {"config": config}).status
    wait(sidecar, Observed.RUNNING)
    state = sidecar.folder / "state.db"
    with closing(ControlService.open(state)) as service:
        for _ in eventually():
            offsets = service.execute(Show(subject=Subject.OFFSETS)).rows
            if offsets:
                break
        status, splits, lag, errors = (
            service.execute(Show(subject=subject)).rows
            for subject in (Subject.STATUS, Subject.SPLITS, Subject.LAG, Subject.ERRORS)
        )

    assert [(ROUTE, "RUNNING")] == [(row[0], row[4]) for row in status]
    assert [ROUTE] * 2 == [row[0] for row in splits]
    assert {(ROUTE, "1-of-2"), (ROUTE, "2-of-2")} == {row[:2] for row in offsets}
    assert [(ROUTE, "node=n1", "")] == [(*row[:2], row[-1]) for row in lag]
    assert [] == list(errors)
    assert "1 RUNNING" == lookout_on(state).health()
    with serving(RestServer(state, log=context().log)) as address:
        client = Client(address.port)
        paths = ("/connectors", "/connectors?expand=status&expand=info", "/api/v1/sources")
        assert [200] * 3 == [client("GET", path).status for path in paths]
        assert 404 == client("GET", f"/connectors/{ROUTE}/status").status
        assert (200, []) == ((ready := client("GET", "/readyz")).status, ready.json["reasons"])
