"""The command line: commands found by name, errors in one form, exit statuses."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import __version__
from headrace.connector.commands.cli import COMMANDS, main
from headrace.connector.commands.help_text import GROUPS
from headrace.plugins import declared_options
from headrace.plugins.discovery import names
from headrace.sinks.files import FileSinkConfig
from helpers.jobs.line_jobs import JOB, write_line_job

# What takes long to import, and is needed neither for a statement nor for a job of files.
SLOW = {"aiohttp", "asyncio", "cassandra.cluster", "confluent_kafka", "opentelemetry", "rich"}
# What statements on a state file do not need either.
UNUSED = {"email", "fastavro", "http.client", "importlib.metadata", "ssl", "yaml"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a job of two files, 30 lines."""
    write_line_job(tmp_path)
    monkeypatch.chdir("/")  # Where the command is started does not matter.
    return tmp_path


def run(folder: Path, *more: str) -> int:
    """Run the job until it is idle."""
    return main(["--log-level", "error", "run", str(folder / "job.yaml"), "--until-idle", *more])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is that of the package."""
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])

    assert f"headrace {__version__}\n" == capsys.readouterr().out


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Built-in commands and those of plugins are listed, each with what it does and an example."""
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    out = capsys.readouterr().out

    rows = [line.split(maxsplit=1) for line in out.splitlines() if re.match("  [a-z]", line)]
    listed = {row[0]: row[1] for row in rows if row[0] in (*COMMANDS, *names("commands"))}
    assert {*COMMANDS, *names("commands")} == listed.keys()
    examples = {
        line.split()[2] for line in out.splitlines() if line.strip().startswith("$ headrace")
    }
    assert listed.keys() == examples
    assert "serve the log of a Cassandra node to workers elsewhere" == listed["agent"]
    assert {"embedded-broker", "forge", "inspect"} <= set(listed)


def test_help_survives_a_broken_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that cannot be imported is listed as such."""
    installed = tmp_path / "broken-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[headrace.commands]\nbroken = no_module:main\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    assert "  broken           cannot be imported\n" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` works for every command."""
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])

    assert f"usage: headrace {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["exec", "--state", "state.db", "-e", "SHOW STATUS"], SLOW | UNUSED),
        (["run", "job.yaml", "--until-idle"], SLOW),
    ],
)
def test_a_command_imports_what_it_needs(
    folder: Path, arguments: list[str], unused: set[str]
) -> None:
    """A statement, and a job of files, start without packages that take long to import."""
    program = (
        "import sys; from headrace.connector.commands.cli import main\n"
        f"print(main({arguments!r}), [name for name in {sorted(unused)} if name in sys.modules])"
    )
    assert 0 == run(folder)

    child = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, cwd=folder
    )

    assert "0 []" == child.stdout.splitlines()[-1], child.stderr


def test_a_worker_starts_without_what_few_need() -> None:
    """What verifies tokens, and what makes pages, is imported only where it is used."""
    program = (
        "import sys, headrace.connector.commands.worker\n"
        "print([n for n in ('aiohttp', 'cryptography', 'jinja2', 'jwt') if n in sys.modules])"
    )
    child = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert "['aiohttp']" == child.stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "status", "first"),
    [
        ([], 2, "usage: headrace ["),
        (["help"], 0, "usage: headrace ["),
        (["help", "run"], 0, "usage: headrace run ["),
    ],
)
def test_help_without_dashes(
    arguments: list[str], status: int, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a command the help is printed, as with `help`."""
    try:
        found = main(arguments)
    except SystemExit as ended:
        found = int(ended.code or 0)
    said = capsys.readouterr()

    assert status == found
    assert (said.err if status else said.out).startswith(first)


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A typo is a configuration error with a suggestion."""
    assert 2 == main(["rum"])
    err = capsys.readouterr().err
    assert "error [config]: 'rum' is not a command\nhint: did you mean run?\n" == err


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("show", "SHOW starts a statement: `headrace shell`, or headrace exec -e '…'"),
        ("snapshot", "SNAPSHOT starts a statement: `headrace shell`, or headrace exec -e '…'"),
        ("xyzzy", r"`headrace --help` lists all \d\d"),
    ],
)
def test_a_word_that_is_not_a_command(
    capsys: pytest.CaptureFixture[str], word: str, hint: str
) -> None:
    """A statement is given to the shell, and dozens of commands are counted, not listed."""
    assert 2 == main([word])
    assert re.fullmatch(
        f"error .config.: '{word}' is not a command\nhint: {hint}\n", capsys.readouterr().err
    )


def test_a_state_of_several_jobs_needs_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hint names the option that takes it, and the command that lists the jobs."""
    (tmp_path / "worker.yaml").write_text("state: s.db\nsource: {plugin: files, path: x}\n")

    assert 2 == main(["gaps", str(tmp_path / "worker.yaml")])

    said = capsys.readouterr().err
    assert "job: is required\nhint: give --job NAME, " in said
    assert "`headrace status` lists the jobs" in said


def test_a_misspelt_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of nearly that name beside it was probably meant."""
    (tmp_path / "worker.yaml").write_text("state: s.db\n")

    assert 2 == main(["run", str(tmp_path / "worker.yml")])
    assert f"hint: did you mean {tmp_path / 'worker.yaml'}?\n" in capsys.readouterr().err
    assert 2 == main(["run", str(tmp_path / "none" / "worker.yml")])
    assert "hint: give the path of a YAML file\n" in capsys.readouterr().err


def test_run_until_idle(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All lines arrive once, however often the job runs; the summary says what happened."""
    summary = folder / "summary.json"

    assert 0 == run(folder, "--summary-json", str(summary))
    assert "30 changes, each once; 0 lost\n" in capsys.readouterr().out
    assert 30 == len((folder / "out.jsonl").read_text().splitlines())
    first = json.loads(summary.read_text())
    assert (30, [], []) == (first["run"]["changes"], first["differences"], first["failures"])
    assert 0 == run(folder, "--summary-json", str(summary))
    assert 30 == len((folder / "out.jsonl").read_text().splitlines())
    second = json.loads(summary.read_text())
    assert 0 == second["run"]["changes"]
    assert first["total"] == second["total"]


def test_changes_are_what_was_delivered(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The summary of a run does not count dead letters as changes."""
    with (folder / "in1.jsonl").open("a") as file:
        file.write("no JSON\n")

    assert 0 == run(folder)

    out = capsys.readouterr().out
    assert re.search(r"^  dead-lettered  +1  headrace dlq list ", out, re.MULTILINE)
    assert "run: 30 changes in " in out


def test_a_run_with_dead_letters_ends_with_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run with dead letters ends with a warning that has their number and the `dlq` command."""
    with (folder / "in1.jsonl").open("a") as file:
        file.write("no JSON\nnor this\n")
    summary = folder / "summary.json"

    assert 0 == run(folder, "--summary-json", str(summary))

    err = capsys.readouterr().err
    assert (
        "warning [records_dead_lettered]: 2 records were not delivered but dead-lettered\n" in err
    )
    assert f"`headrace dlq list {folder / 'job.yaml'}`" in err
    assert 2 == json.loads(summary.read_text())["run"]["dead_lettered"]
    assert 0 == run(folder)
    assert "" == capsys.readouterr().err


def test_errors_have_one_form(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every mistake of a job file has its own line with code, place and key, and its hint."""
    (folder / "job.yaml").write_text(JOB.replace("path: out", "pth: out"))

    assert 2 == run(folder)
    place = folder / "job.yaml"
    known = [each for _, each in declared_options(FileSinkConfig).values() if not each.keys_allowed]
    hint = f"did you mean path? `headrace options files` lists all {len(known)} options"
    expected = f"error [config]: {place}: sink.pth: is not an option\nhint: {hint}\n"
    assert expected in capsys.readouterr().err


def test_all_mistakes_of_a_file_are_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake outside the sections hides none within them: one run reports all of them."""
    wrong = JOB.replace("path: out", "pth: out").replace("state:", "stat:") + "runtime: {tick: 1}\n"
    (folder / "job.yaml").write_text(wrong)

    assert 2 == run(folder)
    said = re.findall(r"^error \[config\]: \S+: ([\w.]+): ", capsys.readouterr().err, re.MULTILINE)
    assert ["runtime.tick", "sink.path", "sink.pth", "stat", "state"] == sorted(said)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("stat: a\n", ["sink.path", "source.path", "stat", "state"]),
        ("runtime: {tick: 1}\n", ["runtime.tick", "sink.path", "source.path", "state"]),
    ],
    ids=["outside of sections", "in a section"],
)
@pytest.mark.parametrize("has_sink", [True, False], ids=["with a sink", "sink from a statement"])
def test_what_is_missing_is_reported_with_the_mistakes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wrong: str,
    expected: list[str],
    *,
    has_sink: bool,
) -> None:
    """Directories and files that are missing, too, so that all can be put right at once."""
    sink = "sink: {plugin: files, path: none/out.jsonl}\n" if has_sink else ""
    source = "source: {plugin: files, path: 'none/*.jsonl'}\n"
    place = tmp_path / "job.yaml"
    place.write_text(f"job: j\nstate: none/state.db\n{source}{sink}{wrong}")

    assert 2 == main(["run", str(place)])
    said = re.findall(r"^error \[config\]: \S+: ([\w.]+): ", capsys.readouterr().err, re.MULTILINE)
    assert [key for key in expected if has_sink or key != "sink.path"] == sorted(said)


def test_failed_split_gives_its_exit_status(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One split fails, the others are committed; the run ends with the status of the error (I8)."""
    run(folder)
    (folder / "in1.jsonl").write_text("")
    with (folder / "in2.jsonl").open("a") as file:
        file.write('{"n": 20}\n')
    capsys.readouterr()

    assert 1 == run(folder)
    err = capsys.readouterr().err
    assert "error [unreadable_file]: in1.jsonl, byte 90: the file is shorter" in err
    assert 31 == len((folder / "out.jsonl").read_text().splitlines())


def test_sink_that_cannot_be_opened(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sink that cannot be opened ends the run with status 3, of the environment."""
    (folder / "job.yaml").write_text(JOB.replace("out.jsonl", "none/out.jsonl"))

    assert 3 == run(folder)
    assert "error [environment]" in capsys.readouterr().err


def test_bug_is_reported_as_one(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of another class is internal: place and trace are printed, its message is not."""
    monkeypatch.setattr("headrace.connector.commands.run.figures_text", "secret")

    assert 1 == run(folder)
    err = capsys.readouterr().err
    assert "/commands/run.py:" in err
    assert ": TypeError in run\nhint: this is a bug of headrace" in err
    assert '"event":"internal_error"' in err
    assert "secret" not in err


EXAMPLES = [example for members in GROUPS.values() for example in members.values()]


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "job.yaml" in e or "options" in e])
def test_examples_of_the_help(
    example: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The examples have arguments that their commands take: what is missing is the job's file."""
    monkeypatch.chdir(tmp_path)
    status = main(example.split()[1:])

    assert ("job.yaml" in example) is (status == 2)
    assert ("job.yaml" in example) is ("job.yaml: cannot be read" in capsys.readouterr().err)
