"""Set-up says what a machine does not have, and never continues without it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.settings.native_modules import ROOT


def machine(
    *arguments: str, path: str = os.environ["PATH"], folder: Path = ROOT, **environment: str
) -> tuple[int, list[str]]:
    """Return the exit status of `.ci/machine`, and what it says on standard error."""
    done = subprocess.run(  # noqa: S603 (our own script)
        ["/bin/sh", str(ROOT / ".ci" / "machine"), *arguments],
        cwd=folder,
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def program(folder: Path, name: str, text: str) -> Path:
    """Write a program that stands for one of that name."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def test_all_is_there() -> None:
    """A machine with everything gets no hint."""
    assert (0, []) == machine(sys.executable)


@pytest.mark.parametrize(
    ("want", "expected"),
    [
        ([], []),
        (["compiler"], ["there is no C compiler"]),
        (
            ["java"],
            [
                "there is no Java, which Cassandra and Kafka need",
                "there is no mvn, which fetches Cassandra and Kafka",
            ],
        ),
    ],
    ids=["nothing wanted", "compiler", "java"],
)
def test_missing_programs(tmp_path: Path, want: list[str], expected: list[str]) -> None:
    """Each program that is wanted and missing is named with a hint, and the status is 3."""
    status, lines = machine(sys.executable, *want, path=str(tmp_path), CC="cc-that-is-not")

    assert [f"headrace: {text}" for text in expected] == lines[::2]
    assert all(line.strip().startswith("hint: apt install ") for line in lines[1::2])
    assert (3 if expected else 0) == status


def test_no_python() -> None:
    """A machine without the Python that was asked for gets a hint how to name another."""
    status, lines = machine("python-that-is-not")

    assert 3 == status
    assert "headrace: there is no python-that-is-not" == lines[0]
    assert "make PYTHON=" in lines[1]


def test_old_python(tmp_path: Path) -> None:
    """A Python that is too old is named with its version."""
    old = program(tmp_path, "python3", '[ "$1" = -V ] && echo Python 3.9.2; [ "$1" = -V ]')
    status, lines = machine(str(old))

    assert (3, "headrace: Python 3.9.2 is too old, 3.11 is needed") == (status, lines[0])


def test_no_venv(tmp_path: Path) -> None:
    """A Python without venv gets a hint which package brings it."""
    bare = program(tmp_path, "python3", 'case "$2" in *venv*) exit 1;; esac')
    status, lines = machine(str(bare))

    assert 3 == status
    assert [
        f"headrace: {bare} cannot make virtual environments",
        "    hint: apt install python3-venv",
    ] == lines


def test_no_links(tmp_path: Path) -> None:
    """A checkout whose links became files gets a hint how to fix it, from make and pip."""
    package = tmp_path / "src" / "headrace"
    package.mkdir(parents=True)
    for room in ("connector", "plugins", "sinks", "sources"):
        (package / room).write_text(f"../../{room}")
    status, lines = machine(sys.executable, folder=tmp_path)
    for name in ("setup.py", "setup.cfg"):
        shutil.copy(ROOT / name, tmp_path)
    installed = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (3, "headrace: this checkout has no symbolic links") == (status, lines[0])
    assert 0 != installed.returncode
    assert "git config core.symlinks true" in lines[1]
    assert "git config core.symlinks true" in installed.stderr
