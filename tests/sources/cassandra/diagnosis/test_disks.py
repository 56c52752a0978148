"""What is found about the logs and disks of this machine."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.plugins import CheckResult, Finding, LogSpace, parse_config
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.diagnosis import disks
from headrace.sources.cassandra.diagnosis.copies import copy_findings, type_findings
from headrace.sources.cassandra.diagnosis.disks import disk_findings, log_findings
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.resources import Parts
from helpers.logs.forged import SCHEMA

PASSED, WARNED, FAILED = CheckResult.PASSED, CheckResult.WARNED, CheckResult.FAILED


def config_of(folder: Path, *, nodes: object = None, **options: object) -> CassandraConfig:
    """Return a configuration with a node in *folder*."""
    given = {"nodes": nodes or {"n1": str(folder)}, "schema": str(folder / "schema.cql"), **options}
    return parse_config(CassandraConfig, given)


def by_check(found: list[Finding]) -> Mapping[str, Finding]:
    """Return findings by their checks."""
    return {finding.check: finding for finding in found}


def test_a_log(tmp_path: Path) -> None:
    """A log that cannot be listed is a failure that names its node and place."""
    (passed,) = log_findings("n1", LogDirectory(tmp_path))
    (failed,) = log_findings("n2", LogDirectory(tmp_path / "none"))

    assert (PASSED, FAILED) == (passed.result, failed.result)
    assert failed.message.startswith(f"n2: {tmp_path / 'none'}")
    assert failed.hint


def test_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to dispose of segments must be able to write; what keeps them need not."""
    given = {"path": str(tmp_path)}

    def rights(disposal: str) -> CheckResult:
        found = disk_findings("n1", given, config_of(tmp_path, disposal=disposal), None)
        return by_check(list(found))["rights"].result

    assert [PASSED, PASSED] == [rights("keep"), rights("delete")]
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert [PASSED, FAILED] == [rights("keep"), rights("delete")]
    assert [] == list(disk_findings("n1", {"path": "/no/such"}, config_of(tmp_path), None))


def test_another_file_system(tmp_path: Path) -> None:
    """A hold on another file system is a failure: nothing could be linked there."""
    near = {"path": str(tmp_path), "hold": str(tmp_path / "a" / "b")}
    far = {"path": str(tmp_path), "hold": "/proc"}
    results = [
        by_check(list(disk_findings("n1", given, config_of(tmp_path), None)))["file system"].result
        for given in (near, far)
    ]
    assert [PASSED, FAILED] == results


def space_of(used: int, limit: int | None, growth: float | None) -> LogSpace:
    """Return the space of a log on a large disk."""
    return LogSpace(
        partition={}, used_bytes=used, limit_bytes=limit, free_bytes=10**9, growth=growth
    )


@pytest.mark.parametrize(
    ("space", "result"),
    [
        (space_of(10, 100, None), PASSED),
        (space_of(70, 100, None), WARNED),
        (space_of(90, 100, None), FAILED),
        (space_of(10, 100, 90 / 86_000), WARNED),
        (space_of(10, 100, 90 / 3_000), FAILED),
        (space_of(10, None, 1.0), PASSED),
    ],
)
def test_how_long_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, space: LogSpace, result: CheckResult
) -> None:
    """A disk that is almost full, or soon will be, is found before it is."""
    monkeypatch.setattr(disks, "spaces", lambda *_: [space])
    found = disk_findings("n1", {"path": str(tmp_path)}, config_of(tmp_path), None)

    assert result is by_check(list(found))["space"].result


def test_copies_that_nobody_reads(tmp_path: Path) -> None:
    """A keyspace with more copies than logs that are read is a warning; a whole one is not."""
    (tmp_path / "schema.cql").write_text(SCHEMA.replace("cdc = false", "cdc = true"))
    nodes = {f"n{number}": str(tmp_path / f"n{number}") for number in (1, 2, 3)}
    two = {name: nodes[name] for name in ("n1", "n2")}
    for given, result in ((nodes, PASSED), (two, WARNED)):
        parts = Parts(config_of(tmp_path, nodes=given), context(), 2)
        (found,) = copy_findings(parts)
        assert ("replicas", result) == (found.check, found.result)
    assert "the logs of 1 of 3 copies are not read" in found.message
    assert "under source.nodes" in found.hint


def test_types_that_are_not_known(tmp_path: Path) -> None:
    """A column of a foreign class is named, also inside of a collection."""
    text = SCHEMA.replace("cdc = false", "cdc = true")
    for kind, result in (("blob", PASSED), ("frozen<list<'org.x.Odd'>>", WARNED)):
        assert "v blob" in text
        (tmp_path / "schema.cql").write_text(text.replace("v blob", f"v {kind}"))
        (found,) = type_findings(Parts(config_of(tmp_path), context(), 2))
        assert result is found.result
