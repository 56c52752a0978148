"""The benchmarks run. What they measure is for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path

from helpers.settings.native_modules import ROOT

SECONDS_MAX = 600  # Some 50 processes, on a machine that may be busy.


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module with arguments in a process of its own."""
    return subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


def test_quick(tmp_path: Path) -> None:
    """Every figure is kept with all runs of it, three for the sink's, and with its machine."""
    child = run("bench", "--quick", "--results", str(tmp_path))

    assert (0, "") == (child.returncode, child.stderr), child.stderr
    (path,) = tmp_path.iterdir()
    kept = json.loads(path.read_text())
    assert {"compiled", "cores", "processor", "python"} <= kept["machine"].keys()
    runs = {figure["title"]: len(figure["runs"]) for figure in kept["figures"]}
    assert runs == {title: 3 if "the sink adds" in title else 1 for title in runs}
    assert all(figure["title"] in child.stdout for figure in kept["figures"])


def test_a_probe_has_a_process_of_its_own() -> None:
    """As `make bench` starts it; `--quick` forks instead."""
    child = run("bench.probes", "fold", '{"columns": 2}')

    assert (0, "") == (child.returncode, child.stderr), child.stderr
    assert {"cells", "cpu_ns"} == json.loads(child.stdout).keys()


COMPLAINTS = """
from bench.figures import Figure
from bench.reporting import complaints

figures = [
    Figure("fast", "ns", [90, 120], {}, goal=100, alarm=110),
    Figure("slow", "ns", [101, 120], {}, goal=100, alarm=110),
    Figure("alarming", "µs", [111, 120], {}, goal=100, alarm=110),
    Figure("free", "µs", [5], {}),
]
print(*complaints(figures, goals=False), "and", *complaints(figures, goals=True), sep=chr(10))
"""


def test_goals_are_complaints_when_asked_for() -> None:
    """As alarms always are; a figure that met its goal in one run, or has none, is not one."""
    reported = subprocess.run(  # noqa: S603 (our own interpreter; the tests cannot import `bench`)
        [sys.executable, "-c", COMPLAINTS],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    ).stdout.splitlines()

    alarm = "alarm: alarming: 111 µs at the least, at most 110 is allowed"
    assert [
        alarm,
        "and",
        alarm,
        "goal: slow: 101 ns at the least, at most 100 is the goal",
        "goal: alarming: 111 µs at the least, at most 100 is the goal",
    ] == reported
