"""What workers saw of a job, and its queue of schemas, in the state file."""

import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.connector.states import Observed
from headrace.connector.stores import Publication, Publications, PublicationState, Seen
from headrace.connector.stores.sqlite_file import named_errors, transaction
from headrace.connector.stores.stored import one_of

_COLUMNS: Final = "subject, schema_id, part, text, state, number, guid, problem"


def see(connection: sqlite3.Connection, job: str, rows: Sequence[Seen]) -> None:
    """Do what `Store.see` promises."""
    now_ms = time.time_ns() // 1_000_000
    with transaction(connection):
        connection.executemany(
            "INSERT INTO seen SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 WHERE NOT EXISTS "
            "(SELECT 1 FROM leases WHERE job = ?1 AND split = ?2 AND owner != ?5) "
            "ON CONFLICT (job, split) DO UPDATE SET state = excluded.state, "
            "generation = excluded.generation, worker = excluded.worker, "
            "reason = excluded.reason, attempt = excluded.attempt, "
            "next_attempt_ms = excluded.next_attempt_ms, seen_ms = excluded.seen_ms, "
            "since_ms = CASE WHEN state = excluded.state THEN since_ms "
            "ELSE excluded.since_ms END",
            [
                (
                    *(job, row.split, row.state.value, row.generation, row.worker),
                    *(row.reason, row.attempt, row.next_attempt_ms, now_ms, now_ms),
                )
                for row in rows
            ],
        )


def seen(connection: sqlite3.Connection, job: str) -> Mapping[str, Seen]:
    """Do what `Store.seen` promises."""
    query = (
        "SELECT split, state, generation, worker, reason, attempt, next_attempt_ms, "
        "since_ms, seen_ms FROM seen WHERE job = ?"
    )
    with named_errors(connection):
        rows = connection.execute(query, (job,)).fetchall()
        return {
            split: Seen(
                split=split,
                state=one_of(Observed, state, f"table seen, split {split}, column state"),
                generation=number,
                worker=worker,
                reason=reason,
                attempt=attempt,
                next_attempt_ms=next_ms,
                since_ms=since_ms,
                seen_ms=seen_ms,
            )
            for split, state, number, worker, reason, attempt, next_ms, since_ms, seen_ms in rows
        }


class SqlitePublications(Publications):
    """The queue of one job. Belongs to the connection's thread."""

    def __init__(self, connection: sqlite3.Connection, job: str) -> None:
        """Look at nothing yet."""
        self._connection = connection
        self._job = job

    def enqueue(self, publications: Sequence[Publication]) -> None:
        """See `Publications.enqueue`."""
        with transaction(self._connection):
            self._connection.executemany(
                f"INSERT INTO publications (job, {_COLUMNS}) "  # noqa: S608 (constants)
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (job, subject, schema_id, part) DO UPDATE SET text = excluded.text, "
                "state = excluded.state, number = excluded.number, guid = excluded.guid, "
                "problem = excluded.problem WHERE text != excluded.text",
                [self._values(each) for each in publications],
            )

    def settle(self, publication: Publication) -> None:
        """See `Publications.settle`."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE publications SET state = ?6, number = ?7, guid = ?8, problem = ?9 "
                "WHERE job = ?1 AND subject = ?2 AND schema_id = ?3 AND part = ?4 AND text = ?5",
                self._values(publication),
            )

    def all(self) -> Sequence[Publication]:
        """See `Publications.all`."""
        query = f"SELECT {_COLUMNS} FROM publications WHERE job = ? ORDER BY rowid"  # noqa: S608 (constants)
        with named_errors(self._connection):
            rows = self._connection.execute(query, (self._job,)).fetchall()
            return [
                Publication(
                    subject=subject,
                    schema_id=schema_id,
                    part=part,
                    text=text,
                    state=one_of(PublicationState, state, f"table publications, {subject}"),
                    number=number,
                    guid=guid,
                    problem=problem,
                )
                for subject, schema_id, part, text, state, number, guid, problem in rows
            ]

    def _values(self, each: Publication) -> tuple[str | bytes | int | None, ...]:
        key = (self._job, each.subject, each.schema_id, each.part)
        return (*key, each.text, each.state.value, each.number, each.guid, each.problem)
