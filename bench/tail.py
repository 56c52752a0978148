"""What a worker costs while nodes write: `tail` of `bench.probes`.

Another process writes live segments as nodes do: at each sync their entries, then the index file.
The worker is a process of its own, with a sink that takes everything.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import yaml

from bench.errors import ProbeFailedError
from bench.recordings import mutations_of, with_key
from bench.starting import HEADRACE, ready_line
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.sources.cassandra.commitlog.segment import index_name
from headrace.sources.cassandra.forge.segments import SEGMENT_BYTES, SegmentWriter, write_segment

_ROOT: Final = Path(__file__).parents[1]
SYNC_SECONDS: Final = 0.1  # `commitlog_sync: periodic`, as often as this.
LOGS: Final = 3
SPLITS: Final = 8
WARM_SECONDS: Final = 1.0  # Written before anything is measured: what is made once is there then.
_FIRST_ID: Final = 1_800_000_000_000
_SECONDS_MAX: Final = 120
_POLL_SECONDS: Final = 0.1
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_NS: Final = 1_000_000_000


@dataclass(frozen=True)
class _Log:
    """A live segment that is written section by section."""

    path: Path
    content: bytes
    file_ends: Sequence[int]
    section_ends: Sequence[int]

    def sync(self, number: int) -> None:
        """Write section *number*, and how far the segment is durable."""
        begin = self.file_ends[number - 1] if number else 0
        with self.path.open("r+b") as file:
            file.seek(begin)
            file.write(self.content[begin : self.file_ends[number]])
        (self.path.parent / index_name(self.path.name)).write_text(f"{self.section_ends[number]}")


def _logs(schema: Path, folders: Sequence[Path], *, each: int, syncs: int) -> Sequence[_Log]:
    """Prepare a segment for each folder: *syncs* sections of *each* mutations, all different."""
    recorded = mutations_of(schema)
    made = []
    for place, folder in enumerate(folders):
        writer = SegmentWriter(segment_id=_FIRST_ID + 1_000_000 * place)
        for number in range(syncs * each):
            writer.add(with_key(recorded[number % len(recorded)], number // len(recorded)))
            if number % each == each - 1:
                writer.sync()
        forged = writer.forged()
        path = write_segment(
            folder, forged.content[: forged.header_bytes], segment_id=writer.segment_id, index="0"
        )
        os.truncate(path, max(SEGMENT_BYTES, len(forged.content)))
        made.append(_Log(path, forged.content, forged.file_ends, forged.section_ends))
    return made


@dataclass(frozen=True)
class Writes:
    """How often logs are synced, and with how many mutations *each* time.

    After *warm* syncs, if there are any, writing waits until it is to continue.
    """

    each: int
    syncs: int
    warm: int = 0
    sync_seconds: float = SYNC_SECONDS


def write(schema: str, folders: Sequence[str], writes: Writes) -> None:
    """Write the logs; print a line when they are prepared, and begin or continue after one came.

    The nodes sync one after another, as nodes do that know nothing of each other. In the end print
    when each section became durable in each log, in ns.
    """
    warm, syncs = writes.warm, writes.syncs
    logs = _logs(Path(schema), [Path(f) for f in folders], each=writes.each, syncs=syncs)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    durable: list[int] = []
    for numbers in filter(len, (range(warm), range(warm, syncs))):
        sys.stdin.readline()
        durable += _sync(logs, numbers, writes.sync_seconds)
    sys.stdout.write(json.dumps(durable) + "\n")
    sys.stdout.flush()


def _sync(logs: Sequence[_Log], numbers: range, sync_seconds: float) -> Iterator[int]:
    """Write sections of all logs; yield when each became durable, in ns."""
    began = time.monotonic() - sync_seconds * numbers.start
    for number in numbers:
        for place, log in enumerate(logs):
            due = began + sync_seconds * (number + place / len(logs))
            time.sleep(max(0.0, due - time.monotonic()))
            log.sync(number)
            yield time.monotonic_ns()


def tail(  # noqa: PLR0913, PLR0917 (what is written, and how it is read)
    schema: str, folder: str, rate: int, seconds: float, splits: int = SPLITS, mode: str = "log"
) -> Mapping[str, object]:
    """Write *rate* mutations a second into each of three logs; return the worker's CPU meanwhile.

    Before that it is measured for as long without writes. *folder* is made.
    """
    place = Path(folder)
    folders = [place / f"node{number}" for number in range(LOGS)]
    each = max(1, round(rate * SYNC_SECONDS))
    warm = round(WARM_SECONDS / SYNC_SECONDS)
    syncs = warm + max(1, round(seconds / SYNC_SECONDS))
    with writer_of(schema, folders, Writes(each, syncs, warm)) as (write_on, _):
        job = job_of(place, schema, folders, splits, mode)
        with worker_of(job) as worker, closing(SqliteStore.open(state_of(job), "tail")) as store:
            until(lambda: all(state.position for state in store.states()))
            time.sleep(WARM_SECONDS)
            before = cpu_seconds(worker.pid)
            time.sleep(seconds)
            idle = cpu_seconds(worker.pid) - before
            write_on()
            until(lambda: delivered(store) >= warm * each)
            before = cpu_seconds(worker.pid)
            write_on()
            until(lambda: delivered(store) >= syncs * each)
            cpu = cpu_seconds(worker.pid) - before
    return {
        "changes": (syncs - warm) * each,
        "cpu_ns": round(cpu * _NS),
        "idle_cpu_ns": round(idle * _NS),
        "idle_ns": round(seconds * _NS),
    }


def job_of(  # noqa: PLR0913, PLR0917 (what a job is made of)
    place: Path,
    schema: str,
    folders: Sequence[Path],
    splits: int,
    mode: str = "log",
    sink: Mapping[str, object] | None = None,
) -> Path:
    """Write a job that reads the logs in *folders*; return its path."""
    source = {
        "mode": mode,
        "plugin": "cassandra",
        "schema": schema,
        "consistency": "QUORUM",
        "nodes": {folder.name: str(folder) for folder in folders},
        "splits": splits,
    }
    job = {
        "job": "tail",
        "state": "state.db",
        "source": source,
        "sink": dict(sink or {"plugin": "null"}),
    }
    path = place / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def state_of(job: Path) -> Path:
    """Return the state file of a job that names it `state.db`."""
    return job.with_name("state.db")


@contextmanager
def writer_of(
    schema: str, folders: Sequence[Path], writes: Writes
) -> Iterator[tuple[Callable[[], None], Callable[[], Sequence[int]]]]:
    """Prepare the logs in another process; give what lets it write them, and when it did; `write`.

    The latter waits until all is written.
    """
    names = [str(folder) for folder in folders]
    arguments = json.dumps([schema, names, asdict(writes)])
    with subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-m", "bench.tail", arguments],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        ready_line(child, "stdout", "ready")

        def write_on() -> None:
            assert child.stdin is not None  # noqa: S101 (it is a pipe)
            child.stdin.write("\n")
            child.stdin.flush()

        def ended() -> Sequence[int]:
            assert child.stdout is not None  # noqa: S101 (it is a pipe)
            durable: Sequence[int] = json.loads(child.stdout.readline())
            return durable

        try:
            yield write_on, ended
        finally:
            child.kill()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def delivered(store: SqliteStore) -> int:
    """Return how many changes a job has delivered."""
    return sum(c.delivered for state in store.states() for c in state.counters.values())


def until(condition: Callable[[], bool]) -> None:
    """Wait until a worker has come to *condition*. Raises ProbeFailedError if it does not."""
    deadline = time.monotonic() + _SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise ProbeFailedError("the worker did not come so far")
        time.sleep(_POLL_SECONDS)


@contextmanager
def worker_of(job: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker of *job*, and end it as a user would."""
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [sys.executable, "-c", HEADRACE, "--log-level", "error", "run", str(job)]
    ) as child:
        try:
            until(state_of(job).exists)
            yield child
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(_SECONDS_MAX)


if __name__ == "__main__":
    schema_given, folders_given, writes_given = json.loads(sys.argv[1])
    write(schema_given, folders_given, Writes(**writes_given))
