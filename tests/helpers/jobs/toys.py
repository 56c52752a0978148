"""Third-party plugins: a source and a sink that are never opened, and a source that runs."""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.plugins import (
    Backlog,
    CheckResult,
    ConfigError,
    Delivery,
    Finding,
    MissingRequirementError,
    Position,
    Problem,
    Reader,
    Relocation,
    Settle,
    Sink,
    Source,
    Split,
    Tables,
    Writer,
    option,
)
from headrace.sinks.files import FileSink, FileSinkConfig
from headrace.sources.files import FileSource, FileSourceConfig

if TYPE_CHECKING:  # Child processes load these plugins, and need no pytest.
    import pytest

ENTRY_POINTS = """\
[headrace.sources]
river = helpers.jobs.toys:RiverSource
brook = helpers.jobs.toys:BrookSource
[headrace.sinks]
bus = helpers.jobs.toys:BusSink
pond = helpers.jobs.toys:PondSink
mud = helpers.jobs.toys:MudSink
vault = helpers.jobs.transactions:VaultSink
torn-sink = no_such_module:TornSink
[headrace.stores]
attic = headrace.plugins.testing.memory_values:MemoryValues
"""


def install(folder: Path, monkeypatch: "pytest.MonkeyPatch") -> None:
    """Make the plugins an installed distribution for one test."""
    metadata = folder / "toys-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: toys\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class BusConfig:
    """Options of the toy sink."""

    stops: str = option("Where it stops.", name="bus.stops")
    line: str = option("Which line.", default="1")
    seats: int = option("How many.", default=40, minimum=1, maximum=100)
    password: str | None = option("The driver's.", default=None, secret=True)
    token_colour: str | None = option("No secret at all.", name="colour.token", default=None)
    extras: Mapping[str, str] = option("All else.", keys_allowed=r"bus\..*")
    keys: Mapping[str, str] = option("What opens it.", keys_allowed=r"key\..*", secret=True)


class BusSink(Sink):
    """`bus://stop1,stop2?line=2`."""

    schemes = ("bus", "tram+tls")
    config_class = BusConfig
    config: BusConfig

    def open(self) -> Writer:
        """Refuse: this sink is never opened."""
        raise MissingRequirementError("the bus has left")

    def check(self) -> Sequence[Finding]:
        """Return a check's result; a late bus never answers, and a torn one ends the process."""
        if self.config.line == "late":
            threading.Event().wait()
        if self.config.line == "torn":
            os._exit(7)
        if self.config.line == "odd":
            raise ValueError(self.config.password)
        return [Finding("stop", CheckResult.PASSED, f"the password is {self.config.password}")]

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> dict[str, str]:
        """Parse the host as the stops; a path is an error."""
        if path:
            raise ConfigError([Problem("uri", f"a bus takes no path, found {path!r}")])
        return {"bus.stops": host} if host else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PondConfig:
    """The options of a sink with a topic."""

    path: str = option("The file to append to.")
    topic: str = option("The topic that it pretends to have.")
    password: str | None = option("What nobody may see.", default=None, secret=True)


class PondSink(Sink):
    """`pond:///path?topic=x`: writes to a file, as the file sink does."""

    schemes = ("pond",)
    config_class = PondConfig

    def open(self) -> Writer:
        """Open as the file sink does, unless the password is wrong."""
        if self.config.password is not None and "bad" in self.config.password:
            raise MissingRequirementError("nobody may log in with that")
        return FileSink(FileSinkConfig(path=self.config.path), self.context).open()


@dataclass(frozen=True, slots=True, kw_only=True)
class MudConfig:
    """The sink that hangs has no options."""


OVER = threading.Event()
"""Set by the test when `MudWriter` may continue."""


class MudWriter(Writer):
    """Its `submit` does not return before the test ends."""

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Hang."""
        OVER.wait()
        settle(range(len(delivery.encoded)))

    def drain(self, deadline_ms: int) -> bool:
        """Return True: everything is settled."""
        del deadline_ms
        return True


class MudSink(Sink):
    """`mud://x`."""

    schemes = ("mud",)
    config_class = MudConfig

    def open(self) -> Writer:
        """Return a writer that hangs."""
        return MudWriter()

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> dict[str, str]:
        """Accept any URI."""
        del host, path
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RiverConfig:
    """The source has no options."""


class RiverSource(Source, Relocation):
    """`CREATE DATA_SOURCE flow`."""

    word = "flow"
    config_class = RiverConfig

    @classmethod
    def check_place(cls, target: str) -> None:
        """Refuse one word, which is not a place."""
        if target == "desert":
            raise ConfigError([Problem("position", f"the river has no {target!r}")])


@dataclass(frozen=True, slots=True, kw_only=True)
class BrookConfig:
    """The options of a source of lines that has tables in name only."""

    path: str = option("The files to follow.")
    tables: tuple[str, ...] = option("The tables, of which it knows nothing.", default=())
    tables_missing: str = option("Whether it may wait for some.", default="fail")


class BrookSource(Source, Relocation, Tables):
    """`CREATE DATA_SOURCE brook`: follows files, for any tables.

    A table is missing while a file of its name exists beside them.
    """

    word = "brook"
    config_class = BrookConfig

    def plan(self) -> list[Split]:
        """Plan as the file source does, but fail for a missing table that is required."""
        if self.config.tables_missing != "wait" and (missing_tables := self.missing_tables()):
            raise ConfigError(missing_tables.values())
        return self._files().plan()

    def open(self, split: Split, resume: Position | None) -> Reader:
        """Read as the file source does."""
        return self._files().open(split, resume)

    def backlog(self, split: Split, position: Position | None) -> Sequence[Backlog]:
        """Return the backlog as the file source does."""
        return self._files().backlog(split, position)

    def locate(self, split: Split, position: Position | None, target: str) -> Position | None:
        """Locate as the file source does."""
        return self._files().locate(split, position, target)

    @classmethod
    def first_position(cls) -> Position | None:
        """Start where the file source does."""
        return FileSource.first_position()

    def tables(self) -> Sequence[str]:
        """Return the tables of the configuration."""
        return list(self.config.tables)

    def missing_tables(self) -> Mapping[str, Problem]:
        """Return the tables that are missing."""
        found = [t for t in self.config.tables if Path(self.config.path).with_name(t).exists()]
        return {table: Problem("tables", f"{table} is not there", "make it") for table in found}

    def _files(self) -> FileSource:
        return FileSource(FileSourceConfig(path=self.config.path), self.context)
