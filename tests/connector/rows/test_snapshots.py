"""What a snapshot shows of a row is known; what it may hide is not."""

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from headrace.connector.rows.folding import NEVER, State, TableView
from headrace.connector.rows.snapshots import MARK, is_doubtful, seeded
from helpers.histories.whole_changes import schema_of, whole

BEGUN_US = 1_700_000_000_000_000
READ_US = BEGUN_US + 3
OLD, NEW = BEGUN_US - 5, BEGUN_US + 5
NOW_S = BEGUN_US // 1_000_000
DDL = """
CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TABLE k.t (id int, n int, m int, tags set<text>, l list<int>, s int static, at int,
    PRIMARY KEY (id, at)) WITH ID = 00000000-0000-1000-8000-000000000001 AND cdc = true;
"""


VIEW = TableView(schema_of(DDL))
PACK = msgspec.msgpack.Encoder()
UNPACK = msgspec.msgpack.Decoder()


def change(
    written_us: int, operation: str = "UPDATE", *, is_static: bool = False, **columns: object
) -> Mapping[str, Any]:
    """Return a change of the row (1, 1)."""
    payload = {"id": 1, "at": None if is_static else 1}
    return whole(operation, written_us, payload, columns, isStatic=is_static)


def add(state: State | None, value: Mapping[str, Any]) -> State:
    """Return a state with one change more."""
    folded: State = UNPACK.decode(VIEW.folded(None if state is None else PACK.encode(state), value))
    return folded


def cells(written_us: int, *keys: str, removed: bool = False, deleted_us: int | None = None) -> Any:  # noqa: ANN401 (as Avro has it)
    """Return elements of a collection."""
    made = [
        {
            "key": key,
            "removed": removed,
            "timestampMicros": written_us,
            "ttl": None,
            "expires": None,
            "value": 1,
        }
        for key in keys
    ]
    return {"mode": "merge", "deletedAt": deleted_us, "cells": made}


def shown(state: State, after: int = NEVER) -> bool:
    """Say whether what the state shows is sure."""
    return not is_doubtful(VIEW, state, after, NOW_S, BEGUN_US)


def element(at_us: int) -> str:
    """Return the id of a list's element that was appended then."""
    ticks = at_us * 10 + 0x01B2_1DD2_1381_4000
    parts = ticks & 0xFFFF_FFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000, 0x80, 0, 7
    return str(uuid.UUID(fields=parts))


def row(**columns: Any) -> State:  # noqa: ANN401 (of the table)
    """Return the state of a row that the snapshot showed."""
    return seeded(None, change(OLD, "INSERT", **columns), VIEW, BEGUN_US, READ_US)


def test_what_the_snapshot_had_is_sure() -> None:
    """So is what the logs have, and what is written over a value that it had, however late."""
    state = row(n=1, tags=cells(OLD, "a"))
    assert shown(state)
    assert shown(add(state, change(NEW, m=2, tags=cells(NEW, "b"))))
    assert shown(add(row(n=1), change(OLD + 1, n=2)))
    assert shown(add(row(n=1), change(OLD - 1, n=2)))


@pytest.mark.parametrize("late", [{"m": 2}, {"tags": cells(OLD, "b")}, {"l": cells(OLD, "x")}])
def test_an_old_value_that_it_had_not_may_be_deleted(late: dict[str, Any]) -> None:
    """Until it is written again, or the row is deleted."""
    state = add(row(n=1, tags=cells(OLD, "a")), change(OLD, **late))
    assert not shown(state)
    assert shown(state, after=NEW)
    new = {name: cells(NEW, "b", deleted_us=NEW - 1) for name in late if name != "m"} or {"m": 3}
    assert shown(add(state, change(NEW, **new)))


def test_a_row_that_it_had_not() -> None:
    """An old INSERT of it may be deleted; a new value says that it is there."""
    state = add(None, change(OLD, "INSERT"))
    assert not shown(state)
    assert shown(add(state, change(NEW, n=1)))
    assert not shown(add(None, change(OLD, n=1)))
    assert shown(add(None, change(NEW, "INSERT")))


def test_a_row_without_values() -> None:
    """CQL does not show whether a row was inserted: it is known of one that has no values."""
    assert shown(row())
    gone = add(row(n=1), change(NEW, n=None))
    assert not shown(gone)
    assert shown(add(gone, change(NEW, "INSERT")))


def test_static_columns() -> None:
    """They have a mark of their own, with the other static columns."""
    state = seeded(None, change(OLD, is_static=True, s=1), VIEW, BEGUN_US, READ_US)
    assert shown(state)
    assert [[], {}, False, {}] == state[MARK]


def test_a_list_is_known_until_one_of_its_elements_is_named() -> None:
    """The snapshot shows no ids: what is added is new, what is set or removed may be any."""
    listed = row(l=cells(OLD, element(OLD), element(OLD + 1)))
    assert shown(listed)
    appended = add(listed, change(NEW, l=cells(NEW, element(NEW))))
    assert shown(appended)
    prepended_us = 2 * 1_262_304_000_000_000 - NEW
    assert shown(add(appended, change(NEW, l=cells(NEW, element(prepended_us)))))
    other = cells(NEW, element(OLD - 1_000), removed=True)
    removed = add(listed, change(NEW, l=other))
    assert not shown(removed)
    assert shown(add(removed, change(NEW + 9, l=cells(NEW + 9, element(NEW), deleted_us=NEW + 8))))


def test_it_can_be_read_again() -> None:
    """Twice is as once; what came between stays."""
    first = change(OLD, "INSERT", n=1, tags=cells(OLD, "a"))
    once = seeded(None, first, VIEW, BEGUN_US, READ_US)
    again = seeded(seeded(None, first, VIEW, BEGUN_US, READ_US), first, VIEW, BEGUN_US, READ_US)
    assert once == again
    later = seeded(add(again, change(NEW, "INSERT", n=5)), first, VIEW, BEGUN_US, READ_US)
    assert [NEW, False, 0] == later["live"]
    assert 5 == later["columns"]["n"][2][1]


def test_times_of_elements_may_be_hidden() -> None:
    """Before Cassandra 5.0 they have the time of the row: an older change may not be newer."""
    state = row(n=1, tags=cells(OLD, "a"))
    assert shown(state)
    assert shown(add(state, change(NEW, tags=cells(NEW, "a", removed=True))))
    assert not shown(add(row(tags=cells(OLD, "a")), change(OLD + 1, tags=cells(OLD + 1, "a"))))
    removed = cells(OLD + 1, "a", removed=True)
    assert not shown(add(row(tags=cells(OLD, "a")), change(OLD + 1, tags=removed)))
    assert not shown(row(tags=cells(OLD, "a")), after=OLD + 1)
    assert shown(row(tags=cells(OLD, "a")), after=NEW)
    meanwhile = BEGUN_US + 1
    listed = row(l=cells(OLD, element(OLD)))
    # The snapshot may have this element, too, by another id.
    assert not shown(add(listed, change(meanwhile, l=cells(meanwhile, element(meanwhile)))))
    reported = row(n=1, tags=cells(OLD + 2, "a"))
    assert shown(add(reported, change(OLD + 3, tags=cells(OLD + 3, "a"))))
