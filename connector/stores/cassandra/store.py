"""The store for many machines, in a keyspace of Cassandra."""

import json
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from headrace.connector.stores import ALL_JOBS
from headrace.connector.stores.cassandra.cdc_state import PublishedStates
from headrace.connector.stores.cassandra.session import CassandraSession, CassandraStoreConfig
from headrace.connector.stores.cassandra.values import CassandraValues
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import SERVICE, SETTINGS
from headrace.plugins.stores.control_store import NoteKey
from headrace.plugins.stores.key_values import KeyValues


class CassandraStore(PublishedStates):
    """The state of one job in a keyspace; see `Store`."""

    config_class = CassandraStoreConfig
    values_class: ClassVar[type[KeyValues]] = CassandraValues

    @classmethod
    def open_notes(
        cls,
        config: CassandraStoreConfig,
        *,
        beside: Path,
        file: Path | None = None,
        create: bool = True,
        space: str = ALL_JOBS,
    ) -> "CassandraNotes":
        """See `Store.open_notes`."""
        return CassandraNotes(config, create=create, space=space, beside=beside, file=file)


class CassandraNotes(NoteCopy):
    """The notes in one keyspace. All users in a process share one connection."""

    def __init__(
        self,
        config: CassandraStoreConfig,
        *,
        create: bool,
        space: str,
        beside: Path,
        file: Path | None,
    ) -> None:
        """Connect, or use the connection of this process. Raises as `CassandraSession`."""
        self._config = config
        self._session = shared(config, create=create)
        self._open = True
        values = CassandraValues(self._session)
        super().__init__(values, space, partial(CassandraStore, values), beside=beside, file=file)

    def _replace(self, changes: Mapping[NoteKey, str | None]) -> None:
        """See `NoteCopy`. The configurations of services are also written where CEP-44 has them."""
        super()._replace(changes)
        for (kind, name), text in changes.items():
            if kind == SETTINGS and name.startswith(SERVICE):
                self._show_service(name.removeprefix(SERVICE), text)

    def _show_service(self, name: str, text: str | None) -> None:
        if text is None:
            self._session.write([("DELETE FROM configs WHERE service = ?", (name,))])
        else:
            put = "INSERT INTO configs (service, config) VALUES (?, ?)"
            self._session.write([(put, (name, json.loads(text)))])

    def close(self) -> None:
        """See `NoteCopy.close`."""
        if self._open:
            self._open = False
            unshared(self._config)


_LOCK: Final = threading.Lock()
_SESSIONS: Final[dict[CassandraStoreConfig, tuple[CassandraSession, int]]] = {}


def shared(config: CassandraStoreConfig, *, create: bool) -> CassandraSession:
    """Return the connection of this process, for any thread. Raises as `CassandraSession`."""
    with _LOCK:
        session, users = _SESSIONS.get(config, (None, 0))
        if session is None:
            session = CassandraSession(config, create=create)
        _SESSIONS[config] = session, users + 1
        return session


def unshared(config: CassandraStoreConfig) -> None:
    """Release a connection that `shared` returned."""
    with _LOCK:
        session, users = _SESSIONS.pop(config)
        if users > 1:
            _SESSIONS[config] = session, users - 1
            return
    session.close()
