"""`headrace status` over a job on forged logs."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main
from headrace.connector.commands.health import status
from headrace.connector.commands.health.columns import columns_text
from headrace.connector.foundation.processes import this_process
from headrace.connector.foundation.states import Observed
from headrace.connector.stores import Seen
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins.amounts import size_text, span_text
from helpers.logs.gap_jobs import GapJob


def test_one_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job's file gives its state, its lag and its disks; a live worker makes it well."""
    made = GapJob(tmp_path)
    made.log(1, range(5))
    assert 0 == made.run()
    made.log(2, range(5, 9))
    capsys.readouterr()
    assert status.TROUBLED_STATUS == made.call("status")
    screen = capsys.readouterr().out
    assert f"start it: headrace run {made.path}" in screen
    with closing(SqliteStore.open(tmp_path / "state.db", made.name)) as store:
        owner = this_process()
        store.enroll(owner)
        store.claim(owner.worker, store.leases(), 10_000)
        states = dict.fromkeys(("1-of-2", "2-of-2"), Observed.RUNNING)
        store.see(
            [Seen(split=s, state=o, generation=0, worker=owner.worker) for s, o in states.items()]
        )
    assert 0 == made.call("status", "--json")
    found = json.loads(capsys.readouterr().out)

    (source,) = found["sources"]
    assert ("orders", "files", "RUNNING", 2) == (
        *(source[key] for key in ("name", "sink", "state", "running")),
    )
    assert [f"node=n{n}" for n in (1, 2, 3)] == [log["log"] for log in found["logs"]]
    size = sum(path.stat().st_size for path in (tmp_path / "n1").iterdir() if path.is_file())
    assert size == found["logs"][0]["space"]["used_bytes"]
    assert 0 < found["logs"][0]["behind_bytes"] < size
    assert 3 * found["logs"][0]["behind_bytes"] == source["lag_bytes"]
    assert f"{size_text(found['logs'][0]['behind_bytes'])} in 1 file" in screen


def test_watch_ends_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows the screen again after two seconds, and Ctrl-C ends it with 0."""
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr("headrace.connector.commands.health.status.time.sleep", wait)
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state.db"))
    assert 0 == main(
        ["exec", "--state", str(tmp_path / "state.db"), "-e", "CREATE DATA_SINK a WITH 'null://'"]
    )
    assert 0 == main(["status", "--watch"])

    assert [2.0, 2.0] == waited
    screens = capsys.readouterr().out.split(f"{tmp_path / 'state.db'}: ")[1:]
    assert ["1 to look at: no data source is defined"] * 2 == [s.splitlines()[0] for s in screens]


def test_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a state is an error of its own, which names how one is made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_STATE", raising=False)

    assert 2 == main(["status"])
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("size", "expected"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (40 << 30, "40 GiB")]
)
def test_sizes(size: int, expected: str) -> None:
    """A size has the largest unit of which there is one."""
    assert expected == size_text(size)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (2.25, "2.2 s"),
        (59, "59 s"),
        (90, "1.5 min"),
        (36_000, "10 h"),
        (1e9, "over a year"),
    ],
)
def test_spans(seconds: float, expected: str) -> None:
    """A time has the largest unit of which there is one."""
    assert expected == span_text(seconds)


def test_columns() -> None:
    """Columns are as wide as their widest cell; nothing in them can act on a terminal."""
    text = columns_text(["A", "B"], [["世界", "x"], ["", "y\x1b[2J"]])

    assert ["A     B", "世界  x"] == text.splitlines()[:2]
    assert "\x1b" not in text
    assert "" == columns_text(["A"], [])
