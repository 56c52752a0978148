"""Beginning from `cdc_state`: what names a job, and which stores have the table.

Publishing and starting from it are shown on a real node, in tests/real/store/test_cdc_state.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main
from headrace.connector.stores.cassandra.cdc_state import job_of
from headrace.plugins import ConfigError

JOB = """\
job: lines
state: state.db
start: cdc_state:other
source: {plugin: files, path: in.jsonl}
sink: {plugin: files, path: out.jsonl}
"""


@pytest.mark.parametrize(
    ("start", "job"),
    [("cdc_state:orders", "orders"), ("cdc_state:a:b", "a:b"), ("earliest", ""), ("latest", "")],
)
def test_a_start_may_name_a_job(start: str, job: str) -> None:
    """Behind the table's name; all others are places of the source."""
    assert job == job_of(start)


def test_a_start_without_a_job_is_refused() -> None:
    """The name of a table alone is not a place."""
    with pytest.raises(ConfigError, match="start: names no job behind 'cdc_state:'"):
        job_of("cdc_state:")


def test_a_state_file_has_no_such_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job whose store publishes nothing ends before anything is read."""
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "in.jsonl").write_text(json.dumps({"n": 1}) + "\n")

    assert 2 == main(["--log-level", "error", "run", "--until-idle", str(tmp_path / "job.yaml")])

    assert "start: this job's store has no states of others" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_no_driver_is_loaded_without_a_store_in_cassandra() -> None:
    """A worker of files with a state file, and what serves its statements, start without it."""
    program = (
        "import sys\n"
        "import headrace.connector.control.service\n"
        "import headrace.connector.hosting.supervisor\n"
        "import headrace.sources.files, headrace.sinks.files\n"
        "print([name for name in sys.modules if name == 'cassandra.cluster'])"
    )
    child = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert (0, "[]\n", "") == (child.returncode, child.stdout, child.stderr)
