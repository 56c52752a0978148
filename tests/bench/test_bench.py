"""The benchmarks run. What they measure is for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path

from hot import ROOT

SECONDS_MAX = 600  # Some 25 processes, on a machine that may be busy.


def test_quick(tmp_path: Path) -> None:
    """Every figure is measured and kept, each run of it, with the machine it was measured on."""
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
    assert [1] * len(kept["figures"]) == [len(figure["runs"]) for figure in kept["figures"]]
    assert all(figure["title"] in child.stdout for figure in kept["figures"])
