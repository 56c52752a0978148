"""The systemd units start what there is."""

import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest

from headrace.connector.cli import main
from hot import ROOT

UNITS = sorted((ROOT / "docker" / "systemd").glob("*.service"))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_start_known_commands(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each unit calls a command with options that it has, not as root, and ends it in time."""
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # As systemd: case counts.
    unit.read(path, encoding="utf-8")
    service = unit["Service"]
    program, command, *arguments = shlex.split(service["ExecStart"])
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    described = capsys.readouterr().out

    assert program.endswith("/headrace")
    assert [] == [a for a in arguments if a.startswith("--") and a not in described]
    assert service["User"] not in {"", "root"}
    assert "true" == service["NoNewPrivileges"]


def test_there_are_units() -> None:
    """Workers and agents have one each."""
    assert ["headrace-agent", "headrace-worker"] == [path.stem for path in UNITS]
