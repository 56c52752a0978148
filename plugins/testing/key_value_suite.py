"""The requirements of every key-value backend of a store."""

import threading
from collections.abc import Callable
from contextlib import closing
from typing import ClassVar

import pytest
from msgspec.structs import replace

from headrace.plugins.stores.key_values import Change, Entry, Key, KeyValues, Partition, new_stamp

ROW = Partition("suite/row")
OTHER = Partition("suite/other")
PLAIN = Partition("suite/plain", is_plain=True)
Open = Callable[[], KeyValues]
_LARGE = 256 * 1024


def made(values: KeyValues, name: str = "a", value: bytes = b"1") -> int:
    """Create a row. Return its stamp."""
    change = Change(partition=ROW, expected={name: None}, rows={name: value})
    assert [True] == list(values.change([change]))
    return change.stamp


class KeyValueSuite:
    """Subclass it, and give it a fixture `opened` that connects again to the same rows."""

    version: ClassVar[int] = 1

    @pytest.fixture
    def opened(self) -> Open:
        """Return a function that connects to rows, which are empty when the test starts."""
        raise NotImplementedError("a subclass of KeyValueSuite has a fixture named opened")

    def test_a_row_is_made_once(self, opened: Open) -> None:
        """Of two connections that expect no row, one creates it; all read its value."""
        with closing(opened()) as first, closing(opened()) as second:
            stamp = made(first)
            late = Change(partition=ROW, expected={"a": None}, rows={"a": b"2"})

            assert [False] == list(second.change([late]))
            assert {Key(ROW, "a"): Entry(stamp, b"1")} == dict(second.read([Key(ROW, "a")]))

    def test_a_row_is_replaced_by_who_saw_it_last(self, opened: Open) -> None:
        """A change is refused when the row has another stamp, or is gone."""
        with closing(opened()) as values:
            stamp = made(values)
            change = Change(partition=ROW, expected={"a": stamp}, rows={"a": b"2"})
            again = replace(change, stamp=new_stamp())

            assert [True] == list(values.change([change]))
            assert [False] == list(values.change([again]))
            assert Entry(change.stamp, b"2") == values.read([Key(ROW, "a")])[Key(ROW, "a")]
            gone = Change(partition=ROW, expected={"a": change.stamp}, rows={"a": None})
            assert [True] == list(values.change([gone]))
            assert {} == dict(values.read([Key(ROW, "a")]))
            assert [False] == list(values.change([replace(again, expected={"a": change.stamp})]))

    def test_a_row_that_came_back_has_another_stamp(self, opened: Open) -> None:
        """A process that saw the row before its removal cannot change the row that replaced it."""
        with closing(opened()) as values:
            stamp = made(values)
            gone = Change(partition=ROW, expected={"a": stamp}, rows={"a": None})
            assert [True] == list(values.change([gone]))
            made(values)
            late = Change(partition=ROW, expected={"a": stamp}, rows={"a": b"late"})

            assert [False] == list(values.change([late]))

    def test_a_change_is_whole(self, opened: Open) -> None:
        """All rows of a change are replaced, or none; rows may be expected and not replaced."""
        with closing(opened()) as values:
            first, second = made(values, "a"), made(values, "b")
            rows = {"a": b"2", "c": b"3"}
            refused = Change(partition=ROW, expected={"a": first, "b": 1}, rows=rows)
            applied = Change(partition=ROW, expected={"a": first, "b": second}, rows=rows)
            absent = Change(partition=ROW, expected={"d": None, "b": second}, rows={"e": b"5"})

            assert [False] == list(values.change([refused]))
            assert {"a", "b"} == {key.name for key in values.scan([ROW])}
            assert [True] == list(values.change([applied]))
            assert {"a": b"2", "b": b"1", "c": b"3"} == _values(values, ROW)
            assert second == values.read([Key(ROW, "b")])[Key(ROW, "b")].stamp
            assert [True] == list(values.change([absent]))
            assert b"5" == _values(values, ROW)["e"]

    def test_changes_are_apart(self, opened: Open) -> None:
        """A rejected change does not affect the others."""
        with closing(opened()) as values:
            changes = [
                Change(partition=ROW, expected={"a": None}, rows={"a": b"1"}),
                Change(partition=ROW, expected={"b": 7}, rows={"b": b"1"}),
                Change(partition=OTHER, expected={"a": None}, rows={"a": b"2"}),
            ]

            assert [True, False, True] == list(values.change(changes))
            assert ({"a": b"1"}, {"a": b"2"}) == (_values(values, ROW), _values(values, OTHER))
            assert [] == list(values.change([]))

    def test_plain_rows(self, opened: Open) -> None:
        """The last write counts; names are in order; removing a row twice is not an error."""
        with closing(opened()) as values, closing(opened()) as other:
            values.put({Key(PLAIN, "b"): b"1", Key(PLAIN, "a"): b"", Key(PLAIN, "c\0é/1"): b"3"})
            other.put({Key(PLAIN, "b"): b"2", Key(PLAIN, "none"): None})
            values.put({})

            assert ["a", "b", "c\0é/1"] == list(values.names(PLAIN))
            assert {"a": b"", "b": b"2", "c\0é/1": b"3"} == _values(values, PLAIN)
            other.put({Key(PLAIN, "b"): None})
            assert ["a", "c\0é/1"] == list(values.names(PLAIN))
            assert [] == list(values.names(Partition("suite", is_plain=True)))

    def test_plain_rows_of_a_change(self, opened: Open) -> None:
        """Rows before it exist with it; rows after it are gone with it, and otherwise stay."""
        with closing(opened()) as values:
            values.put({Key(PLAIN, "old"): b"0"})
            change = Change(
                partition=ROW,
                expected={"a": 7},
                rows={"a": b"1"},
                first={Key(PLAIN, "new"): b"x" * _LARGE},
                then=[Key(PLAIN, "old")],
            )
            assert [False] == list(values.change([change]))
            assert "old" in values.names(PLAIN)
            assert [True] == list(values.change([replace(change, expected={"a": None})]))

            found = values.read([Key(PLAIN, "new"), Key(ROW, "a"), Key(PLAIN, "gone")])
            assert {"new": b"x" * _LARGE, "a": b"1"} == {k.name: e.value for k, e in found.items()}

    def test_rows_before_all_changes(self, opened: Open) -> None:
        """They are written even if the changes do not apply, and without any."""
        with closing(opened()) as values:
            refused = Change(partition=ROW, expected={"a": 7}, rows={"a": b"1"})
            assert [False] == list(values.change([refused], {Key(PLAIN, "a"): b"1"}))
            assert [] == list(values.change([], {Key(PLAIN, "b"): b"2"}))

            assert {"a": b"1", "b": b"2"} == _values(values, PLAIN)

    def test_many_and_large_rows(self, opened: Open) -> None:
        """A hundred rows of a partition are changed at once, and large ones come back whole."""
        with closing(opened()) as values:
            names = {f"{number:03}": bytes([number]) * 1000 for number in range(100)}
            change = Change(partition=ROW, expected=dict.fromkeys(names), rows=names)
            values.put({Key(PLAIN, f"{n}"): bytes([n]) * _LARGE for n in range(12)})

            assert [True] == list(values.change([change]))
            assert names == _values(values, ROW)
            assert [bytes([n]) * _LARGE for n in range(12)] == [
                values.read([Key(PLAIN, f"{n}")])[Key(PLAIN, f"{n}")].value for n in range(12)
            ]

    def test_of_many_at_once_each_counts(self, opened: Open) -> None:
        """Three threads that add to one row lose nothing: after a rejection they read it again."""
        each, threads = 10, 3

        def add() -> None:
            key, done = Key(ROW, "n"), 0
            with closing(opened()) as values:
                while done < each:
                    entry = values.read([key]).get(key)
                    number = int(entry.value) if entry else 0
                    expected = {"n": entry.stamp if entry else None}
                    rows: dict[str, bytes | None] = {"n": str(number + 1).encode()}
                    change = Change(partition=ROW, expected=expected, rows=rows)
                    done += values.change([change])[0] is True

        running = [threading.Thread(target=add, daemon=True) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(120)
        with closing(opened()) as values:
            assert {"n": str(each * threads).encode()} == _values(values, ROW)

    def test_closes_twice(self, opened: Open) -> None:
        """A connection may be closed again."""
        values = opened()
        values.close()
        values.close()


def _values(values: KeyValues, partition: Partition) -> dict[str, bytes]:
    return {key.name: entry.value for key, entry in values.scan([partition]).items()}
