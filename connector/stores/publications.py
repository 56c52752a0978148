"""The durable queue of schemas on their way to a schema store, in the state file.

Separate from the schemas themselves, which are there whether or not anybody publishes them.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headrace.connector.stores.sqlite_file import named_errors, transaction

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS publications (
    job TEXT NOT NULL, subject TEXT NOT NULL, schema_id BLOB NOT NULL, part TEXT NOT NULL,
    text TEXT NOT NULL, state TEXT NOT NULL, number INTEGER, guid BLOB, problem TEXT NOT NULL,
    PRIMARY KEY (job, subject, schema_id, part)
) STRICT
"""
_COLUMNS: Final = "subject, schema_id, part, text, state, number, guid, problem"


class PublicationState(StrEnum):
    """How far a publication has come."""

    QUEUED = "queued"
    PUBLISHED = "published"
    REFUSED = "refused"
    MOVED = "moved"
    """Refused under this subject, and queued under another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One half (`part`: key or value) of a table's schema under a subject."""

    subject: str
    schema_id: bytes
    part: str
    text: str
    state: PublicationState = PublicationState.QUEUED
    number: int | None = None
    guid: bytes | None = None
    problem: str = ""


class Publications:
    """The queue of one job. Belongs to the connection's thread."""

    def __init__(self, connection: sqlite3.Connection, job: str) -> None:
        """Make the table if it is missing."""
        self._connection = connection
        self._job = job
        with transaction(connection):
            connection.execute(_TABLES)

    def enqueue(self, publications: Sequence[Publication]) -> None:
        """Queue those that are not known yet."""
        with transaction(self._connection):
            self._connection.executemany(
                f"INSERT OR IGNORE INTO publications (job, {_COLUMNS}) "  # noqa: S608 (constants)
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [self._values(each) for each in publications],
            )

    def settle(self, publication: Publication) -> None:
        """Replace what is known of a publication."""
        with transaction(self._connection):
            self._connection.execute(
                f"INSERT OR REPLACE INTO publications (job, {_COLUMNS}) "  # noqa: S608 (constants)
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                self._values(publication),
            )

    def all(self) -> Sequence[Publication]:
        """Return all, in the order in which they were queued."""
        query = f"SELECT {_COLUMNS} FROM publications WHERE job = ? ORDER BY rowid"  # noqa: S608 (constants)
        with named_errors():
            rows = self._connection.execute(query, (self._job,)).fetchall()
        return [
            Publication(
                subject=subject,
                schema_id=schema_id,
                part=part,
                text=text,
                state=PublicationState(state),
                number=number,
                guid=guid,
                problem=problem,
            )
            for subject, schema_id, part, text, state, number, guid, problem in rows
        ]

    def _values(self, each: Publication) -> tuple[str | bytes | int | None, ...]:
        key = (self._job, each.subject, each.schema_id, each.part)
        return (*key, each.text, each.state.value, each.number, each.guid, each.problem)
