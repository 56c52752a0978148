"""Asks how far jobs are behind, again and again, in a process for each job that is kept meanwhile.

To start a process takes half a second of CPU; to ask one that has seen the job before, a few ms.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final

from headrace.connector.control.errors import NotAvailableError
from headrace.connector.control.plugins import probing
from headrace.connector.control.plugins.probing import Answer, unpacked

PROBES_MAX: Final = 32  # Further jobs are asked in processes of one question.
_CODE: Final = "from headrace.connector.control.plugins.probe import serve; serve()"
_CHUNK_BYTES: Final = 1 << 16


class KeptProbes:
    """See the module. Any thread may call. Processes that are not asked end by themselves."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._probes: dict[tuple[str, str], _Probe] = {}
        self._is_closed = False

    def ask_lag(self, question: Mapping[str, object]) -> Answer:
        """Return the answer to a question of verb `lag`. Raises as `probing.ask`. Blocks."""
        key = (str(question["job_file"]), str(question["job"]))
        with self._lock:
            for other in [k for k, probe in self._probes.items() if probe.has_ended()]:
                self._probes.pop(other).close()
            if key not in self._probes and len(self._probes) < PROBES_MAX and not self._is_closed:
                self._probes[key] = _Probe()
            probe = self._probes.get(key)
        return probing.ask(question) if probe is None else unpacked(probe.ask(question))

    def close(self) -> None:
        """End all processes. Safe to call twice."""
        with self._lock:
            probes, self._probes, self._is_closed = self._probes, {}, True
        for probe in probes.values():
            probe.close()


class _Probe:
    """A process for one job; it is started when it is asked, again if it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def has_ended(self) -> bool:
        """Say whether it is not asked now and its process has ended."""
        process = self._process
        return not self._lock.locked() and process is not None and process.poll() is not None

    def ask(self, question: Mapping[str, object]) -> Mapping[str, Answer]:
        line = json.dumps(question).encode() + b"\n"
        with self._lock:
            if self._process is not None:
                with contextlib.suppress(_EndedError):  # It was not asked for long.
                    return self._exchange(self._process, line)
            self._process = subprocess.Popen(  # noqa: S603 (headrace itself)
                [sys.executable, "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # The log of the plugin; its answer has what matters.
                bufsize=0,
            )
            try:
                return self._exchange(self._process, line)
            except _EndedError as error:
                message = f"the plugin ended its process with status {error.args[0]}"
                raise NotAvailableError("", message) from None

    def close(self) -> None:
        with self._lock:
            self._end()

    def _exchange(self, process: "subprocess.Popen[bytes]", line: bytes) -> Mapping[str, Answer]:
        """Return the answer to a line; without one, the process has ended."""
        assert process.stdin is not None  # noqa: S101 (it was asked for)
        assert process.stdout is not None  # noqa: S101 (it was asked for)
        until, found, is_whole = time.monotonic() + probing.SECONDS_MAX, bytearray(), False
        try:
            process.stdin.write(line)
            while not found.endswith(b"\n"):
                left = max(0.0, until - time.monotonic())
                if not select.select([process.stdout], [], [], left)[0]:
                    raise probing.late(probing.SECONDS_MAX)
                if not (more := os.read(process.stdout.fileno(), _CHUNK_BYTES)):
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
