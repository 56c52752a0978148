"""The commands of bulk work where Spark's packages are not installed."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", ["replay", "backfill", "reconcile"])
def test_what_is_missing_is_named(command: str) -> None:
    """Without the extra each command says what to install; the core needs nothing of it."""
    program = (
        "import sys; sys.modules['pyarrow'] = sys.modules['pyspark'] = None\n"
        "from headrace.connector.cli import main\n"
        f"sys.exit(main([{command!r}, 'job.yaml']))"
    )
    child = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert 3 == child.returncode
    assert "error [spark_missing]: pyarrow is not installed" in child.stderr
    assert "pip install 'headrace[spark]'" in child.stderr
