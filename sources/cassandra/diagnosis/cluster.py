"""Checks that nodes are configured for change data capture, from their reports. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from headrace.plugins import CheckResult, Finding, HeadraceError
from headrace.sources.cassandra.config import KEEP, CassandraConfig
from headrace.sources.cassandra.diagnosis.nodes import Answers, NodeFacts

_PASSED, _WARNED, _FAILED = CheckResult.PASSED, CheckResult.WARNED, CheckResult.FAILED
_UNKNOWN = CheckResult.UNKNOWN
PARTITIONER: Final = "Murmur3Partitioner"
RELEASES: Final = range(4, 7)  # The first numbers of the supported releases.
SKEW_SECONDS_MAX: Final = 1.0
_NO_CDC: Final = "set cdc_enabled: true in its cassandra.yaml, and restart the node"
_UNFOUND: Final = "not reported"


def unasked() -> Iterator[Finding]:
    """Yield the finding that no node can be queried."""
    hint = "give contact_points: host:port of live nodes, and username and password if they ask"
    yield Finding("nodes", _UNKNOWN, "without contact_points no node can be asked", hint)


def cluster_findings(answers: Answers, config: CassandraConfig) -> Iterator[Finding]:
    """Yield the findings about each node, and about all of them."""
    facts: dict[str, NodeFacts] = {}
    for point, answer in answers.items():
        if isinstance(answer, HeadraceError):
            yield Finding("node", _FAILED, f"{point}: {answer.message}", answer.hint)
        else:
            facts[_named(point, answer, config)] = answer
    if not facts:
        return
    yield from _versions(facts)
    yield from _partitioners(facts)
    yield from _centres(facts, config)
    for check in (_cdc, _block, _repair, _clock):
        yield from _of_each(facts, config, check)


def _named(point: str, facts: NodeFacts, config: CassandraConfig) -> str:
    """Return the job's name of a node, with its address."""
    names = config.names
    name = names.get(facts.host_id) or names.get(point.rpartition(":")[0]) or names.get(point)
    return f"{name} ({point})" if name else point


def _of_each(
    facts: Mapping[str, NodeFacts],
    config: CassandraConfig,
    check: Callable[[NodeFacts, CassandraConfig], Finding],
) -> Iterator[Finding]:
    """Yield the findings of *check*; equal ones of all nodes are one finding."""
    found = [(name, check(each, config)) for name, each in facts.items()]
    counts = Counter(finding for _, finding in found)
    for finding, count in counts.items():
        names = [name for name, other in found if other == finding]
        about = f"all {count} nodes" if count == len(facts) > 1 else ", ".join(names)
        yield Finding(finding.check, finding.result, f"{about}: {finding.message}", finding.hint)


def _versions(facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    counts = Counter(each.release for each in facts.values())
    said = ", ".join(
        f"{count} with Cassandra {release}" for release, count in sorted(counts.items())
    )
    if any(_major(release) not in RELEASES for release in counts):
        hint = f"headrace reads the logs of {RELEASES[0]}.0 to {RELEASES[-1]}.0"
        yield Finding("versions", _FAILED, said, hint)
    elif len(counts) > 1:
        yield Finding(
            "versions", _WARNED, said, "finish the upgrade: settings may differ meanwhile"
        )
    else:
        yield Finding("versions", _PASSED, said)


def _major(release: str) -> int:
    first = release.partition(".")[0]
    return int(first) if first.isdigit() else 0


def _partitioners(facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    found = sorted({each.partitioner.rpartition(".")[2] for each in facts.values()})
    if found == [PARTITIONER]:
        yield Finding("partitioner", _PASSED, PARTITIONER)
    else:
        hint = f"{PARTITIONER} is what headrace reads: it cannot read this cluster"
        yield Finding("partitioner", _FAILED, ", ".join(found), hint)


def _centres(facts: Mapping[str, NodeFacts], config: CassandraConfig) -> Iterator[Finding]:
    counts = Counter(each.datacenter for each in facts.values())
    said = ", ".join(f"{name} with {count} nodes" for name, count in sorted(counts.items()))
    if config.datacenter is not None and config.datacenter not in counts:
        hint = f"set datacenter to one of {', '.join(sorted(counts))}"
        yield Finding("data centres", _FAILED, f"{said}; none is {config.datacenter}", hint)
    else:
        yield Finding("data centres", _PASSED, said)


def _cdc(facts: NodeFacts, config: CassandraConfig) -> Finding:
    del config
    return _switch("cdc_enabled", facts, on=_PASSED, off=_FAILED, hint=_NO_CDC)


def _switch(
    name: str, facts: NodeFacts, *, on: CheckResult, off: CheckResult, hint: str
) -> Finding:
    value = facts.settings.get(name)
    if value is None:
        return Finding(name, _UNKNOWN, f"{name} is {_UNFOUND}", "look into its cassandra.yaml")
    result = on if value == "true" else off
    return Finding(name, result, f"{name} is {value}", "" if result is _PASSED else hint)


def _block(facts: NodeFacts, config: CassandraConfig) -> Finding:
    """Report the behaviour when `cdc_raw` is full; without the setting, nodes refuse writes."""
    name = "cdc_block_writes"
    blocks = facts.settings.get(name, "true") == "true"
    if not blocks:
        said = "when cdc_raw is full, its oldest segments are removed, read or not"
        hint = "give nodes a hold, or see that cdc_total_space lasts for the longest outage"
        held = config.disposal != KEEP and any(
            isinstance(node, Mapping) and ("hold" in node or "url" in node)
            for node in config.nodes.values()
        )
        return Finding(name, _PASSED if held else _WARNED, said, "" if held else hint)
    said = "when cdc_raw is full, writes to tables with CDC are refused"
    if config.disposal == KEEP:
        hint = "set disposal: delete, or remove segments that were read in another way"
        return Finding(name, _WARNED, f"{said}, and this job removes no segments", hint)
    return Finding(name, _PASSED, said)


def _repair(facts: NodeFacts, config: CassandraConfig) -> Finding:
    name = "cdc_on_repair_enabled"
    if facts.settings.get(name) != "true":
        return Finding(name, _PASSED, "what repair streams is not logged")
    said = "what repair streams is logged"
    if config.streamed is None:
        hint = "set streamed: publish (it comes again) or streamed: suppress"
        return Finding(name, _FAILED, f"{said}, and `streamed` is not set", hint)
    return Finding(name, _PASSED, f"{said}, streamed: {config.streamed}")


def _clock(facts: NodeFacts, config: CassandraConfig) -> Finding:
    del config
    return clock_finding(facts.ahead_seconds)


def clock_finding(ahead_seconds: float) -> Finding:
    """Return the finding about a clock that is *ahead_seconds* ahead of ours, at least."""
    if abs(ahead_seconds) <= SKEW_SECONDS_MAX:
        said = f"clock differs by less than {SKEW_SECONDS_MAX:.0f} s from here"
        return Finding("clock", _PASSED, said)
    which = "ahead of" if ahead_seconds > 0 else "behind"
    said = f"clock is {abs(ahead_seconds):.1f} s {which} the clock here"
    return Finding("clock", _WARNED, said, "run a time service (chrony, ntpd) on both machines")
