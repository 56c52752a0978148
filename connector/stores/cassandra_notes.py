"""The notes of all jobs, what workers saw of one, and its queue of schemas, in Cassandra.

All notes are one partition with one version, so that a conditional batch replaces any of them, or
nothing. What was seen needs no condition: a split's owner tells it again every few seconds.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headrace.connector.states import Observed
from headrace.connector.stores import (
    Notes,
    Publication,
    Publications,
    PublicationState,
    Seen,
    Store,
    StoreUnavailableError,
)
from headrace.connector.stores.cassandra_session import CassandraSession, CassandraStoreConfig
from headrace.connector.stores.cassandra_state import lease_key
from headrace.connector.stores.stored import one_of
from headrace.plugins.notes import NoteKey

READS_MAX: Final = 5  # Of notes that somebody replaces meanwhile.
_VERSION: Final = "SELECT version FROM notes WHERE space = ? LIMIT 1"
_NOTES: Final = "SELECT kind, name, content, version FROM notes WHERE space = ?"
_ADVANCE: Final = "UPDATE notes SET version = ? WHERE space = ? IF version = ?"
_PUT: Final = "INSERT INTO notes (space, kind, name, content) VALUES (?, ?, ?, ?)"
_REMOVE: Final = "DELETE FROM notes WHERE space = ? AND kind = ? AND name = ?"
_SEEN: Final = (
    "INSERT INTO seen (job, split, state, generation, worker, reason, attempt, next_attempt_ms, "
    "since_ms, seen_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_OWNER: Final = "SELECT split, owner FROM leases WHERE job = ? AND bucket = ? AND split = ?"
_PUBLICATION: Final = (
    "INSERT INTO publications (job, subject, schema_id, part, text, state, number, guid, problem, "
    "queued_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
)
_SETTLE: Final = (
    "UPDATE publications SET state = ?, number = ?, guid = ?, problem = ? "
    "WHERE job = ? AND subject = ? AND schema_id = ? AND part = ? IF text = ?"
)
_QUEUE_AGAIN: Final = (
    "UPDATE publications SET text = ?, state = ?, number = ?, guid = ?, problem = ? "
    "WHERE job = ? AND subject = ? AND schema_id = ? AND part = ? IF text = ?"
)


class CassandraNotes(Notes):
    """The notes in one keyspace; see `Notes`. Processes share one connection for all of them."""

    def __init__(
        self,
        config: CassandraStoreConfig,
        store: Callable[[CassandraSession, str], Store],
        *,
        create: bool,
        space: str,
    ) -> None:
        """Connect, or use the connection that this process has. Raises as `CassandraSession`."""
        self._config = config
        self._space = space
        self._store = store
        self._session = _opened(config, create=create)
        self._open = True

    def version(self) -> int:
        """See `Notes.version`."""
        rows = self._session.rows(_VERSION, self._space)
        return (rows[0]["version"] or 0) if rows else 0

    def rows(self) -> tuple[int, Mapping[NoteKey, str]]:
        """See `Notes.rows`."""
        for _ in range(READS_MAX):
            rows = self._session.rows(_NOTES, self._space)
            version = (rows[0]["version"] or 0) if rows else 0
            if version == self.version():  # Else it was replaced between two pages.
                found = {(row["kind"], row["name"]): row["content"] for row in rows if row["kind"]}
                return version, found
        raise StoreUnavailableError("the notes change all the time")

    def replace(self, seen: int, changes: Mapping[NoteKey, str | None]) -> bool:
        """See `Notes.replace`."""
        statements: list[tuple[str, Sequence[object]]] = [
            (_ADVANCE, (seen + 1, self._space, seen or None))
        ]
        for (kind, name), content in changes.items():
            if content is None:
                statements.append((_REMOVE, (self._space, kind, name)))
            else:
                statements.append((_PUT, (self._space, kind, name, content)))
        return self._session.apply_batch(statements)

    def show_service(self, name: str, config: Mapping[str, str] | None) -> None:
        """See `Notes.show_service`."""
        if config is None:
            self._session.write([("DELETE FROM configs WHERE service = ?", (name,))])
        else:
            put = "INSERT INTO configs (service, config) VALUES (?, ?)"
            self._session.write([(put, (name, dict(config)))])

    def store(self, job: str) -> Store:
        """See `Notes.store`."""
        return self._store(self._session, job)

    def close(self) -> None:
        """See `Notes.close`."""
        if self._open:
            self._open = False
            _closed(self._config)


class CassandraPublications(Publications):
    """The queue of one job. Belongs to the session's thread."""

    def __init__(self, session: CassandraSession, job: str) -> None:
        """Look at nothing yet."""
        self._session = session
        self._job = job

    def enqueue(self, publications: Sequence[Publication]) -> None:
        """See `Publications.enqueue`."""
        now_us = time.time_ns() // 1_000
        outcomes = self._session.apply_all(
            [
                (
                    _PUBLICATION,
                    (
                        *(self._job, each.subject, each.schema_id, each.part, each.text),
                        *(each.state.value, each.number, each.guid, each.problem),
                        now_us + number,
                    ),
                )
                for number, each in enumerate(publications)
            ]
        )
        for each, outcome in zip(publications, outcomes, strict=True):
            if outcome is None:
                raise StoreUnavailableError("whether schemas were queued is not known")
            if not outcome["[applied]"] and outcome["text"] != each.text:
                self._session.apply(
                    _QUEUE_AGAIN,
                    *(each.text, each.state.value, each.number, each.guid, each.problem),
                    *(self._job, each.subject, each.schema_id, each.part, outcome["text"]),
                )

    def settle(self, publication: Publication) -> None:
        """See `Publications.settle`."""
        each = publication
        self._session.apply(
            _SETTLE,
            *(each.state.value, each.number, each.guid, each.problem),
            *(self._job, each.subject, each.schema_id, each.part, each.text),
        )

    def all(self) -> Sequence[Publication]:
        """See `Publications.all`."""
        rows = self._session.rows("SELECT * FROM publications WHERE job = ?", self._job)
        with self._session.named_errors():
            return [
                Publication(
                    subject=row["subject"],
                    schema_id=row["schema_id"],
                    part=row["part"],
                    text=row["text"],
                    state=one_of(
                        PublicationState, row["state"], f"table publications, {row['subject']}"
                    ),
                    number=row["number"],
                    guid=row["guid"],
                    problem=row["problem"],
                )
                for row in sorted(rows, key=lambda row: int(row["queued_us"]))
            ]


def see(session: CassandraSession, job: str, rows: Sequence[Seen]) -> None:
    """Do what `Store.see` promises."""
    now_ms = time.time_ns() // 1_000_000
    before = seen(session, job)
    leases = session.rows_of(_OWNER, [lease_key(job, row.split) for row in rows])
    owners = {lease["split"]: lease["owner"] for lease in leases}
    writes: list[tuple[str, Sequence[object]]] = []
    for row in rows:
        if (owners.get(row.split) or row.worker) != row.worker:
            continue
        last = before.get(row.split)
        since_ms = last.since_ms if last is not None and last.state is row.state else now_ms
        writes.append(
            (
                _SEEN,
                (
                    *(job, row.split, row.state.value, row.generation, row.worker, row.reason),
                    *(row.attempt, row.next_attempt_ms, since_ms, now_ms),
                ),
            )
        )
    session.write(writes)


def seen(session: CassandraSession, job: str) -> Mapping[str, Seen]:
    """Do what `Store.seen` promises."""
    rows = session.rows(
        "SELECT split, state, generation, worker, reason, attempt, next_attempt_ms, since_ms, "
        "seen_ms FROM seen WHERE job = ?",
        job,
    )
    with session.named_errors():
        return {
            row["split"]: Seen(
                **{
                    **row,
                    "state": one_of(
                        Observed, row["state"], f"table seen, job {job}, split {row['split']}"
                    ),
                }
            )
            for row in rows
            if row["split"] is not None
        }


def report(session: CassandraSession, job: str, problem: str) -> None:
    """Do what `Store.report` promises."""
    session.write([("UPDATE seen SET problem = ? WHERE job = ?", (problem, job))])


def problem_of(session: CassandraSession, job: str) -> str:
    """Do what `Store.problem` promises."""
    rows = session.rows("SELECT problem FROM seen WHERE job = ? LIMIT 1", job)
    return (rows[0]["problem"] or "") if rows else ""


# Everything in a process that asks for notes has one connection: they are asked for all the time.
_LOCK: Final = threading.Lock()
_SESSIONS: Final[dict[CassandraStoreConfig, tuple[CassandraSession, int]]] = {}


def _opened(config: CassandraStoreConfig, *, create: bool) -> CassandraSession:
    with _LOCK:
        session, users = _SESSIONS.get(config, (None, 0))
        if session is None:
            session = CassandraSession(config, create=create)
        _SESSIONS[config] = session, users + 1
        return session


def _closed(config: CassandraStoreConfig) -> None:
    with _LOCK:
        session, users = _SESSIONS.pop(config)
        if users > 1:
            _SESSIONS[config] = session, users - 1
            return
    session.close()
