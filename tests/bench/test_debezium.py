"""`python -m bench.debezium` where Debezium's jars are not to be had."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_without_its_jar_it_says_why_and_measures_nothing(tmp_path: Path) -> None:
    """The reason is printed, the status is 0, and no result is written."""
    environment = dict(os.environ) | {
        "PATH": str(tmp_path),  # No Maven.
        "JAVA_HOME": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT / "tests"),
    }
    results = tmp_path / "results"
    done = subprocess.run(  # noqa: S603 (ours)
        [sys.executable, "-m", "bench.debezium", "--results", str(results)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("skipped: mvn is not on the PATH")
    assert not results.exists()
