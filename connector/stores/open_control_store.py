"""Opens the notes of all jobs: the results of statements, and target states.

Their place is a state file; or a worker's file or job file (`*.yaml`), whose store has them if it
names one. Only this module resolves the place; all others receive the notes.
"""

import os
from pathlib import Path

from headrace.connector.foundation.job_file import FILE_SUFFIXES
from headrace.connector.stores import ALL_JOBS
from headrace.connector.stores.job import kept_in
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.sqlite.store import SqliteConfig, SqliteStore


def open_notes(place: Path, *, create: bool = True, space: str = ALL_JOBS) -> NoteCopy:
    """Open the notes that *place* names; make them if they are missing and *create*.

    Those of another *space* are separate: a process that watches the notes does not see them. In a
    store of this machine they are a file beside the state file, `<state>.<space>`.

    Raises:
        StateFileError: the state file cannot be used.
        MissingRequirementError: the store cannot be used from here.
        ConfigError: the file names no state.

    """
    file: Path | None
    state, store, config = place, None, None
    if place.suffix in FILE_SUFFIXES:
        state, store, config = kept_in(place)
    if store is None:
        store, config = SqliteStore, SqliteConfig(path=str(state))
    beside, file = state, place
    if isinstance(config, SqliteConfig):
        beside, file = Path(os.path.realpath(state)), None
    return store.open_notes(config, beside=beside, file=file, create=create, space=space)
