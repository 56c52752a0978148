"""The pins of a job, for the commands that start or forget it.

The job writes them by `hold`; this module handles those of every state it ever had. Blocking I/O.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from headrace.plugins.traces import Trace
from headrace.sources.cassandra.agent.protocol import NEEDS_PATH, Needs, Notes
from headrace.sources.cassandra.errors import AgentUnavailableError
from headrace.sources.cassandra.logs import pins
from headrace.sources.cassandra.logs.directory import LogDirectory, LogReader
from headrace.sources.cassandra.logs.pins import FOLDER, Noted

if TYPE_CHECKING:
    from headrace.sources.cassandra.agent.client import Agent

SPLITS_MAX: Final = 5_000  # In one request: the body of more would be too long.


def traces_of(
    logs: Mapping[str, LogReader], job: str, mark: str, *, everywhere: bool
) -> Sequence[Trace]:
    """Return the pins of *job* in all *logs*; *mark* is that of our state.

    Raises:
        HoldError: a pin cannot be read.
        AgentUnavailableError: an agent does not answer; without *everywhere*, it is left out.
        AgentRefusedError: an agent rejects our access.

    """
    found = []
    for node, log in logs.items():
        with contextlib.suppress(*(() if everywhere else (AgentUnavailableError,))):
            found += [_trace(node, note, mark) for note in _noted(log, job)]
    return found


def forget(logs: Mapping[str, LogReader], traces: Sequence[Trace]) -> None:
    """Remove pins.

    Raises:
        HoldError: a pin cannot be removed.
        AgentUnavailableError: an agent does not answer.
        AgentRefusedError: an agent rejects our access.

    """
    for node, job, state in {(trace.place, trace.job, trace.state) for trace in traces}:
        splits = [t.split for t in traces if (t.place, t.job, t.state) == (node, job, state)]
        log = logs[node]
        if isinstance(log, LogDirectory):
            pins.remove(log.path / FOLDER, [pins.name_of(job, each, state) for each in splits])
            continue
        agent = _agent_of(log)
        for first in range(0, len(splits), SPLITS_MAX):
            body = Needs(job, state, splits[first : first + SPLITS_MAX])
            agent.ask_for(dict, "DELETE", NEEDS_PATH, body)


def _noted(log: LogReader, job: str) -> Sequence[Noted]:
    if isinstance(log, LogDirectory):
        return pins.noted_in(log.path / FOLDER, job)
    return _agent_of(log).ask_for(Notes, "GET", f"{NEEDS_PATH}?job={quote(job, safe='')}").notes


def _agent_of(log: LogReader) -> "Agent":
    agent: Agent = log.agent  # type: ignore[attr-defined]  # It is a RemoteLog.
    return agent


def _trace(node: str, note: Noted, mark: str) -> Trace:
    return Trace(
        place=node,
        job=note.job,
        state=note.store,
        split=note.split,
        mine=note.store == mark,
        begun=note.segment > 0,
        age_seconds=note.age_seconds,
    )
