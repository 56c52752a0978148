"""Who is provably dead."""

import os
import signal
import subprocess
import sys

from msgspec.structs import replace

from headrace.connector.foundation.processes import is_alive, is_dead, this_process


def test_this_process_lives() -> None:
    """A process knows itself, and each identity is new."""
    assert is_alive(this_process())
    assert not is_dead(this_process())
    assert this_process().worker != this_process().worker


def test_an_ended_process_is_dead() -> None:
    """A process that has ended is dead, also while no one has asked for its exit status."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(this_process(), pid=child.pid, started=_started(child.pid))

    assert is_alive(owner)
    child.kill()
    child.stdin.close()  # type: ignore[union-attr]  # It is a pipe.
    while not is_dead(owner):
        pass  # A kill takes effect within moments.
    child.wait()
    assert is_dead(owner)


def test_a_stopped_process_is_not_known_to_live() -> None:
    """A process stopped by SIGSTOP neither works nor is dead."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(this_process(), pid=child.pid, started=_started(child.pid))
    assert is_alive(owner)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)

    assert (False, False) == (is_alive(owner), is_dead(owner))
    child.send_signal(signal.SIGCONT)
    child.communicate(b"\n")


def test_a_reused_pid_is_another_process() -> None:
    """The same number with another start time is not the owner."""
    owner = this_process()

    assert is_dead(replace(owner, started=owner.started + 1))


def test_nothing_is_known_of_elsewhere() -> None:
    """Another boot or pid space proves neither life nor death."""
    owner = this_process()
    for elsewhere in (replace(owner, boot="other"), replace(owner, pid_space="pid:[1]")):
        assert not is_dead(elsewhere)
        assert not is_alive(elsewhere)


def _started(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123 (one line)
        return int(file.read().rpartition(")")[2].split()[19])
