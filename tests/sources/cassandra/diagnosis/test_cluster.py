"""What nodes say of themselves, and what of it needs a hand."""

import struct
from collections.abc import Mapping
from dataclasses import replace

import pytest

from headrace.plugins import CheckResult, Finding, HeadraceError, parse_config
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.diagnosis.cluster import cluster_findings
from headrace.sources.cassandra.diagnosis.nodes import NodeFacts, ask_nodes
from headrace.sources.cassandra.schema.contact import Contact
from helpers.servers.cql_node import BIGINT, TEXT, CqlNode, rows

PASSED, WARNED, FAILED = CheckResult.PASSED, CheckResult.WARNED, CheckResult.FAILED
UNKNOWN = CheckResult.UNKNOWN
WELL = NodeFacts(
    release="5.0.8",
    partitioner="org.apache.cassandra.dht.Murmur3Partitioner",
    datacenter="dc1",
    host_id="11111111-1111-1111-1111-111111111111",
    settings={"cdc_enabled": "true", "cdc_block_writes": "false", "cdc_on_repair_enabled": "false"},
)
HELD = {"n1": {"path": "x", "hold": "y"}}


def config_of(**options: object) -> CassandraConfig:
    """Return a configuration that is well, but for *options*."""
    given = {"nodes": HELD, "schema": "s.cql", "disposal": "delete", **options}
    return parse_config(CassandraConfig, given)


def found(facts: NodeFacts, **options: object) -> Mapping[str, Finding]:
    """Return what is found about two nodes, a good one and one with *facts*, by check."""
    answers = {"10.0.0.1:9042": replace(WELL, host_id="a"), "10.0.0.2:9042": facts}
    findings = cluster_findings(answers, config_of(**options))
    return {f.check: f for f in sorted(findings, key=lambda f: f.result is not PASSED)}


def test_a_cluster_that_is_well() -> None:
    """What all nodes say is said once; nothing is to be done."""
    findings = list(cluster_findings({"a:9042": WELL, "b:9042": WELL}, config_of()))

    assert {PASSED} == {f.result for f in findings}
    assert {""} == {f.hint for f in findings}
    assert "all 2 nodes: cdc_enabled is true" in [f.message for f in findings]


@pytest.mark.parametrize(
    ("change", "check", "result", "said"),
    [
        ({"cdc_enabled": "false"}, "cdc_enabled", FAILED, "10.0.0.2:9042: cdc_enabled is false"),
        ({"cdc_enabled": None}, "cdc_enabled", UNKNOWN, "cdc_enabled is not reported"),
        ({"cdc_on_repair_enabled": "true"}, "cdc_on_repair_enabled", FAILED, "not set"),
    ],
)
def test_settings(
    change: Mapping[str, str | None], check: str, result: CheckResult, said: str
) -> None:
    """A node whose settings differ is named, with what to do."""
    settings = {k: v for k, v in {**WELL.settings, **change}.items() if v is not None}
    finding = found(replace(WELL, settings=settings))[check]

    assert (result, True) == (finding.result, said in finding.message)
    assert finding.hint


@pytest.mark.parametrize(
    ("facts", "check", "result"),
    [
        (replace(WELL, release="3.11.4"), "versions", FAILED),
        (replace(WELL, release="4.1.5"), "versions", WARNED),
        (replace(WELL, partitioner="org.x.RandomPartitioner"), "partitioner", FAILED),
        (replace(WELL, ahead_seconds=2.5), "clock", WARNED),
        (replace(WELL, ahead_seconds=-2.5), "clock", WARNED),
        (replace(WELL, ahead_seconds=0.5), "clock", PASSED),
        (replace(WELL, datacenter="dc2"), "data centres", PASSED),
    ],
)
def test_facts(facts: NodeFacts, check: str, result: CheckResult) -> None:
    """Another version, partitioner or time than it should be is found."""
    finding = found(facts)[check]

    assert (result, result is PASSED) == (finding.result, not finding.hint)


@pytest.mark.parametrize(
    ("blocks", "options", "result"),
    [
        ("true", {"disposal": "keep"}, WARNED),
        ("true", {}, PASSED),
        ("false", {"nodes": {"n1": "x"}}, WARNED),
        ("false", {"nodes": HELD}, PASSED),
    ],
)
def test_a_full_directory(blocks: str, options: Mapping[str, object], result: CheckResult) -> None:
    """Writes that stop because nothing is removed, and segments that go unread, are warnings."""
    settings = {**WELL.settings, "cdc_block_writes": blocks}

    answers = {"a:9042": replace(WELL, settings=settings)}
    findings = {f.check: f for f in cluster_findings(answers, config_of(**options))}
    assert result is findings["cdc_block_writes"].result


def test_options_that_fit() -> None:
    """A data centre that there is not is a failure; repair that is logged needs `streamed`."""
    assert FAILED is found(WELL, datacenter="dc9")["data centres"].result
    logged = replace(WELL, settings={**WELL.settings, "cdc_on_repair_enabled": "true"})
    assert PASSED is found(logged, streamed="publish")["cdc_on_repair_enabled"].result


def answers_of(settings: Mapping[str, str], ahead_ms: int = 0) -> Mapping[str, bytes]:
    """Return the answers of a node with *settings*, whose clock is far from ours."""
    pairs = [(name.encode(), value.encode()) for name, value in settings.items()]
    return {
        "SELECT name, value FROM": rows({"name": TEXT, "value": TEXT}, *pairs),
        "SELECT toUnixTimestamp": rows({"ms": BIGINT}, [struct.pack(">q", ahead_ms)]),
    }


def test_nodes_are_asked_one_by_one() -> None:
    """A node that does not answer, or refuses a login, hides no other; passwords are not shown."""
    answers = answers_of({"cdc_enabled": "false"})
    with (
        CqlNode(answers=answers, users={"u": "secret"}) as node,
        CqlNode(users={"u": "x"}) as other,
    ):
        points = (node.point, other.point, "127.0.0.1:1")
        given = ask_nodes(Contact(points, "u", "secret"))
    facts, denied, gone = (given[point] for point in points)

    assert isinstance(facts, NodeFacts)
    assert ("5.0.2", "dc1", "false") == (
        *(facts.release, facts.datacenter, facts.settings["cdc_enabled"]),
    )
    assert facts.ahead_seconds < -1e9
    assert isinstance(denied, HeadraceError)
    assert isinstance(gone, HeadraceError)
    findings = list(cluster_findings(given, config_of()))
    assert [FAILED, FAILED] == [f.result for f in findings if f.check == "node"]
    assert "secret" not in str(findings)
