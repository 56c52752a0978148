"""Asks plugins in a process of their own, so that a plugin can neither block nor end this process.

`headrace.connector.control.plugins.probe` answers. Both processes run the same version of headrace
on the same machine.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.connector.control.errors import BadPositionError, NotAvailableError

SECONDS_MAX: Final = 30.0
_CODE: Final = "from headrace.connector.control.plugins.probe import serve; serve()"
_CHUNK_BYTES: Final = 1 << 16
END_SECONDS_MAX: Final = 5.0  # From the end of an answer to the end of its process.

Answer = Any  # Any: JSON.
Ask = Callable[[Mapping[str, object]], Answer]


def ask(question: Mapping[str, object], *, seconds_max: float | None = None) -> Answer:
    """Return the answer to *question*; `probe.ANSWERS` lists the questions.

    Without *seconds_max*, `SECONDS_MAX` bounds it.

    Raises:
        BadPositionError: the position is not one of the source.
        NotAvailableError: there is no answer; it has the reason.

    """
    with contextlib.closing(Probe()) as probe:
        return probe.ask(question, seconds_max=seconds_max)


class Probe:
    """A process that starts at a question, and restarts if it has ended. Thread-safe."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def has_ended(self) -> bool:
        """Return whether no question is open and its process has ended."""
        process = self._process
        return not self._lock.locked() and process is not None and process.poll() is not None

    def ask(self, question: Mapping[str, object], *, seconds_max: float | None = None) -> Answer:
        """Implement `ask`; blocks while another thread asks."""
        line = json.dumps(question).encode() + b"\n"
        seconds = SECONDS_MAX if seconds_max is None else seconds_max
        with self._lock:
            if self._process is not None:
                with contextlib.suppress(_EndedError):  # It had no question for long.
                    return unpacked(self._exchange(self._process, line, seconds))
            self._process = subprocess.Popen(  # noqa: S603 (headrace itself)
                [sys.executable, "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # The log of the plugin; its answer has the essentials.
                bufsize=0,
            )
            try:
                return unpacked(self._exchange(self._process, line, seconds))
            except _EndedError as error:
                message = f"the plugin ended its process with status {error.args[0]}"
                raise NotAvailableError("", message) from None

    def close(self) -> None:
        """End the process. Safe to call twice."""
        with self._lock:
            self._end()

    def _exchange(
        self, process: "subprocess.Popen[bytes]", line: bytes, seconds: float
    ) -> Mapping[str, Answer]:
        """Return the answer to a line; without one, the process has ended."""
        assert process.stdin is not None  # noqa: S101 (it was asked for)
        assert process.stdout is not None  # noqa: S101 (it was asked for)
        until, found, is_whole = time.monotonic() + seconds, bytearray(), False
        try:
            process.stdin.write(line)
            while not found.endswith(b"\n"):
                left = max(0.0, until - time.monotonic())
                if not select.select([process.stdout], [], [], left)[0]:
                    message = f"the plugin did not answer within {seconds:g} s"
                    raise NotAvailableError("", message, "it may wait for a disk or the network")
                if not (more := os.read(process.stdout.fileno(), _CHUNK_BYTES)):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(END_SECONDS_MAX)
                    raise _EndedError(self._end())
                found += more
            is_whole = True
        except BrokenPipeError:
            raise _EndedError(self._end()) from None
        finally:
            if not is_whole:
                self._end()
        answer: Mapping[str, Answer] = json.loads(found)
        return answer

    def _end(self) -> int | None:
        """End the process, and return its exit status."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None  # noqa: S101 (it was asked for)
        assert process.stdout is not None  # noqa: S101 (it was asked for)
        process.stdin.close()
        process.stdout.close()
        status = process.poll()
        process.kill()
        process.wait()
        return process.returncode if status is None else status


class _EndedError(Exception):
    """A process ended before it answered; its exit status."""


def unpacked(answer: Mapping[str, Answer]) -> Answer:
    """Return the `answer` in the result of `probe.answer_to`. Raises as `ask` does."""
    if "error" not in answer:
        return answer["answer"]
    code, key, message, hint = answer["error"]
    if key == "position":
        raise BadPositionError("position", message, hint)
    about = f"{key}: " if key else ""
    raise NotAvailableError("", f"{code}: {about}{message}", hint)
