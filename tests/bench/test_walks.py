"""The walks are traced, and none is longer than it may be."""

import subprocess
import sys

from helpers.settings.native_modules import ROOT

SECONDS_MAX = 300
WALKS = [
    "mutation to commit",
    "start to first command",
    "two CREATE statements",
    "idle pass over 8 splits",
]


def walks(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `bench.walks` in a process of its own, whose modules are interpreted."""
    return subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-m", "bench.walks", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


def test_no_walk_is_longer_than_its_bound() -> None:
    """Each walk is printed with its files, entries and bound; the status is 0."""
    child = walks()

    assert (0, "") == (child.returncode, child.stderr)
    rows = {line[:34].strip(): line[34:].split() for line in child.stdout.splitlines()[1:]}
    assert WALKS == list(rows)
    for files, entries, bound, *_ in rows.values():
        assert 0 < int(files) <= int(entries) <= int(bound)


def test_a_walk_beyond_its_bound_is_an_error() -> None:
    """The status is 1, the walk is named, and the list says where it goes."""
    child = walks("--most", "1", "--list", "--walk", WALKS[0])

    assert 1 == child.returncode
    (alarm,) = child.stderr.splitlines()
    assert alarm.startswith(f"alarm: {WALKS[0]}: ")
    assert alarm.endswith(" entries, 1 are allowed")
    entries = [line.split() for line in child.stdout.splitlines() if line.startswith("    ")]
    assert ["connector/runtime/splits/ledger.py", "Ledger.add"] in entries
    # The interpreter runs it; compiled calls are not seen.
    assert ["sources/cassandra/agreement/intake.py", "Intake.run"] in entries
