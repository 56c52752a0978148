"""The results of a reader: a batch of records, and its delivery."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import msgspec

from headrace.plugins.positions import Position
from headrace.plugins.records.encoded import EncodedRecords
from headrace.plugins.records.record import Notice, Quarantined, Record, RecordSchema

if TYPE_CHECKING:
    from headrace.plugins.records.columns import TableType, TypedChanges


class StageTimes(msgspec.Struct, frozen=True):
    """When a record of a batch reached each of its source's `stages`, in ms since 1970.

    *record* is its index in the batch; -1 is the last one.
    """

    record: int
    times_ms: Sequence[int]


class Batch(ABC):
    """A bounded run of one split's records that ends where a mutation ends.

    `end` resumes after the last record and includes no later change. It is used only if the batch
    `has_end`. `size_bytes` is about the memory of the batch. `more`: reading stopped at a limit, so
    the next read finds something at once. `checksum` is the sum of the checksums of all changes of
    the batch, as the source counted them before it made the batch: if the sum for the records, and
    for those left out, differs, the batch is not delivered. A source without checksums leaves it
    None. `checksum_so_far` is the sum of the `checksum` of all batches of this reader, including
    this one: no batch after a missing or repeated one is committed. `stage_times` are those of a
    few records, which represent all of them in metrics.
    """

    encodings: frozenset[str] = frozenset()
    forms: ClassVar[frozenset[str]] = frozenset()

    split: str
    end: Position
    size_bytes: int
    has_end: bool = True
    more: bool = False
    checksum: int | None = None
    checksum_so_far: int | None = None
    stage_times: Sequence[StageTimes] = ()

    def ready(self) -> bool:
        """Return whether records can be made without waiting; called until they can.

        The first call starts to fetch data that the batch needs from elsewhere. A caller that does
        not call it waits in `records` or `encode`.

        Raises:
            RetriableError: it could not be fetched; call again later.
            FatalError: it can never be fetched; the split stops.

        """
        return True

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """Make the records, in order. May be called more than once."""

    def quarantined(self) -> Sequence[Quarantined]:
        """Return the changes missing in `records` because they cannot be made into records (I8)."""
        return ()

    def omitted(self) -> int:
        """Return the sum of the checksums of changes that `records` leaves out on purpose."""
        return 0

    def notices(self) -> Sequence[Notice]:
        """Return control records; they are delivered after the records."""
        return ()

    def schemas(self) -> Sequence[RecordSchema]:
        """Return the schemas that this source object uses here for the first time."""
        return ()

    def encode(self, encoding: str) -> EncodedRecords:
        """Encode all records at once; called only for a name in `encodings` or `forms`.

        The bytes of an encoding equal the framework's encoding of `records()` and `quarantined()`:
        its codec, or for `avro.flat` and `avro.primary` its Avro with that envelope or that key.
        `avro.flat.primary` has both. `avro.starts` is `avro` with `EncodedRecords.starts`. A form
        is an encoding that only the source has, such as whole mutations.
        """
        raise NotImplementedError(f"{type(self).__name__} does not encode {encoding}")

    def joined(self, encoding: str) -> EncodedRecords:
        """Return the result of `encode`; keys and values may be `columns.Pieces`."""
        return self.encode(encoding)

    def typed(self, target: "TableType", *, with_messages: bool) -> "TypedChanges":
        """Return the changes of one table as typed columns, *with_messages* also in Avro.

        Called only if the source's `table_type` has returned *target*.
        """
        raise NotImplementedError(f"{type(self).__name__} has no typed columns of {target.table}")


@dataclass(slots=True)
class RecordBatch(Batch):
    """A batch of records that are already made."""

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
        """Return the schemas that the reader announces here."""
        return self.announced


class Delivery(msgspec.Struct, frozen=True):
    """The input of a writer: a batch, and its records as bytes in the encoding of the sink.

    *schemas* has the schemas of its records, and others that were read, by their ids.
    """

    batch: Batch
    encoded: EncodedRecords
    schemas: Mapping[bytes, RecordSchema] = msgspec.field(default_factory=dict)
