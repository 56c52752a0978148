"""What was set aside, in Cassandra: written before the commit that covers it, and seen after it."""

import base64
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.connector.stores import Commit, KeptLoss, Loss, QuarantineFullError
from headrace.connector.stores.cassandra_session import CassandraSession

PIECE_BYTES: Final = 256 * 1024  # Of a loss's bytes in one row.
UNSENT_MAX: Final = 500
_WHERE: Final = "WHERE job = ? AND split = ? AND seq = ? AND fence = ? AND place = ?"
_INSERT: Final = (
    "INSERT INTO losses (job, split, seq, fence, place, number, lost_ms, sent, size_bytes, facts, "
    "key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_PIECE: Final = (
    "INSERT INTO loss_pieces (job, split, seq, fence, place, piece, content) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_NUMBER_BYTES: Final = 7  # A number that a person can copy, and a bigint can hold.

_Key = tuple[str, int, int, int]  # Split, seq, token, place.


class CassandraLosses:
    """The losses of one job. Belongs to the session's thread."""

    def __init__(self, session: CassandraSession, job: str, *, bytes_max: int) -> None:
        """Look at nothing yet."""
        self._session = session
        self._job = job
        self._bytes_max = bytes_max

    def full(self, commit: Commit, splits: Sequence[str]) -> QuarantineFullError | None:
        """Say why the losses of *commit* do not fit beside those of *splits*, if they do not."""
        if not commit.losses:
            return None
        used = sum(row["size_bytes"] for row in self._rows(splits, "size_bytes"))
        more = sum(_size(loss) for loss in commit.losses)
        if used + more <= self._bytes_max:
            return None
        return QuarantineFullError(
            f"the quarantine holds {used} bytes, {more} more exceed its bound of {self._bytes_max}",
            place=f"split {commit.split}",
            hint="see why with `headrace dlq list`, then raise runtime.quarantine_bytes_max",
        )

    def writes(self, commit: Commit) -> list[tuple[str, Sequence[object]]]:
        """Return the writes that put the losses of *commit* away; twice is the same as once."""
        now_ms = time.time_ns() // 1_000_000
        found: list[tuple[str, Sequence[object]]] = []
        for place, loss in enumerate(commit.losses):
            key: _Key = (commit.split, commit.seq, commit.token, place)
            facts = (self._number(key), now_ms, False, _size(loss), _facts(loss), loss.key)
            found.append((_INSERT, (self._job, *key, *facts)))
            pieces = range(0, len(loss.content), PIECE_BYTES)
            found += [
                (_INSERT_PIECE, (self._job, *key, n, loss.content[start : start + PIECE_BYTES]))
                for n, start in enumerate(pieces)
            ]
        return found

    def forget_after(self, split: str, seq: int, token: int) -> None:
        """Remove what owners up to that of *token* put away for commits that never were."""
        rows = self._rows([split], "split, seq, fence, place")
        self._remove([_key(row) for row in rows if row["seq"] > seq and row["fence"] <= token])

    def forget(self, commit: Commit) -> None:
        """Remove what was put away for a commit that was refused."""
        self._remove(
            [(commit.split, commit.seq, commit.token, n) for n in range(len(commit.losses))]
        )

    def all(
        self, committed: Mapping[str, int], numbers: Sequence[int] | None = None
    ) -> Iterator[KeptLoss]:
        """Return the losses that *committed* (the number of each split's head) covers."""
        return (self._kept(row) for row in self._seen(committed, numbers))

    def unsent(self, committed: Mapping[str, int], *, bytes_max: int) -> Sequence[KeptLoss]:
        """Return what the topic for dead letters has not got yet, oldest first."""
        found: list[KeptLoss] = []
        size = 0
        for row in self._seen(committed, None):
            size += 0 if row["sent"] else row["size_bytes"]
            if len(found) == UNSENT_MAX or (found and size > bytes_max):
                break
            if not row["sent"]:
                found.append(self._kept(row))
        return found

    def mark_sent(self, committed: Mapping[str, int], numbers: Sequence[int]) -> None:
        """Note that the topic for dead letters has them."""
        self._session.write(
            [
                (
                    f"UPDATE losses SET sent = true {_WHERE}",  # noqa: S608 (constants)
                    (self._job, *_key(row)),
                )
                for row in self._seen(committed, numbers)
            ]
        )

    def remove(self, committed: Mapping[str, int], numbers: Sequence[int]) -> None:
        """Forget them."""
        self._remove([_key(row) for row in self._seen(committed, numbers)])

    def inherit(self, of: "CassandraLosses", splits: Sequence[str], *, into: Sequence[str]) -> None:
        """Take what another job has of *splits*, as of *into* or, where these lack it, the first.

        Under their numbers, which no two have, before all commits: twice is the same as once.
        """
        for row in of._rows(splits, "*"):  # noqa: SLF001 (of the same class)
            split = row["split"] if row["split"] in into else into[0]
            key: _Key = (split, 0, -row["number"], row["place"])
            names = ("number", "lost_ms", "sent", "size_bytes", "facts", "key")
            pieces = self._session.rows(
                f"SELECT piece, content FROM loss_pieces {_WHERE}",  # noqa: S608 (constants)
                of._job,  # noqa: SLF001 (likewise)
                *_key(row),
            )
            self._session.write(
                [
                    (_INSERT, (self._job, *key, *(row[name] for name in names))),
                    *(
                        (_INSERT_PIECE, (self._job, *key, piece["piece"], piece["content"]))
                        for piece in pieces
                    ),
                ]
            )
            of._remove([_key(row)])  # noqa: SLF001 (likewise)

    def _seen(
        self, committed: Mapping[str, int], numbers: Sequence[int] | None
    ) -> list[dict[str, Any]]:  # Any: the driver's rows have no types.
        rows = self._rows(list(committed), "*")
        wanted = None if numbers is None else set(numbers)
        by_split = [
            row
            for row in rows
            if row["seq"] <= committed[row["split"]] and (wanted is None or row["number"] in wanted)
        ]
        return sorted(by_split, key=_age)

    def _rows(self, splits: Sequence[str], columns: str) -> list[dict[str, Any]]:
        query = f"SELECT {columns} FROM losses WHERE job = ? AND split = ?"  # noqa: S608 (constants)
        return self._session.rows_of(query, [(self._job, split) for split in splits])

    def _kept(self, row: Mapping[str, Any]) -> KeptLoss:
        pieces = self._session.rows(
            f"SELECT content FROM loss_pieces {_WHERE}",  # noqa: S608 (constants)
            self._job,
            *_key(row),
        )
        facts = json.loads(row["facts"])
        headers = tuple((name, base64.b64decode(text)) for name, text in facts.pop("headers"))
        loss = Loss(
            **facts,
            headers=headers,
            key=row["key"],
            content=b"".join(piece["content"] for piece in pieces),
        )
        return KeptLoss(row["number"], row["split"], row["lost_ms"], bool(row["sent"]), loss)

    def _remove(self, keys: Sequence[_Key]) -> None:
        self._session.write(
            [
                (f"DELETE FROM {table} {_WHERE}", (self._job, *key))  # noqa: S608 (constants)
                for key in keys
                for table in ("losses", "loss_pieces")
            ]
        )

    def _number(self, key: _Key) -> int:
        text = json.dumps([self._job, *key]).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=_NUMBER_BYTES).digest(), "big")


def _key(row: Mapping[str, Any]) -> _Key:
    return row["split"], row["seq"], row["fence"], row["place"]


def _age(row: Mapping[str, Any]) -> tuple[int, _Key]:
    return row["lost_ms"], _key(row)


def _size(loss: Loss) -> int:
    return len(loss.content) + len(loss.key or b"")


def _facts(loss: Loss) -> str:
    headers = [[name, base64.b64encode(content).decode()] for name, content in loss.headers]
    return json.dumps(
        {
            "kind": loss.kind,
            "table": loss.table,
            "place": loss.place,
            "code": loss.code,
            "message": loss.message,
            "stage": loss.stage,
            "origin": loss.origin,
            "headers": headers,
        }
    )
