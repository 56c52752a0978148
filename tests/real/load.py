"""Writes for a ring: statements of many kinds, and what a consumer must learn of each."""

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from cassandra import DriverException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, NoHostAvailable, ResponseFuture, Session
from cassandra.connection import ConnectionException
from cassandra.policies import FallthroughRetryPolicy
from cassandra.protocol import ErrorMessage
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement

from real.stream import Json, fact

CONCURRENT: Final = 64
PARTITIONS: Final = 2_000
ROWS: Final = 12
_FAILED: Final = (DriverException, ErrorMessage, NoHostAvailable, ConnectionException)
_SECONDS_MAX: Final = 600  # A replica that failed to join is waited for until all forget it.
_PAUSE_SECONDS: Final = 0.1
_PACE_SECONDS: Final = 0.2
_FIRST_US: Final = 1_700_000_000_000_000
_TABLES: Final = (
    (
        "CREATE TABLE {0}.orders (id int, seq int, name text, amount int, tags set<text>, "
        "attrs map<text, int>, "
        "note text static, PRIMARY KEY (id, seq)) WITH cdc = true"
    ),
    "CREATE TABLE {0}.items (id int PRIMARY KEY, name text) WITH cdc = true",
)
_STATEMENTS: Final = {
    "insert": "INSERT INTO {0}.orders (name, amount, id, seq) VALUES (?, ?, ?, ?) "
    "USING TIMESTAMP ?",
    "update": "UPDATE {0}.orders USING TIMESTAMP ? SET amount = ? WHERE id = ? AND seq = ?",
    "tag": "UPDATE {0}.orders USING TIMESTAMP ? SET tags = tags + ? WHERE id = ? AND seq = ?",
    "replace": (
        "UPDATE {0}.orders USING TIMESTAMP ? SET tags = ?, attrs = attrs + ? "
        "WHERE id = ? AND seq = ?"
    ),
    "note": "UPDATE {0}.orders USING TIMESTAMP ? SET note = ? WHERE id = ?",
    "delete": "DELETE FROM {0}.orders USING TIMESTAMP ? WHERE id = ? AND seq = ?",
    "range": "DELETE FROM {0}.orders USING TIMESTAMP ? WHERE id = ? AND seq > ?",
    "partition": "DELETE FROM {0}.orders USING TIMESTAMP ? WHERE id = ?",
    "item": "INSERT INTO {0}.items (id, name) VALUES (?, ?) USING TIMESTAMP ?",
}
# How many of a hundred statements are of each kind; a batch makes three changes, or eight.
_KINDS: Final = {
    "insert": 38,
    "update": 20,
    "tag": 3,
    "replace": 3,
    "note": 4,
    "delete": 7,
    "range": 2,
    "partition": 1,
    "batch": 6,
    "same partition": 16,
}
Write = tuple[BoundStatement | BatchStatement, list[bytes]]


def make_tables(session: Session, keyspace: str, *, replicas: int = 3) -> None:
    """Create what is written to."""
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = "
        f"{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
    )
    for table in _TABLES:
        session.execute(table.format(keyspace))


@dataclass
class Load:
    """Writes to the tables of a keyspace, at the session's level, each until it succeeds."""

    session: Session
    keyspace: str
    padding: int = 120
    """So many characters a text is longer at most."""
    expected: Counter[bytes] = field(default_factory=Counter)
    """What was written, in the form of `stream.fact`."""
    repeated: Counter[bytes] = field(default_factory=Counter)
    """How often unanswered writes were repeated."""

    def __post_init__(self) -> None:
        """Prepare the statements.

        The driver repeats none by itself: a deletion that is executed again is another mutation.
        """
        self._profile = self.session.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT, retry_policy=FallthroughRetryPolicy()
        )
        self._random = random.Random(self.keyspace)  # noqa: S311 (a test's data)
        self._time_us = _FIRST_US
        self._prepared: dict[str, PreparedStatement] = {
            name: self.session.prepare(text.format(self.keyspace))
            for name, text in _STATEMENTS.items()
        }
        self._kinds = self._random.choices(list(_KINDS), list(_KINDS.values()), k=997)

    def write(self, count: int, *, concurrent: int = CONCURRENT) -> None:
        """Make *count* changes, so many statements at a time; return when all are answered."""
        flying: deque[tuple[ResponseFuture, Write]] = deque()
        until = self.expected.total() + count
        while self.expected.total() < until:
            write = self._next()
            self.expected.update(write[1])
            flying.append((self._execute(write), write))
            if len(flying) >= concurrent:
                self._settle(*flying.popleft())
        while flying:
            self._settle(*flying.popleft())

    @contextmanager
    def flowing(self, a_second: int) -> Iterator[None]:
        """Write in a thread, about so many changes *a_second*, until the context ends."""
        over = threading.Event()

        def flow() -> None:
            while not over.wait(_PACE_SECONDS):
                self.write(int(a_second * _PACE_SECONDS))

        with ThreadPoolExecutor(1) as pool:
            flown = pool.submit(flow)
            try:
                yield
            finally:
                over.set()
            flown.result()

    def _execute(self, write: Write) -> ResponseFuture:
        return self.session.execute_async(write[0], execution_profile=self._profile)

    def _settle(self, future: ResponseFuture, write: Write) -> None:
        deadline = time.monotonic() + _SECONDS_MAX
        while True:
            try:
                future.result()
            except _FAILED:
                if time.monotonic() > deadline:
                    raise
                self.repeated.update(write[1])
                time.sleep(_PAUSE_SECONDS)  # What is wrong with the ring takes its time.
                future = self._execute(write)
            else:
                return

    def _next(self) -> Write:
        kind = self._kinds[self._time_us % len(self._kinds)]
        if kind == "batch":  # Logged: each partition is a mutation of its own.
            first, second = self._random.sample(range(PARTITIONS), 2)
            parts = [self._one("insert", first), self._one("update", second), self._one("item")]
        elif kind == "same partition":  # One mutation of several rows.
            partition = self._random.randrange(PARTITIONS)
            parts = [self._one("insert", partition, seq) for seq in range(8)]
        else:
            return self._one(kind)
        batch = BatchStatement(BatchType.LOGGED)
        for statement, _ in parts:
            batch.add(statement)
        return batch, [said for _, facts in parts for said in facts]

    def _one(self, kind: str, partition: int | None = None, seq: int | None = None) -> Write:
        self._time_us += 1
        at = self._time_us
        key = self._random.randrange(PARTITIONS) if partition is None else partition
        seq = self._random.randrange(ROWS) if seq is None else seq
        value = f"value {at} " + "x" * self._random.randrange(self.padding)
        row = {"id": key, "seq": seq}
        values: Sequence[object]
        match kind:
            case "insert":
                values = value, at % 1000, key, seq, at
                said = self._fact("INSERT", at, row | {"name": value, "amount": at % 1000})
            case "update":
                values = at, at % 1000, key, seq
                said = self._fact("UPDATE", at, row | {"amount": at % 1000})
            case "tag":
                values = at, {value}, key, seq
                tags = {"merge": [[value, None, False]]}
                said = self._fact("UPDATE", at, row | {"tags": tags})
            case "replace":
                values = at, {value}, {value: at % 1000}, key, seq
                tags = {"replace": [[value, None, False]]}
                attrs = {"merge": [[value, at % 1000, False]]}
                said = self._fact("UPDATE", at, row | {"tags": tags, "attrs": attrs})
            case "note":
                values = at, value, key
                said = self._fact("UPDATE", at, {"id": key, "note": value})
            case "delete":
                values = at, key, seq
                said = self._fact("DELETE", at, row)
            case "range":
                values = at, key, seq
                start = {"values": {"seq": seq}, "count": 1, "inclusive": False}
                said = self._fact("DELETE_RANGE", at, {"id": key}, {"start": start, "end": None})
            case "partition":
                values = at, key
                said = self._fact("DELETE_PARTITION", at, {"id": key})
            case _:
                values = key, value, at
                said = self._fact("INSERT", at, {"id": key, "name": value}, table="items")
        return self._prepared[kind].bind(values), [said]

    def _fact(
        self,
        operation: str,
        at: int,
        payload: Json,
        deleted: Json | None = None,
        *,
        table: str = "orders",
    ) -> bytes:
        return fact(
            f"{self.keyspace}.{table}",
            operation,
            at,
            payload,
            fields=[name for name in payload if name not in {"id", "seq"}],
            static="note" in payload,
            deleted=deleted,
        )

    def selected(self) -> Iterator[tuple[str, str]]:
        """Yield each row that the tables have, with its table, as JSON."""
        for table in ("orders", "items"):
            name = f"{self.keyspace}.{table}"
            for row in self.session.execute(f"SELECT JSON * FROM {name}"):  # noqa: S608 (ours)
                yield name, row[0]
