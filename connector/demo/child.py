"""The processes of the demo and of the quickstart. Imports little: they are started first."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self, cast

from headrace.plugins import FatalError

STOP_SECONDS_MAX: Final = 60
_TAIL_CHARACTERS: Final = 2_000
_READ_BYTES_MAX: Final = 65_536


class ChildFailedError(FatalError):
    """A process of the demo ended unexpectedly."""

    code = "demo_child"


class Child:
    """A process that ends when its standard input is closed; leaving the context ends it, too."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, *, is_heard: bool = False
    ) -> None:
        """Start *command* in *folder*; its output goes to `<name>.log`.

        With *is_heard*, `line` reads standard output instead.
        """
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (headrace itself)
                command,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if is_heard else log,
                stderr=log,
                bufsize=0,  # `lines` reads the rest after `line`.
                start_new_session=True,  # Ctrl-C is for the parent, which ends all in order.
            )
        self._said = b""

    def line(self) -> str:
        """Wait for one line of its output. Raises ChildFailedError if it ends without one."""
        line = cast("IO[bytes]", self._process.stdout).readline().decode().strip()
        if not line:
            self.finished()
            raise self.failure("said nothing")
        return line

    def lines(self) -> Sequence[str]:
        """Return the lines of its output since the last call, without waiting."""
        said = cast("IO[bytes]", self._process.stdout).fileno()
        while select.select([said], [], [], 0)[0] and (more := os.read(said, _READ_BYTES_MAX)):
            self._said += more
        *lines, self._said = self._said.split(b"\n")
        return [line.decode() for line in lines]

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        os.write(cast("IO[bytes]", self._process.stdin).fileno(), f"{line}\n".encode())

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def running(self) -> bool:
        """Return whether it has not ended."""
        return self._process.poll() is None

    def wait(self, seconds_max: float) -> bool:
        """Wait at most *seconds_max* for its end; return whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds_max)
        return not self.running()

    def close_input(self) -> None:
        """Close its standard input, so that it ends in order."""
        cast("IO[bytes]", self._process.stdin).close()

    def finished(self) -> None:
        """Wait for its end. Raises ChildFailedError unless it exits with 0."""
        self.close_input()
        try:
            status = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {STOP_SECONDS_MAX} s") from None
        if status:
            raise self.failure(f"exited with {status}")

    def failure(self, how: str) -> ChildFailedError:
        """Return an error that says *how* it failed, and the end of its log."""
        log = self._log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:]
        _, named, error = log.rpartition("\nerror [")  # The end of headrace's output at a failure.
        return ChildFailedError(
            f"{self.name} {how}:\n{(named + error).strip()}", hint="--keep DIR keeps all logs"
        )

    def __enter__(self) -> Self:
        """Return the child."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Terminate it, then kill it."""
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # A stopped process ignores others.
        if not self.wait(STOP_SECONDS_MAX):
            self._process.kill()
        with self._process:  # Closes the pipes and reaps it.
            pass
