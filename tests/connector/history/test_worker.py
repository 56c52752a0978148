"""A history from its CREATE to its end, as a user and a worker have it."""

import json
from pathlib import Path

import pytest
import yaml

from headrace.connector.commands.cli import main as cli_main
from headrace.connector.commands.exec import main as exec_main
from helpers.recordings.batches import source_of

NAME = "4.1-ops"
TABLE = "hazel_patient.onyx_walnut"
CHANGES = 780
CREATE = f"CREATE CDC h ON {TABLE} INCLUDE (CHANGE, POST) WITH seed = 'empty'"
COUNT = "SELECT seq FROM h WHERE CDC_TIME() >= '2026-01-01' LIMIT 10000"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a job that takes its sink and its table from statements."""
    monkeypatch.chdir(tmp_path)
    source = source_of(NAME, splits=2)
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"job": "h", "state": "state.db", "source": source}))
    return path


def execute(statement: str) -> int:
    """Execute a statement beside the job; return the status."""
    return exec_main(["--state", "state.db", "-e", statement])


@pytest.mark.parametrize("files", [1, 3])
def test_a_history_begins_again_after_purge(
    job: Path, capsys: pytest.CaptureFixture[str], files: int
) -> None:
    """Run twice it has each change once; dropped it continues; purged it starts again."""
    create = f"{CREATE} AND files = {files}"

    def counted() -> int:
        capsys.readouterr()
        assert 0 == execute(COUNT)
        return len([json.loads(line) for line in capsys.readouterr().out.splitlines()])

    assert 0 == execute(create)
    for _ in range(2):
        assert 0 == cli_main(["run", str(job), "--until-idle"])
        assert counted() == CHANGES
    assert 0 == execute("DROP CDC h")
    assert 0 == execute(create)
    assert 0 == cli_main(["run", str(job), "--until-idle"])
    assert counted() == CHANGES
    assert 0 == execute("DROP CDC h PURGE")
    assert not list((job.parent / "history").iterdir())
    assert 0 == execute(create)
    assert 0 == cli_main(["run", str(job), "--until-idle"])
    assert counted() == CHANGES


def test_a_history_that_was_lost_is_noticed(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its job does not continue as if nothing had been kept."""
    assert 0 == execute(CREATE)
    assert 0 == cli_main(["run", str(job), "--until-idle"])
    for file in (job.parent / "history").iterdir():
        file.unlink()
    capsys.readouterr()
    assert 0 != cli_main(["run", str(job), "--until-idle"])
    said = capsys.readouterr()
    assert "the sink no longer has the state of this split" in said.out + said.err
    assert "DROP CDC … PURGE" in said.out + said.err
