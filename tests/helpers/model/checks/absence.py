"""Checks how a job continues without unreadable logs: lines 6, 8 and 9 of docs/agreement.md."""

from collections.abc import Mapping
from typing import Final

from headrace.sources.cassandra.state.gaps import RETURNED
from helpers.model.checks.lines import NOWHERE, Line
from helpers.model.checks.records import FETCHED_MS, MEMORY_S, RecordChecks
from helpers.model.logs import NodeLog
from helpers.model.ring import Ring

ABSENT_S: Final = 20
_MEMORY_MS: Final = 1_000 * MEMORY_S


class AbsenceChecks(RecordChecks):
    """Finds what is wrong in what a state says about unreadable logs."""

    def __init__(self, ring: Ring, job_key: bytes, *, options: Mapping[str, object]) -> None:
        """*options* say whether a log that returned too late is read."""
        super().__init__(ring, job_key, suppresses=options.get("streamed") == "suppress")
        self._publishes_returned = options.get("returned") == "publish"

    def check_absences(self, line: Line) -> None:
        """Check a new state by the one before it."""
        parent = line.parent
        assert parent is not None
        line.gone_without = [
            node
            for node, log in self.ring.nodes.items()
            if log.named
            or max(_waited_ms(line, node), _waited_ms(parent, node)) >= 1_000 * ABSENT_S
        ]
        for node, log in self.ring.nodes.items():
            if log.unreadable_ms is not None and log.unreadable_ms < parent.made_ms:
                self._check_unreadable(line, parent, log)
            grown_ms = _waited_ms(line, node) - max(0, _waited_ms(parent, node))
            # Logs may have been listed some time before the state is made.
            passed_ms = line.made_ms - parent.made_ms + FETCHED_MS
            self.check(
                grown_ms <= passed_ms, f"line 6: {node} was unreadable for {grown_ms} ms more"
            )
            if node in parent.unread:
                self._check_return(line, parent, node)
        for ring in {*parent.rings} - {*line.rings}:
            since, _ = parent.superseded.get(ring, (0, 0))
            unread = [n for n in ring.members if n in line.unread and line.unread[n][1] < since]
            self.check(not unread, f"line 9: {ring} is retired, {unread} may have copies")

    def _check_unreadable(self, line: Line, parent: Line, log: NodeLog) -> None:
        """Check what a state says of a log that was unreadable since the state before."""
        if log.name not in line.gone_without:
            grown_ms = line.split_time_ms - parent.split_time_ms
            self.check(not grown_ms, f"line 8: τ grew by {grown_ms}, {log.name} is awaited")
        before, now = parent.unread.get(log.name), line.unread.get(log.name)
        is_same = before is None or (now is not None and now[1] == before[1])
        self.check(is_same, f"line 6: {log.name} was read at {before}, and is said at {now}")

    def _check_return(self, line: Line, parent: Line, node: str) -> None:
        """Line 8: a log that returns too late has a gap up to what it logged meanwhile."""
        since, begin = parent.unread[node][1], parent.markers.get(node, NOWHERE)
        reported = [g for g in line.gaps if g.node == node and g.kind == RETURNED and g.end > begin]
        if line.markers.get(node, NOWHERE) > begin and parent.split_time_ms - since > _MEMORY_MS:
            known = reported or self._publishes_returned
            self.check(known, f"line 8: {node} was read on after {parent.split_time_ms - since} ms")
        in_time = line.split_time_ms - since <= _MEMORY_MS
        self.check(
            not (reported and in_time), f"line 8: {node} was unreadable for no longer than M"
        )


def _waited_ms(line: Line, node: str) -> int:
    return line.unread[node][0] if node in line.unread else -1
