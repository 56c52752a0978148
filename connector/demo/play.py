"""Plays a recording through the product: broker, statements, worker and consumer as processes."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, cast

import msgspec
import yaml

from headrace.connector.demo.consumer import Received
from headrace.connector.demo.expected import recording_tables
from headrace.connector.demo.recording import Recording
from headrace.plugins import FatalError

JOB: Final = "demo"
TOPIC: Final = "changes"
WORKER_SECONDS_MAX: Final = 300
RETRY_SECONDS_MAX: Final = 5
PROGRESS_SECONDS: Final = 0.05
COMMAND: Final = (
    sys.executable,
    "-c",
    "import sys; from headrace.connector.commands.cli import main; sys.exit(main(sys.argv[1:]))",
)
STOP_SECONDS_MAX: Final = 60
_TAIL_CHARACTERS: Final = 2_000


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
            )

    def line(self) -> str:
        """Wait for one line of its output. Raises ChildFailedError if it ends without."""
        line = cast("IO[bytes]", self._process.stdout).readline().decode().strip()
        if not line:
            self.finished()
            raise self.failure("said nothing")
        return line

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
        if not self.wait(STOP_SECONDS_MAX):
            self._process.kill()
        with self._process:  # Closes the pipes and reaps it.
            pass


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; `started_s` is when the worker started, by the same clock."""

    received: list[Received]
    summary: Mapping[str, Any]  # Any: JSON.
    started_s: float


def play(
    recording: Recording, folder: Path, progress: Callable[[int], None], *, withhold: int = -1
) -> Outcome:
    """Run everything in *folder*; *progress* gets the number of records received.

    *withhold* makes the consumer leave out one record, counted from 0.

    Raises:
        ChildFailedError: a process ended otherwise than it should.

    """
    state, out, summary = folder / "state.db", folder / "received.jsonl", folder / "summary.json"
    job = folder / "job.yaml"
    job.write_text(yaml.safe_dump(_job(recording, state), sort_keys=False), encoding="utf-8")
    with contextlib.ExitStack() as children:
        broker = children.enter_context(
            Child("broker", [*COMMAND, "embedded-broker"], folder, is_heard=True)
        )
        servers = broker.line()
        text = _statements(recording, servers)
        with Child("exec", [*COMMAND, "exec", "--state", str(state), "-e", text], folder) as child:
            child.finished()
        consumer = children.enter_context(
            Child("consumer", _consumer(servers, state, out, withhold), folder, is_heard=True)
        )
        consumer.line()
        started_s = time.monotonic()
        command = [*COMMAND, "run", str(job), "--until-idle", "--summary-json", str(summary)]
        worker = children.enter_context(Child("worker", command, folder))
        while not worker.wait(PROGRESS_SECONDS):
            progress(_lines(out))
            if time.monotonic() - started_s > WORKER_SECONDS_MAX:
                raise worker.failure(f"is not idle after {WORKER_SECONDS_MAX} s")
        worker.finished()
        consumer.finished()
        broker.finished()
    decoder = msgspec.json.Decoder(Received)
    received = decoder.decode_lines(out.read_bytes())
    progress(len(received))
    return Outcome(received, json.loads(summary.read_bytes()), started_s)


def _job(recording: Recording, state: Path) -> dict[str, object]:
    nodes = {name: str(folder) for name, folder in recording.nodes.items()}
    source = {"plugin": "cassandra", "schema": str(recording.schema), "consistency": "QUORUM"}
    runtime = {"retry_seconds_max": RETRY_SECONDS_MAX}
    return {
        "job": JOB,
        "state": str(state),
        "source": {**source, "nodes": nodes},
        "runtime": runtime,
    }


def _statements(recording: Recording, servers: str) -> str:
    lines = [f"CREATE DATA_SINK kafka WITH 'kafka://{servers}?topic={TOPIC}';"]
    lines += [
        f"CREATE DATA_SOURCE cdc ON TABLE {table.name} WITH kafka;"
        for table in recording_tables(recording)
    ]
    return "\n".join(lines)


def _consumer(servers: str, state: Path, out: Path, withhold: int) -> list[str]:
    return [
        *(sys.executable, "-m", "headrace.connector.demo.consumer"),
        *("--bootstrap-servers", servers, "--topic", TOPIC, "--state", str(state)),
        *("--out", str(out), "--withhold", str(withhold)),
    ]


def _lines(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        return sum(1 for _ in file)
    return 0
