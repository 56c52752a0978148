"""The benchmarks run. What they measure is for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path

from hot import ROOT

SECONDS_MAX = 600  # Some 25 processes, on a machine that may be busy.


def test_quick(tmp_path: Path) -> None:
    """Every figure is kept with all runs of it, three for the sink's, and with its machine."""
    child = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-m", "bench", "--quick", "--results", str(tmp_path)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )

    assert (0, "") == (child.returncode, child.stderr)
    (path,) = tmp_path.iterdir()
    kept = json.loads(path.read_text())
    assert {"compiled", "cores", "processor", "python"} <= kept["machine"].keys()
    runs = {figure["title"]: len(figure["runs"]) for figure in kept["figures"]}
    assert runs == {title: 3 if "the sink adds" in title else 1 for title in runs}
    assert all(figure["title"] in child.stdout for figure in kept["figures"])
