"""Options of a job file that commands change: for a folder, a log, a table, a service."""

from pathlib import Path
from typing import Any

import pytest

from headrace.plugins import ConfigError, ServiceSettings
from headrace.sources.cassandra.job_options import JobOptions

NODES = {"a": "logs/a", "b": {"path": "logs/b", "tokens": [1], "dc": "east"}}
GIVEN = {"plugin": "cassandra", "nodes": NODES, "schema": "s.cql", "consistency": "ALL"}


def settings(datacenter: str | None = None, watermark_seconds: int = 60) -> ServiceSettings:
    """Return what a service says."""
    return ServiceSettings(
        watermark_seconds=watermark_seconds,
        max_commit_logs=2,
        max_watermarker_size=5_000,
        datacenter=datacenter,
    )


def test_a_folder_with_a_folder_for_each_node(tmp_path: Path) -> None:
    """Its folders are nodes by name, without hidden ones; the schema may lie beside them."""
    for name in ("n1", "n2", ".headrace"):
        (tmp_path / name).mkdir()
    (tmp_path / "schema.cql").touch()
    found = JobOptions.of_folder(tmp_path, {"consistency": "ONE", "table": "ks.t"})

    assert found.is_archive
    assert {
        "nodes": {"n1": str(tmp_path / "n1"), "n2": str(tmp_path / "n2")},
        "schema": str(tmp_path / "schema.cql"),
        "consistency": "ONE",
    } == found.options


def test_a_folder_of_one_node(tmp_path: Path) -> None:
    """A folder of segments is the log of a node; a schema that is given is taken."""
    found = JobOptions.of_folder(tmp_path, {"schema": "other.cql"})

    assert not found.is_archive
    assert {"nodes": {"node1": str(tmp_path)}, "schema": "other.cql"} == found.options


def test_no_folder(tmp_path: Path) -> None:
    """The option that names it is named."""
    with pytest.raises(ConfigError) as caught:
        JobOptions.of_folder(tmp_path / "nowhere", {})

    assert ["path"] == [problem.key for problem in caught.value.problems]


def test_log_by_log() -> None:
    """Each log is a source of its own, without tokens, whose only copy is enough."""
    nodes = {**NODES, "c": {"url": "https://c:9142", "rack": "r"}}
    alone = [{"a": "logs/a"}, {"b": {"path": "logs/b"}}, {"c": {"url": "https://c:9142"}}]

    assert [{**GIVEN, "consistency": "ONE", "nodes": each} for each in alone] == list(
        JobOptions.log_by_log({**GIVEN, "nodes": nodes})
    )
    with pytest.raises(ConfigError, match=r"source\.nodes: is required"):
        JobOptions.log_by_log({"plugin": "cassandra"})


def test_any_copy_and_past_gaps() -> None:
    """Any copy is taken behind gaps, too; else they are passed unless the job says what to do."""
    made = JobOptions.any_copy({**GIVEN, "gaps": "fail"})
    assert {**GIVEN, "consistency": "ONE", "gaps": "expire"} == made
    assert {**GIVEN, "gaps": "expire"} == JobOptions.past_gaps(GIVEN)
    assert "assume" == JobOptions.past_gaps({**GIVEN, "gaps": "assume"})["gaps"]


def test_a_table() -> None:
    """A table is read at the job's contact points; without them the option is named."""
    contact = {"contact_points": ["h:9042"], "username": "u", "tls_ca": "ca.pem"}

    assert {"plugin": "cassandra-table", "table": "ks.t", **contact} == JobOptions.of_table(
        {**GIVEN, **contact}, "ks.t"
    )
    assert JobOptions.table_problem({**GIVEN, **contact}) is None
    problem = JobOptions.table_problem(GIVEN)
    assert problem is not None
    assert "source.contact_points" == problem.key


def test_a_service() -> None:
    """The keys of the service become options; memory is never longer than the watermark."""
    expected: dict[str, Any] = {"expiry_seconds": 60, "dedup_window_seconds": 60}
    expected |= {"segments_per_batch_max": 2, "records_max": 5_000}

    assert GIVEN | expected == JobOptions.of_service(GIVEN, settings())
    assert (
        14_400
        == JobOptions.of_service(GIVEN, settings(watermark_seconds=99_999))["dedup_window_seconds"]
    )


def test_a_service_of_a_datacenter() -> None:
    """Nodes of other data centres are left out; one that has no node is refused."""
    assert {"b": NODES["b"]} == JobOptions.of_service(GIVEN, settings("east"))["nodes"]
    assert {"a": NODES["a"]} == JobOptions.of_service(GIVEN, settings("dc1"))["nodes"]
    with pytest.raises(ConfigError, match="no node of the worker's file is in 'west'"):
        JobOptions.of_service(GIVEN, settings("west"))
