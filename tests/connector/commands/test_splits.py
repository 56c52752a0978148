"""`headrace splits` over a job that ran."""

import json
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.connector.foundation.processes import this_process
from headrace.connector.foundation.states import Observed
from headrace.connector.stores import Seen
from headrace.connector.stores.sqlite.store import SqliteStore
from helpers.logs.gap_jobs import GapJob


def test_splits_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each split has its token range, its last token, its commits and its lag."""
    made = GapJob(tmp_path)
    made.log(1, range(5))
    assert 0 == made.run()
    made.log(2, range(5, 9))
    capsys.readouterr()
    assert 0 == made.call("splits", "--json")
    first, second = map(json.loads, capsys.readouterr().out.splitlines())

    assert ("1-of-2", -(2**63), 0) == (first["split"], first["from"], first["to"])
    assert ("2-of-2", 0, 2**63) == (second["split"], second["from"], second["to"])
    assert (None, 1, True) == (first["owner"], first["token"], first["commits"] > 0)
    assert first["lag"] > 0
    assert 0 == first["rate"]
    assert first["since"] > 0
    assert ("UNASSIGNED", None) == (first["state"], first["reason"])
    assert 0 == made.call("splits")
    head, *lines = capsys.readouterr().out.splitlines()
    assert ("split\tfrom\tto", 2) == (head[:13], len(lines))
    since = dict(zip(head.split("\t"), lines[0].split("\t"), strict=True))["since"]
    assert first["since"] // 1_000 == datetime.fromisoformat(since).timestamp()


def test_splits_of_a_process_that_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a process was killed its splits have no state and no owner."""
    made = GapJob(tmp_path)
    made.log(1, range(5))
    assert 0 == made.run()
    with closing(SqliteStore.open(tmp_path / "state.db", made.name)) as store:
        store.enroll(replace(this_process(), worker="killed", started=1))
        store.claim("killed", store.leases(), 10_000)
        store.see([Seen(split="1-of-2", state=Observed.RUNNING, generation=0, worker="killed")])
    capsys.readouterr()
    assert 0 == made.call("splits", "--json")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [("UNASSIGNED", None)] * 2 == [(split["state"], split["owner"]) for split in found]
