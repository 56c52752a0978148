"""The notes of all jobs, shared by processes, with an up-to-date copy in memory.

Notes are few and are read often, so each process has a copy of all of them. They are one partition
of a backend; each write changes the stamp of its row `version`. A transaction is one conditional
write. A backend on this machine blocks other writers meanwhile; another backend refuses the write
if another process wrote.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from headrace.connector.stores import StateLostError, StoreUnavailableError
from headrace.connector.stores.keyed.rows import notes_in, pack
from headrace.connector.stores.target_state import Board
from headrace.plugins.stores.control_store import NoteKey
from headrace.plugins.stores.key_values import Change, Key, KeyValues, Partition

if TYPE_CHECKING:
    from headrace.connector.stores.keyed.store import Store

FRESH_SECONDS: Final = 0.2  # A copy counts as new for this time after a comparison.
TRIES_MAX: Final = 10  # For notes that another process replaces while they are read.
_VERSION: Final = "version"

T = TypeVar("T")


class NoteCopy:
    """The notes of one space. Belongs to one thread; another one may close it."""

    file: Path | None
    """The job file or worker's file that names the store; None for notes in a state file."""
    beside: Path
    """The state file of this machine. The audit is beside it."""

    store: "Callable[[str], Store]"
    """Returns the store of a job over the same connection; callers must not close it."""

    board: Board
    """The target states of all jobs, which are among these notes."""

    def __init__(
        self,
        values: KeyValues,
        space: str,
        store: "Callable[[str], Store]",
        *,
        beside: Path,
        file: Path | None = None,
    ) -> None:
        """Own *values*; read nothing yet. For *store*, *beside* and *file* see the attributes."""
        self.file = file
        self.beside = beside
        self.store = store
        self.board = Board(self)
        self._values = values
        self._partition = Partition(json.dumps(["notes", space]))
        self._version_key = Key(self._partition, _VERSION)
        self._fresh_seconds = 0.0 if file is None else FRESH_SECONDS
        self._version: int | None = None  # The stamp of the copied notes; None: to be read.
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
            StateLostError: one of them is damaged.
            StoreUnavailableError: the store did not respond.

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
        """Write all that the block puts or, if it raises, nothing. May be nested.

        In a state file this includes the block's writes to stores of jobs. Yields the changes.

        Raises:
            StoreUnavailableError: the store did not answer, or another process wrote meanwhile.

        """
        if self._changes is not None:
            yield self._changes
            return
        try:
            with self._values.grouped():
                self._looked = None
                self._pull()
                self._changes = {}
                yield self._changes
                self._push(self._changes)
        except BaseException:
            self._version = None  # The copy may have unwritten notes.
            raise
        finally:
            self._changes = None

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[int]:
        """Freeze the notes for the block, and yield their version; 0: none yet.

        Equal versions have equal notes.
        """
        self._pull()
        before, self._is_still = self._is_still, True
        try:
            yield 0 if self._changes else self._version or 0
        finally:
            self._is_still = before

    def check(self) -> None:
        """Raise StateLostError if the opened store was removed or replaced."""
        self._values.check()

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self._values.close()

    def _decoded(self, kind: str, name: str, text: str, form: type[T]) -> T:
        try:
            return msgspec.json.decode(text, type=form)
        except msgspec.MsgspecError as error:
            raise StateLostError(
                f"note {name!r} of {kind} cannot be read: {error}",
                place=self._values.place,
                hint="restore it from a backup",
            ) from error

    def _pull(self) -> None:
        """Read what other processes wrote; in a transaction only the transaction changes notes."""
        now = time.monotonic()
        fresh = self._looked is not None and now - self._looked < self._fresh_seconds
        if fresh or self._is_still or self._changes is not None:
            return
        version = self._stamp()
        if version != self._version:
            self._read(version)
        self._looked = now

    def _read(self, version: int) -> None:
        """Read all notes, just now at *version*, consistently."""
        for _ in range(TRIES_MAX):
            rows = dict(self._values.scan([self._partition]))
            before, version = version, self._stamp()
            if version == before:
                break  # Else it was replaced between two pages.
        else:
            raise StoreUnavailableError("the notes change all the time")
        rows.pop(self._version_key, None)
        self._version, self._kinds = version, {}
        for (kind, name), text in notes_in(rows, self._values).items():
            self._kinds.setdefault(kind, {})[name] = text

    def _stamp(self) -> int:
        """Return the stamp of the version in the store; 0 if no note was ever written."""
        entry = self._values.read([self._version_key]).get(self._version_key)
        return entry.stamp if entry is not None else 0

    def _push(self, changes: Mapping[NoteKey, str | None]) -> None:
        new = {
            (kind, name): text
            for (kind, name), text in changes.items()
            if self._kinds.get(kind, {}).get(name) != text
        }
        if not new:
            return
        self._looked = None
        self._replace(new)
        for (kind, name), text in new.items():
            of = self._kinds.setdefault(kind, {})
            if text is None:
                of.pop(name, None)
            else:
                of[name] = text

    def _replace(self, changes: Mapping[NoteKey, str | None]) -> None:
        """Write *changes*, None removes, if the notes are still those of the copy."""
        rows = {
            json.dumps(key): None if text is None else pack(text) for key, text in changes.items()
        }
        change = Change(
            partition=self._partition,
            expected={_VERSION: self._version or None},
            rows={**rows, _VERSION: pack(None)},
        )
        (applied,) = self._values.change([change])
        if applied is None:
            raise StoreUnavailableError("whether the notes were replaced is not known")
        if not applied:
            raise StoreUnavailableError(
                "another process changed something at the same time",
                hint="nothing was changed: repeat it",
            )
        self._version = change.stamp
