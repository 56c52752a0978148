"""A server's process: started, awaited, and ended by its own id."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from real.servers.maven import ServerError

START_SECONDS_MAX: Final = 600
STOP_SECONDS_MAX: Final = 60
_TOOL_SECONDS_MAX: Final = 300
_POLL_SECONDS: Final = 0.1
_TAIL_CHARACTERS: Final = 3_000


def said_by(command: Sequence[str], folder: Path, what: str) -> str:
    """Run one of a server's own tools in *folder*, and return what it prints."""
    done = subprocess.run(  # noqa: S603 (a tool that comes with a server)
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TOOL_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"{what} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


class EndedError(ServerError):
    """A server ended by itself."""


class ServerProcess:
    """A running server. Leaving the context ends it."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        """Start *command* in *folder*, which gets its output as `output.log`."""
        self._log = folder / "output.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (a server of the tests)
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait for *ready*. Raises ServerError, with the end of the log, if it never is.

        EndedError: because the process ended.
        """
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready():
            if self._process.poll() is not None:
                raise EndedError(f"the server ended by itself:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise ServerError(f"not ready in {START_SECONDS_MAX} s:\n{self._tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End it: politely, then by force. Safe to call twice."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def status(self) -> int:
        """Wait until it has ended, and return its exit status."""
        return self._process.wait(STOP_SECONDS_MAX)

    def send(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it by force at once."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        """Return the process."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.stop()

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:]
