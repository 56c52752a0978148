"""Opens a history by its place: the path of a file, or a name in a worker's store.

`worker.yaml#orders_hist` is the history `orders_hist` in tables of the Cassandra cluster that the
`store` of `worker.yaml` names, with its login.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.connector.foundation.job_file import FILE_SUFFIXES
from headrace.connector.history.errors import HistoryFileError
from headrace.connector.history.store.contract import HistoryStore
from headrace.connector.history.store.file import HistoryFile
from headrace.connector.history.store.group import HistoryGroup, is_group
from headrace.plugins import Clock

if TYPE_CHECKING:
    from headrace.connector.stores.cassandra.session import CassandraSession

_MARK: Final = "#"


def table_place(file: str, name: str) -> str:
    """Return the place of a history in the store that *file* names."""
    return f"{file}{_MARK}{name}"


def table_parts(place: str) -> tuple[str, str]:
    """Return the path in a place and, for tables, the name after it."""
    file, _, name = place.rpartition(_MARK)
    return (file, name) if name and Path(file).suffix in FILE_SUFFIXES else (place, "")


def whole_place(place: str) -> str:
    """Return *place* with an absolute path, without opening it."""
    file, name = table_parts(place)
    whole = str(Path(file).absolute())
    return table_place(whole, name) if name else whole


def opened(place: str, clock: Clock) -> HistoryStore:
    """Open an existing history.

    Raises:
        HistoryMissingError: it does not exist.
        HistoryFileError: it is not a history, or cannot be used.
        HistoryBusyError: it cannot be used now.

    """
    file, name = table_parts(place)
    if not name:
        path = Path(file).absolute()
        return HistoryGroup.opened(path) if is_group(path) else HistoryFile.opened(path)
    return _connected(file, lambda tables, session, close: tables(session, name, clock, close))


def made(  # noqa: PLR0913 (what a history is made with)
    place: str, clock: Clock, *, table: str, buckets: int, files: int, retention_ms: int
) -> HistoryStore:
    """Open a history, and make it first if it does not exist. Raises as `opened`."""
    file, name = table_parts(place)
    if not name:
        path = Path(file).absolute()
        if is_group(path) or (files > 1 and not path.exists()):
            return HistoryGroup.made(path, table, buckets, files)
        if files > 1:
            raise HistoryFileError(
                f"is a history in one file, expected {files}",
                place=str(path),
                hint="that cannot be changed: give the history another `path`",
            )
        return HistoryFile.made(path, table, buckets)
    given: dict[str, Any] = {"table": table, "buckets": buckets, "retention_ms": retention_ms}
    return _connected(
        file, lambda tables, session, close: tables.made(session, name, clock, close, **given)
    )


def _connected(
    file: str, make: Callable[[Any, "CassandraSession", Callable[[], None]], HistoryStore]
) -> HistoryStore:
    """Make a history with this process's connection to the store; Any: its class."""
    # A history in a file does not need the driver, whose import takes a third of a second.
    from headrace.connector.history.store.tables import HistoryTables  # noqa: PLC0415
    from headrace.connector.stores.cassandra.session import (  # noqa: PLC0415
        CassandraStoreConfig,
        StoreUnreachableError,
    )
    from headrace.connector.stores.cassandra.store import shared, unshared  # noqa: PLC0415
    from headrace.connector.stores.job import kept_in  # noqa: PLC0415

    _, _, config = kept_in(Path(file))
    if not isinstance(config, CassandraStoreConfig):
        raise HistoryFileError(
            "has no `store` in Cassandra, which would keep the history",
            place=file,
            hint="give the path of a file, or a worker's file with such a store",
        )
    try:
        session = shared(config, create=False)
    except StoreUnreachableError as error:
        raise HistoryFileError(error.message, place=error.place, hint=error.hint) from error
    try:
        return make(HistoryTables, session, lambda: unshared(config))
    except BaseException:
        unshared(config)
        raise
