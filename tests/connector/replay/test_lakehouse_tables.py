"""Runs into tables of Delta Lake and Iceberg, read back by their own libraries."""

import gc
import json
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from headrace.connector.commands.cli import main
from headrace.connector.replay import options
from headrace.connector.replay.errors import LakeMissingError
from headrace.connector.replay.lakehouse_tables import CATALOG_FILE, adopt, lake_of
from headrace.connector.replay.options import check_lake
from headrace.connector.replay.runs import RunTable, ShardState

FILES = 2
LINES = 5
WHOLE = sorted(FILES * list(range(LINES)))
KINDS = ("delta", "iceberg")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a job over two files of lines."""
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        lines = [json.dumps({"file": file, "n": n}) + "\n" for n in range(LINES)]
        (tmp_path / "in" / f"t{file}.jsonl").write_text("".join(lines))
    path = tmp_path / "job.yaml"
    given = {
        "job": "orders",
        "state": "state.db",
        "source": {"plugin": "files", "path": "in/*.jsonl"},
        "sink": {"plugin": "files", "path": "out.jsonl"},
    }
    path.write_text(yaml.safe_dump(given))
    return path


def planned(job: Path, capsys: pytest.CaptureFixture[str], kind: str) -> str:
    """Plan a run into tables; return its name."""
    options = ["--to-folder", "out", "--lake", kind, "--format", "json", "--json"]
    assert 0 == main(["replay", "plan", str(job), *options])
    return str(json.loads(capsys.readouterr().out.splitlines()[-1])["run"])


def execute(job: Path, run: str, verb: str = "run") -> int:
    """Execute or verify a run in this process."""
    return main(["replay", verb, str(job), run, "--master", "none"])


def rows(folder: Path, kind: str) -> list[int]:
    """Return the numbers in all tables, as the library of their kind reads them."""
    out = folder / "out"
    found: list[bytes] = []
    if kind == "delta":
        for log in out.glob("*/_delta_log"):
            found += DeltaTable(log.parent).to_pyarrow_table().column("value").to_pylist()
    else:
        catalog = load_catalog("headrace", type="sql", uri=f"sqlite:///{out}/catalog.db")
        for space in catalog.list_namespaces():
            for name in catalog.list_tables(space):
                found += catalog.load_table(name).scan().to_arrow().column("value").to_pylist()
        catalog.close()
    return sorted(json.loads(value)["n"] for value in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_into_tables(kind: str, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each shard is one commit; another run adds its rows; `verify` reads the tables."""
    run = planned(job, capsys, kind)
    assert 0 == execute(job, run)
    once = rows(job.parent, kind)
    assert 0 == execute(job, run, "verify")
    assert 0 == execute(job, planned(job, capsys, kind))

    assert WHOLE == once
    assert sorted(2 * WHOLE) == rows(job.parent, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_that_is_done_again(
    kind: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was killed before or after a commit adds no row twice when it is repeated."""
    run = planned(job, capsys, kind)
    assert 0 == execute(job, run)
    table = RunTable(job.parent / "state.db")
    table.begin(run, 1, 1)  # As if it had been killed before it stored the end.
    table.close()
    orphan = next((job.parent / "out").glob("*/*-00001-001.parquet"))
    orphan.with_name(orphan.name.replace("-001.", "-009.")).write_bytes(orphan.read_bytes())

    assert 0 == execute(job, run)

    assert WHOLE == rows(job.parent, kind)
    assert not list((job.parent / "out").glob("*/*-009.parquet"))
    assert 0 == execute(job, run, "verify")


@pytest.mark.parametrize("kind", KINDS)
def test_to_commit_again_changes_nothing(
    kind: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Committing the same shard again changes nothing."""
    run = planned(job, capsys, kind)
    execute(job, run)
    folder = job.parent / "out"
    lake = lake_of(kind, folder, "")
    before = [lake.files(table) for table in lake.tables()]

    adopt(lake, folder, run, 1, 1)

    assert before == [lake.files(table) for table in lake.tables()]


def test_the_catalog_is_closed(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a run nor its verification leaves a connection to the catalog open."""
    gc.collect()
    gc.disable()  # It would close what nothing refers to.
    try:
        run = planned(job, capsys, "iceberg")
        assert [0, 0] == [execute(job, run, verb) for verb in ("run", "verify")]
        files = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        names = [link.readlink().name for link in files]
    finally:
        gc.enable()
    assert (job.parent / "out" / CATALOG_FILE).exists()
    assert CATALOG_FILE not in names


def test_what_cannot_be_committed_fails_its_shard(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that cannot be committed to is named, and the shard is not done."""
    run = planned(job, capsys, "delta")
    execute(job, run)
    for log in (job.parent / "out").glob("*/_delta_log/*.json"):
        log.write_text("no JSON")
    run = planned(job, capsys, "delta")

    assert 1 == execute(job, run)
    assert "lake_failed: " in capsys.readouterr().err
    table = RunTable(job.parent / "state.db")
    states = {row.state for row in table.shards(run)}
    table.close()
    assert {ShardState.FAIL} == states


def test_a_lake_needs_a_folder(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--lake` needs a folder, not topics."""
    assert 2 == main(["replay", "plan", str(job), "--lake", "delta"])
    assert "give --to-folder" in capsys.readouterr().err


def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error names it."""
    monkeypatch.setattr(options, "find_spec", lambda _: None)

    with pytest.raises(LakeMissingError, match="deltalake is not installed") as error:
        check_lake("delta")
    assert "pip install -e '.[delta]'" in error.value.hint
