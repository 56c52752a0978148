"""The list of checks. Each has its own parts, since checks run at the same time."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version

from headrace.plugins import CheckResult, Context, Finding, HeadraceError
from headrace.plugins.diagnosis import Check
from headrace.sources.cassandra.agent.client import RemoteLog
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.diagnosis.agents import agent_findings
from headrace.sources.cassandra.diagnosis.cluster import cluster_findings, unasked
from headrace.sources.cassandra.diagnosis.copies import copy_findings, type_findings
from headrace.sources.cassandra.diagnosis.disks import disk_findings, log_findings
from headrace.sources.cassandra.resources import Parts

CLUSTER, DISKS = "Cassandra", "disks"


def checks_of(config: CassandraConfig, context: Context, count: int) -> Sequence[Check]:
    """Return the checks of a source whose ring is divided into *count* parts."""

    def fresh(find: Callable[[Parts], Iterable[Finding]]) -> Callable[[], Iterable[Finding]]:
        def run() -> Iterator[Finding]:
            parts = Parts(config, context, count)
            try:
                yield from find(parts)
            finally:
                parts.close()

        return run

    def nodes() -> Iterable[Finding]:
        if not config.contact.points:
            return unasked()
        # Only here: it loads the driver.
        from headrace.sources.cassandra.diagnosis.nodes import ask_nodes  # noqa: PLC0415

        return cluster_findings(ask_nodes(config.contact), config)

    found = [
        Check(CLUSTER, "driver", _driver),
        Check(CLUSTER, "nodes", nodes),
        Check(CLUSTER, "replicas", fresh(copy_findings)),
        Check(CLUSTER, "types", fresh(type_findings)),
    ]
    for node, given in config.nodes.items():
        place = given if isinstance(given, Mapping) else {"path": given}
        found += _of_node(node, place, config, fresh)
    return found


def _of_node(
    node: str,
    place: Mapping[str, object],
    config: CassandraConfig,
    fresh: Callable[[Callable[[Parts], Iterable[Finding]]], Callable[[], Iterable[Finding]]],
) -> Iterator[Check]:
    """Yield the checks of a node's log and disk: local ones, or through its agent."""

    def log(parts: Parts) -> Iterable[Finding]:
        return log_findings(node, parts.logs[node])

    def disk(parts: Parts) -> Iterable[Finding]:
        there = parts.logs[node]
        if isinstance(there, RemoteLog):
            return agent_findings(node, there.agent, _bytes_max(parts))
        return disk_findings(node, place, config, _bytes_max(parts))

    yield Check(DISKS, f"log of {node}", fresh(log))
    yield Check(DISKS, f"disk of {node}", fresh(disk))


def _driver() -> Iterator[Finding]:
    yield Finding("driver", CheckResult.PASSED, f"cassandra-driver {version('cassandra-driver')}")


def _bytes_max(parts: Parts) -> int | None:
    """Return `cdc_total_space`, if a contact point reports it."""
    if not parts.config.contact.points:
        return None
    try:
        return parts.given.settings.cdc_bytes_max
    except HeadraceError:  # Another check reports it.
        return None
