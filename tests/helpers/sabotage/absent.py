"""Changes that break the rules of logs that cannot be read."""

from collections.abc import Mapping
from typing import Final

from headrace.sources.cassandra.state import unavailable_logs
from helpers.sabotage.rules import Patch, Sabotage

Absences = unavailable_logs.Absences


def waits_for_no_log(patch: Patch) -> None:
    """Treat a log as absent as soon as it cannot be read."""
    patch.setattr(Absences, "is_absent", lambda _self, _node: True)


def reads_on_after_too_long(patch: Patch) -> None:
    """Read a log that returned too late as if no record had been dropped meanwhile."""
    patch.setattr(Absences, "is_late", lambda _self, _node, _split_time_ms: False)


def forgets_when_a_log_was_read(patch: Patch) -> None:
    """Use the time at which a log could not be read as the time at which it was read."""
    real = Absences.missed

    def missed(self: Absences, node: str, passed_ms: int, split_time_ms: int) -> None:
        real(self, node, passed_ms, split_time_ms)
        self.stored[node] = unavailable_logs.Absence(self.stored[node].unread_ms, split_time_ms)

    patch.setattr(Absences, "missed", missed)


def counts_an_absence_faster(patch: Patch) -> None:
    """Let the clock of a log that cannot be read run ten times as fast."""
    real = Absences.missed
    patch.setattr(
        Absences,
        "missed",
        lambda self, node, passed_ms, split_time_ms: real(
            self, node, 10 * passed_ms, split_time_ms
        ),
    )


# How the message starts of the check that must find it.
ABSENT: Final[Mapping[Sabotage, str]] = {
    waits_for_no_log: "line 8",
    reads_on_after_too_long: "line 8",
    forgets_when_a_log_was_read: "line 6",
    counts_an_absence_faster: "line 6",
}
