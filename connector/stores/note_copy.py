"""A copy in memory of notes that processes share, as new as what it is a copy of.

Notes are few and are read all the time, so each process has a copy of all of them. A transaction is
one conditional write. A backend on this machine blocks other writers meanwhile; another backend
refuses the write when another process wrote.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from headrace.connector.stores import StateLostError, StoreUnavailableError
from headrace.plugins.stores.control_store import NoteKey

if TYPE_CHECKING:
    from headrace.connector.stores.keyed.notes import Notes
    from headrace.connector.stores.keyed.store import Store

FRESH_SECONDS: Final = 0.2  # What was compared with the store so recently is taken for new.

T = TypeVar("T")


class NoteCopy:
    """The notes of one space. Belongs to one thread; another one may close it."""

    file: Path | None
    """The job file or worker's file that names the store; none, of notes in a state file."""
    beside: Path
    """The state file of this machine. The audit lies beside it."""

    store: "Callable[[str], Store]"
    """Returns the store of a job over the same connection; it is not to be closed."""

    def __init__(self, notes: "Notes", *, beside: Path, file: Path | None = None) -> None:
        """Own *notes*; read nothing yet."""
        self.file = file
        self.beside = beside
        self.store = notes.store
        self._notes = notes
        self._fresh_seconds = 0.0 if file is None else FRESH_SECONDS
        self._version = 0  # None of any notes: these are to be read.
        self._kinds: dict[str, dict[str, str]] = {}
        self._looked: float | None = None
        self._changes: dict[NoteKey, str | None] | None = None
        self._is_still = False

    def all(self, kind: str) -> Mapping[str, str]:
        """Return the notes of a kind by name, in order. Raises StoreUnavailableError."""
        self._pull()
        found = dict(self._kinds.get(kind, {}))
        for (of, name), text in (self._changes or {}).items():
            if of == kind:
                found.pop(name, None)
                if text is not None:
                    found[name] = text
        return {name: found[name] for name in sorted(found)}

    def get(self, kind: str, name: str) -> str | None:
        """Return a note. Raises StoreUnavailableError."""
        self._pull()
        if self._changes and (kind, name) in self._changes:
            return self._changes[kind, name]
        return self._kinds.get(kind, {}).get(name)

    def put(self, kind: str, name: str, text: str | None) -> None:
        """Replace a note; None removes it. Raises as `transaction`."""
        with self.transaction() as changes:
            changes[kind, name] = text

    def documents(self, kind: str, form: type[T]) -> dict[str, T]:
        """Return the notes of a kind that `put_document` wrote, by name.

        Raises:
            StateLostError: one of them is not as it was written.
            StoreUnavailableError: the store did not answer.

        """
        return {name: self._decoded(kind, name, t, form) for name, t in self.all(kind).items()}

    def document(self, kind: str, name: str, form: type[T]) -> T | None:
        """Return a note that `put_document` wrote. Raises as `documents`."""
        text = self.get(kind, name)
        return None if text is None else self._decoded(kind, name, text, form)

    def put_document(self, kind: str, name: str, document: Any) -> None:  # noqa: ANN401 (a dataclass)
        """Replace a note by a document as JSON. Raises as `transaction`."""
        self.put(kind, name, msgspec.json.encode(document).decode())

    def behind(self, job: str) -> frozenset[str]:
        """Return the splits of which a sink may have a newer position; see `Heads.behind`."""
        return self.store(job).state_copies().behind()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[dict[NoteKey, str | None]]:
        """Write all that the block puts, or, when it raises, nothing. Within another one: a part.

        In a state file that counts for what the block does with the stores of jobs, too. Gives what
        was put.

        Raises:
            StoreUnavailableError: the store did not answer, or another process wrote meanwhile.

        """
        if self._changes is not None:
            yield self._changes
            return
        try:
            with self._notes.grouped():
                self._looked = None
                self._pull()
                self._changes = {}
                yield self._changes
                self._push(self._changes)
        except BaseException:
            self._version = 0  # What is in the copy may not have been written.
            raise
        finally:
            self._changes = None

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[int]:
        """Let the block see the notes as they are now, and give their version; 0 is none yet.

        As long as the version is the same so are the notes.
        """
        self._pull()
        before, self._is_still = self._is_still, True
        try:
            yield 0 if self._changes else self._version
        finally:
            self._is_still = before

    def check(self) -> None:
        """Raise StateLostError if what was opened was removed or replaced since."""
        self._notes.check()

    def close(self) -> None:
        """Give back the connection. Safe to call twice."""
        self._notes.close()

    def _decoded(self, kind: str, name: str, text: str, form: type[T]) -> T:
        try:
            return msgspec.json.decode(text, type=form)
        except msgspec.MsgspecError as error:
            raise StateLostError(
                f"note {name!r} of {kind} cannot be read: {error}",
                place=self._notes.place,
                hint="restore it from a backup",
            ) from error

    def _pull(self) -> None:
        """Read what other processes wrote; in a transaction only the transaction changes notes."""
        now = time.monotonic()
        fresh = self._looked is not None and now - self._looked < self._fresh_seconds
        if fresh or self._is_still or self._changes is not None:
            return
        if not self._version or self._notes.version() != self._version:
            self._version, rows = self._notes.rows()
            self._kinds = {}
            for (kind, name), text in rows.items():
                self._kinds.setdefault(kind, {})[name] = text
        self._looked = now

    def _push(self, changes: Mapping[NoteKey, str | None]) -> None:
        new = {
            (kind, name): text
            for (kind, name), text in changes.items()
            if self._kinds.get(kind, {}).get(name) != text
        }
        if not new:
            return
        self._looked = None
        if not self._notes.replace(self._version, new):
            raise StoreUnavailableError(
                "another process changed something at the same time",
                hint="nothing was changed: repeat it",
            )
        self._version += 1
        for (kind, name), text in new.items():
            of = self._kinds.setdefault(kind, {})
            if text is None:
                of.pop(name, None)
            else:
                of[name] = text
