"""Mutations that wait for copies, because one replica is not read, are reported and listed."""

import json
import re
from pathlib import Path

import pytest
import yaml

from headrace.connector.commands.cli import main
from helpers.jobs.children import ring_job

WAITING = 9  # Of 6,451 mutations of the recording: node2 has the other copy.
FIRST_LINE = f"6,442 changes, each once; 0 lost; {WAITING} mutations wait for another copy"
LOOK = re.compile(rf"^  waiting for a copy  +{WAITING}  headrace waiting job\.yaml$", re.MULTILINE)


def test_what_waits_for_copies_is_counted_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` and `verify` count them in the first line; `waiting` has token, place, missing log."""
    job = ring_job(tmp_path, "5.0-ring")
    document = yaml.safe_load((job.path / "job.yaml").read_text())
    del document["source"]["nodes"]["node2"]
    (job.path / "job.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.chdir(tmp_path)
    heads = []
    for command in (["run", "job.yaml", "--until-idle"], ["verify", "job.yaml"]):
        assert 0 == main(command)
        said = capsys.readouterr().out
        heads.append(said.partition("\n")[0])
        assert LOOK.search(said)
    assert [FIRST_LINE] * 2 == heads

    assert 0 == main(["waiting", "job.yaml", "--json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [["node3"]] * WAITING == [each["missing"] for each in found]
    assert {"2 of node1, node3"} == {each["needed"] for each in found}
    assert 0 == main(["inspect", "segments/node1"])
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    places = {f"{line['segment']}:{line['position']}" for line in lines if "segment" in line}
    assert {each["copies"]["node1"] for each in found} <= places
    assert 0 == main(["waiting", "job.yaml", "--limit", "2"])
    assert ["and 7 more"] == capsys.readouterr().out.splitlines()[2:]


def test_nothing_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When every replica is read, nothing waits, and the command says so."""
    ring_job(tmp_path, "5.0-ring")
    monkeypatch.chdir(tmp_path)

    assert 0 == main(["run", "job.yaml", "--until-idle"])
    assert "wait for another copy" not in capsys.readouterr().out
    assert 0 == main(["waiting", "job.yaml"])
    assert "nothing waits for a copy\n" == capsys.readouterr().out
