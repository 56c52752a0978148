"""Runs the quickstart: shows changes, causes and repairs faults, and checks at the end."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from headrace.connector.demo.consumer import Received, Topic, decode
from headrace.connector.demo.quickstart.breaks import BREAKS
from headrace.connector.demo.quickstart.check import check, received_of, written_of
from headrace.connector.demo.quickstart.processes import (
    JOB_FILE,
    RING_FOLDER,
    TOPIC,
    WRITES_FILE,
    Processes,
)
from headrace.connector.demo.quickstart.said import Said
from headrace.connector.demo.quickstart.screen import Screen, one_line
from headrace.connector.runtime.books.figures import Figures, figures_text, headline
from headrace.connector.runtime.making import read_only_context
from headrace.connector.serde.schemas.lookup import StoreSchemas
from headrace.connector.serde.schemas.registry_client import RegistryConfig, RegistrySchemaStore
from headrace.plugins import parse_config

START_SECONDS_MAX: Final = 60
REST_SECONDS_MAX: Final = 60
HEADLINE_SECONDS: Final = 1.0
BREAK_SECONDS, MEND_SECONDS = 4.0, 10.0
_PREFIX_BYTES: Final = 5  # A zero byte and the number of the schema, as Confluent frames messages.
BREAK_SHARE, MEND_SHARE = 0.25, 0.6  # Shares of --seconds, if that is sooner.
NEXT: Final = """
Next:
  headrace quickstart --break {others}
  headrace demo    # what three nodes of Cassandra logged, checked change by change
  {look}
"""
KEEP: Final = "headrace quickstart --keep DIR    # then: headrace verify DIR/job.yaml --books"


class Stopping(Protocol):
    """Says whether it is time to end."""

    is_set: bool


class Live:
    """One run, from the first change to the comparison."""

    def __init__(self, folder: Path, processes: Processes, started_s: float, *, keep: bool) -> None:
        """Show the work of *processes* in *folder*; *started_s* is when the command started.

        With *keep* the folder stays, so that other commands can look at the job.
        """
        self._folder = folder
        self._is_kept = keep
        self._job_file = folder / JOB_FILE if keep else Path("DIR") / JOB_FILE
        self._processes = processes
        self._started_s = started_s
        self._screen = Screen()
        self._topic = Topic(processes.begin(), TOPIC)
        self._schemas = _schemas_at(processes.registry.url)
        self._received: Counter[bytes] = Counter()
        self._count, self._withhold = 0, -1
        self._first_s = 0.0
        self._said = Said(Figures(published=0))
        self._next_headline_s = 0.0

    def run(
        self, stop: Stopping, seconds: float | None, broken: str | None, *, withhold: int = -1
    ) -> Sequence[str]:
        """Run until *stop* is set, or *seconds* after the first change; return the problems.

        *broken* is one of `BREAKS`. *withhold* hides one message, counted from 0, from the check.
        """
        self._withhold = withhold
        self._screen.line(
            "Three nodes take writes; a worker reads their logs and publishes each change when two "
            "copies agree; a consumer prints it. Ctrl-C ends it."
        )
        while not stop.is_set and not self._first_s:
            self._look()
            if not self._processes.worker.running():
                raise self._processes.worker.failure("ended")
            if time.monotonic() - self._started_s > START_SECONDS_MAX:
                raise self._processes.worker.failure(f"sent nothing in {START_SECONDS_MAX} s")
        self._watch(stop, seconds, broken)
        problems = self._finish()
        look = f"headrace verify {self._job_file} --books" if self._is_kept else KEEP
        self._screen.line(NEXT.format(others="|".join(BREAKS), look=look).rstrip("\n"))
        return problems

    def _watch(self, stop: Stopping, seconds: float | None, broken: str | None) -> None:
        over_s = None if seconds is None else self._first_s + seconds
        due = []
        if broken is not None:
            what, whole = BREAKS[broken], seconds or float("inf")
            due = [
                (self._first_s + min(BREAK_SECONDS, BREAK_SHARE * whole), what.broken, what.begin),
                (self._first_s + min(MEND_SECONDS, MEND_SHARE * whole), what.mended, what.end),
            ]
        while not stop.is_set and (over_s is None or time.monotonic() < over_s):
            if due and time.monotonic() >= due[0][0]:
                self._act(*due.pop(0)[1:])
            self._look()
        if len(due) == 1:  # Repair the fault.
            self._act(*due.pop()[1:])

    def _act(self, text: str, act: Callable[[Processes], None] | None) -> None:
        self._screen.notice(text)
        if act is not None:
            act(self._processes)

    def _look(self) -> None:
        """Show changes since the last look; takes up to some milliseconds."""
        for message in self._topic.messages():
            record = decode(message, self._schemas, time.monotonic(), prefix_bytes=_PREFIX_BYTES)
            if self._count != self._withhold:
                self._show(record)
            self._count += 1
        for line in self._processes.ring.lines():
            self._screen.notice(line)
        for line in self._processes.worker.lines():
            self._said = msgspec.json.decode(line, type=Said)
            if self._said.console:
                self._screen.notice(f"In a browser: {self._said.console}")
                subjects = f"{self._processes.registry.url}/subjects"
                self._screen.notice(f"Schemas are in a registry: {subjects}")
        if self._first_s and time.monotonic() >= self._next_headline_s:
            self._next_headline_s = time.monotonic() + HEADLINE_SECONDS
            self._screen.stay(_headline(self._said.figures))

    def _show(self, record: Received) -> None:
        if not self._first_s:
            self._first_s = time.monotonic()
            self._screen.line(f"First change after {self._first_s - self._started_s:.1f} s.")
        change = received_of(record)
        self._received[change] += 1
        again = "  (again)" if self._received[change] > 1 else ""
        self._screen.line(one_line(record) + again)

    def _finish(self) -> Sequence[str]:
        """End ring, worker and broker in this order; compare, and show the result."""
        self._screen.notice("The ring takes no more writes. What is not read yet is read.")
        self._processes.ring.finished()
        lines = (self._folder / RING_FOLDER / WRITES_FILE).read_bytes().splitlines()
        written = [written_of(line) for line in lines]
        worker = self._processes.worker
        worker.close_input()  # It reads the rest, and ends.
        until_s = time.monotonic() + REST_SECONDS_MAX
        while worker.running() and time.monotonic() < until_s:
            self._look()
        worker.finished()
        while not self._topic.is_caught_up():
            self._look()
        self._look()
        self._topic.close()
        self._schemas.close()
        self._screen.stay("")
        figures = self._said.figures
        checked = check(written, self._received, figures, self._said.failures)
        self._screen.line("")
        self._screen.line(figures_text(figures, str(self._job_file)).rstrip("\n"))
        self._screen.line(checked.text(figures))
        return checked.problems


def _schemas_at(url: str) -> StoreSchemas:
    """Return the schemas of a registry, as any consumer of the topic could use them."""
    config = parse_config(RegistryConfig, {"url": url})
    store = RegistrySchemaStore(config, read_only_context("quickstart", bytes(16)))
    return StoreSchemas(store, framing="confluent", place=url)


def _headline(figures: Figures) -> str:
    if not figures.published:
        return "nothing is committed yet"
    return f"{headline(figures)}; {figures.dropped or 0:,} copies dropped"
