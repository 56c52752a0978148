"""A standalone cluster of Spark: a master and two workers, whose executors are processes.

And interpreters for its tasks that kill a task, its executor or its driver at a known moment: when
the task renames a file or removes a folder.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from helpers.servers.ports import free_ports
from real.servers.spark import HOME, quick_start
from real.spark.spark_jobs import WAIT_SECONDS_MAX

TASK, EXECUTOR, DRIVER = "task", "executor", "driver"

_KILLER: Final = '''
"""Python imports this module by itself; it kills once at each of MOMENTS, in their order."""
import os
import re
import signal
import sys
from pathlib import Path

MOMENTS = {moments}
FOLDER = Path({folder!r})


def parent(pid):
    return int(Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])


def victims(who):
    """Return the processes to kill, this one at last; none if it is not one of *who*."""
    line = [os.getpid()]
    while line[-1] > 1:
        line.append(parent(line[-1]))
    names = [Path(f"/proc/{{pid}}/cmdline").read_bytes().split(bytes(1)) for pid in line]
    javas = [n for n, name in enumerate(names) if name[0].endswith(b"java")]
    if not javas:
        return []
    is_executor = any(b"CoarseGrainedExecutorBackend" in part for part in names[javas[0]])
    if is_executor is (who == "driver"):
        return []
    java = line[javas[0]]
    above = [line[javas[0] + 1]] if who == "driver" else []
    return [*above, *([] if who == "task" else [java]), line[0]]


def note(event, arguments):
    for number, (who, of_event, pattern) in enumerate(MOMENTS):
        if event != of_event or not any(re.search(pattern, str(each)) for each in arguments):
            continue
        if (FOLDER / str(number)).exists():
            continue
        found = victims(who)
        if not found or (number and not (FOLDER / str(number - 1)).exists()):
            return
        try:
            (FOLDER / str(number)).touch(exist_ok=False)
        except FileExistsError:  # Another task was faster.
            return
        for victim in found:
            os.kill(victim, signal.SIGKILL)


sys.addaudithook(note)
'''


@dataclass(frozen=True, slots=True)
class Moment:
    """Who is killed when a task, or for DRIVER a Python process of the driver, does something.

    `event` is one of Python's audit events; one of its arguments has `pattern`.
    """

    who: str
    event: str
    pattern: str


def killing_python(folder: Path, moments: Sequence[Moment]) -> Path:
    """Return an interpreter for Spark that kills at *moments*, each once and one after another."""
    folder.mkdir()
    each = [(moment.who, moment.event, moment.pattern) for moment in moments]
    killer = _KILLER.format(moments=each, folder=str(folder))
    (folder / "sitecustomize.py").write_text(killer)
    found = folder / "python"
    found.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {sys.executable} "$@"\n')
    found.chmod(0o755)
    return found


def past(python: Path) -> int:
    """Return at how many moments an interpreter of `killing_python` has killed."""
    return len(list(python.parent.glob("[0-9]*")))


def cluster(stack: ExitStack, folder: Path) -> str:
    """Start a master and two workers of one core each; return the master's address.

    The workers are on different hosts, as far as Spark can tell.
    """
    master = f"spark://127.0.0.1:{free_ports(1)[0]}"
    port = master.rpartition(":")[2]
    start(stack, folder, "Master", "--host", "127.0.0.1", "--port", port)
    wait_for(folder / "Master.log", r"New state: ALIVE")
    for number in range(2):
        work = str(folder / f"work{number}")
        start(
            stack,
            folder,
            "Worker",
            *(
                "--host",
                f"127.0.0.{number + 1}",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                work,
                master,
            ),
            name=f"Worker{number}",
        )
    for number in range(2):
        wait_for(folder / f"Worker{number}.log", r"Successfully registered")
    return master


def start(stack: ExitStack, folder: Path, kind: str, *arguments: str, name: str = "") -> None:
    """Start one of Spark's own servers; it ends with *stack*."""
    log = stack.enter_context((folder / f"{name or kind}.log").open("w"))
    program = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
    child = subprocess.Popen(  # noqa: S603 (Spark's own program)
        [str(HOME / "bin" / "spark-class"), program, "--webui-port", "0", *arguments],
        stdout=log,
        stderr=log,
        env=os.environ | quick_start() | {"PYSPARK_PYTHON": sys.executable},
    )
    stack.callback(child.wait)
    stack.callback(child.terminate)


def wait_for(log: Path, pattern: str) -> None:
    """Wait until *log* says *pattern*."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while not re.search(pattern, log.read_text()):
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)
