"""Signals to every process of a session; Spark's tasks are outside the group of their driver."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

END_SECONDS_MAX: Final = 60
_PAUSE_SECONDS: Final = 0.01
_GONE: Final = b"ZX"  # States of processes that run no code any more.


def members(leader: int) -> set[int]:
    """Return the processes of a session that live, by what Linux says of all processes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = path.joinpath("stat").read_bytes().rpartition(b")")[2].split()
            state, session = words[0], words[3]
            if int(session) == leader and state not in _GONE:
                found.add(int(path.name))
    return found


def send_signal(leader: int, number: signal.Signals) -> None:
    """Send a signal to all of a session, also to those that are made meanwhile."""
    sent: set[int] = set()
    while new := members(leader) - sent:
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        sent |= new


def kill(leader: int) -> None:
    """Kill all of a session, and return when none of it lives."""
    until = time.monotonic() + END_SECONDS_MAX
    while members(leader):
        assert time.monotonic() < until, members(leader)
        send_signal(leader, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)
