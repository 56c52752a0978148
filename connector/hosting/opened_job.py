"""A job file and its open control store: a process opens them once, and passes them on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from headrace.connector.control.jobs import all_mistakes, read_job
from headrace.connector.foundation.job_file import JobFile, read_job_file
from headrace.connector.runtime.failures.refusals import SourceFailedError, failed_sources
from headrace.connector.stores.job import Job, place_and_name
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.target_state import FORK_MARK
from headrace.plugins import ConfigError, HeadraceError


class OpenedJob:
    """The job of the file at `path`. Belongs to the thread that opened it, which closes it."""

    def __init__(self, path: Path, name: str | None) -> None:
        """Read the job file, whose job is *name*, if given. Raises as `place_and_name` does."""
        self.path = path
        self._written: JobFile | None
        try:
            self._written = read_job_file(path)
            self.state, self.name = place_and_name(path, self._written, name)
        except ConfigError as error:
            raise all_mistakes(path, error) from error
        self._notes: NoteCopy | None = None

    def look(self) -> NoteCopy | None:
        """Return the control store; None while it is a state file that does not exist yet."""
        return self.notes() if self._notes is not None or self.state.exists() else None

    def notes(self) -> NoteCopy:
        """Return the control store; make it if it is missing."""
        if self._notes is None:
            self._notes = open_notes(self.state)
        return self._notes

    def read(self) -> Job:
        """Return the job as its file and the statements configure it now.

        The first call uses the file as read at the opening, but not after `forget_file`. The status
        of the job shows an error. Raises as `read_job` does.
        """
        notes, written = self.look(), self._written
        self._written = None
        with self.reporting():
            return read_job(self.path, self.name, written=written, notes=notes)

    def forget_file(self) -> None:
        """Read the file again in the next `read`: it may have changed."""
        self._written = None

    def is_over(self) -> bool:
        """Return whether this is a forked job whose source was dropped."""
        notes = self.look() if FORK_MARK in self.name else None
        return notes is not None and not notes.board.routes(self.name)

    def failed_sources(self) -> list[SourceFailedError]:
        """Return the errors of its failed sources."""
        notes = self.look()
        return [] if notes is None else failed_sources(notes, self.name)

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Show an error of the block in the status; raise it even if the store fails too."""
        try:
            yield
        except HeadraceError as error:
            with contextlib.suppress(HeadraceError):
                notes = self.look()
                if notes is not None:
                    store = notes.store(self.name)
                    store.job_key()
                    store.report(f"{error.code}: {error}")
            raise

    def close(self) -> None:
        """Close the control store."""
        if self._notes is not None:
            self._notes.close()
