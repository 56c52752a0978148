"""The agreed mutations of one split as a batch: records made lazily, or bytes made at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import ClassVar, Final, TypeVar

import msgspec

from headrace.plugins import (
    Batch,
    Checksums,
    EncodedRecords,
    FactColumns,
    Headers,
    HeadraceError,
    Notice,
    Quarantined,
    Record,
    RecordSchema,
)
from headrace.plugins.records.columns import TableType, TypedChanges
from headrace.sources.cassandra.agreement.intake import AgreedMutations, Intake
from headrace.sources.cassandra.encode.avro_objects import Provenance
from headrace.sources.cassandra.encode.change_record import (
    ChangeRecord,
    _document,
    _origin,
    _own_headers,
)
from headrace.sources.cassandra.encode.quarantine import set_aside
from headrace.sources.cassandra.encode.transcode import Transcoder
from headrace.sources.cassandra.mutation.changes import Change, Mutation
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.mutation.mutation_json import mutation_document
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.reading.deliveries import Deliveries, TableShape
from headrace.sources.cassandra.reading.lists import Lists, Reading
from headrace.sources.cassandra.state.cdc_state import CdcState

T = TypeVar("T")

MUTATIONS: Final = "mutations"  # A form: see `MutationBatch.encode`.
_FATES: Final = {constants.LATE: "late", constants.ASSUMED: "assumed", constants.EXPIRED: "expired"}
_WITH_LISTS: Final = frozenset({"avro", "json"})  # Encodings whose lists may be read.
_JSON: Final = msgspec.json.Encoder()
_NOTHING: Final = EncodedRecords((), (), (), ())


class MutationBatch(Batch):
    """Agreed mutations. All records made from one mutation are in the same batch."""

    encodings = _WITH_LISTS | {"avro.flat", "avro.primary", "avro.flat.primary", "avro.starts"}
    forms: ClassVar[frozenset[str]] = frozenset({MUTATIONS})
    _intake: Intake | None = None  # Until there is an `AgreedMutations` to give back.

    def __init__(  # noqa: PLR0913 (a batch, and the parts that make its records)
        self,
        split: str,
        end: CdcState | None,
        agreed: AgreedMutations,
        *,
        intake: Intake,
        more: bool,
        nodes: Sequence[str],
        deliveries: Deliveries,
        transcoder: Transcoder,
        announced: Sequence[RecordSchema],
        lost: Sequence[Quarantined] = (),
        notices: Sequence[Notice] = (),
        lists: Lists | None = None,
        checksum: int | None = None,
        checksum_so_far: int | None = None,
    ) -> None:
        """Keep the parts; *nodes* has the hosts' names.

        *lost* leaves the state `end` without agreement: mutations that the state had no room for,
        and damage. With *lists*, the lists that changes wrote are read from the table. *checksum*
        is the sum of the digests of agreed mutations; by default that of *agreed*.
        *checksum_so_far* is that sum including all batches before.
        """
        self.split = split
        self.has_end = end is not None
        if end is not None:
            self.end = end
        self.size_bytes = self._own_bytes = agreed.size + sum(len(item.content) for item in lost)
        self.more = more
        self._agreed = agreed
        self._intake = intake
        self._nodes = nodes
        self._deliveries = deliveries
        self._transcoder = transcoder
        self._announced = announced
        self._lost = lost
        self._notices = notices
        self._lists = lists
        if lists is not None:
            self.encodings &= _WITH_LISTS
        self._reading: Reading | None = None
        self._in_avro: EncodedRecords | None = None
        self._written: list[tuple[int, Change, Provenance]] = []  # Records that wrote lists.
        self._unfit: list[Quarantined] | None = None
        self.checksum = agreed.checksum() if checksum is None else checksum
        self.checksum_so_far = checksum_so_far
        self._omitted: dict[int, int] = {}  # By the start of the mutation in `agreed`.

    def __del__(self) -> None:
        """Return the memory of the `AgreedMutations`."""
        if self._intake is not None:
            self._intake.give_back(self._agreed)

    def schemas(self) -> Sequence[RecordSchema]:
        """Return the schemas announced with this batch."""
        return self._announced

    def notices(self) -> Sequence[Notice]:
        """Return the notices for consumers about gaps."""
        return self._notices

    def ready(self) -> bool:
        """Return whether the lists are read, if there are any to read."""
        if self._lists is None:
            return True
        if self._reading is None:
            self._written = list(self._with_lists(self._encoded()))
            self._reading = self._lists.of(change for _, change, _ in self._written)
        if not self._reading.ready():
            return False
        self.size_bytes = self._own_bytes + self._reading.size_bytes
        return True

    def _with_lists(self, encoded: EncodedRecords) -> Iterator[tuple[int, Change, Provenance]]:
        """Yield the decoded records that wrote lists."""
        listed, facts = self._deliveries.listed, encoded.facts
        if facts is None or listed.isdisjoint(encoded.tables):
            return
        numbers = [i for i, table in enumerate(encoded.tables) if table in listed]
        chosen = dict.fromkeys(facts.mutations[i] for i in numbers)
        decoded = {
            (fields, provenance.index): (change, provenance)
            for fields, made in zip(chosen, self._made(_pair, chosen), strict=True)
            if not isinstance(made, Quarantined)
            for change, provenance in made
        }
        for number in numbers:
            change, provenance = decoded[facts.mutations[number], facts.indexes[number]]
            if any(column.schema.is_list for column in change.columns):
                yield number, change, provenance

    def _read(self, change: Change, provenance: Provenance) -> tuple[Change, Provenance]:
        """Return a change with its lists as read from the table, if they are to be read."""
        self._fetch()
        found = None if self._reading is None else self._reading.applied(change)
        return (
            (change, provenance)
            if found is None
            else (found, msgspec.structs.replace(provenance, is_read=True))
        )

    def _fetch(self) -> None:
        """Wait until the lists are read."""
        while not self.ready():
            assert self._reading is not None  # noqa: S101 (it is not ready)
            self._reading.wait()

    def records(self) -> Iterator[Record]:
        """Decode the mutations, except those in `quarantined`."""
        unfit: list[Quarantined] = []
        for made in self._made(self._record):
            if isinstance(made, Quarantined):
                unfit.append(made)
            else:
                yield from made
        self._unfit = unfit  # `quarantined` does not decode them again.

    def quarantined(self) -> Sequence[Quarantined]:
        """Return lost mutations, and those that do not fit their schema; decodes all."""
        if self._unfit is None:
            made = self._made(self._record)
            self._unfit = [each for each in made if isinstance(each, Quarantined)]
        return [*self._lost, *self._unfit]

    def omitted(self) -> int:
        """Return the sum of the checksums of changes whose tables the job does not have."""
        return sum(self._omitted.values())

    def encode(self, encoding: str) -> EncodedRecords:
        """Encode as Avro, directly from the mutations' bytes, as JSON, or as whole mutations.

        A mutation has the table and the operation of its first delivered change, the partition key
        as logged, and the form of `mutation_json`.
        """
        if not self._agreed.count:  # Only its end is new, as before each commit.
            return self._with_lost(_NOTHING)
        if encoding.startswith("avro"):
            encoded = self._encoded(encoding)
            self._fetch()
            return self._with_read(encoded) if self._written else encoded
        directly = encoding == "json" and self._lists is None and not self._agreed.flags
        if directly and self._agreed.count:
            made = self._deliveries.json_changes.encode(self._agreed, self._nodes)
            if made is not None:
                return self._with_lost(made)
        return self._objects(encoding)

    def _objects(self, encoding: str) -> EncodedRecords:
        """Encode change by change, from objects."""
        keys: list[bytes | None] = []
        values: list[bytes] = []
        headers: list[Headers] = []
        tables: list[str] = []
        quarantined = list(self._lost)
        checksums: list[int] = []
        facts = FactColumns()
        whole = encoding == MUTATIONS
        for made in self._each(self._whole) if whole else self._made(self._message):
            if isinstance(made, Quarantined):
                quarantined.append(made)
                continue
            for shape, key, value, change, provenance in made:
                keys.append(key)
                values.append(value)
                facts.add(
                    change.timestamp_us,
                    change.operation,
                    index=provenance.index,
                    mutation=provenance.mutation_id,
                    origin=_origin(provenance) | {"copies": provenance.copies},
                )
                checksums.append(provenance.checksum)
                headers.append(shape.headers + _own_headers(provenance))
                tables.append(shape.schema.table)
        return EncodedRecords(
            keys,
            values,
            headers,
            tables,
            quarantined,
            facts=facts.facts(),
            checksums=Checksums.of(checksums) if checksums else None,
            omitted=self.omitted(),
        )

    def joined(self, encoding: str) -> EncodedRecords:
        """Encode into two columns of bytes; a batch that waits for lists is encoded by record."""
        if encoding == "json" or self._lists is not None:
            return self.encode(encoding)
        writer = self._deliveries.message_columns
        return self._with_lost(writer.joined(self._agreed, self._nodes, *_shape(encoding)))

    def typed(self, target: TableType, *, with_messages: bool) -> TypedChanges:
        """Write typed columns directly from the mutations' bytes; lists are as in the log."""
        writer = self._deliveries.column_writer(target, with_messages=with_messages)
        encoded = self._with_lost(writer.columns(self._agreed, self._nodes))
        assert encoded.facts is not None  # noqa: S101 (they were made in bulk)
        return writer.typed.changes(encoded.facts, encoded if with_messages else None)

    def _encoded(self, encoding: str = "avro") -> EncodedRecords:
        """Encode as Avro, with lists as in the log."""
        if self._in_avro is not None:
            return self._in_avro
        made = self._transcoder.encode(self._agreed, self._nodes, *_shape(encoding))
        encoded = self._with_lost(made)
        if self._lists is not None:
            self._in_avro = encoded  # It is needed again when the lists are read.
        return encoded

    def _with_read(self, encoded: EncodedRecords) -> EncodedRecords:
        """Make the framework encode the records whose lists were read."""
        headers = list(encoded.headers)
        left = {}
        for number, change, provenance in self._written:
            record = left[number] = self._record(change, provenance)
            headers[number] += record.headers
        return msgspec.structs.replace(encoded, headers=headers, left=left)

    def _with_lost(self, encoded: EncodedRecords) -> EncodedRecords:
        if not self._lost:
            return encoded
        return msgspec.structs.replace(encoded, quarantined=(*self._lost, *encoded.quarantined))

    def _record(self, change: Change, provenance: Provenance) -> Record:
        change, provenance = self._read(change, provenance)
        return ChangeRecord(change, provenance, self._deliveries.shape(change.table).schema)

    def _message(
        self, change: Change, provenance: Provenance
    ) -> tuple[TableShape, bytes, bytes, Change, Provenance]:
        change, provenance = self._read(change, provenance)
        document = _document(change, provenance)
        key = _JSON.encode(document["key"])
        shape = self._deliveries.shape(change.table)
        return shape, key, _JSON.encode(document), change, provenance

    def _whole(
        self, mutation: Mutation, fields: Sequence[int]
    ) -> Sequence[tuple[TableShape, bytes, bytes, Change, Provenance]]:
        """Return a mutation as one message, if it has a delivered change."""
        delivered = self._changes_of(mutation, fields)
        if not delivered:
            return ()
        change, provenance = delivered[0]
        newest = max(each.timestamp_us for each, _ in delivered)
        value = _JSON.encode(mutation_document(mutation))
        shape = self._deliveries.shape(change.table)
        change = msgspec.structs.replace(change, timestamp_us=newest)
        provenance = msgspec.structs.replace(
            provenance, index=0, checksum=sum(p.checksum for _, p in delivered)
        )
        return [(shape, mutation.updates[0].key, value, change, provenance)]

    def _changes_of(
        self, mutation: Mutation, fields: Sequence[int]
    ) -> Sequence[tuple[Change, Provenance]]:
        """Return the delivered changes.

        They are numbered before those of other tables are left out: the numbers do not depend on
        the job's tables.
        """
        changes = mutation.changes()
        shares = ops.shares_of(fields, constants.AGREED_DIGEST, len(changes))
        delivered = [
            (
                change,
                Provenance(
                    mutation_id=mutation.mutation_id,
                    index=index,
                    of=len(changes),
                    copies=fields[constants.AGREED_COPIES],
                    node=self._nodes[fields[constants.AGREED_HOST]],
                    segment_id=fields[constants.AGREED_SEGMENT],
                    position=fields[constants.AGREED_POSITION],
                    fate=_FATES.get(fields[constants.AGREED_FLAGS], ""),
                    checksum=shares[index],
                ),
            )
            for index, change in enumerate(changes)
            if self._deliveries.delivers(change.table)
        ]
        kept = sum(provenance.checksum for _, provenance in delivered)
        self._omitted[fields[constants.AGREED_START]] = shares.pop() - kept
        return delivered

    def _made(
        self, make: Callable[[Change, Provenance], T], chosen: Iterable[int] | None = None
    ) -> Iterator[Sequence[T] | Quarantined]:
        """Yield the results of *make* for delivered changes of each mutation, or of *chosen*."""
        return self._each(
            lambda mutation, fields: [make(*each) for each in self._changes_of(mutation, fields)],
            chosen,
        )

    def _each(
        self,
        make: Callable[[Mutation, Sequence[int]], Sequence[T]],
        chosen: Iterable[int] | None = None,
    ) -> Iterator[Sequence[T] | Quarantined]:
        """Yield the result of *make* for each mutation and its metadata, or for those *chosen*.

        A mutation that does not fit is yielded as Quarantined: all of its changes, or none (I8).
        """
        meta = memoryview(self._agreed.meta)[: self._agreed.count * constants.AGREED_WIDTH].tolist()
        for number in range(self._agreed.count) if chosen is None else chosen:
            base = number * constants.AGREED_WIDTH
            fields = meta[base : base + constants.AGREED_WIDTH]
            raw = bytes(
                self._agreed.data[fields[constants.AGREED_START] : fields[constants.AGREED_END]]
            )
            try:
                made = make(self._decoded(raw, fields), fields)
            except HeadraceError as error:
                self._omitted.pop(fields[constants.AGREED_START], None)  # It is lost whole.
                yield set_aside(
                    error.code,
                    str(error),
                    node=self._nodes[fields[constants.AGREED_HOST]],
                    segment=fields[constants.AGREED_SEGMENT],
                    position=fields[constants.AGREED_POSITION],
                    messaging=fields[constants.AGREED_MESSAGING],
                    copies=fields[constants.AGREED_COPIES],
                    raw=raw,
                    checksum=_digest(fields),
                )
            else:
                yield made

    def _decoded(self, raw: bytes, fields: Sequence[int]) -> Mutation:
        """Decode with the epoch in *fields*; if it does not fit, with others, or the known part."""
        number = fields[constants.AGREED_EPOCH]
        try:
            return self._decoded_in(number, raw, fields)
        except BadMutationError as error:
            for other in self._deliveries.others(number):
                with suppress(BadMutationError):
                    return self._decoded_in(other, raw, fields)
            if not isinstance(error, UnknownTableError) or error.known is None:
                raise
            if self._deliveries.hides(number, raw[error.known_bytes :]):
                raise
            self._deliveries.pass_over(error)
            return error.known

    def _decoded_in(self, number: int, raw: bytes, fields: Sequence[int]) -> Mutation:
        return self._deliveries.epochs[number].decoder.decode(
            raw,
            messaging=fields[constants.AGREED_MESSAGING],
            segment_id=fields[constants.AGREED_SEGMENT],
            position=fields[constants.AGREED_POSITION],
        )


def _digest(fields: Sequence[int]) -> int:
    """Return the digest of an agreed mutation."""
    return ops.checksum_of(fields, constants.AGREED_DIGEST)


def _pair(change: Change, provenance: Provenance) -> tuple[Change, Provenance]:
    return change, provenance


def _shape(encoding: str) -> tuple[bool, bool, bool]:
    """Return whether an encoding has flat values, primary keys, and the starts of columns."""
    return ".flat" in encoding, ".primary" in encoding, ".starts" in encoding


class FlaggedBatch(MutationBatch):
    """A batch with late, assumed or expired mutations: each record has a flag.

    It is rare, so it is encoded record by record.
    """

    encodings = frozenset[str]()
    forms: ClassVar[frozenset[str]] = frozenset()


def batch_class(agreed: AgreedMutations) -> type[MutationBatch]:
    """Return the class of a batch of *agreed*."""
    return FlaggedBatch if agreed.flags else MutationBatch
