"""Identifies this process, and checks whether another one is provably dead, or the parent gone."""

import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from headrace.plugins.stores.contract import Owner

COMMAND: Final = (
    *(sys.executable, "-c"),
    "import sys; from headrace.connector.commands.cli import main; sys.exit(main(sys.argv[1:]))",
)
"""What starts headrace in a process of its own; its arguments follow."""
_PROC: Final = Path("/proc")
_STATE, _STARTED = 0, 19  # Fields of /proc/<pid>/stat after the command's name.
_DEAD_STATES: Final = frozenset("ZX")
_STOPPED_STATES: Final = frozenset("Tt")


def this_process() -> Owner:
    """Return an identity of this process that no other process, now or later, shares."""
    return Owner(
        worker=secrets.token_hex(8),
        host=socket.gethostname(),
        boot=boot_id(),
        pid_space=_pid_space(),
        pid=os.getpid(),
        started=_started(os.getpid()) or 0,
    )


def is_dead(owner: Owner) -> bool:
    """Return whether *owner* is provably dead: same boot and pid space, and the process is gone.

    False means only that nothing is known.
    """
    boot = boot_id()
    if not boot or owner.boot != boot or owner.pid_space != _pid_space() or not owner.started:
        return False
    return _started(owner.pid) != owner.started


def parent_gone(stop: Callable[[], None]) -> None:
    """Call *stop* when standard input ends, because the parent ended then. Returns at once."""

    def watch() -> None:
        while os.read(0, 1):  # Not sys.stdin: its lock would outlive the interpreter.
            pass
        stop()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def is_alive(owner: Owner) -> bool:
    """Return whether *owner* is provably alive and not stopped by a signal.

    False means only that nothing is known.
    """
    boot = boot_id()
    if not boot or owner.boot != boot or owner.pid_space != _pid_space() or not owner.started:
        return False
    state, started = _stat(owner.pid)
    return started == owner.started and state not in _STOPPED_STATES


@cache  # Called for each worker at each check.
def boot_id() -> str:
    """Return the id of this machine's boot, equal in all its containers; empty if unknown."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@cache
def _pid_space() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """Return when process *pid* started, in ticks since boot; None if it does not exist."""
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[str, int | None]:
    """Return the state of process *pid*, and when it started; None if it does not exist."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "", None
    fields = text.rpartition(")")[2].split()  # The name may hold blanks and parentheses.
    state = fields[_STATE]
    return state, None if state in _DEAD_STATES else int(fields[_STARTED])
