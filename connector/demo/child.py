"""The processes of the demo and of the quickstart. Imports little: they are started first."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self, cast

from headrace.plugins import FatalError

COMMAND: Final = (
    sys.executable,
    "-c",
    "import sys; from headrace.connector.commands.cli import main; sys.exit(main(sys.argv[1:]))",
)
STOP_SECONDS_MAX: Final = 60
_TAIL_CHARACTERS: Final = 2_000
_READ_BYTES_MAX: Final = 65_536


class ChildFailedError(FatalError):
    """A process of the demo ended otherwise than it should."""

    code = "demo_child"


class Child:
    """A process whose standard input, when closed, asks it to end; leaving the context ends it."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, *, is_heard: bool = False
    ) -> None:
        """Start *command* in *folder*; its output goes to `<name>.log`.

        With *is_heard*, standard output does not: `line` reads it.
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
                bufsize=0,  # What `line` leaves is for `lines`.
                start_new_session=True,  # Ctrl-C is for the parent, which ends them in order.
            )
        self._said = b""

    def line(self) -> str:
        """Wait for one line of its output. Raises ChildFailedError if it ends without."""
        line = cast("IO[bytes]", self._process.stdout).readline().decode().strip()
        if not line:
            self.finished()
            raise self.failure("said nothing")
        return line

    def lines(self) -> Sequence[str]:
        """Return the lines of its output that have come since the last call; do not wait."""
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
        """Tell whether it has not ended."""
        return self._process.poll() is None

    def wait(self, seconds_max: float) -> bool:
        """Wait at most *seconds_max* for its end; tell whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds_max)
        return not self.running()

    def close_input(self) -> None:
        """Ask it to end in its own way."""
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
        _, named, error = log.rpartition("\nerror [")  # How headrace ends when it fails.
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
        """End it: politely, then by force."""
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # A process that is stopped heeds nothing else.
        if not self.wait(STOP_SECONDS_MAX):
            self._process.kill()
        with self._process:  # Closes the pipes and reaps it.
            pass
