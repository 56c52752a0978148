"""What workers publish, as the committed books of a state say."""

import os
import socket
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.control.console.workers import NO_WORKER, KeptWorkers, WorkerPace
from headrace.connector.control.service import ControlService
from headrace.connector.stores.open_control_store import open_notes
from helpers.jobs.children import until
from helpers.jobs.live_worker import running
from helpers.logs.gap_jobs import GapJob

SOURCE = "CREATE DATA_SOURCE cdc ON TABLE forged.t WITH k AND job = 'orders';"


def test_each_change_counts_once_for_the_worker_of_its_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look has what was committed since the last one, by the worker that has its split."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path)
    job.from_statements()
    job.execute("CREATE DATA_SINK k WITH 'file://out.jsonl';" + SOURCE)
    job.log(1, range(10))
    assert 0 == job.run()
    found: Counter[str] = Counter()
    me = f"{socket.gethostname()}:{os.getpid()}"
    with closing(open_notes(tmp_path / "state.db")) as notes:
        kept, service = KeptWorkers(), ControlService(notes)

        def look() -> Mapping[str, WorkerPace]:
            seen = kept.look(service)
            found.update({name: pace.published for name, pace in seen.items()})
            return seen

        assert {NO_WORKER: WorkerPace(2, 0)} == look()
        job.log(2, range(10, 16))
        with running(job.path):
            until(lambda: bool(look()) and found.total() >= 6, "the others were not seen")
            until(lambda: look().keys() == {me}, "the splits had no worker")
        assert {NO_WORKER: WorkerPace(2, 0)} == look()

    assert 6 == found.total()
