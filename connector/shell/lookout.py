"""Names for completion, and the state of sources: read in the background, while the shell waits.

Opens the service again on each thread that calls it, because a connection belongs to one.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.foundation.states import Observed
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.rendering import STATEMENT_COLUMN
from headrace.connector.language.statements import (
    NO_TABLE,
    CreateSink,
    CreateSource,
    DescribeSinks,
    DescribeSources,
    Show,
    Statement,
    Subject,
    TableName,
)
from headrace.connector.shell.completion import Known
from headrace.connector.shell.executing import Executes
from headrace.plugins import HeadraceError

KNOWN_SECONDS: Final = 2.0  # How long an answer is used for completion.

_WELL: Final = (Observed.RUNNING, Observed.PAUSED, Observed.STOPPED)


class Lookout(msgspec.Struct):
    """See the module.

    `service` opens the service that executes statements, `cassandra` returns the tables of a live
    connection.
    """

    service: Callable[[], contextlib.AbstractContextManager[Executes]]
    cassandra: Callable[[], dict[TableName, bool]] = dict
    _known: Known = msgspec.field(default_factory=Known)
    _asked: float = float("-inf")

    def known(self) -> Known:
        """Return the recently known objects; none while the state file does not respond."""
        if time.monotonic() - self._asked > KNOWN_SECONDS:
            self._asked = time.monotonic()
            with contextlib.suppress(HeadraceError):
                self._known = self._ask()
        return self._known

    def health(self) -> str:
        """Return one line: how many sources are in which state, and the first trouble."""
        try:
            (sources,) = self._rows(Show(subject=Subject.STATUS))
        except HeadraceError as error:
            return f"{error.code}: {error.message}"
        if not sources:
            return "no data source yet: CREATE DATA_SINK, then CREATE DATA_SOURCE"
        counts = Counter(source["state"] for source in sources)
        parts = [f"{counts[state]} {state}" for state in Observed if counts[state]]
        trouble = next((s for s in sources if s["state"] not in _WELL), None)
        if trouble is not None:
            parts.append(f"{trouble['name']}: {trouble['reason'] or trouble['state']}")
        return " · ".join(parts)

    def lag(self) -> str:
        """Return the greatest lag of a source; an empty string if none is known.

        Takes as long as the sources take to respond.
        """
        try:
            (rows,) = self._rows(Show(subject=Subject.LAG))
        except HeadraceError:
            return ""
        lagging = [row for row in rows if row["behind_bytes"]]
        unreported = dict.fromkeys(r["partition"] for r in rows if r["problem"] and r["partition"])
        unread = f"cannot be read: {'; '.join(unreported)}" if unreported else ""
        if not lagging:
            return unread
        worst = max(
            lagging, key=lambda row: (float(row["age_seconds"] or 0), int(row["behind_bytes"]))
        )
        age = f"{float(worst['age_seconds']):.0f} s, " if worst["age_seconds"] else ""
        lag = f"lag {age}{worst['behind_bytes']} bytes ({worst['name']})"
        return f"{lag}, {unread}" if unread else lag

    def _ask(self) -> Known:
        subjects = (Subject.SPLITS, Subject.RUNS, Subject.STATUS)
        shown = [Show(subject=subject) for subject in subjects]
        found = self._rows(DescribeSinks(), DescribeSources(), *shown)
        sinks, sources, splits, runs, statuses = found
        made = [parse_statement(row[STATEMENT_COLUMN]) for row in (*sinks, *sources)]
        return Known(
            sinks={s.name: s.uri for s in made if isinstance(s, CreateSink)},
            sources={
                s.table: s.word for s in made if isinstance(s, CreateSource) and s.table != NO_TABLE
            },
            own=[s.word for s in made if isinstance(s, CreateSource) and s.table == NO_TABLE],
            tables=self.cassandra(),
            splits=sorted({row["split"] for row in splits}),
            runs=[row["run"] for row in runs],
            jobs=sorted({row["job"] for row in statuses}),
        )

    def _rows(self, *statements: Statement) -> list[Sequence[Mapping[str, str]]]:
        with self.service() as service:
            tables = [service.execute(statement) for statement in statements]
        return [[dict(zip(t.columns, row, strict=True)) for row in t.rows] for t in tables]
