"""The systemd units and the compose file start what there is."""

import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.connector.commands.cli import main
from headrace.connector.control.jobs import read_worker
from headrace.plugins import parse_config
from headrace.sources.cassandra.config import CassandraConfig
from helpers.settings.native_modules import ROOT

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


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd's own tools")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_the_units(path: Path, tmp_path: Path) -> None:
    """It knows every option and value; only the program is another one here."""
    text = path.read_text().replace("/opt/headrace/bin/headrace", sys.executable)
    (tmp_path / path.name).write_text(text)
    done = subprocess.run(  # noqa: S603 (ours)
        ["systemd-analyze", "verify", "--man=no", tmp_path / path.name],  # noqa: S607 (of the system)
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, []) == (done.returncode, [s for s in done.stderr.splitlines() if path.name in s])


def test_there_are_units() -> None:
    """Workers and agents have one each."""
    assert ["headrace-agent", "headrace-worker"] == [path.stem for path in UNITS]


def composed() -> dict[str, dict[str, Any]]:
    """Return the services of the compose file that are headrace."""
    document = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    services: dict[str, dict[str, Any]] = document["services"]
    return {name: each for name, each in services.items() if "command" in each}


@pytest.mark.parametrize("name", composed())
def test_services_start_known_commands(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each service calls a command with options that it has, on volumes that there are."""
    service = composed()[name]
    command, *arguments = service["command"]
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    described = capsys.readouterr().out

    flags = [argument.partition("=")[0] for argument in arguments]
    assert [] == [flag for flag in flags if flag.startswith("--") and flag not in described]
    assert "root" != service.get("user")


def test_the_workers_of_the_compose_file_have_what_they_need() -> None:
    """Their file is one that a worker takes, and its source one that can be planned."""
    path = ROOT / "docker" / "ring" / "worker.yaml"
    document = yaml.safe_load(path.read_text())
    assert "cassandra" == document["source"].pop("plugin")
    config = parse_config(CassandraConfig, document["source"] | {"tables": ["shop.orders"]})

    assert path.parent / document["state"] == read_worker(path).state
    assert ["https://agent1:9142", "https://agent2:9142", "https://agent3:9142"] == [
        node["url"] for node in document["source"]["nodes"].values()
    ]
    assert "live" == config.topology
    assert {"agent1", "agent2", "agent3", "worker1", "worker2"} == set(composed())


def test_services_have_the_memory_and_extras_of_jobs_on_spark() -> None:
    """Both are variables, which the head of the file gives as a command; agents have no limit."""
    text = (ROOT / "docker" / "compose.yaml").read_text()
    assert "EXTRAS=spark WORKER_MEMORY=4g docker compose" in text
    services = yaml.safe_load(text)["services"]

    limits = {name: each["mem_limit"] for name, each in services.items() if "mem_limit" in each}
    assert dict.fromkeys(["worker1", "worker2"], "${WORKER_MEMORY:-512m}") == limits
    built = {str(each["build"]["args"]) for each in services.values() if "build" in each}
    assert {"{'EXTRAS': '${EXTRAS:-}'}"} == built
