"""Starts `headrace run` in a few milliseconds, so that it can be killed hundreds of times.

A server imports everything once and forks a child for each run. Run as a program, this file is that
server; imported as a module, it is the server's client.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Final, Self

from helpers import FOLDER
from helpers.jobs.children import next_line

STEPS: Final = (  # Of every job, at which it may die.
    "claimed",
    "loaded",
    "read",
    "encoded",
    "schemas_stored",
    "submitted",
    "settled",
    "commit_chunks",
    "commit_heads",
    "committed",
    "positions_released",
    "handed_over",
)
STUCK_SECONDS: Final = 180  # How long a job may take on a busy machine.


class KillServer:
    """The server, from `with` to its end."""

    def __enter__(self) -> Self:
        """Start it and wait until it has imported everything."""
        self._server = subprocess.Popen(
            [sys.executable, "-m", "helpers.jobs.kill_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": FOLDER},
        )
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        """Let it end."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(STUCK_SECONDS)
        self._server.stdout.close()

    def run(self, folder: Path, die: str | float = "") -> int:
        """Run the job in *folder* until it is idle; return its exit status.

        *die* is when it is killed: a step and its turn, or a number of seconds after the start.
        """
        assert self._server.stdin is not None
        self._server.stdin.write(f"{folder}\t{die}\n")
        self._server.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        return next_line(self._server).strip()


def moments(seed: int, steps: tuple[str, ...], count: int) -> list[str | float]:
    """Return when to kill: at a named step and its turn, or some seconds after the start."""
    random = Random(seed)  # noqa: S311 (a test's dice)
    found: list[str | float] = []
    for number in range(count):
        step = f"{random.choice(steps)}:{random.choice([1, 1, 2, 3, 5, 8])}"
        found.append(step if number % 2 else random.uniform(0, 0.3))
    return found


def _serve() -> None:
    import headrace.connector.hosting.supervisor  # noqa: PLC0415 (in the server only)
    import headrace.connector.serde.codecs.json  # noqa: PLC0415
    import headrace.sinks.files  # noqa: PLC0415
    import headrace.sources.cassandra.source  # noqa: PLC0415
    import headrace.sources.files  # noqa: F401, PLC0415
    from headrace.connector.commands import cli  # noqa: PLC0415
    from headrace.connector.foundation import crash  # noqa: PLC0415

    print("ready", flush=True)  # noqa: T201 (it answers so)
    for line in sys.stdin:
        folder, die = line.rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            signal.alarm(STUCK_SECONDS)
            log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 2)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            if ":" in die:
                os.environ["HEADRACE_CRASH_AT"] = die
                crash.reached = crash._at_step  # noqa: SLF001 (it is chosen at the import)
            os._exit(cli.main(["run", f"{folder}/job.yaml", "--until-idle"]))
        if die and ":" not in die:
            time.sleep(float(die))  # The moment is the test.
            os.kill(pid, signal.SIGKILL)  # No other process waits for it: the pid is still its own.
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    _serve()
