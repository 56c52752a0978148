"""What was set aside, in SQLite: kept with the commit that covers it, and taken out again."""

import base64
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from headrace.connector.stores import KeptLoss, Loss, QuarantineFullError
from headrace.connector.stores.sqlite_file import named_errors, transaction
from headrace.connector.stores.stored import UnreadableError, decoded, document
from headrace.plugins import Headers

UNSENT_MAX: Final = 500
_COLUMNS: Final = (
    "id, split, lost_ms, sent, kind, stage, tbl, place, code, message, key, content, headers, "
    "origin"
)

_KINDS: Final = (int, str, int, int, *(str,) * 6, bytes | None, bytes, str, str)


class Losses:
    """The quarantine of one job. Belongs to the connection's thread."""

    def __init__(self, connection: sqlite3.Connection, job: str) -> None:
        """Look at nothing yet."""
        self._connection = connection
        self._job = job

    def keep(
        self, split: str, losses: Sequence[Loss], *, bytes_max: int, awaits: int | None = None
    ) -> QuarantineFullError | None:
        """Put *losses* away (I8), in the transaction of the commit that covers them.

        If that is another store's commit, *awaits* is its number: nobody sees them before `cover`.
        """
        if not losses:
            return None
        (used,) = self._connection.execute(
            "SELECT COALESCE(SUM(size_bytes), 0) FROM quarantine WHERE job = ?", (self._job,)
        ).fetchone()
        sizes = [len(loss.content) + len(loss.key or b"") for loss in losses]
        if used + sum(sizes) > bytes_max:
            return QuarantineFullError(
                f"the quarantine holds {used} bytes, {sum(sizes)} more exceed its bound of "
                f"{bytes_max}",
                place=f"split {split}",
                hint="see why with `headrace dlq list`, then raise runtime.quarantine_bytes_max",
            )
        now_ms = time.time_ns() // 1_000_000
        self._connection.executemany(
            "INSERT INTO quarantine (job, split, kind, stage, tbl, place, code, message, "
            "size_bytes, key, content, headers, origin, lost_ms, awaits) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *(self._job, split, x.kind, x.stage, x.table, x.place, x.code, x.message),
                    *(size, x.key, x.content, _text(x.headers), json.dumps(x.origin)),
                    *(now_ms, awaits),
                )
                for x, size in zip(losses, sizes, strict=True)
            ],
        )
        return None

    def cover(self, split: str, seq: int) -> None:
        """Let what awaits commit *seq* or an earlier one be seen, and forget the rest."""
        place = (self._job, split)
        self._connection.execute(
            "UPDATE quarantine SET awaits = NULL WHERE job = ? AND split = ? AND awaits <= ?",
            (*place, seq),
        )
        self._connection.execute(
            "DELETE FROM quarantine WHERE job = ? AND split = ? AND awaits IS NOT NULL", place
        )

    def all(self) -> Iterator[KeptLoss]:
        """Return all, oldest first."""
        return self._found("ORDER BY id", ())

    def numbered(self, numbers: Sequence[int]) -> Sequence[KeptLoss]:
        """Return those of *numbers* that there are, oldest first."""
        marks = ", ".join("?" * len(numbers))
        return list(self._found(f"AND id IN ({marks}) ORDER BY id", tuple(numbers)))

    def unsent(self, splits: Sequence[str], *, bytes_max: int) -> Sequence[KeptLoss]:
        """Return what the topic for dead letters has not got yet of *splits*, oldest first."""
        marks = ", ".join("?" * len(splits))
        # Of splits that are no more, whoever has the first one sends it.
        condition = (
            f"AND NOT sent AND (split IN ({marks}) OR "  # noqa: S608 (question marks)
            f"(SELECT min(split) FROM leases WHERE job = ?) IN ({marks}) AND "
            "split NOT IN (SELECT split FROM leases WHERE job = ?)) "
            f"ORDER BY id LIMIT {UNSENT_MAX}"
        )
        found: list[KeptLoss] = []
        size = 0
        for kept in self._found(condition, (*splits, self._job, *splits, self._job)):
            size += len(kept.loss.content)
            if found and size > bytes_max:
                break
            found.append(kept)
        return found

    def mark_sent(self, numbers: Sequence[int]) -> None:
        """Note that the topic for dead letters has them."""
        self._change("UPDATE quarantine SET sent = 1 WHERE job = ? AND id = ?", numbers)

    def remove(self, numbers: Sequence[int]) -> None:
        """Forget them: they were delivered after all, or are not wanted."""
        self._change("DELETE FROM quarantine WHERE job = ? AND id = ?", numbers)

    def _found(self, condition: str, values: tuple[Any, ...]) -> Iterator[KeptLoss]:  # Any: SQL's.
        query = (
            f"SELECT {_COLUMNS} FROM quarantine "  # noqa: S608 (ours)
            f"WHERE job = ? AND awaits IS NULL {condition}"
        )
        with named_errors(self._connection):
            rows = self._connection.execute(query, (self._job, *values))
            for row in rows:
                _check(row)
                number, split, lost_ms, sent, kind, stage, table, *rest = row
                place, code, message, key, content, headers, origin = rest
                what = f"table quarantine, id {number}, column"
                loss = Loss(
                    kind=kind,
                    stage=stage,
                    table=table,
                    place=place,
                    code=code,
                    message=message,
                    key=key,
                    content=content,
                    headers=_headers(headers, what),
                    origin=document(origin, f"{what} origin"),
                )
                yield KeptLoss(number, split, lost_ms, bool(sent), loss)

    def _change(self, statement: str, numbers: Sequence[int]) -> None:
        with transaction(self._connection):
            self._connection.executemany(statement, [(self._job, number) for number in numbers])


def _check(row: Sequence[object]) -> None:
    """Refuse a row with a value of another kind: when the file is opened they are not looked at."""
    for column, value, kind in zip(_COLUMNS.split(", "), row, _KINDS, strict=True):
        if not isinstance(value, kind):
            what = f"table quarantine, id {row[0]}, column {column}"
            raise UnreadableError(f"{what}: found a value of another kind, or none")


def _text(headers: Headers) -> str:
    return json.dumps([[name, base64.b64encode(content).decode()] for name, content in headers])


def _headers(text: str, what: str) -> Headers:
    found = decoded(text, list[tuple[str, bytes]], f"{what} headers")  # Of which bytes are base64.
    return tuple(found)
