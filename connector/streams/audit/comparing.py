"""The result of an audit: a job's topics compared with its books."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.connector.stores import TableCounts
from headrace.connector.stores.table_content import TableContent
from headrace.connector.streams.audit.counted import CountedChanges, Window
from headrace.connector.streams.changes import ChangeReader
from headrace.connector.streams.tally import Counted
from headrace.plugins import BadRecordError

Books = Mapping[str, TableCounts]
Json = Mapping[str, Any]  # Any: JSON.


class Audit(msgspec.Struct, frozen=True):
    """An audit: *tables* are compared with the books, *windows* are only counted.

    `is_moving`: the job was delivering, so what is not yet booked does not differ.
    `unread` are partitions that were not read to their ends, so nothing is known to be missing.
    `unreadable` is the number of messages that this job cannot have sent; `reason` explains the
    first of them.
    """

    tables: Mapping[str, TableContent]
    windows: Mapping[Window, Counted]
    is_moving: bool = False
    unread: Sequence[str] = ()
    unreadable: int = 0
    reason: str = ""

    @classmethod
    def of(
        cls,
        counted: CountedChanges,
        books: Books,
        tables: Sequence[str],
        **facts: Any,  # noqa: ANN401 (fields of this class)
    ) -> "Audit":
        """Compare *counted* changes of *tables* with *books* read before the topics' ends."""
        windows = {w: each for w, each in counted.windows().items() if w.table in tables}
        found = counted.tables()
        beside = {}
        for table in tables:
            c, has = books.get(table, TableCounts()), found.get(table, Counted())
            kept = c.dead_lettered + c.quarantined
            beside[table] = TableContent(c.delivered, kept, has.number, has.repeated)
        return cls(beside, windows, **facts)

    def differences(self) -> Sequence[str]:
        """Return the differences from the books, in words."""
        if self.unread:
            return ()
        lines = []
        for table, content in self.tables.items():
            if content.missing:
                said = f"{content.missing} of {content.delivered} delivered changes are missing"
                lines.append(f"{table}: {said}")
            if content.unknown and not self.is_moving:
                said = "changes are not in the books: sent and not committed, or sent by others"
                lines.append(f"{table}: {content.unknown} {said}")
        return lines

    def json(self) -> Json:
        """Return the audit as JSON; hashes are hex digits."""
        return {
            "tables": {table: _figures(content) for table, content in self.tables.items()},
            "windows": [
                {
                    **window._asdict(),
                    "changes": counted.number,
                    "hashes": f"{counted.hashes:016x}",
                    "repeated": counted.repeated,
                }
                for window, counted in self.windows.items()
            ],
            "is_moving": self.is_moving,
            "unread": [*self.unread],
            "unreadable": self.unreadable,
            "differences": [*self.differences()],
        }

    def text(self) -> str:
        """Return a line for each table, and one about unread partitions."""
        lines = []
        for table, content in self.tables.items():
            figures = (f"{number} {name}" for name, number in _figures(content).items())
            lines.append(f"{table}: {', '.join(figures)}")
        if self.unread:
            lines.append(f"not read to the end: {', '.join(self.unread)}")
        if self.unreadable:
            lines.append(f"{self.unreadable} messages are not of this job: {self.reason}")
        return "".join(f"{line}\n" for line in lines)


def audited(reader: ChangeReader, read_books: Callable[[], Books], *tables: str) -> Audit:
    """Read the topics of *tables* from begin to end, and compare. Blocks.

    Without *tables*, those with delivered changes. Memory grows with the changes.

    Raises:
        UnnamedChangeError: messages do not identify their changes.
        HeadraceError: the books, a topic, a schema store or a claim store cannot be read.

    """
    books = read_books()
    chosen = tables or delivered(books)
    counted = CountedChanges({}, {})
    unreadable, reason = 0, ""
    for part in reader.sink.parts(chosen):
        topic, _, number = part.rpartition(":")
        for messages in reader.sink.read_back(part):
            for stored in messages:
                key, value, headers = stored.key, stored.value, stored.headers
                try:
                    change = reader.read(
                        topic, int(number), key, value, headers, offset=stored.place
                    )
                except BadRecordError as error:
                    unreadable, reason = unreadable + 1, reason or str(error)
                    continue
                if change is not None:
                    counted.take(change)
    is_moving = read_books() != books
    return Audit.of(
        *(counted, books, chosen), is_moving=is_moving, unreadable=unreadable, reason=reason
    )


def _figures(content: TableContent) -> Mapping[str, int]:
    return {
        "found": content.found,
        "expected": content.delivered,
        "missing": content.missing,
        "repeated": content.repeated,
        "unexpected": content.unknown,
    }


def delivered(books: Books) -> Sequence[str]:
    """Return the tables with delivered changes: others may not have a topic."""
    return [table for table, counts in books.items() if counts.delivered]


def differing(one: Json, other: Json) -> Sequence[str]:
    """Return in words the windows whose changes differ between two audits, as JSON."""
    first, second = (
        {(w["table"], w["bucket"], w["begin_us"]): w for w in audit["windows"]}
        for audit in (one, other)
    )
    lines = []
    for place in sorted(first.keys() | second.keys()):
        sides = [side.get(place, {"changes": 0, "hashes": "0" * 16}) for side in (first, second)]
        if len({(side["changes"], side["hashes"]) for side in sides}) > 1:
            table, bucket, begin_us = place
            here, there = (side["changes"] for side in sides)
            where = f"{table}: bucket {bucket}, window from {begin_us} µs"
            lines.append(f"{where}: {here} changes here, {there} there, or others")
    return lines
