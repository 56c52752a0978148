"""What travels from a source to a sink: records, in batches.

Values here are frozen. A batch makes its records lazily, so a batch that can encode itself never
makes them at all.
"""

import copy
import hashlib
import json
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.plugins.positions import Position

if TYPE_CHECKING:
    from headrace.plugins.columns import TableType, TypedChanges

Headers = tuple[tuple[str, bytes], ...]
# Any: a record's value is shaped by its schema, which only exists at run time.
Document = Mapping[str, Any]


def readable(value: object) -> str:
    """Return what JSON has no form for as text: bytes as text or, if they are none, in hex."""
    if not isinstance(value, bytes | bytearray | memoryview):
        return str(value)
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return f"0x{bytes(value).hex()}"


class Operation(StrEnum):
    """What happened to a row, a range of rows or a partition."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    DELETE_RANGE = "DELETE_RANGE"
    DELETE_PARTITION = "DELETE_PARTITION"


OPERATIONS: Final = tuple(Operation)
MUTATION_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The shape of a table's records.

    `schema_id` is 16 bytes, the MD5 of `text`, so anyone who has the text can derive it. `key` and
    `value` are Avro schemas as parsed JSON; a record's key and value fit them.
    """

    table: str
    text: str
    schema_id: bytes
    key: Document = field(compare=False)
    value: Document = field(compare=False)

    @classmethod
    def of(cls, table: str, text: str, *, key: Document, value: Document) -> "RecordSchema":
        """Return a schema with the id that belongs to *text*."""
        schema_id = hashlib.md5(text.encode(), usedforsecurity=False).digest()
        return cls(table, text, schema_id, key, value)


class Record:
    """One change of one row. Subclass it to make `document` cheaper or richer.

    `key` and `value` fit `schema.key` and `schema.value`; `timestamp_us` is the write time in µs
    since 1970; `origin` says where the record was read, in words the source chooses.
    """

    __slots__ = ("headers", "key", "operation", "origin", "schema", "timestamp_us", "value")
    tombstone: bool = False
    topic: str | None = None

    def __init__(  # noqa: PLR0913 (these seven are the record)
        self,
        *,
        key: Document | None,
        value: Document,
        operation: Operation,
        timestamp_us: int,
        schema: RecordSchema,
        headers: Headers = (),
        origin: Document | None = None,
    ) -> None:
        """Keep the parts as they are; nothing is copied."""
        self.key = key
        self.value = value
        self.operation = operation
        self.timestamp_us = timestamp_us
        self.schema = schema
        self.headers = headers
        self.origin = origin or {}

    def changed(self, **parts: Any) -> "Record":  # noqa: ANN401 (as the constructor has them)
        """Return a copy of which these *parts* are others."""
        made = copy.copy(self)
        for name, part in parts.items():
            setattr(made, name, part)
        return made

    def key_document(self) -> Document | None:
        """Return the key as JSON has it."""
        key: Document | None = self.document().get("key")
        return key

    def kept(self) -> tuple[bytes, Document]:
        """Return what is kept when this record cannot go on: bytes, and what else is told of it."""
        pair = {"key": self.key, "value": self.value}
        content = json.dumps(pair, default=readable, separators=(",", ":")).encode()
        return content, {"table": self.schema.table}

    def document(self) -> Document:
        """Return the record as a mapping that JSON can express.

        Raises:
            BadRecordError: it has none; the record is quarantined (I8).

        """
        return {
            "table": self.schema.table,
            "op": self.operation.value,
            "key": self.key,
            "timestamp": self.timestamp_us,
            **self.value,
            **self.origin,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A control record: what consumers are told that is no change, such as a gap."""

    kind: str
    key: Document
    document: Document


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Something read and agreed that could not be made into records, with its bytes (I8).

    `stage` is where it failed, in Kafka Connect's words: TASK_POLL is the source. `origin` is what
    the source needs to make records of the bytes later: numbers and texts. Its `table`, if there
    is one, is the table in whose books it is counted.
    """

    place: str
    code: str
    message: str
    content: bytes
    stage: str = "TASK_POLL"
    origin: Document = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of encoded records besides their bytes: columns of 64-bit numbers.

    Each record has its write time in µs, its operation (a number in the order of `Operation`), its
    index among the changes of its mutation, and its mutation, by number in the batch. `ids` holds
    16 bytes for each mutation, or is empty where mutations have no name. `places` are columns
    with a number for each mutation, named by the source; `nodes` are what `places["node"]` means.
    """

    timestamps_us: memoryview
    operations: memoryview
    indexes: memoryview
    mutations: memoryview
    ids: bytes = b""
    places: Mapping[str, memoryview] = field(default_factory=dict)
    nodes: Sequence[str] = ()


class FactColumns:
    """Collects the facts of records that are made one by one: each its own mutation's number."""

    def __init__(self) -> None:
        """Start with none."""
        self._timestamps_us = array("q")
        self._operations = array("q")
        self._indexes = array("q")
        self._ids = bytearray()
        self._places: dict[str, array[int]] = {}
        self._nodes: dict[str, int] = {}

    def add(
        self,
        timestamp_us: int,
        operation: Operation,
        *,
        index: int = 0,
        mutation: bytes = b"",
        origin: Document,
    ) -> None:
        """Add a record; of *origin* the numbers are kept, and `node`, if all records have them."""
        is_first = not self._indexes
        self._timestamps_us.append(timestamp_us)
        self._operations.append(OPERATIONS.index(operation))
        self._indexes.append(index)
        self._ids += mutation
        for name, fact in origin.items():
            number = self._nodes.setdefault(fact, len(self._nodes)) if name == "node" else fact
            if isinstance(number, int) and (name in self._places or is_first):
                self._places.setdefault(name, array("q")).append(number)

    def facts(self) -> "Facts":
        """Return the columns."""
        count = len(self._indexes)
        return Facts(
            timestamps_us=memoryview(self._timestamps_us),
            operations=memoryview(self._operations),
            indexes=memoryview(self._indexes),
            mutations=memoryview(array("q", range(count))),
            ids=bytes(self._ids) if len(self._ids) == MUTATION_ID_BYTES * count else b"",
            places={n: memoryview(c) for n, c in self._places.items() if len(c) == count},
            nodes=tuple(self._nodes),
        )


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """A batch's records as bytes, column by column; the sequences have equal length.

    `tables[i]` and `headers[i]` are shared objects, one per schema, never copied per record.
    `tombstones` are the indexes, ascending, of records that a message with the same key and without
    a value follows. `topics`, if given, says where each record goes, whatever its table.
    `filtered` counts, by table, records that were left out on purpose. `left` are those, by index,
    whose values here do not count: the framework encodes these records. `facts` is there when the
    records were made in bulk.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes]
    headers: Sequence[Headers]
    tables: Sequence[str]
    quarantined: Sequence[Quarantined] = ()
    tombstones: Sequence[int] = ()
    topics: Sequence[str] | None = None
    filtered: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[int, Record] = field(default_factory=dict)
    facts: Facts | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.values)


class Batch(ABC):
    """A bounded run of one split's records that ends where a mutation ends.

    `end` resumes after the last record and holds no effect of anything later; nobody asks for it
    unless the batch `has_end`. `size_bytes` approximates what the batch keeps in memory. `more`
    says that reading stopped at a limit, so that the next read will find something at once.
    """

    encodings: ClassVar[frozenset[str]] = frozenset()
    forms: ClassVar[frozenset[str]] = frozenset()

    split: str
    end: Position
    size_bytes: int
    has_end: bool = True
    more: bool = False

    def ready(self) -> bool:
        """Say whether making records of it waits for nothing; asked again and again until it does.

        A batch that needs something from elsewhere begins to fetch it when it is asked first. Who
        does not ask waits in `records` or `encode`.

        Raises:
            RetriableError: it could not be fetched; ask again later.
            FatalError: nor will it be; the split stops.

        """
        return True

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """Make the records, in order. May be called more than once."""

    def quarantined(self) -> Sequence[Quarantined]:
        """Return what `records` leaves out because no records can be made of it (I8)."""
        return ()

    def notices(self) -> Sequence[Notice]:
        """Return control records; they are delivered behind the records."""
        return ()

    def schemas(self) -> Sequence[RecordSchema]:
        """Return the schemas that are used here for the first time since the source was made."""
        return ()

    def encode(self, encoding: str) -> EncodedRecords:
        """Encode all records at once; called only for a name in `encodings` or `forms`.

        The bytes of an encoding equal what the framework's codec makes of `records()` and
        `quarantined()`. A form is one that only the source has, as whole mutations are.
        """
        raise NotImplementedError(f"{type(self).__name__} does not encode {encoding}")

    def joined(self, encoding: str) -> EncodedRecords:
        """Return what `encode` does; keys and values may be `columns.Pieces`."""
        return self.encode(encoding)

    def typed(self, target: "TableType", *, with_messages: bool) -> "TypedChanges":
        """Return the changes of one table as typed columns, *with_messages* in Avro besides.

        Called only where the source's `table_type` has given *target*.
        """
        raise NotImplementedError(f"{type(self).__name__} has no typed columns of {target.table}")


@dataclass(slots=True)
class RecordBatch(Batch):
    """A batch of records that are made already."""

    split: str
    end: Position
    size_bytes: int
    made: Sequence[Record]
    announced: Sequence[RecordSchema] = ()
    more: bool = False
    has_end: bool = True

    def records(self) -> Iterator[Record]:
        """Return them, in order."""
        return iter(self.made)

    def schemas(self) -> Sequence[RecordSchema]:
        """Return what the reader announces here."""
        return self.announced


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it lies where a sink wrote it; `place` is its number there, for messages."""

    place: int
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Headers = field(repr=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a writer is given: a batch, and its records as the bytes the sink asked for."""

    batch: Batch
    encoded: EncodedRecords
