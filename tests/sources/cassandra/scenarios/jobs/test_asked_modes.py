"""The mode of a job that runs is asked for through each door, and stays after a restart."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main as headrace
from headrace.connector.commands.exec import main as exec_main
from headrace.connector.commands.shell import main as shell_main
from headrace.connector.rest.server import RestServer
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.testing.doubles import context
from helpers.jobs.children import until
from helpers.jobs.live_worker import delivered
from helpers.logs.live_log import LiveLog
from helpers.servers.rest_server import Client, serving, supervised

SOURCE = "DATA_SOURCE cdc ON TABLE forged.t"
PATH = "/api/v1/sources/cdc.forged.t/mode"


class Job:
    """A worker of one job over one live log, and its doors."""

    def __init__(self, folder: Path) -> None:
        """Define the job; nothing runs."""
        self.folder, self.log = folder, LiveLog(folder / "node")
        self.state, self.file = folder / "state.db", folder / "worker.yaml"
        worker = {
            "state": str(self.state),
            "source": {"plugin": "cassandra", **self.log.source()},
            "runtime": {"commit_max_seconds": 0.05, "tick_min_ms": 20},
        }
        self.file.write_text(json.dumps(worker))
        sink = f"CREATE DATA_SINK k WITH 'file://{folder}/out.jsonl'"
        assert 0 == self.execute(f"{sink}; CREATE {SOURCE} WITH k")
        with closing(open_notes(self.state)) as notes:
            (self.name,) = {route.job for route in notes.board.routes()}

    def execute(self, text: str) -> int:
        """Execute statements; return the exit status."""
        return exec_main(["--state", str(self.file), "--format", "jsonl", "-e", text])

    def write(self, count: int) -> None:
        """Let the node write changes, and wait until they are delivered."""
        self.log.append(count)
        self.log.sync()
        until(lambda: delivered(self.state, self.name) == self.log.synced, "it was not delivered")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job that does not run."""
    return Job(tmp_path)


@pytest.fixture
def client(job: Job) -> Iterator[Client]:
    """Return a client of a server beside the job."""
    with serving(RestServer(job.state, log=context().log, file=job.file)) as address:
        yield Client(address.port)


def answers(capsys: pytest.CaptureFixture[str]) -> list[Mapping[str, str]]:
    """Return the rows that were printed."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def outcomes(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, str]]:
    """Return node, mode and outcome of the rows that were printed."""
    return [(row["node"], row["asked"], row["outcome"]) for row in answers(capsys)]


def test_each_door(job: Job, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """Statements, the shell, HTTP and the command ask for modes, and show what became of it."""
    place = ["--state", str(job.file), "--format", "jsonl"]
    with supervised(job.file, job.state):
        job.write(3)
        capsys.readouterr()
        assert 0 == job.execute(f"ALTER {SOURCE} SET MODE = 'realtime' WAIT 20s")
        assert [("node", "realtime", "succeeded")] == outcomes(capsys)
        assert 0 == shell_main([*place, "-e", "SHOW MODE;"])
        (row,) = answers(capsys)
        assert ("cdc.forged.t", "node", "realtime", "realtime", "2/2") == (
            *(row["name"], row["node"], row["mode"], row["asked"], row["splits"]),
        )

        answer = client("PUT", PATH, {"mode": "log"})
        assert (202, "log") == (answer.status, answer.json["changes"][0]["asked"])
        number = answer.json["changes"][0]["request"]

        def last() -> str:
            (newest,) = [
                each
                for each in client("GET", f"{PATH}/changes").json["changes"]
                if each["request"] == number
            ]
            return str(newest["outcome"])

        until(lambda: "succeeded" == last(), "it was never done")
        (mode,) = client("GET", PATH).json["modes"]
        assert ("log", "log", "asked") == (mode["mode"], mode["asked"], mode["reason"])

        on = ["realtime", "on", str(job.file), "--job", job.name, "--json", "--wait", "20"]
        assert 0 == headrace([*on, "--node", "node"])
        assert [("node", "realtime", "succeeded")] == outcomes(capsys)
        assert 1 == headrace([*on, "--node", "nowhere"])
        assert [("nowhere", "realtime", "refused")] == outcomes(capsys)
        job.write(3)

    assert 0 == job.execute("SHOW MODE CHANGES")
    rows = answers(capsys)
    assert ["4", "3", "2", "1"] == [row["request"] for row in rows]
    assert ["refused", *["succeeded"] * 3] == [row["outcome"] for row in rows]
    assert all(row["ended"] for row in rows)
    assert all("position=" in row["from"] for row in rows[1:])
    assert "position=" in rows[1]["to"]


def test_a_restart(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """What is asked for while nothing runs is pending; what was asked for is the mode then."""
    job.execute(f"ALTER {SOURCE} SET MODE = 'realtime'")
    assert [("", "realtime", "pending")] == outcomes(capsys)
    for _ in range(2):
        with supervised(job.file, job.state):
            job.write(3)
            until(lambda: shown(job, capsys) == {"node": "realtime"}, "it was not in realtime")
    job.execute("SHOW MODE CHANGES")
    assert [("node", "realtime", "succeeded")] == outcomes(capsys)


def shown(job: Job, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the mode of each log."""
    capsys.readouterr()
    job.execute(f"SHOW MODE FOR {SOURCE}")
    return {row["node"]: row["mode"] for row in answers(capsys)}


def test_a_wait_that_is_over(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """The outcome is that of the time; a wait that is too long, or none, is an error."""
    assert 0 == job.execute(f"ALTER {SOURCE} SET MODE = 'realtime' WAIT 200ms")
    assert [("", "realtime", "pending")] == outcomes(capsys)
    on = ["realtime", "on", str(job.file), "--job", job.name]
    assert 0 == headrace(on)
    assert 4 == headrace([*on, "--wait", "0.2"])
    for wait, message in (("31s", "waits 30s at most"), ("1x", "not a number")):
        assert 2 == job.execute(f"ALTER {SOURCE} SET MODE = 'log' WAIT {wait}")
        assert message in capsys.readouterr().err
    assert 2 == job.execute(f"ALTER {SOURCE} SET MODE = 'fast'")
    error = capsys.readouterr().err
    assert "mode 'fast' is unknown" in error
    assert "'realtime' or 'log'" in error


def test_http_checks_the_mode(client: Client) -> None:
    """Another mode is refused by the description of the path; an unknown source is 404."""
    assert 400 == client("PUT", PATH, {"mode": "fast"}).status
    assert 404 == client("PUT", "/api/v1/sources/none/mode", {"mode": "log"}).status
    assert 404 == client("GET", "/api/v1/sources/none/mode/changes").status
