"""The walks that `bench.walks` prints: each is one real run of a small job, traced."""

import contextlib
import io
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dis import opmap
from pathlib import Path
from types import CodeType, FrameType
from typing import Final
from unittest.mock import patch
from uuid import UUID

import structlog
import yaml

import headrace
from bench.errors import ProbeFailedError
from headrace.connector.commands.exec import main as execute
from headrace.connector.hosting.host import Host
from headrace.connector.obs.logging import configure
from headrace.connector.runtime.failures.hung import returned
from headrace.connector.runtime.pipeline import Pipeline
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.forge.segments import write_log
from headrace.sources.cassandra.schema.ddl import parse_schema

IDLE_PASSES: Final = 12  # On a busy machine most of them do what happens once a second.
_PACKAGE: Final = f"{Path(headrace.__file__).parent}{os.sep}"
_NODES: Final = ("node1", "node2", "node3")
_FIRST_ID: Final = 1_790_000_000_000
_TABLE: Final = UUID("0f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
_SCHEMA: Final = f"""
CREATE KEYSPACE shop WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '3'}};
CREATE TABLE shop.orders (id blob PRIMARY KEY, note blob) WITH cdc = true AND ID = {_TABLE};
"""
_CREATE: Final = """
CREATE DATA_SINK lines WITH 'file://changes.jsonl';
CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH lines;
"""
_RESUME: Final = 3  # The bits of RESUME's argument that are 0 where a function begins.
_YIELD: Final = opmap["YIELD_VALUE"]  # Where a generator was when it is closed.
_WAITED_FOR: Final = f"{returned.__qualname__}.<locals>.run"

Entry = tuple[str, str]  # A file of headrace, and a function in it.


@dataclass(frozen=True, slots=True)
class Walk:
    """What is followed: from a call of *begin* to the next of *end*, or else to the run's end."""

    title: str
    begin: Callable[..., object]
    end: Callable[..., object] | None
    run: Callable[[Path], None]
    bound: int
    goal: int | None = None
    splits: int = 1


def walked(title: str | None = None) -> Iterator[tuple[Walk, Sequence[Entry]]]:
    """Yield the walks, or the one of this title, each with its entries in their order."""
    configure("warning")
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="headrace-walks-") as folder:
        try:
            for walk in WALKS:
                if title not in {None, walk.title}:
                    continue
                # Twice: the first run imports, and makes what a process makes once.
                _traced(walk, Path(folder, f"first {walk.title}"))
                yield walk, _traced(walk, Path(folder, walk.title))
        finally:
            os.chdir(before)


def _traced(walk: Walk, folder: Path) -> Sequence[Entry]:
    """Run *walk* in a new *folder*; of a job that rests the shortest pass counts."""
    _prepare(folder, walk.splits)
    if walk.run is not _create:
        _create(folder)
    if walk.run is _rest:
        _run(folder)
    trace = Trace(walk.begin.__code__, walk.end.__code__ if walk.end else None)
    threading.setprofile(trace.see)
    sys.setprofile(trace.see)
    try:
        walk.run(folder)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    trace.finish()
    if not trace.found:
        raise ProbeFailedError(f"{walk.title}: it was not walked to its end")
    return min(trace.found, key=len) if walk.run is _rest else trace.found[0]


class Trace:
    """Follows a walk each time that it starts, on any thread, and calls that this waits for."""

    def __init__(self, begin: CodeType, end: CodeType | None) -> None:
        """Wait for the first call of *begin*."""
        self.found: list[list[Entry]] = []
        self._begin = begin
        self._end = end
        self._thread = 0
        self._waited_for = 0  # A thread that makes a call of a plugin for the walk's.
        self._entries: list[Entry] = []

    def see(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take an event of a thread; see `sys.setprofile`."""
        thread, code = threading.get_ident(), frame.f_code
        if code.co_qualname == _WAITED_FOR and self._thread:
            self._waited_for = thread if event == "call" else 0
            return
        if event != "call" or (self._thread not in {0, thread} and thread != self._waited_for):
            return
        if self._thread and code is self._end:
            self._take()
        if code is self._begin and not self._thread:
            self._thread = thread
        if not self._thread or not code.co_filename.startswith(_PACKAGE):
            return
        operation, argument = code.co_code[frame.f_lasti : frame.f_lasti + 2]
        is_resumed = operation == _YIELD or argument & _RESUME
        if not (is_resumed or code.co_name.startswith("<") or self._is_beside(frame)):
            file = code.co_filename.removeprefix(_PACKAGE)
            self._entries.append((file, code.co_qualname))

    def finish(self) -> None:
        """Take a walk that goes to the end of its run."""
        if self._end is None and self._thread:
            self._take()

    def _take(self) -> None:
        self.found.append(self._entries)
        self._thread, self._entries = 0, []

    @staticmethod
    def _is_beside(frame: FrameType) -> bool:
        """Say whether a function is called by one in its own file."""
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(_PACKAGE):
            caller = caller.f_back
        return caller is not None and caller.f_code.co_filename == frame.f_code.co_filename


def _prepare(folder: Path, splits: int) -> None:
    """Write a job, and three logs that have the same mutation."""
    folder.mkdir()
    (folder / "schema.cql").write_text(_SCHEMA)
    row = {"clustering": [], "liveness": {"ts": 1}, "columns": {"note": {"ts": 1, "value": "00"}}}
    update = {"id": str(_TABLE), "key": "00", "epoch": 5, "items": [row]}
    mutation = encode_mutation({"updates": [update]}, parse_schema(_SCHEMA), MESSAGING[7])
    for number, node in enumerate(_NODES):
        write_log(folder / node, [mutation], first_id=_FIRST_ID + 1_000 * number)
    source = {
        "plugin": "cassandra",
        "schema": "schema.cql",
        "consistency": "QUORUM",
        "splits": splits,
        "nodes": {node: node for node in _NODES},
    }
    runtime = {"tick_min_ms": 300, "commit_max_seconds": 60}
    job = {"job": "lines", "state": "state.db", "source": source, "runtime": runtime}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))


def _create(folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        status = execute(["--state", str(folder / "state.db"), "-e", _CREATE])
    if status:
        raise ProbeFailedError(f"the statements were not executed: status {status}")


def _run(folder: Path) -> None:
    """Run the job until it is idle."""
    _, report = Host(folder / "job.yaml", log=structlog.stdlib.get_logger()).run(until_idle=True)
    if report is None or report.changes != 1:
        raise ProbeFailedError(f"expected one change, found {report}")


def _rest(folder: Path) -> None:
    """Run a job for some passes that has nothing to do any more."""
    host = Host(folder / "job.yaml", log=structlog.stdlib.get_logger())
    run_pass, passes = Pipeline.run_pass, iter(range(IDLE_PASSES))

    def counted(pipeline: Pipeline) -> None:
        run_pass(pipeline)
        if next(passes, None) is None:
            host.stop()

    with patch.object(Pipeline, "run_pass", counted):
        host.run(until_idle=False)


WALKS: Final = (
    Walk("mutation to commit", Pipeline._step, SqliteStore.commit, _run, 690, 700),  # noqa: SLF001 (a step of a split)
    Walk("start to first command", Host.run, Pipeline.command, _run, 300, 300),
    Walk("two CREATE statements", execute, None, _create, 365),
    Walk("idle pass over 8 splits", Pipeline.run_pass, Pipeline.run_pass, _rest, 50, splits=8),
)
