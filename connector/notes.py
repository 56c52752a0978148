"""Opens the notes of all jobs: what statements made, and what is wanted. Here their place is named.

That is a state file; or a worker's file or job file (`*.yaml`), whose store has them if it names
one. Everything else is handed a connection, and asks no further.
"""

import sqlite3
from pathlib import Path
from typing import Final

from headrace.connector.control import catalogue
from headrace.connector.job import FILE_SUFFIXES, kept_in
from headrace.connector.stores import board, joins
from headrace.connector.stores.notes import SharedNotes
from headrace.connector.stores.sqlite_file import connect, named_errors

_TABLES: Final = f"{board.TABLES}{catalogue.TABLES}{joins.TABLES}"


def open_space(place: Path, space: str, tables: str) -> sqlite3.Connection:
    """Open what is kept apart from the notes, as *space*; *tables* makes its tables.

    *place* is as for `open_notes`. It is a file beside the state file, `<state>.<space>`, or in the
    store, where who looks after the notes does not look at it. Write it within `transaction`.

    Raises:
        StoreUnavailableError: the file cannot be used.
        StateLostError: it is damaged.
        MissingRequirementError: the store cannot be used from here.
        ConfigError: the file names no state.

    """
    state, store, config = (place, None, None)
    if place.suffix in FILE_SUFFIXES:
        state, store, config = kept_in(place)
        notes = None if store is None else store.open_notes(config, space=space)
        if notes is not None:
            return SharedNotes.over(notes, tables, file=place, beside=state, check_same_thread=True)
        state = state if config is None else Path(config.path)
    file = state.with_name(f"{state.name}.{space}")
    with named_errors(file):
        connection = sqlite3.connect(file, isolation_level=None)
        connection.executescript(tables)
    return connection


def open_notes(
    place: Path, *, create: bool = True, check_same_thread: bool = True
) -> sqlite3.Connection:
    """Open the notes that *place* names, which are made if they are missing, unless not *create*.

    The connection belongs to the calling thread; without *check_same_thread* another may close it.

    Raises:
        StateFileError: the state file cannot be used.
        MissingRequirementError: the store cannot be used from here.
        ConfigError: the file names no state.

    """
    if place.suffix not in FILE_SUFFIXES:
        return connect(place, create=create, check_same_thread=check_same_thread)
    state, store, config = kept_in(place)
    notes = None if store is None else store.open_notes(config, create=create)
    if notes is None:
        file = state if config is None else Path(config.path)
        return connect(file, create=create, check_same_thread=check_same_thread)
    return SharedNotes.over(
        notes, _TABLES, file=place, beside=state, check_same_thread=check_same_thread
    )
