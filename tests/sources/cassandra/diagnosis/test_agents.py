"""What is found about nodes on other machines, through their agents."""

import math
import re
import time
from email.utils import formatdate
from pathlib import Path

import msgspec
import pytest

from headrace.plugins import CheckResult, Finding, parse_config
from headrace.plugins.diagnosis import Examined
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.agent.client import Agent
from headrace.sources.cassandra.agent.connection import Answer, Head
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.diagnosis.agents import agent_findings, ahead_seconds
from headrace.sources.cassandra.forge.segments import write_segment
from headrace.sources.cassandra.retention.figures import HoldFigures
from headrace.sources.cassandra.source import CassandraSource
from helpers.logs.forged import SCHEMA
from helpers.servers.agents import TOKEN, serving

PASSED, WARNED, UNKNOWN = CheckResult.PASSED, CheckResult.WARNED, CheckResult.UNKNOWN
NOW = 1_700_000_000.0
MIB = 1 << 20


class Saying(Agent):
    """An agent that has said something."""

    def __init__(self, figures: HoldFigures, date: float, *, is_old: bool = False) -> None:
        """Say *figures* at *date*; an old one does not know the newest of them."""
        super().__init__("http://n1", None, lambda: 0)  # type: ignore[arg-type]  # Not connected.
        said = msgspec.to_builtins(figures)
        if is_old:
            del said["free_bytes"], said["growth"]
        head = Head(200, {"date": formatdate(date)}, 0, 0, is_last=False)
        self._said = Answer(200, msgspec.json.encode(said), head)

    def ask(self, *_: object, **__: object) -> Answer:
        """Say it."""
        return self._said


def figures(free: int, growth: float) -> HoldFigures:
    """Return what an agent says of a node with a MiB in its log."""
    return HoldFigures(0, 0, MIB, 0, None, full=False, free_bytes=free, growth=growth)


@pytest.mark.parametrize(
    ("there", "ahead"),
    [(0.0, 0.0), (0.9, 0.0), (-0.9, 0.0), (2.0, 2.0), (60.0, 60.0), (-3.0, -2.0), (-60.0, -59.0)],
)
def test_the_clock_there(there: float, ahead: float) -> None:
    """The date of an answer has no fractions: what it leaves out does not count."""
    said = formatdate(math.floor(NOW + there))

    assert ahead == ahead_seconds(said, NOW, NOW)
    assert ahead_seconds("", NOW, NOW) is None
    assert ahead_seconds("soon", NOW, NOW) is None


def found(agent: Agent) -> dict[str, Finding]:
    """Return what is found about an agent, by check."""
    return {each.check: each for each in agent_findings("n1", agent, None)}


def test_how_long_the_disk_there_lasts() -> None:
    """A disk that is full within a day is a warning; an older agent does not say it."""
    now = time.time()
    lasts = found(Saying(figures(1 << 40, 1.0), now))
    fills = found(Saying(figures(8 * MIB, 8 * MIB / 36_000), now))
    old = found(Saying(figures(1, 1.0), now, is_old=True))

    assert [PASSED, PASSED] == [lasts["space"].result, lasts["clock"].result]
    assert WARNED is fills["space"].result
    assert "room for 8.0 MiB more, which lasts 10 h" in fills["space"].message
    assert (UNKNOWN, "update the agent") == (old["space"].result, old["space"].hint)


def test_a_clock_that_differs() -> None:
    """A node whose clock is a minute behind is found by the answer of its agent."""
    clock = found(Saying(figures(1 << 40, 1.0), time.time() - 60))["clock"]

    assert WARNED is clock.result
    said = re.fullmatch(
        r"n1: its agent's clock is ([\d.]+) s behind the clock here.*", clock.message
    )
    assert said
    assert 58 <= float(said[1]) <= 61  # A date has whole seconds.


def test_an_agent(tmp_path: Path) -> None:
    """Both are asked of a real agent; one that is away is a finding about its log alone."""
    write_segment(tmp_path / "raw", bytes(MIB), segment_id=1)
    (tmp_path / "schema.cql").write_text(SCHEMA.replace("cdc = false", "cdc = true"))
    with serving(tmp_path / "raw") as agent:
        options = {
            "nodes": {"n1": {"url": agent.url}},
            "schema": str(tmp_path / "schema.cql"),
            "agent_token": TOKEN,
        }
        source = CassandraSource(parse_config(CassandraConfig, options), context())
        checks = {check.name: check for check in source.checks(Examined())}
        there = {each.check: each.result for each in checks["disk of n1"].run()}
        (space,) = source.log_spaces()
        source.close()

    assert {"clock": PASSED, "space": PASSED} == there
    assert ({"node": "n1"}, True) == (space.partition, space.used_bytes >= MIB)
    assert (space.free_bytes or 0) > 0
    assert [] == list(checks["disk of n1"].run())
