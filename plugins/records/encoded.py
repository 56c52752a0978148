"""Encoded records, with the facts for their headers."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headrace.plugins.records.checksums import Checksums
from headrace.plugins.records.record import (
    MUTATION_ID_BYTES,
    OPERATIONS,
    Document,
    Headers,
    Operation,
    Quarantined,
    Record,
)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about encoded records besides their bytes: columns of 64-bit numbers.

    Each record has its write time in µs, its operation (a number in the order of `Operation`), its
    index among the changes of its mutation, and its mutation, by number in the batch. `ids` has 16
    bytes per mutation, or is empty if mutations have no name. `places` are columns with a number
    per mutation, named by the source; if `strings` has the same name, the number is an index into
    these strings.
    """

    timestamps_us: memoryview
    operations: memoryview
    indexes: memoryview
    mutations: memoryview
    ids: bytes = b""
    places: Mapping[str, memoryview] = msgspec.field(default_factory=dict)
    strings: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)


class FactColumns:
    """Collects the facts of records that are made one by one, each as its own mutation."""

    def __init__(self) -> None:
        """Start without facts."""
        self._timestamps_us = array("q")
        self._operations = array("q")
        self._indexes = array("q")
        self._ids = bytearray()
        self._places: dict[str, array[int]] = {}
        self._strings: dict[str, dict[str, int]] = {}

    def add(
        self,
        timestamp_us: int,
        operation: Operation,
        *,
        index: int = 0,
        mutation: bytes = b"",
        origin: Document,
    ) -> None:
        """Add a record; of *origin*, the numbers and strings that all records have are kept."""
        is_first = not self._indexes
        self._timestamps_us.append(timestamp_us)
        self._operations.append(OPERATIONS.index(operation))
        self._indexes.append(index)
        self._ids += mutation
        for name, fact in origin.items():
            if name not in self._places and not is_first:
                continue
            if isinstance(fact, str):
                known = self._strings.setdefault(name, {})
                self._places.setdefault(name, array("q")).append(known.setdefault(fact, len(known)))
            elif isinstance(fact, int) and name not in self._strings:
                self._places.setdefault(name, array("q")).append(fact)

    def facts(self) -> "Facts":
        """Return the columns."""
        count = len(self._indexes)
        whole = {name: column for name, column in self._places.items() if len(column) == count}
        return Facts(
            timestamps_us=memoryview(self._timestamps_us),
            operations=memoryview(self._operations),
            indexes=memoryview(self._indexes),
            mutations=memoryview(array("q", range(count))),
            ids=bytes(self._ids) if len(self._ids) == MUTATION_ID_BYTES * count else b"",
            places={name: memoryview(column) for name, column in whole.items()},
            strings={name: tuple(known) for name, known in self._strings.items() if name in whole},
        )


_COMPARED: Final = (
    *("keys", "values", "headers", "tables", "quarantined", "tombstones", "topics"),
    *("filtered", "left"),
)


class EncodedRecords(msgspec.Struct, frozen=True, eq=False):
    """A batch's records as bytes, in columns; the sequences have equal length.

    `tables[i]` and `headers[i]` are shared objects, one per schema, never copied per record.
    `tombstones` are the indexes, ascending, of records that are followed by a message with the same
    key and without a value. `topics`, if set, has the topic of each record, instead of its table.
    `filtered` counts, by table, records that were left out on purpose. `left` are the indexes of
    records whose values here do not count: the framework encodes these. `facts` is set if the
    records were made in bulk. `checksums` are those of the records, if the batch has a `checksum`;
    `omitted` is the sum of those of changes that were left out on purpose. `starts`, given for
    `avro.starts`, says where in each value the columns of its payload begin and where the last
    ends: 32-bit numbers of one record after another, the first of them -1 where it is not known.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes]
    headers: Sequence[Headers]
    tables: Sequence[str]
    quarantined: Sequence[Quarantined] = ()
    tombstones: Sequence[int] = ()
    topics: Sequence[str] | None = None
    filtered: Mapping[str, int] = msgspec.field(default_factory=dict)
    left: Mapping[int, Record] = msgspec.field(default_factory=dict)
    facts: Facts | None = None
    checksums: Checksums | None = None
    omitted: int = 0
    starts: memoryview | None = None

    __hash__ = None  # type: ignore[assignment]  # It compares lists.

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        """Compare the parts that become messages, that were left out, and that are not encoded."""
        return isinstance(other, EncodedRecords) and all(
            getattr(self, name) == getattr(other, name) for name in _COMPARED
        )

    def sums(self) -> Sequence[int]:
        """Return the checksum of each record; 0 for all without checksums."""
        return [0] * len(self) if self.checksums is None else list(self.checksums)

    def chosen(self, indexes: Sequence[int]) -> "EncodedRecords":
        """Return the records at ascending *indexes*, without their facts."""
        places = {index: place for place, index in enumerate(indexes)}
        return msgspec.structs.replace(
            self,
            keys=[self.keys[i] for i in indexes],
            values=[self.values[i] for i in indexes],
            headers=[self.headers[i] for i in indexes],
            tables=[self.tables[i] for i in indexes],
            tombstones=[places[i] for i in self.tombstones if i in places],
            topics=None if self.topics is None else [self.topics[i] for i in indexes],
            left={places[i]: record for i, record in self.left.items() if i in places},
            facts=None,
            checksums=self.checksums and self.checksums.chosen(indexes),
            starts=None,
        )
