"""Modes that are asked for while two workers share the splits of a job."""

import sys
from contextlib import closing
from pathlib import Path

import pytest
import structlog
import yaml

from headrace.connector.control.modes import JobModes
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins.stores.kept_modes import ALL_LOGS
from helpers.jobs.children import until
from helpers.jobs.live_worker import delivered, working
from helpers.logs.live_log import LiveLog

SPLITS = 2
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


def test_each_owner_answers(tmp_path: Path) -> None:
    """A request succeeds once both have it; then each reads as the log is written."""
    log, state = LiveLog(tmp_path / "node"), tmp_path / "state.db"
    job = tmp_path / "job.yaml"
    document = {
        "job": "job",
        "state": str(state),
        "source": {"plugin": "cassandra", **log.source(splits=SPLITS)},
        "sink": {"plugin": "null"},
        "runtime": {"lease_seconds": 3, "commit_max_seconds": 0.1},
    }
    job.write_text(yaml.safe_dump(document))
    events = structlog.stdlib.get_logger()

    with working(job, events), working(job, events):
        until(state.exists, "there is no state")
        with (
            closing(open_notes(state)) as notes,
            closing(SqliteStore.open(state, "job")) as store,
        ):
            until(
                lambda: len({lease.owner for lease in store.leases()} - {""}) == SPLITS,
                "they do not share",
            )
            modes = JobModes(notes)
            for number, mode in enumerate(("realtime", "log", "realtime"), 1):
                request = modes.ask("job", mode, node=ALL_LOGS, places={}, now_ms=number)

                def outcome(request: int = request) -> set[str]:
                    found = [c for c in modes.changes("job") if c.request == request]
                    return {f"{c.node} {c.outcome}" for c in found}

                until(lambda: {"node succeeded"} == outcome(), "it did not succeed")
                shown = [(each.node, each.mode, each.splits) for each in modes.modes("job")]
                assert [("node", mode, SPLITS)] == shown
                log.append(6)
                log.sync()
                until(lambda: delivered(state, "job") == log.synced, "not all came")
