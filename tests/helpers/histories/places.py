"""Where tests have their histories: in a file, or in tables of a node that has Cassandra's rules.

A fixture chooses for a test; see `tests/connector/history/conftest.py`.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from headrace.connector.history.store import rows
from headrace.connector.history.store.contract import HistoryStore
from headrace.connector.history.store.file import HistoryFile
from headrace.connector.stores.cassandra.session import TABLES, CassandraStoreConfig
from headrace.connector.stores.cassandra.store import shared, unshared
from helpers.servers.cql_node import TEXT, CqlNode
from helpers.servers.cql_node import rows as result
from helpers.servers.cql_tables import CqlTables
from helpers.stores.drivers import MADE

FILE = "worker.yaml"
_MADE = MADE | {
    "SELECT table_name": result(
        {"table_name": TEXT}, *([name.encode()] for name in (*TABLES, *rows.TABLES))
    )
}


class Places:
    """Histories of tests: of each folder one."""

    def options(self, folder: Path) -> dict[str, str]:
        """Return options of the history of *folder*."""
        return {"path": str(folder / "history.db")}

    def states(self, store: HistoryStore) -> int:
        """Return how many states a history has."""
        assert isinstance(store, HistoryFile)
        return int(store.run("SELECT count(*) FROM states").fetchone()[0])


class TablePlaces(Places):
    """In tables of one node, which the file `worker.yaml` in the current directory names."""

    def __init__(self, point: str, tables: CqlTables) -> None:
        """Use the node at *point*, which has *tables*."""
        self.point = point
        self.tables = tables

    def begin(self, folder: Path) -> None:
        """Begin without rows; the current directory is *folder*."""
        self.tables.clear()
        store = {"plugin": "cassandra", "contact_points": [self.point]}
        given = {"state": "state.db", "source": {"plugin": "files"}, "store": store}
        (folder / FILE).write_text(yaml.safe_dump(given))

    def options(self, folder: Path) -> dict[str, str]:
        """Return options of the history of *folder*: of few buckets, each a request to read."""
        return {"path": f"{FILE}#{'_'.join(folder.parts[1:])}", "buckets": "2"}

    def states(self, store: HistoryStore) -> int:
        """Return how many states there are."""
        del store
        return self.tables.count("history_states")


@contextlib.contextmanager
def table_places() -> Iterator[TablePlaces]:
    """Run the node, and hold the connection that all histories share."""
    tables = CqlTables()
    with CqlNode(answers=_MADE, tables=tables) as node:
        config = CassandraStoreConfig(contact_points=(node.point,))
        shared(config, create=False)
        yield TablePlaces(node.point, tables)
        unshared(config)


chosen: Places = Places()
"""Where `kept.beside` has histories now; a fixture replaces it."""
