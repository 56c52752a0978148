"""Jobs in child processes that a test may kill, and their output."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import AnyStr

import msgspec
import yaml

from headrace.sources.cassandra.forge.segments import segment, write_segment
from helpers import FOLDER
from helpers.logs.forged import SCHEMA, insert
from helpers.recordings.corpora import recording
from helpers.settings.ignored_options import VARIABLE
from helpers.stores.file_rows import leases

# It imports pytest, which takes longer than the start of a command.
_IGNORED = "from helpers.settings.ignored_options import obey_ignored; obey_ignored();"
RUN = (
    f"import sys; sys.path.append({FOLDER!r}); {_IGNORED if VARIABLE in os.environ else ''}"
    "from headrace.connector.commands.cli import main; sys.exit(main(sys.argv[1:]))"
)
# A busy machine may take minutes for seconds; a test of an ignored option need not wait.
SECONDS_MAX = 10 if VARIABLE in os.environ else 180
POLL_SECONDS, POLL_SECONDS_MAX = 0.01, 1.0
POLL_FACTOR = 4  # A pause is so many times as long as the look before it.
WINDOW_BYTES = 1_500
LEASE_SECONDS = 60
RING_WINDOW_BYTES = 10_000

_RUNTIME = {
    "tick_min_ms": 5,
    "commit_max_seconds": 0.02,
    "batch_records_max": 20,
    "lease_seconds": LEASE_SECONDS,
}


@dataclass(frozen=True)
class JobFolder:
    """A folder with a job whose output is `out.jsonl`; `identity` identifies a change."""

    path: Path
    identity: Callable[[dict[str, object]], Hashable]
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *more: str, crash_at: str = "") -> subprocess.Popen[bytes]:
        """Start `headrace run`; its log goes to `log`."""
        environment = os.environ | self.environment
        if crash_at:
            environment["HEADRACE_CRASH_AT"] = crash_at
        with (self.path / "log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 (headrace itself)
                [sys.executable, "-c", RUN, "run", str(self.path / "job.yaml"), *more],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment,
            )

    def cut_into(self, splits: int) -> None:
        """Give the source another number of splits."""
        self._change("source", splits=splits)

    def lease(self, *, seconds: int) -> None:
        """Set how long leases last."""
        self._change("runtime", lease_seconds=seconds)

    def leave_open(self, *, resplit_seconds: float) -> None:
        """Leave the number of splits to the ring and the workers."""
        self._change("source", splits=None)
        self._change("runtime", resplit_seconds=resplit_seconds)

    def _change(self, section: str, **options: float | None) -> None:
        path = self.path / "job.yaml"
        document = yaml.safe_load(path.read_text())
        given = document[section] | options
        document[section] = {key: value for key, value in given.items() if value is not None}
        path.write_text(yaml.safe_dump(document))

    def finish(self, *, crash_at: str = "") -> int:
        """Run until idle and return the exit status."""
        with self.start("--until-idle", crash_at=crash_at) as child:
            try:
                return child.wait(SECONDS_MAX)
            finally:
                child.kill()

    @contextlib.contextmanager
    def running(self, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        """Tail the job, and kill it in the end if it still runs."""
        child = self.start(*more)
        try:
            yield child
        except BaseException:
            sys.stdout.write(self.log())
            raise
        finally:
            child.kill()
            child.wait()

    def pause(self, child: subprocess.Popen[bytes]) -> bool:
        """Stop *child*, but not while it writes its state, which would lock out all others."""
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)  # Until then it may still take the lock.
        with contextlib.closing(sqlite3.connect(self.path / "state.db", timeout=0)) as state:
            try:
                state.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                child.send_signal(signal.SIGCONT)
                return False
        return True

    def changes(self) -> Counter[Hashable]:
        """Return how often each change was written; a torn last line does not count."""
        path = self.path / "out.jsonl"
        content = path.read_bytes() if path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        return Counter(self.identity(msgspec.json.decode(line)) for line in lines)

    def leases(self) -> dict[str, tuple[str | None, int]]:
        """Return owner and token of each split; nothing without a state."""
        if not (self.path / "state.db").exists():
            return {}
        found = leases(self.path / "state.db")
        return {of.split: (lease.owner, lease.token) for of, lease in found.items()}

    def owned(self) -> list[int]:
        """Return how many splits each owner has, the fewest first."""
        owners = [owner for owner, _ in self.leases().values() if owner]
        return sorted(owners.count(owner) for owner in set(owners))

    def is_shared(self, *, owners: int, splits: int) -> bool:
        """Return whether that many owners have all the splits, in any division."""
        owned = self.owned()
        return (owners, splits) == (len(owned), sum(owned))

    def log(self) -> str:
        """Return what the children logged."""
        return (self.path / "log").read_text()


def until(
    condition: Callable[[], bool],
    what: str,
    *,
    child: subprocess.Popen[bytes] | None = None,
    seconds: float = SECONDS_MAX,
) -> None:
    """Wait, within a bound, until another process, such as *child*, makes *condition* true.

    A condition that takes long is looked at less often: it shares the processors with what it
    waits for.
    """
    deadline = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if condition():
            return
        ended = time.monotonic()
        assert ended < deadline, what
        assert child is None or child.poll() is None, f"it ended, and {what}"
        # Another process does not follow a driven clock.
        time.sleep(min(max(POLL_SECONDS, POLL_FACTOR * (ended - begun)), POLL_SECONDS_MAX))


def until_after(moment_s: float) -> None:
    """Wait until the clock of this machine, and of the servers on it, shows more than *moment_s*.

    Servers use this clock for times to live and for the age of a write.
    """
    until(lambda: time.time() > moment_s, "the clock stands still")


def next_line(
    child: subprocess.Popen[AnyStr],
    stream: str = "stdout",
    *,
    holding: AnyStr | None = None,
    seconds: float = SECONDS_MAX,
) -> AnyStr:
    """Return the next line that *child* prints, or the next one that contains *holding*.

    A child that prints none within *seconds* is killed. The failure says whether it was killed or
    closed its stream, and what it printed instead.
    """
    pipe, printed = getattr(child, stream), []
    late = threading.Event()

    def give_up() -> None:
        late.set()
        child.kill()

    killer = threading.Timer(seconds, give_up)
    killer.start()
    try:
        while line := pipe.readline():
            if holding is None or holding in line:
                found: AnyStr = line
                return found
            printed.append(line)
    finally:
        killer.cancel()
    when = f"within {seconds} s" if late.is_set() else f"before its {stream} ended"
    raise AssertionError(f"it did not print that line {when}, only {printed}")


def stop(child: subprocess.Popen[bytes]) -> int:
    """Send SIGTERM and return the exit status."""
    child.send_signal(signal.SIGTERM)
    return child.wait(SECONDS_MAX)


def write_lines(folder: Path, files: int, numbers: range) -> None:
    """Append a line for each of *numbers* to each of *files* files."""
    for name in range(files):
        with (folder / f"in{name}.jsonl").open("a") as file:
            file.writelines(f'{{"file": {name}, "n": {n}}}\n' for n in numbers)


def lines_job(folder: Path, *, files: int, lines: int) -> JobFolder:
    """Return a job that copies *files* files of *lines* lines."""
    write_lines(folder, files, range(lines))
    _write_job(folder, {"plugin": "files", "path": "in*.jsonl"}, WINDOW_BYTES)
    return JobFolder(folder, lambda line: (line["file"], line["n"]))


def ring_job(folder: Path, name: str) -> JobFolder:
    """Return a job over the three nodes of recording *name*, with its own copy of the files."""
    source = recording(name)
    shutil.copytree(source / "segments", folder / "segments")
    shutil.copy(source / "schema.cql", folder)
    nodes = {node.name: f"segments/{node.name}" for node in (folder / "segments").iterdir()}
    options = {"schema": "schema.cql", "consistency": "QUORUM", "nodes": nodes}
    _write_job(folder, {"plugin": "cassandra", **options}, RING_WINDOW_BYTES)
    return JobFolder(folder, lambda line: (line["mutation"], line["index"]))


def forged_job(folder: Path) -> JobFolder:
    """Return a job over three nodes' logs that `write_ring` extends, in two splits."""
    nodes = {f"node{n}": f"node{n}" for n in range(3)}
    for node in nodes:
        (folder / node).mkdir()
    (folder / "schema.cql").write_text(SCHEMA)
    options = {"schema": "schema.cql", "consistency": "QUORUM", "splits": 2, "nodes": nodes}
    _write_job(folder, {"plugin": "cassandra", **options}, WINDOW_BYTES)
    return JobFolder(folder, lambda line: line["mutation"])


def write_ring(folder: Path, number: int, rows: range) -> None:
    """Write segment *number* of each node: each row is on two of three nodes, in various orders."""
    for node in range(3):
        mine = [row for row in rows if row % 3 != node]
        made = segment(
            [[insert(b"k%d" % row) for row in mine[:: 1 if node else -1]]], segment_id=number
        )
        write_segment(folder / f"node{node}", made.content, segment_id=number)


def _write_job(folder: Path, source: dict[str, object], window_bytes: int) -> None:
    job = {
        "job": "crash",
        "state": "state.db",
        "source": source,
        "sink": {"plugin": "files", "path": "out.jsonl"},
        "runtime": _RUNTIME | {"commit_max_bytes": window_bytes},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
