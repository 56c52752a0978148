"""The faults of `--break`: each is caused and repaired, and nothing is lost."""

import signal
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headrace.connector.demo.quickstart.processes import Processes


class Break(msgspec.Struct, frozen=True):
    """A fault and its repair, and the messages about both."""

    broken: str
    begin: Callable[[Processes], None]
    mended: str
    end: Callable[[Processes], None] | None = None


def _kill(processes: Processes) -> None:
    processes.worker.signal(signal.SIGKILL)


BREAKS: Final[Mapping[str, Break]] = {
    "replica": Break(
        "A node stops. QUORUM of three copies is two: changes are published from the two others.",
        lambda processes: processes.ring.say("stop node3"),
        "The node returns. Its copies of what is published already are dropped.",
        lambda processes: processes.ring.say("start node3"),
    ),
    "broker": Break(
        "The broker stops answering. What is read waits for its acknowledgement: nothing is "
        "committed, so nothing is lost.",
        lambda processes: processes.broker.signal(signal.SIGSTOP),
        "The broker answers again. What waited is delivered and committed.",
        lambda processes: processes.broker.signal(signal.SIGCONT),
    ),
    "worker": Break(
        "The worker is killed (kill -9). The nodes take writes as before: what is not read stays "
        "in their logs.",
        _kill,
        "Another worker starts at the last commit. What was sent after that commit comes again, "
        "and is counted as possibly repeated.",
        lambda processes: processes.start_worker(),
    ),
    "segment": Break(
        "A segment is damaged. The checksum of the entry is wrong, so that this node's copy does "
        "not count; the other two nodes have the change.",
        lambda processes: processes.ring.say("damage node2"),
        "The change of the damaged entry was published from the other two copies.",
    ),
}
