"""The demo as a user runs it, and the ways in which it must fail."""

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from headrace.connector.foundation.processes import COMMAND
from helpers.jobs.children import SECONDS_MAX, until
from helpers.recordings.corpora import recording
from helpers.settings.leftovers import MARK, processes_of, spotless


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return an environment for a demo, and see that it leaves no process and no file."""
    with spotless(tmp_path / "tmp") as made:
        yield made


def demo(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end."""
    return subprocess.run(  # noqa: S603 (headrace itself)
        [*COMMAND, "demo", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_it_passes_on_the_bundled_ring(environment: dict[str, str], tmp_path: Path) -> None:
    """The consumer has exactly the 6,451 justified changes, and the books balance."""
    done = demo(environment, "--keep", str(tmp_path / "kept"))

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.splitlines()[1] == "6,451 changes, each once; 0 lost"
    assert re.search(r"^  copies dropped  +12,\d{3}$", done.stdout, re.MULTILINE)
    assert "Next:\n  headrace quickstart " in done.stdout
    assert "consumer            6,451 received, 6,451 justified" in done.stdout
    assert "books               balance" in done.stdout
    summary = json.loads((tmp_path / "kept" / "summary.json").read_text())
    assert summary["run"]["changes"] == 6451
    (again,) = (line for line in done.stdout.splitlines() if "again.yaml" in line)
    assert again.endswith(f"into {tmp_path}/kept/changes.jsonl")
    _, *arguments = shlex.split(again, comments=True)

    second = subprocess.run(  # noqa: S603 (headrace itself)
        [*COMMAND, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )

    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[0] == "6,451 changes, each once; 0 lost"
    changes = (tmp_path / "kept" / "changes.jsonl").read_text().splitlines()
    assert len(changes) == 6451


def test_a_folder_that_is_there_already_is_refused(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """What an earlier demo left is not written over, and the error says so."""
    done = demo(environment, "--keep", str(tmp_path))

    assert 3 == done.returncode
    assert f"error [demo_folder]: {tmp_path}: cannot be made: File exists" in done.stderr


def test_a_byte_flipped_in_one_segment_fails(environment: dict[str, str], tmp_path: Path) -> None:
    """Damage to one copy is not passed over, though two other nodes have the mutation."""
    ring = copytree(recording("5.0-ring"), tmp_path / "5.0-ring")
    with (ring / "oracle.jsonl").open() as lines:
        mutation = json.loads(next(lines))
    (segment,) = ring.glob(f"segments/*/CommitLog-7-{mutation['segment']}.log")
    content = bytearray(segment.read_bytes())
    content[mutation["position"] - mutation["size"] // 2] ^= 1
    segment.write_bytes(content)

    done = demo(environment, "--recording", str(ring))

    assert done.returncode != 0
    assert "error [" in done.stderr


def test_a_withheld_record_fails(environment: dict[str, str]) -> None:
    """A consumer that does not have one record of all fails the demo, and the record is shown."""
    done = demo(environment, "--withhold", "4321")

    assert done.returncode == 1
    assert "1 justified changes were not received" in done.stderr
    assert "missing: [" in done.stderr
    assert "check               FAILED" in done.stdout


def test_a_missing_recording_is_an_error_of_the_environment(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """The error names the path and says what to give instead."""
    done = demo(
        environment, "--recording", str(tmp_path / "none"), "--keep", str(tmp_path / "kept")
    )

    assert done.returncode == 3
    assert f"{tmp_path / 'none'}" in done.stderr
    assert "hint: --recording" in done.stderr
    assert not (tmp_path / "kept").exists()


def test_sigterm_ends_everything(environment: dict[str, str]) -> None:
    """A demo that is asked to stop takes its processes with it."""
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [*COMMAND, "demo"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:
        until(
            lambda: child.poll() is not None or len(processes_of(environment[MARK])) > 1,
            "it started nothing",
        )
        child.send_signal(signal.SIGTERM)

    assert 128 + signal.SIGTERM == child.returncode
