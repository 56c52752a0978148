"""What there is to be completed, and how everything fares: asked beside the shell, while it waits.

Opens the state file anew on whatever thread it is called, because a connection belongs to one.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.connector.control.commands import Commands
from headrace.connector.control.service import ControlService
from headrace.connector.shell.completion import Known
from headrace.connector.shell.parser import parse_statement
from headrace.connector.shell.statements import CreateSink, Show, Subject, TableName
from headrace.connector.states import Observed
from headrace.connector.stores.sqlite_file import connect
from headrace.plugins import HeadraceError

KNOWN_SECONDS: Final = 2.0  # For so long an answer is good enough for completion.

_WELL: Final = (Observed.RUNNING, Observed.PAUSED, Observed.STOPPED)


@dataclass(slots=True)
class Lookout:
    """See the module. `cassandra` returns the tables that a live connection knows of."""

    state: str
    cassandra: Callable[[], dict[TableName, bool]] = dict
    _known: Known = field(default_factory=Known)
    _asked: float = float("-inf")

    def known(self) -> Known:
        """Return what there is, as of lately; nothing while the state file does not answer."""
        if time.monotonic() - self._asked > KNOWN_SECONDS:
            self._asked = time.monotonic()
            with contextlib.suppress(HeadraceError):
                self._known = self._ask()
        return self._known

    def health(self) -> str:
        """Return one line: how many sources are in which state, and the first trouble."""
        try:
            with contextlib.closing(connect(self.state, create=False)) as connection:
                statuses = list(Commands(connection).statuses().values())
        except HeadraceError as error:
            return f"{error.code}: {error.message}"
        if not statuses:
            return "no data source yet: CREATE DATA_SINK, then CREATE DATA_SOURCE"
        counts = {state: sum(s.state is state for s in statuses) for state in Observed}
        parts = [f"{count} {state}" for state, count in counts.items() if count]
        trouble = next((s for s in statuses if s.state not in _WELL), None)
        if trouble is not None:
            parts.append(f"{trouble.name}: {trouble.reason or trouble.state}")
        return " · ".join(parts)

    def lag(self) -> str:
        """Return how far the source is behind that is most behind; nothing where none can tell.

        Takes as long as the sources take to answer.
        """
        try:
            with contextlib.closing(connect(self.state, create=False)) as connection:
                found = ControlService(connection).execute(Show(subject=Subject.LAG))
        except HeadraceError:
            return ""
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        told = [row for row in rows if row["behind_bytes"]]
        if not told:
            return ""
        worst = max(
            told, key=lambda row: (float(row["age_seconds"] or 0), int(row["behind_bytes"]))
        )
        age = f"{float(worst['age_seconds']):.0f} s, " if worst["age_seconds"] else ""
        return f"lag {age}{worst['behind_bytes']} bytes ({worst['name']})"

    def _ask(self) -> Known:
        with contextlib.closing(connect(self.state, create=False)) as connection:
            commands = Commands(connection)
            statements = [parse_statement(sink.statement) for sink in commands.sinks()]
            sources = {source.table: source.word for source in commands.sources()}
            splits = {s.split for status in commands.statuses().values() for s in status.splits}
        return Known(
            sinks={s.name: s.uri for s in statements if isinstance(s, CreateSink)},
            sources=sources,
            tables=self.cassandra(),
            splits=sorted(splits),
        )
