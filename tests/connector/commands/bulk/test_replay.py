"""`headrace replay` over the source of files, without Spark: plan, run, status, verify."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from headrace.connector.commands.cli import main
from headrace.connector.replay.runs import RunTable, ShardState
from helpers.jobs.children import until
from helpers.jobs.deliveries import NO_BROKER
from helpers.logs.forged import TABLE, insert
from helpers.logs.gap_jobs import GapJob

FILES = 5
LINES = 20


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a job over five files of lines, into a file."""
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        lines = [json.dumps({"file": file, "n": n}) + "\n" for n in range(LINES)]
        (tmp_path / "in" / f"{file}.jsonl").write_text("".join(lines))
    path = tmp_path / "job.yaml"
    given = {
        "job": "orders",
        "state": "state.db",
        "source": {"plugin": "files", "path": "in/*.jsonl"},
        "sink": {"plugin": "files", "path": "out.jsonl"},
    }
    path.write_text(yaml.safe_dump(given))
    return path


def planned(job: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Plan a run; return its name."""
    assert 0 == main(["replay", "plan", str(job), "--json", *options])
    return str(json.loads(capsys.readouterr().out)["run"])


def states(job: Path, run: str) -> list[ShardState]:
    """Return the states of a run's shards."""
    table = RunTable(job.parent / "state.db")
    try:
        return [row.state for row in table.shards(run)]
    finally:
        table.close()


def execute(job: Path, run: str) -> int:
    """Execute a run in this process."""
    return main(["replay", "run", str(job), run, "--master", "none"])


def test_a_job_of_statements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--job` names one that statements define; its sink may write where a worker's may, only."""
    made = GapJob(tmp_path)
    made.spread(1, *(insert(b"k%d" % n, b"%c" % n, table=TABLE) for n in range(3)))
    made.from_statements()
    made.execute(
        "CREATE DATA_SINK k WITH 'file://out.jsonl';"
        "CREATE DATA_SOURCE cdc ON TABLE forged.t WITH k AND job = 'others'"
    )
    plan = ["replay", "plan", str(made.path), "--job", "others", "--into-live"]
    assert 0 == main(plan)
    command = capsys.readouterr().out.splitlines()[-1].partition("headrace ")[2].split()
    assert ["--job", "others"] == command[3:5]
    assert 0 == main([*command, "--master", "none"])
    assert [0, 1, 2] == made.rows()

    made.execute("ALTER DATA_SINK k WITH 'file:///elsewhere/out.jsonl'")
    assert 2 == main(plan)
    assert "lies outside the folders for files" in capsys.readouterr().err


def test_a_plan_does_nothing(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan` prints what it found, stores the run, and delivers nothing."""
    assert 0 == main(["replay", "plan", str(job), "--to-folder", "out"])
    text = capsys.readouterr().out

    assert f"{FILES} shards" in text
    assert "into   Parquet files in out" in text
    assert sorted(["in", "job.yaml", "state.db.runs"]) == sorted(
        path.name for path in job.parent.iterdir()
    )


def test_a_plan_says_how_it_is_executed(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line of a plan has the command that executes it."""
    assert 0 == main(["replay", "plan", str(job), "--to-folder", "out"])
    command = capsys.readouterr().out.splitlines()[-1].partition(": headrace ")[2]

    assert 0 == main([*command.split(), "--master", "none"])
    assert FILES * LINES == pq.read_table(job.parent / "out").num_rows


def test_a_plan_refuses_what_a_run_refuses(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Side topics are refused by the plan if the sink has no topics; options are suggested."""
    assert 2 == main(["replay", "plan", str(job)])
    reported = capsys.readouterr().err

    assert (
        "error [config]: --suffix: the job's sink has no topics, so none with .replay" in reported
    )
    assert "hint: give --to-folder, or --into-live\n" in reported
    run = planned(job, capsys, "--into-live")
    assert 0 == execute(job, run)
    assert FILES * LINES == len((job.parent / "out.jsonl").read_text().splitlines())


def test_a_plan_checks_the_folder(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file in the place of the run's folder is named by the plan."""
    (job.parent / "out").write_text("in the way")

    assert 3 == main(["replay", "plan", str(job), "--to-folder", "out/below"])
    assert f"error [target_unwritable]: {job.parent / 'out'}: is not a f" in capsys.readouterr().err


def test_a_plan_checks_the_options_of_every_sink(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A transform that does not exist is refused by the plan."""
    given = yaml.safe_load(job.read_text())
    given["sink"] |= {"transforms": "t", "transforms.t.type": "Nothing"}
    job.write_text(yaml.safe_dump(given))

    assert 2 == main(["replay", "plan", str(job), "--into-live"])
    assert "Nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema.store": "registry", "schema.store.url": "http://h", "format": "json"}, "Avro"),
        ({"compression.type": "zzz"}, "zzz"),
        ({"connect.timeout.ms": 100}, "no broker answered"),
    ],
)
def test_a_plan_opens_the_sink(
    options: dict[str, object], message: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What each shard of the run would fail with is refused by the plan, which adds no run."""
    given = yaml.safe_load(job.read_text())
    given["sink"] = {"plugin": "kafka", "bootstrap.servers": NO_BROKER, "topic": "t", **options}
    job.write_text(yaml.safe_dump(given))

    assert 0 != main(["replay", "plan", str(job)])
    assert message in capsys.readouterr().err
    assert 0 == main(["replay", "status", str(job)])
    assert not capsys.readouterr().out


def test_run_and_status(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify` passes all shards when the files have every line, and its table says so."""
    run = planned(job, capsys, "--to-folder", "out")

    assert 0 == execute(job, run)
    reported = capsys.readouterr().out.splitlines()
    assert f"{FILES} PASS; {FILES * LINES} changes" in reported[0]
    assert f"  into   {job.parent / 'out'}" == reported[1]
    nexts = [line.removeprefix("  next").split()[1:] for line in reported[2:]]
    assert [["replay", "verify"], ["replay", "status"]] == [each[:2] for each in nexts]
    assert 0 == main([*nexts[0], "--master", "none"])
    capsys.readouterr()
    assert FILES * LINES == pq.read_table(job.parent / "out").num_rows
    assert 0 == main(["replay", "status", str(job), run, "--json"])
    shards = json.loads(capsys.readouterr().out)["shards"]
    assert [LINES] * FILES == [shard["delivered"] for shard in shards]
    assert 0 == main(["replay", "status", str(job)])
    assert run in capsys.readouterr().out
    assert 0 == main([*nexts[1][:-1], str(job.with_name("page.html"))])
    page = job.with_name("page.html").read_text()
    assert f"{FILES * LINES} changes into Parquet files in out" in page
    assert "Rate, in changes per second" in page
    assert 2 == main([*nexts[1][:-1], str(job.parent)])
    assert 2 == main(["replay", "status", str(job), "--report", str(job.with_name("page.html"))])
    assert "--report: is about one run" in capsys.readouterr().err


def test_a_failed_shard_is_named_and_the_others_are_done(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shard that cannot be read fails by its number; after a repair only that shard runs."""
    run = planned(job, capsys, "--to-folder", "out")
    victim = job.parent / "in" / "2.jsonl"
    content = victim.read_text()
    victim.unlink()
    victim.mkdir()

    assert 1 == execute(job, run)
    assert "shards 3: 1 of 5 shards failed" in capsys.readouterr().err
    assert [ShardState.FAIL] == [s for s in states(job, run) if s is not ShardState.PASS]
    victim.rmdir()
    victim.write_text(content)
    assert 0 == execute(job, run)
    assert FILES * LINES == pq.read_table(job.parent / "out").num_rows


def test_a_killed_run_continues(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is killed amid a shard leaves no half of it; the next call continues there."""
    run = planned(job, capsys, "--to-folder", "out", "--rate", "40")
    command = ["replay", "run", str(job), run, "--master", "none"]
    program = (
        f"import sys; from headrace.connector.commands.cli import main; sys.exit(main({command!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as child:  # noqa: S603
        until(lambda: states(job, run).count(ShardState.PASS) > 1, "no shard was read", child=child)
        child.send_signal(signal.SIGKILL)

    assert ShardState.NOT_STARTED in states(job, run)
    assert 0 == execute(job, run)
    assert [ShardState.PASS] * FILES == states(job, run)
    assert FILES * LINES == pq.read_table(job.parent / "out").num_rows
    assert not list((job.parent / "out").glob("*/.*"))
    capsys.readouterr()
    assert 0 == main(["replay", "verify", str(job), run, "--master", "none"])


def test_verify_finds_what_is_missing(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that lost rows is DIFF with exit status 4; another `run` repairs it."""
    run = planned(job, capsys, "--to-folder", "out")
    execute(job, run)
    verify = ["replay", "verify", str(job), run, "--master", "none"]
    assert 0 == main(verify)
    victim = next((job.parent / "out").rglob("*-00002.parquet"))
    pq.write_table(pq.read_table(victim).slice(3), victim)

    assert 4 == main(verify)
    assert [2] == [n for n, s in enumerate(states(job, run), 1) if s is ShardState.DIFF]
    assert 0 == execute(job, run)
    assert 0 == main(verify)


def test_verify_finds_other_changes(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with the right number of rows, one of them changed, is DIFF."""
    run = planned(job, capsys, "--to-folder", "out")
    execute(job, run)
    victim = next((job.parent / "out").rglob("*-00002.parquet"))
    rows = pq.read_table(victim)
    other = pa.array([b"another", *[None] * (LINES - 1)], rows.schema.field("key").type)
    pq.write_table(rows.set_column(rows.schema.get_field_index("key"), "key", other), victim)

    assert 4 == main(["replay", "verify", str(job), run, "--master", "none"])
    with closing(RunTable(job.parent / "state.db")) as table:
        problems = [row.report.get("problem", "") for row in table.shards(run)]
    said = f"different: {LINES} changes in its files, {LINES} in the logs, and other ones"
    assert ["", said, "", "", ""] == problems


def half(path: Path) -> None:
    """Truncate a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def another(path: Path) -> None:
    """Replace a file by a table with other columns."""
    pq.write_table(pa.table({"table": ["t"]}), path)


def scribbled(path: Path) -> None:
    """Overwrite 200 bytes near the start of a file; its footer stays."""
    content = path.read_bytes()
    path.write_bytes(content[:30] + bytes(200) + content[230:])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (half, "cannot be read: Parquet magic bytes"),
        (another, "expected a column operation of string, found none"),
        (scribbled, "cannot be read: "),
    ],
)
def test_verify_names_a_broken_file(
    job: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None], said: str
) -> None:
    """A shard with a damaged file is FAIL with exit status 1; another `run` repairs it."""
    run = planned(job, capsys, "--to-folder", "out")
    execute(job, run)
    victim = next((job.parent / "out").rglob("*-00002.parquet"))
    spoil(victim)
    verify = ["replay", "verify", str(job), run, "--master", "none"]

    assert 1 == main(verify)
    reported = capsys.readouterr().err
    assert "shards 2: 1 of 5 shards could not be compared; the first: file_broken: " in reported
    assert f"{victim.name}: {said}" in reported
    assert 0 == execute(job, run)
    assert 0 == main(verify)


def test_a_shard_that_cannot_be_compared_fails(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shard whose source was deleted is FAIL with exit status 1 and the reason."""
    run = planned(job, capsys, "--to-folder", "out")
    execute(job, run)
    victim = job.parent / "in" / "2.jsonl"
    victim.unlink()
    victim.mkdir()

    assert 1 == main(["replay", "verify", str(job), run, "--master", "none"])
    assert "shards 3: 1 of 5 shards could not be compared" in capsys.readouterr().err
    assert 4 == states(job, run).count(ShardState.PASS)
    assert ShardState.FAIL is states(job, run)[2]


def test_one_process_executes_a_run(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second process that executes a run fails, because the first one still executes it."""
    run = planned(job, capsys, "--to-folder", "out")
    with closing(RunTable(job.parent / "state.db")) as table, table.executing(run):
        assert 1 == execute(job, run)
    assert "error [run_busy]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--from", "noon"], 2, "--from: expected a time"),
        (["--to-folder", "o", "--token-range", "1:2"], 2, "cannot be read in part"),
        (["--operations", "MERGE"], 2, "--operations: 'MERGE' is not an operation"),
        (["--keys-file", "nowhere"], 2, "--keys-file: nowhere"),
        (["--tables", " , "], 2, "--tables: expected names, found ' , '"),
        (["--into-live", "--suffix", ".x"], 2, "--suffix: contradicts --into-live"),
        (["--into-live", "--to-folder", "out"], 2, "--to-folder: contradicts --into-live"),
        (["--suffix", ".x", "--to-folder", "out"], 2, "--to-folder: contradicts --suffix"),
        (["--from", ""], 2, "--from: expected a value, found nothing"),
        (["--format", "json"], 2, "--format: is of files in a folder"),
        (["--into-live", "--catalog", "x"], 2, "--catalog: is of Iceberg tables"),
        (["--to-folder", "o", "--lake=delta", "--catalog=x"], 2, "--catalog: is of Iceberg tables"),
        (["--into-live", "--shards", "0"], 2, "--shards: must be at least 1, found '0'"),
        (["--into-live", "--shards", "-1"], 2, "--shards: must be at least 1, found '-1'"),
        (
            ["--into-live", "--shards", "100001"],
            2,
            "--shards: must be at most 100000, found '100001'",
        ),
        (["--into-live", "--after", "yesterday"], 2, "this source knows no position 'yesterday'"),
    ],
)
def test_wrong_plans(
    job: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    status: int,
    message: str,
) -> None:
    """A plan that cannot be made names its option, and leaves no run."""
    assert status == main(["replay", "plan", str(job), *options])
    assert message in capsys.readouterr().err
    assert 0 == main(["replay", "status", str(job)])
    assert "" == capsys.readouterr().out


def test_an_empty_suffix_is_not_the_live_topics(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty suffix, as of a variable that is not set, is refused: it would be the live topic."""
    assert 2 == main(["replay", "plan", str(job), "--suffix", ""])
    assert "--suffix: expected a value, found nothing" in capsys.readouterr().err
    assert 0 == main(["replay", "status", str(job)])
    assert "" == capsys.readouterr().out


def test_unknown_run(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`run` of an unknown run is an error of the command line."""
    assert 2 == execute(job, "replay-1")
    assert "run 'replay-1' does not exist" in capsys.readouterr().err


def test_records_that_cannot_be_made_are_counted(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run delivers the lines that are JSON, and ends with the number of the others."""
    with (job.parent / "in" / "0.jsonl").open("a") as file:
        file.write("no JSON\nnor this\n")
    run = planned(job, capsys, "--into-live")

    assert 0 == execute(job, run)

    out = capsys.readouterr().out
    assert f"{FILES * LINES} changes" in out
    assert "  warning: 2 records were not delivered; the notes say why\n" in out
