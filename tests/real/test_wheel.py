"""A wheel, installed as a stranger does, has all that the demo and the quickstart need."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from helpers.settings.leftovers import spotless
from helpers.settings.native_modules import ROOT

pytestmark = pytest.mark.real
SECONDS_MAX = 300


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return an environment without ours, and see that nothing is left in it."""
    with spotless(tmp_path / "tmp") as made:
        yield {name: made[name] for name in made if not name.startswith(("PYTHON", "HEADRACE_N"))}


def run(command: Sequence[str | Path], environment: dict[str, str]) -> None:
    """Run a command of ours in the root."""
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=SECONDS_MAX)  # noqa: S603


def newest_python() -> str:
    """Return the newest Python here that was tried with headrace, or that of the tests."""
    newest = subprocess.check_output([ROOT / ".ci" / "newest"], text=True, timeout=60)  # noqa: S603 (ours)
    return newest.strip() or sys.executable


def test_demo_and_quickstart_run_from_a_wheel(environment: dict[str, str], tmp_path: Path) -> None:
    """In a new environment of the newest Python here, from an empty folder that stays empty."""
    uv = Path(sys.executable).with_name("uv")
    wheels, venv, empty = (tmp_path / name for name in ("wheels", "venv", "empty"))
    empty.mkdir()
    build: list[str | Path] = [
        uv,
        "build",
        "-q",
        "--wheel",
        "--no-build-isolation",
        "-p",
        sys.executable,
    ]
    run([*build, "-o", wheels], os.environ | {"HEADRACE_NATIVE": "off"})
    run([uv, "venv", "-q", "-p", newest_python(), venv], dict(os.environ))
    (wheel,) = wheels.glob("*.whl")
    constraints = ROOT / "constraints.txt"
    run([uv, "pip", "install", "-q", "-p", venv, "-c", constraints, wheel], dict(os.environ))

    for arguments in (["demo"], ["quickstart", "--seconds", "3"]):
        done = subprocess.run(  # noqa: S603 (headrace itself)
            [venv / "bin" / "headrace", *arguments],
            cwd=empty,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert (0, "") == (done.returncode, done.stderr)
        assert "passed" in done.stdout
    assert [] == list(empty.iterdir())
