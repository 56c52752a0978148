"""The agent's process and its place behind the node's."""

import os
import platform
import subprocess
import sys

import pytest

from headrace.sources.cassandra.agent.command import NICE

IOPRIO_GET = {"x86_64": 252, "aarch64": 31}
IDLE = "3"
PROGRAM = """
import ctypes, os, sys, threading
from headrace.sources.cassandra.agent.command import go_behind

def tell():
    print(os.nice(0), ctypes.CDLL(None).syscall(int(sys.argv[1]), 1, 0) >> 13)

go_behind()
tell()
other = threading.Thread(target=tell)
other.start()
other.join()
"""


@pytest.mark.skipif(platform.machine() not in IOPRIO_GET, reason="Linux has other numbers there")
def test_the_node_goes_first() -> None:
    """All its threads are nice, and have the disk when no one else wants it."""
    number = str(IOPRIO_GET[platform.machine()])
    told = subprocess.run(  # noqa: S603 (ourselves)
        [sys.executable, "-c", PROGRAM, number], capture_output=True, text=True, check=True
    ).stdout

    expected = f"{min(os.nice(0) + NICE, 19)} {IDLE}\n"
    assert expected * 2 == told
