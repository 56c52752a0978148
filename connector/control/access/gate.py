"""Checks each changing verb with the guard before it runs, and audits it afterwards."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from headrace.connector.control.access.audit import Audit, fingerprint
from headrace.connector.control.access.permission import CALLER, Guard, Role, UnauthorizedError
from headrace.connector.control.catalogue import Catalogue
from headrace.connector.language.statements import TableName
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import HeadraceError

P = ParamSpec("P")
T = TypeVar("T")


_OF_TABLES: Final = (
    "create_source", "preview_source", "put_source", "read_history", "reconcile_source",
    "replace_source", "replay_source", "snapshot_source",
)  # fmt: skip


class Gate:
    """Has the guard and the audit of one state file."""

    def __init__(self, notes: NoteCopy, guard: Guard) -> None:
        """Audit beside the state file, as `state.db.audit`."""
        self._catalogue = Catalogue(notes)
        self._guard = guard
        self._audit = Audit(Path(f"{notes.beside}.audit"))
        self._inside = False

    def run(self, verb: str, needed: Role, given: Any, act: Callable[[], T]) -> T:  # noqa: ANN401 (a verb's first argument)
        """Run *act* if the caller is permitted, and audit it. Nested verbs are not checked."""
        if self._inside:
            return act()
        caller, subject = CALLER.get(), subject_of(given)
        before, error = self._catalogue.text(subject), None
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
                after=fingerprint(self._catalogue.text(subject)),
                error=error,
            )

    def allows(self, needed: Role, table: TableName | None = None) -> bool:
        """Return whether the caller has *needed*, also for reading *table*. Does not audit."""
        try:
            self._guard.check(CALLER.get(), needed, table)
        except UnauthorizedError:
            return False
        return True

    def warned(self, verb: str, subject: str, codes: str) -> None:
        """Audit the warnings that the caller got. Raises StoreUnavailableError."""
        same = fingerprint(self._catalogue.text(subject))
        self._audit.note(
            CALLER.get(), verb, subject, before=same, after=same, error=None, warned=codes
        )


class _Gated(Protocol):
    _gate: Gate


G = TypeVar("G", bound=_Gated)


def needs(
    role: Role,
) -> Callable[[Callable[Concatenate[G, P], T]], Callable[Concatenate[G, P], T]]:
    """Decorate a verb to be checked and audited; its first argument names the object."""

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
    """Return the name of the object that a verb is about."""
    if isinstance(given, Mapping):
        return str(given.get("name", ""))
    return str(getattr(given, "name", given))


def _table_of(verb: str, given: object) -> TableName | None:
    """Return the table that a source would read, or whose changes would be seen."""
    if isinstance(given, Mapping) and verb in _OF_TABLES and "table" in given:
        return TableName(str(given.get("keyspace", "")), str(given.get("table", "")))
    return None
