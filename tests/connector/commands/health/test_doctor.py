"""`headrace doctor` over a job on forged logs."""

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.commands.health.doctor import main
from headrace.connector.control.commands import Commands
from headrace.connector.control.errors import NotAvailableError
from headrace.connector.control.plugins.probe import answer_to
from headrace.connector.control.plugins.probing import Answer, unpacked
from headrace.connector.foundation.processes import this_process
from headrace.connector.language.statements import CreateSink
from headrace.connector.stores import Commit, Loss
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.sqlite.store import SqliteStore
from helpers.logs.gap_jobs import NODES, GapJob


def ask_here(question: Mapping[str, object]) -> Answer:
    """Answer in this process as a child process would."""
    return unpacked(answer_to(question))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job that has never run; the working folder is restored."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path)
    job.log(1, range(3))
    return job


def test_a_job_that_is_well(made: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """Before its first run a job is checked whole; warnings are counted and end with 0."""
    assert 0 == main([str(made.path)], ask=ask_here)
    out = capsys.readouterr().out

    assert "✓ source: can start, with 2 splits" in out
    assert "✓ replicas: forged: the logs of all copies are read" in out
    assert "⚠ nodes: without contact_points no node can be asked\n      fix: give " in out
    assert out.count("can be read") == len(NODES)
    assert out.endswith(f"\n0 failed, 1 warnings, {out.count('✓')} passed\n")
    assert not made.path.with_name("state.db").exists()


def test_what_is_wrong_is_all_reported(made: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """A log and a sink that cannot be used are two failures, each with its fix."""
    made.lose("n1", 1)
    (made.folder / "n1").rename(made.folder / "moved")
    made.deliver({"plugin": "files", "path": "none/out.jsonl"}, {})
    assert 1 == main(["--json", str(made.path)], ask=ask_here)
    found = json.loads(capsys.readouterr().out)

    (job,) = found["jobs"]
    failed = {each["group"]: each for each in job["checks"] if each["result"] == "failed"}
    assert {"job", "disks", "sink 'files'"} == failed.keys()
    assert "n1" in failed["disks"]["message"]
    assert all(failed[group]["fix"] for group in ("job", "disks"))
    assert found["failed"] == len(failed)


def test_all_mistakes_of_a_file(made: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """Each mistake of a job file is a failure, with what was meant."""
    made.change(splits="x", consistence="ONE")
    assert 1 == main([str(made.path)], ask=ask_here)
    out = capsys.readouterr().out

    assert "✗ source.splits: expected a whole number, found 'x'" in out
    assert "✗ source.consistence: is not an option\n      fix: did you mean consistency?" in out


def test_a_state(made: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """The jobs of a state are checked with the files that they ran with; others cannot be."""
    made.from_statements()
    made.execute(
        f"CREATE DATA_SINK f WITH 'file://{made.folder}/out.jsonl'; "
        "CREATE DATA_SOURCE cdc ON TABLE forged.t WITH f AND job = 'orders';"
    )
    state = str(made.folder / "state.db")
    assert 0 == main([state], ask=ask_here)
    assert "⚠ file: the file of job orders is not known" in capsys.readouterr().out
    assert 0 == made.run()
    with closing(SqliteStore.open(made.folder / "state.db", made.name)) as store:
        _lose(store)
    capsys.readouterr()

    assert 0 == main([state], ask=ask_here)
    out = capsys.readouterr().out
    assert "can start, with 2 splits" in out
    assert "⚠ dead letters: 1 quarantined" in out


def _lose(store: SqliteStore) -> None:
    """Commit a loss, with what was committed before."""
    owner = this_process()
    store.enroll(owner)
    token = store.claim(owner.worker, store.leases(), 10_000)["1-of-2"]
    (before,) = [state for state in store.states() if state.split == "1-of-2"]
    lost = Loss(kind="quarantined", table="forged.t", place="x", code="bad_record", message="torn")
    assert before.position is not None
    assert not store.commit(
        [
            Commit(
                split="1-of-2",
                plan=store.plans().in_force.number,
                token=token,
                owner=owner.worker,
                previous=before.seq,
                seq=before.seq + 1,
                position=before.position,
                counters={},
                losses=[lost],
            )
        ]
    )


def test_a_child_that_dies(made: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """When the process of the checks ends, the rest is shown, and it is a failure."""

    def dies(question: Mapping[str, object]) -> Answer:
        raise NotAvailableError("", f"the plugin ended its process: {question['verb']}")

    assert 0 == made.run()
    capsys.readouterr()
    assert 1 == main([str(made.path)], ask=dies)
    out = capsys.readouterr().out
    assert "✗ job: the plugin ended its process: diagnosis" in out
    assert "✓ state: the job is UNASSIGNED" in out


@pytest.mark.parametrize(("has_sink", "expected"), [(False, 2), (True, 1)])
def test_a_state_without_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expected: int, *, has_sink: bool
) -> None:
    """What has to be defined first is a failed check each, with the statement that does."""
    state = str(tmp_path / "state.db")
    with closing(open_notes(Path(state))) as notes:
        if has_sink:
            Commands(notes).create_sink(CreateSink(name="k", uri="null://"))
    assert 1 == main([state])
    out = capsys.readouterr().out
    assert 1 == main(["--json", state])
    found = json.loads(capsys.readouterr().out)

    assert "has no job to check" in out
    assert "✗ source: no data source is defined\n      fix: CREATE DATA_SOURCE" in out
    assert has_sink is not ("CREATE DATA_SINK" in out)
    assert out.endswith(f"{expected} failed, 0 warnings, 0 passed\n")
    assert (expected, []) == (found["failed"], found["jobs"])
    assert expected == len(found["checks"])
