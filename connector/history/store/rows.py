"""The unconditional rows of histories in Cassandra: changes, and the states of rows.

Which of them count is decided elsewhere: see `tables`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from headrace.connector.history.arrival import ms_of
from headrace.connector.history.store.contract import Change, Name
from headrace.connector.stores.cassandra.session import CassandraSession, Statement
from headrace.plugins.records.record import OPERATIONS

TABLES: Final[Mapping[str, str]] = {
    "history_changes": """
        history text, window timestamp, bucket int, arrival bigint, attempt bigint,
        arrived timestamp, operation text, written_us bigint, document text, schema_number int,
        key blob, row blob, change blob, before blob,
        PRIMARY KEY ((history, window, bucket), arrival, attempt)
    ) WITH compaction = {'class': 'TimeWindowCompactionStrategy',
            'compaction_window_size': '6', 'compaction_window_unit': 'HOURS'}
        AND gc_grace_seconds = 10800""",
    "history_states": """
        states text, key blob, row blob, expires bigint, state blob,
        PRIMARY KEY ((states, key), row)
    )""",
    "history_expiries": """
        states text, day int, at_s bigint, key blob, row blob,
        PRIMARY KEY ((states, day), at_s, key, row)
    )""",
}
DAY_SECONDS: Final = 86_400
TTL_SECONDS_MAX: Final = 20 * 365 * 86_400  # Cassandra's limit.
BATCH_ROWS: Final = 64
BATCH_BYTES: Final = 256 * 1024
PAGE_ROWS: Final = 100
ASKED_MAX: Final = 20  # States that one request reads: some clusters refuse more than 25 names,
CROSSED_MAX: Final = 5  # and each key is combined with each row.
STATES_MAX: Final = 10  # States, and bytes, of one write: a node warns of more.
STATES_BYTES: Final = 5_000
_STATE_BYTES: Final = 100  # Additional bytes of a row.
_OPERATIONS: Final = (
    *(each.value.lower() for each in OPERATIONS),
    "ttl_delete",
    "ttl_update",
)
_NUMBERS: Final = {name: number for number, name in enumerate(_OPERATIONS)}
_PUT: Final = (
    "INSERT INTO history_changes (history, window, bucket, arrival, attempt, arrived, operation, "
    "written_us, document, schema_number, key, row, change, before) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "USING TTL ?"
)
_OF: Final = "FROM history_changes WHERE history = ? AND window = ? AND bucket = ?"
_NARROW: Final = "arrival, attempt, operation, written_us, schema_number, key"
_WHOLE: Final = f"{_NARROW}, row, change, before"
_READ: Final = {
    (whole, descending): f"SELECT {_WHOLE if whole else _NARROW} {_OF} AND arrival >= ? "
    f"AND arrival < ? ORDER BY arrival {'DESC' if descending else 'ASC'}"
    for whole in (False, True)
    for descending in (False, True)
}
_DROP: Final = f"DELETE {_OF}"  # A whole partition.
_PUT_STATE: Final = (
    "INSERT INTO history_states (states, key, row, expires, state) VALUES (?, ?, ?, ?, ?) "
    "USING TIMESTAMP ?"
)
_STATE: Final = (
    "SELECT key, row, state, expires FROM history_states WHERE states = ? AND key IN ? AND row IN ?"
)
_STATES: Final = "SELECT row, state, expires FROM history_states WHERE states = ? AND key = ?"
_PUT_EXPIRY: Final = (
    "INSERT INTO history_expiries (states, day, at_s, key, row) VALUES (?, ?, ?, ?, ?) "
    "USING TIMESTAMP ?"
)
_DROP_EXPIRY: Final = (
    "DELETE FROM history_expiries USING TIMESTAMP ? WHERE states = ? AND day = ? AND at_s = ? "
    "AND key = ? AND row = ?"
)
_EXPIRIES: Final = (
    "SELECT at_s, key, row FROM history_expiries WHERE states = ? AND day = ? AND at_s <= ?"
)


_OF_STATES: Final = (("history_states", "key"), ("history_expiries", "day"))
_SWEEP: Final = [
    f"SELECT DISTINCT states, {part}, token(states, {part}) AS at FROM {table} "  # noqa: S608 (constants)
    f"WHERE token(states, {part}) > ?"
    for table, part in _OF_STATES
]
TOKEN_MIN: Final = -(1 << 63)
ALL: Final = (0, TOKEN_MIN)
SWEEP_ROWS: Final = 500
Left = tuple[int, int]
"""What `drop_states` has not looked at: the number of a table, and the token behind which."""


_T = TypeVar("_T")


class State(NamedTuple):
    """The state of a row, and when `HistoryStore.due` returns it, 0 for never."""

    state: bytes
    expires: int


Expiry = tuple[Name, int]
"""A row, and a second at which it loses a value."""


class Part(NamedTuple):
    """A partition of changes: a history, the begin of a window in ms, and a bucket."""

    history: str
    window_ms: int
    bucket: int


class HistoryRows:
    """The rows in one keyspace. Every call may raise StoreUnavailableError."""

    def __init__(self, session: CassandraSession) -> None:
        """Use *session* for all rows."""
        self._session = session

    def make(self) -> None:
        """Make missing tables."""
        self._session.make(TABLES)

    def put_changes(
        self,
        parts: Mapping[Part, Iterable[Change]],
        attempt: int,
        seconds: Mapping[Part, int],
        document: Callable[[Change], str],
    ) -> None:
        """Write changes as an *attempt*; each part has its own TTL in *seconds*.

        *document* returns a change in the form that cqlsh shows.
        """
        batches: list[list[Statement]] = []
        for part, changes in parts.items():
            ttl = min(seconds[part], TTL_SECONDS_MAX)
            batch: list[Statement] = []
            size = 0
            for each in changes:
                head = *part, each.arrival, attempt, ms_of(each.arrival)
                shown = document(each)
                what = _OPERATIONS[each.operation], each.written_us, shown, each.schema
                parts_of = each.key, each.row, each.change, each.before
                batch.append((_PUT, (*head, *what, *parts_of, ttl)))
                size += len(each.change) + len(each.before or b"") + len(shown)
                if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                    batches.append(batch)
                    batch, size = [], 0
            if batch:
                batches.append(batch)
        self._session.write_batches(batches)

    def changes(
        self, parts: Sequence[Part], begin: int, end: int, *, descending: bool, whole: bool
    ) -> list[Iterator[tuple[int, Change]]]:
        """Return iterators over the changes of each part in order, with their attempts.

        Changes that are not *whole* have neither row names nor bytes. Pages are read on demand, the
        first ones of all parts at once.
        """
        query = _READ[whole, descending]
        keys = [(*part, begin, end) for part in parts]
        found = self._session.streams(query, keys, PAGE_ROWS)
        return [_changes(part.bucket, rows) for part, rows in zip(parts, found, strict=True)]

    def drop_changes(self, parts: Sequence[Part]) -> None:
        """Remove all changes of *parts*."""
        self._session.write([(_DROP, part) for part in parts])

    def put_states(self, of: str, states: Mapping[Name, State], attempt: int) -> None:
        """Write states, unless a later attempt has already written them."""
        batches: list[list[Statement]] = [[]]
        size = 0
        for name, each in states.items():
            row_bytes = len(each.state) + len(name[0]) + len(name[1]) + _STATE_BYTES
            size += row_bytes
            if len(batches[-1]) == STATES_MAX or (batches[-1] and size > STATES_BYTES):
                batches.append([])
                size = row_bytes
            put = _PUT_STATE, (of, *name, each.expires, each.state, attempt)
            batches[-1].append(put)
        self._session.write_batches(batches)

    def states(self, of: str, names: Sequence[Name]) -> Iterator[tuple[Name, State]]:
        """Yield the states of rows that have one, and possibly of others, unordered."""
        asked = [(of, keys, rows) for keys, rows in _products(names)]
        for found in self._session.rows_of(_STATE, asked):
            yield (found["key"], found["row"]), State(found["state"], found["expires"])

    def states_of(self, of: str, key: bytes) -> Iterator[tuple[bytes, State]]:
        """Yield the names and states of all rows of a partition."""
        for row in self._session.rows(_STATES, of, key):
            yield row["row"], State(row["state"], row["expires"])

    def put_expiries(self, of: str, expiries: Iterable[Expiry], attempt: int) -> None:
        """Record when rows are due, whether or not the attempt becomes a commit."""
        days: dict[int, list[Statement]] = {}
        for each in expiries:
            days.setdefault(each[1] // DAY_SECONDS, []).append(
                (_PUT_EXPIRY, (*_expiry(of, *each), attempt))
            )
        self._session.write_batches(
            [
                noted[first : first + BATCH_ROWS]
                for noted in days.values()
                for first in range(0, len(noted), BATCH_ROWS)
            ]
        )

    def drop_expiries(self, of: str, expiries: Iterable[Expiry], attempt: int) -> None:
        """Start to remove the times at which rows were due, unless recorded again later."""
        for each in expiries:
            self._session.write_later(_DROP_EXPIRY, (attempt, *_expiry(of, *each)))

    def expiries(self, of: str, day: int, until_s: int) -> Iterator[Expiry]:
        """Yield when rows of a day are due, up to a second, in order. Some may be outdated."""
        (rows,) = self._session.streams(_EXPIRIES, [(of, day, until_s)], PAGE_ROWS)
        for row in rows:
            yield (row["key"], row["row"]), row["at_s"]

    def drop_states(self, of: str, *, but: str, left: Left) -> Left | None:
        """Remove some states whose names begin with *of*, *but* one; return what is left.

        It checks up to SWEEP_ROWS keys of all histories. None means that all were checked.
        """
        number, after = left
        table, part = _OF_STATES[number]
        (rows,) = self._session.streams(_SWEEP[number], [(after,)], SWEEP_ROWS)
        found = list(itertools.islice(rows, SWEEP_ROWS))
        mine = [(row["states"], row[part]) for row in found]
        drop = f"DELETE FROM {table} WHERE states = ? AND {part} = ?"  # noqa: S608 (constants)
        self._session.write([(drop, each) for each in mine if _is_named(each[0], of, but)])
        if len(found) == SWEEP_ROWS:
            return number, found[-1]["at"]
        return (number + 1, TOKEN_MIN) if number + 1 < len(_OF_STATES) else None


def _products(names: Iterable[Name]) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
    """Yield sets of keys and of row names whose combinations include all *names*.

    First several rows of one key, then several keys with one row, and then a few of both.
    """
    rows_of: dict[bytes, list[bytes]] = {}
    for key, row in names:
        rows_of.setdefault(key, []).append(row)
    keys_of: dict[bytes, list[bytes]] = {}
    for key, rows in rows_of.items():
        if len(rows) == 1:
            keys_of.setdefault(rows[0], []).append(key)
        else:
            yield from (([key], part) for part in _parts(rows, ASKED_MAX))
    alone: list[Name] = []
    for row, keys in keys_of.items():
        if len(keys) == 1:
            alone.append((keys[0], row))
        else:
            yield from ((part, [row]) for part in _parts(keys, ASKED_MAX))
    for few in _parts(alone, CROSSED_MAX):
        yield [key for key, _ in few], [row for _, row in few]


def _parts(names: Sequence[_T], count: int) -> Iterator[Sequence[_T]]:
    for begin in range(0, len(names), count):
        yield names[begin : begin + count]


def _is_named(name: str, of: str, but: str) -> bool:
    return name.startswith(of) and name != but


def _expiry(of: str, name: Name, at_s: int) -> Sequence[object]:
    return of, at_s // DAY_SECONDS, at_s, *name


def _changes(
    bucket: int,
    rows: Iterable[Mapping[str, Any]],  # Any: as below.
) -> Iterator[tuple[int, Change]]:
    for row in rows:
        yield row["attempt"], _change(bucket, row)


def _change(bucket: int, row: Mapping[str, Any]) -> Change:  # Any: the driver's rows have no types.
    return Change(
        row["arrival"],
        bucket,
        row["schema_number"],
        _NUMBERS[row["operation"]],
        row["written_us"],
        row["key"],
        row.get("row", b""),
        row.get("change", b""),
        row.get("before"),
    )
