"""The commands of bulk work where Spark's packages are not installed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from headrace.connector.commands.cli import main
from headrace.connector.stores.open_control_store import open_notes

BLOCKED: Final = "deltalake", "faust", "py4j", "pyarrow", "pyiceberg", "pyspark"
HELP: Final = f"""
import json, sys
for name in {BLOCKED}:
    sys.modules[name] = None
from headrace.connector.commands.cli import COMMANDS, main
from headrace.plugins.discovery import names
VERBS = "replay plan", "replay run", "replay status", "replay verify", "replay index"
statuses = {{}}
for line in ("", *COMMANDS, *names("commands"), *VERBS, "replay catch-up"):
    try:
        statuses[line] = main([*line.split(), "--help"])
    except SystemExit as ended:
        statuses[line] = ended.code
print(json.dumps(statuses))
"""


def child(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "command", [["replay", "status", "job.yaml"], ["backfill", "j", "a.b"], ["reconcile", "j"]]
)
def test_what_is_missing_is_named(command: list[str]) -> None:
    """Without the extra each command says what to install; the core does not need it."""
    done = child(
        "import sys; sys.modules['pyarrow'] = sys.modules['pyspark'] = None\n"
        "from headrace.connector.commands.cli import main\n"
        f"sys.exit(main({command}))"
    )

    assert 3 == done.returncode
    assert "error [spark_missing]: pyarrow is not installed" in done.stderr
    assert "in a clone: pip install -e '.[spark]'" in done.stderr
    assert "from a wheel: pip install 'headrace-….whl[spark]'" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "replay plan FILE",
        "replay index FILE",
        "replay status FILE",
        "replay catch-up FILE",
        "backfill FILE a.b",
        "reconcile FILE",
        "seed FILE",
    ],
)
def test_a_job_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Each takes the job of `--job` from the statements of the file's state."""
    path = tmp_path / "worker.yaml"
    path.write_text("state: state.db\nsource: {plugin: files, path: x}\n")
    open_notes(tmp_path / "state.db").close()

    assert 2 == main([*command.replace("FILE", str(path)).split(), "--job", "nobody"])
    assert "nobody" in capsys.readouterr().err


def test_help_needs_no_extra() -> None:
    """`--help` of every command and verb works where no extra is installed."""
    done = child(HELP)

    assert "" == done.stderr
    statuses = json.loads(done.stdout.splitlines()[-1])
    assert {0} == set(statuses.values())
    assert {"", "replay plan", "reconcile", "backfill", "run", "inspect"} <= set(statuses)
