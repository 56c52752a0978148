"""What every changing verb goes through: the guard before it, the audit after it."""

import functools
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from headrace.connector.control.audit import Audit, fingerprint
from headrace.connector.control.permission import CALLER, Guard, Role
from headrace.connector.shell.statements import TableName
from headrace.connector.stores.notes import SharedNotes
from headrace.connector.stores.sqlite_file import named_errors
from headrace.plugins import HeadraceError

P = ParamSpec("P")
T = TypeVar("T")


_OF_TABLES: Final = ("create_source", "preview_source", "put_source", "replace_source")


class Gate:
    """The guard and the audit of one state file."""

    def __init__(self, connection: sqlite3.Connection, guard: Guard) -> None:
        """Audit beside the file of *connection*, as `state.db.audit`."""
        self._connection = connection
        self._guard = guard
        self._audit = Audit(_audit_of(connection))
        self._inside = False

    def run(self, verb: str, needed: Role, given: Any, act: Callable[[], T]) -> T:  # noqa: ANN401 (a verb's first argument)
        """Let *act* happen if the caller may, and note the attempt. Verbs within verbs pass."""
        if self._inside:
            return act()
        caller, subject = CALLER.get(), subject_of(given)
        before, error = self._statement(subject), None
        self._audit.ready()
        self._inside = True
        try:
            self._guard.check(caller, needed, _table_of(verb, given))
            return act()
        except HeadraceError as raised:
            error = raised
            raise
        finally:
            self._inside = False
            self._audit.note(
                caller,
                verb,
                subject,
                before=fingerprint(before),
                after=fingerprint(self._statement(subject)),
                error=error,
            )

    def _statement(self, name: str) -> str | None:
        query = (
            "SELECT statement || config FROM sources WHERE name = ?1 UNION ALL "
            "SELECT statement || config FROM sinks WHERE name = ?1 UNION ALL "
            "SELECT value FROM settings WHERE name = 'service.' || ?1"
        )
        with named_errors(self._connection):
            row = self._connection.execute(query, (name,)).fetchone()
        return str(row[0]) if row else None


def _audit_of(connection: sqlite3.Connection) -> Path | None:
    if isinstance(connection, SharedNotes):
        return Path(f"{connection.beside}.audit")
    with named_errors(connection):
        _, _, file = connection.execute("PRAGMA database_list").fetchone()
    return Path(f"{file}.audit") if file else None


class _Gated(Protocol):
    _gate: Gate


G = TypeVar("G", bound=_Gated)


def needs(
    role: Role,
) -> Callable[[Callable[Concatenate[G, P], T]], Callable[Concatenate[G, P], T]]:
    """Let a verb be checked and audited; its first argument says what it is about."""

    def decorate(verb: Callable[Concatenate[G, P], T]) -> Callable[Concatenate[G, P], T]:
        @functools.wraps(verb)
        def gated(self: G, /, *args: P.args, **kwargs: P.kwargs) -> T:
            given: Any = args[0] if args else next(iter(kwargs.values()), "")
            if verb.__name__ in ("put_source", "replace_source") and len(args) > 1:
                given = args[1]
            return self._gate.run(verb.__name__, role, given, lambda: verb(self, *args, **kwargs))

        return gated

    return decorate


def subject_of(given: object) -> str:
    """Return the name of what a verb is about."""
    if isinstance(given, Mapping):
        return str(given.get("name", ""))
    return str(getattr(given, "name", given))


def _table_of(verb: str, given: object) -> TableName | None:
    """Return the table that a source would read, or whose changes would be seen."""
    if isinstance(given, Mapping) and verb in _OF_TABLES:
        return TableName(str(given.get("keyspace", "")), str(given.get("table", "")))
    return None
