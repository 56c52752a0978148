"""Plays a recording through the product: broker, statements, worker and consumer as processes."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from headrace.connector.demo.child import Child
from headrace.connector.demo.consumer import Received
from headrace.connector.demo.expected import recording_tables
from headrace.connector.demo.recording import Recording
from headrace.connector.foundation.processes import COMMAND

JOB: Final = "demo"
JOB_FILE: Final = "job.yaml"
AGAIN_FILE: Final = "again.yaml"
CHANGES_FILE: Final = "changes.jsonl"
TOPIC: Final = "changes"
WORKER_SECONDS_MAX: Final = 300
RETRY_SECONDS_MAX: Final = 5
PROGRESS_SECONDS: Final = 0.05


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of the demo; `started_s` is when the worker started, by the same clock."""

    received: list[Received]
    summary: Mapping[str, Any]  # Any: JSON.
    started_s: float


def play(
    recording: Recording, folder: Path, progress: Callable[[int], None], *, withhold: int = -1
) -> Outcome:
    """Run everything in *folder*; *progress* gets the number of records received.

    *withhold* makes the consumer omit one record, counted from 0.

    Raises:
        ChildFailedError: a process ended unexpectedly.

    """
    state, out, summary = folder / "state.db", folder / "received.jsonl", folder / "summary.json"
    job = folder / JOB_FILE
    _write(job, _job(recording, state))
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


def write_again(recording: Recording, folder: Path) -> None:
    """Write into *folder* a job that reads *recording* from its beginning, without a broker."""
    job = _job(recording, folder / "again.db")
    job["job"] = f"{JOB}-again"  # The logs have notes of the other job.
    job["sink"] = {"plugin": "files", "path": str(folder / CHANGES_FILE)}
    _write(folder / AGAIN_FILE, job)


def _write(path: Path, job: Mapping[str, object]) -> None:
    path.write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")


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
