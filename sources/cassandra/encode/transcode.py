"""Encodes agreed mutations as Avro messages without Python objects for changes, cells or values.

The parser's operations are walked once to find a row's columns and once to write them; keys and
values are the only objects made. Most mutations write one row, whose cells have only a value, and
equal times. These are encoded from the mutation's bytes in one pass, without operations. Envelope
and types are those of `avro_objects`, whose values fastavro encodes to the same bytes. For one
thread.
"""

from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from headrace.plugins import Checksums, EncodedRecords, Facts, Headers, HeadraceError, Quarantined
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.encode.avro_bytes import AvroBytes, ValuePlan
from headrace.sources.cassandra.encode.outputs import ChangeOutput, MessageOutput
from headrace.sources.cassandra.encode.quarantine import quarantined_mutation
from headrace.sources.cassandra.encode.row_reader import RowReader
from headrace.sources.cassandra.encode.table_plan import EpochSource, TablePlan, avro_string
from headrace.sources.cassandra.mutation.errors import UnknownTableError
from headrace.sources.cassandra.mutation.values import BadValueError
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.ops import View
from headrace.sources.cassandra.schema.layout import Header

_NEVER = -(1 << 63)  # A drop time that covers no cell; also "no write time yet".
_ENDS_FIRST, _FACTS_FIRST = 16, 256
_PLACES: Final = ("node", "segment", "position", "copies")  # Facts about mutations.
_REPLACE_BYTE, _MERGE_BYTE = 0, 2  # The enum CollectionMode, as its zigzag byte.
_INSERT = constants.HAS_TIMESTAMP | constants.HAS_ALL_COLUMNS
_EXPIRING_INSERT = _INSERT | constants.HAS_TTL
_UPDATE = constants.HAS_ALL_COLUMNS
# The flags of their cells: with the row's write time, or also its TTL.
_OF_ROW = constants.USE_ROW_TIMESTAMP
_UPDATE_MARK_BYTES = 2  # The flags of an update's cells are 0, followed by the write time.
_FLAGS = 0xFF
_EXPIRING_WITH_ROW = _OF_ROW | constants.USE_ROW_TTL | constants.IS_EXPIRING
# The most bytes from the count of updates to the key's length, and from the key to the columns:
# after one check of the length, none of these needs another.
_HEAD_BYTES, _BASES_BYTES = 27, 28


class Transcoder:
    """Encodes agreed mutations to `out`, from the rows that `reader` finds.

    `length` is that of the current mutation. `room` is the maximum size of one of its rows with one
    cell in each complex column; it is reserved before each of those, and before a row.
    """

    def __init__(
        self,
        epochs: EpochSource,
        messages: MessageOutput | None = None,
        changes: ChangeOutput | None = None,
    ) -> None:
        """Encode each mutation with the plans that *epochs* returns for its epoch.

        With *messages*, keys and values are added there, not to lists; *changes* receives changes.
        """
        self.messages = messages
        self.changes = changes
        self.reader = RowReader()
        self.out = AvroBytes()
        self.length = self.room = 0
        self.key = b""  # The partition key as Avro.
        self.flat = self.primary = 0
        self.clustering = self.cells = 0  # Where these columns start in the current payload.
        self.row_flags = self.operation = self.mark = self.mark_bytes = 0
        self.bases_at = 0  # The place of the bases of the current update's deletion times and TTLs.
        self.plain_row = memoryview(array("q", [0] * constants.PLAIN_WIDTH))
        self.facts = memoryview(array("q", bytes(8 * constants.FACT_WORDS * _FACTS_FIRST)))
        self.checksums = memoryview(array("q", bytes(8 * constants.SUM_WORDS * _FACTS_FIRST)))
        self.epochs = epochs
        self.epoch = constants.NOWHERE
        self.takes_plain = int(changes is None)  # A plain row has no operations.
        self.node_names: Sequence[str] = ()
        self.nodes: list[bytes] = []  # As Avro strings.
        self.ids = memoryview(bytearray(constants.ID_BYTES))
        self.ends = memoryview(array("q", bytes(8 * _ENDS_FIRST)))  # The end of each change.
        self.digest = memoryview(array("q", [0, 0]))  # Of the current mutation.
        self.share = memoryview(array("q", [0, 0]))
        self.starts = memoryview(array("i", [0]))  # As in `EncodedRecords`, up to `starts_at`.
        self.with_starts = self.starts_at = self.starts_made = self.columns_max = 0
        # Checksums of the changes that are not encoded: of all, and of the current mutation's.
        self.omitted = memoryview(array("q", [0, 0, 0, 0]))
        self.last = constants.NOWHERE  # The place of the last change's checksum in `checksums`.

    def attach(self, buf: View) -> None:
        """Read values from *buf* until the next attach."""
        self.reader.attach(buf)
        self.out.attach(buf)

    def encode(
        self,
        agreed: AgreedMutations,
        nodes: Sequence[str],
        flat: int = 0,
        primary: int = 0,
        with_starts: int = 0,
    ) -> EncodedRecords:
        """Encode every mutation; one that does not fit its schema is quarantined as a whole.

        With *flat*, values have that envelope; with *primary*, keys include the clustering columns;
        *with_starts* says where columns begin.
        """
        self.flat = flat
        self.primary = primary
        self.with_starts = with_starts
        self.starts_at = 0
        self.keys: list[bytes | None] = []
        self.bodies: list[bytes] = []
        self.headers: list[Headers] = []
        self.tables: list[str] = []
        quarantined: list[Quarantined] = []
        if nodes != self.node_names:
            self.node_names = list(nodes)
            self.nodes = [avro_string(name) for name in nodes]
        self.epoch = constants.NOWHERE
        self.attach(agreed.data)
        self.identify(agreed)
        self.omitted[0] = self.omitted[1] = 0
        self.at = 0
        while self.at < agreed.count:
            try:
                self._go_on(agreed)
            except HeadraceError:
                self._undo()
                error = self._failure(agreed)
                if error is not None:
                    base = self.at * constants.AGREED_WIDTH
                    quarantined.append(quarantined_mutation(agreed, base, nodes, error))
                self.at += 1
        return EncodedRecords(
            self.keys,
            self.bodies,
            self.headers,
            self.tables,
            quarantined,
            facts=self._facts(agreed),
            checksums=self._checksums(),
            omitted=int.from_bytes(ops.take_words(self.omitted, 2), "little"),
            starts=self._starts() if with_starts else None,
        )

    def _facts(self, agreed: AgreedMutations) -> Facts:
        """Return the facts about the changes and all mutations."""
        changes = memoryview(self.facts_of(len(self.bodies))).cast("q")
        count = agreed.count
        places = memoryview(array("q", bytes(32 * count)))
        for number in range(count):
            base = number * constants.AGREED_WIDTH
            places[number] = agreed.meta[base + constants.AGREED_HOST]
            places[count + number] = agreed.meta[base + constants.AGREED_SEGMENT]
            places[2 * count + number] = agreed.meta[base + constants.AGREED_POSITION]
            places[3 * count + number] = agreed.meta[base + constants.AGREED_COPIES]
        columns = memoryview(places)
        return Facts(
            timestamps_us=changes[constants.FACT_TIMESTAMP :: constants.FACT_WORDS],
            operations=changes[constants.FACT_OPERATION :: constants.FACT_WORDS],
            indexes=changes[constants.FACT_INDEX :: constants.FACT_WORDS],
            mutations=changes[constants.FACT_MUTATION :: constants.FACT_WORDS],
            ids=ops.take(self.ids, 0, count * constants.ID_BYTES),
            places={
                name: columns[number * count : (number + 1) * count]
                for number, name in enumerate(_PLACES)
            },
            strings={"node": self.node_names},
        )

    def _starts(self) -> memoryview:
        """Return the starts of the columns of each change."""
        return memoryview(bytes(self.starts[: self.starts_at])).cast("i")

    def _checksums(self) -> Checksums:
        """Return the checksums of the changes."""
        words = constants.SUM_WORDS * len(self.bodies)
        halves = memoryview(ops.take_words(self.checksums, words)).cast("q")
        return Checksums(halves[:: constants.SUM_WORDS], halves[1 :: constants.SUM_WORDS])

    def identify(self, agreed: AgreedMutations) -> None:
        """Set `ids`: 16 bytes for each mutation, the first half of the SHA-256 of its bytes."""
        if constants.ID_BYTES * agreed.count > len(self.ids):
            self.ids = memoryview(bytearray(2 * constants.ID_BYTES * agreed.count))
        ops.sha16_all(agreed.data, agreed.meta, constants.AGREED_WIDTH, agreed.count, self.ids)

    def _go_on(self, agreed: AgreedMutations) -> None:
        """Encode the mutations from `at` on, to the end or to one that does not fit."""
        while self.at < agreed.count:
            self.id_at = self.at * constants.ID_BYTES
            self.made = len(self.bodies)
            self.starts_made = self.starts_at
            epoch = agreed.meta[self.at * constants.AGREED_WIDTH + constants.AGREED_EPOCH]
            if epoch != self.epoch:
                self._enter(agreed, epoch)
            self._mutation(agreed)
            self.at += 1

    def _enter(self, agreed: AgreedMutations, epoch: int) -> None:
        """Continue with the tables of another epoch."""
        made = self.epochs.plans_of(epoch)
        self.reader.use(made.cutter, made.columns_max)
        self.reader.cutter.attach(agreed.data)
        self.columns_max = made.columns_max
        self._make_room()
        self.plans = made.plans
        self.epoch = epoch
        if self.changes is not None:
            self.changes.enter(self.plans, epoch)

    def _undo(self) -> None:
        """Remove the encoded part of the current mutation."""
        self.reader.forget()
        self.starts_at = self.starts_made
        for column in (self.keys, self.bodies, self.headers, self.tables):
            del column[self.made :]
        if self.messages is not None:
            self.messages.keep_first(self.made)
        if self.changes is not None:
            self.changes.keep_first(self.made)

    def _failure(self, agreed: AgreedMutations) -> HeadraceError | None:
        """Encode a mutation the general way: it may have worse errors after the one found.

        Returns the error if no other epoch fits either.
        """
        takes_plain = self.takes_plain
        self.takes_plain = 0
        found = None
        try:
            self._mutation(agreed)
        except HeadraceError as error:
            self._undo()
            found = None if self._rescued(agreed, error) else error
        self.takes_plain = takes_plain
        return found

    def _rescued(self, agreed: AgreedMutations, error: HeadraceError) -> bool:
        """Encode a mutation that does not fit its epoch with another, or up to an unknown table.

        Updates before an unknown table are delivered if no delivered table can follow it.
        """
        base = self.at * constants.AGREED_WIDTH
        epoch = agreed.meta[base + constants.AGREED_EPOCH]
        for other in self.epochs.others(epoch):
            self._enter(agreed, other)
            try:
                self._mutation(agreed)
            except HeadraceError:
                self._undo()
            else:
                return True
        self._enter(agreed, epoch)
        if not isinstance(error, UnknownTableError):
            return False
        try:
            with suppress(UnknownTableError):  # Parse it again: the parser stops at that table.
                self._mutation(agreed)
            rest = ops.take(
                agreed.data, self.reader.cutter.at, agreed.meta[base + constants.AGREED_END]
            )
            if self.reader.cutter.is_neighbour() and not self.epochs.hides(epoch, rest):
                self._changes(agreed, self.reader.cutter.count)
                self.epochs.pass_over(error)
                return True
        except HeadraceError:
            self._undo()
        return False

    def _mutation(self, agreed: AgreedMutations) -> None:
        """Parse and encode the current mutation."""
        base = self.at * constants.AGREED_WIDTH
        start = agreed.meta[base + constants.AGREED_START]
        end = agreed.meta[base + constants.AGREED_END]
        messaging = agreed.meta[base + constants.AGREED_MESSAGING]
        if not self.takes_plain or not self._plain(agreed, start, end, messaging):
            self._changes(agreed, self.reader.cutter.cut_range(start, end, messaging))

    def _plain(self, agreed: AgreedMutations, start: int, end: int, messaging: int) -> int:
        """Encode the current mutation if it is a plain row. Return whether it is."""
        header = self._head(start, end, messaging)
        if header is None:
            return 0
        plan = self.plans[self.reader.cutter.layout.index]
        if not plan.is_plain or not self._plain_row(plan, header):
            return 0
        self._begin(agreed)
        self.index = 1
        self._keep(plan, self.operation, self.reader.cutter.row_timestamp)
        self._close(agreed)
        return 1

    def _changes(self, agreed: AgreedMutations, count: int) -> None:
        """Encode *count* operations: first the changes, then the fields that need their number."""
        if (
            self.reader.lists != self.reader.cutter.lists
        ):  # Creating a view costs more than encoding a row's fields.
            self.reader.lists = self.reader.cutter.lists
            self.reader.words = self.reader.cutter.words
        base = self.at * constants.AGREED_WIDTH
        self.reader.end = count * constants.WIDTH
        self.length = (
            agreed.meta[base + constants.AGREED_END] - agreed.meta[base + constants.AGREED_START]
        )
        self._begin(agreed)
        out = self.out
        out.size = 0
        at = 0
        while at < self.reader.end:
            at = self._update(at)
        self._close(agreed)

    def _begin(self, agreed: AgreedMutations) -> None:
        """Start to count the changes of the current mutation."""
        at = self.at * constants.AGREED_WIDTH + constants.AGREED_DIGEST
        self.digest[0] = agreed.meta[at]
        self.digest[1] = agreed.meta[at + 1]
        self.index = 0
        self.end_count = 0
        self.omitted[2] = self.omitted[3] = 0
        self.last = constants.NOWHERE

    def _omit(self) -> None:
        """Add the checksum of a change that is not encoded."""
        before, self.last = self.last, constants.NOWHERE
        self._divide(before, self.index - 1)

    def _divide(self, before: int, index: int) -> None:
        """End the share of the change *before*, and start that of change number *index*.

        *before* and `last` are the places of their checksums; NOWHERE: they are omitted.
        """
        if index > 0:
            ops.put_bound(self.share, 0, self.digest, 0, index)
            if before >= 0:
                ops.add_checksum(self.checksums, before, self.share, 0)
            else:
                ops.add_checksum(self.omitted, 2, self.share, 0)
            if self.last >= 0:
                ops.subtract_checksum(self.checksums, self.last, self.share, 0)
            else:
                ops.subtract_checksum(self.omitted, 2, self.share, 0)

    def _close(self, agreed: AgreedMutations) -> None:
        """End the changes with the fields that need their number."""
        base = self.at * constants.AGREED_WIDTH
        if self.last >= 0:
            ops.add_checksum(self.checksums, self.last, self.digest, 0)
        else:
            ops.add_checksum(self.omitted, 2, self.digest, 0)
        ops.add_checksum(self.omitted, 0, self.omitted, 2)
        if self.changes is not None:
            self.changes.finish(self.at, self.index)
        out = self.out
        node = self.nodes[agreed.meta[base + constants.AGREED_HOST]]
        out.reserve(len(node) + constants.COLUMN_BYTES)
        tail = out.size
        at = ops.put_long(out.out, tail, self.index)
        at = ops.put_long(out.out, at, agreed.meta[base + constants.AGREED_COPIES])
        at = ops.put_bytes(out.out, at, node)
        at = ops.put_long(out.out, at, agreed.meta[base + constants.AGREED_SEGMENT])
        out.size = ops.put_long(out.out, at, agreed.meta[base + constants.AGREED_POSITION])
        self._finish(tail, out.size)

    def _finish(self, tail: int, tail_end: int) -> None:
        """Join each change with the tail that all of the mutation's changes share."""
        out = self.out
        if self.messages is not None:
            begin = 0
            for i in range(self.end_count):
                end = self.ends[i]
                self.messages.add_value(out, begin, end, tail, tail_end)
                self.bodies.append(b"")
                begin = end
        elif self.end_count == 1:  # The tail already follows it.
            self.bodies.append(out.bytes_from(0))
        else:
            begin = 0
            for i in range(self.end_count):
                end = self.ends[i]
                out.size = tail_end
                out.reserve(end - begin + tail_end - tail)
                ops.copy(out.out, tail_end, out.out, begin, end)
                ops.copy(out.out, tail_end + end - begin, out.out, tail, tail_end)
                out.size = tail_end + end - begin + tail_end - tail
                self.bodies.append(out.bytes_from(tail_end))
                begin = end

    def _update(self, at: int) -> int:
        """Encode the changes of the update at *at*. Return the place of the next one."""
        plan = self.plans[self.reader.words[at + constants.COLUMN]]
        self.reader.key_start = self.reader.words[at + constants.START]
        self.reader.key_length = self.reader.words[at + constants.LENGTH]
        at += constants.WIDTH
        self.range_open = 0
        if plan.delivered:
            self._key(plan)
        while at < self.reader.end and self.reader.words[at] != constants.UPDATE:
            kind = self.reader.words[at]
            if kind == constants.ROW:
                at = self._row(plan, at)
            elif kind == constants.MARKER:
                at = self._marker(plan, at)
            else:
                timestamp = self.reader.words[at + constants.TIMESTAMP]
                self._change(
                    plan,
                    constants.OP_DELETE_PARTITION,
                    timestamp,
                    constants.NOWHERE,
                    constants.NOWHERE,
                )
                at += constants.WIDTH
        return at

    def _row(self, plan: TablePlan, at: int) -> int:
        following = self.reader.read(plan, at)
        columns = self.reader.column_count
        if self.reader.row_deletion >= 0:
            self.reader.column_count = 0
            timestamp = self.reader.words[self.reader.row_deletion + constants.TIMESTAMP]
            self._change(plan, constants.OP_DELETE, timestamp, at, constants.NOWHERE)
            self.reader.column_count = columns
        if self.reader.words[at + constants.FLAGS] & constants.HAS_TIMESTAMP:
            timestamp = self.reader.words[at + constants.TIMESTAMP]
            self._change(plan, constants.OP_INSERT, timestamp, at, constants.NOWHERE)
        elif columns:
            timestamp = (
                self.reader.newest_deletion if self.reader.newest == _NEVER else self.reader.newest
            )
            self._change(plan, constants.OP_UPDATE, timestamp, at, constants.NOWHERE)
        for i in range(columns):
            self.reader.where[self.reader.columns[i]] = constants.NOWHERE
        self.reader.column_count = 0
        return following

    def _marker(self, plan: TablePlan, at: int) -> int:
        """Encode the range that starts at a marker; an end marker was read with its start."""
        begin = at
        opened = -1
        at += constants.WIDTH
        while (
            at < self.reader.end
            and constants.VALUE <= self.reader.words[at] <= constants.MARKER_OPEN
        ):
            kind = self.reader.words[at]
            if kind not in (constants.VALUE, constants.MARKER_CLOSE, constants.MARKER_OPEN):
                break
            if kind == constants.MARKER_OPEN:
                opened = at
            elif kind == constants.MARKER_CLOSE:
                if not self.range_open:
                    self.reader.cutter.fail("a range ends that did not start")
                self.range_open = 0
            at += constants.WIDTH
        if opened >= 0:
            if self.range_open:
                self.reader.cutter.fail("a range starts inside another")
            self.range_open = 1
            ended = self.reader.range_end(at)
            self.reader.column_count = 0
            timestamp = self.reader.words[opened + constants.TIMESTAMP]
            self._change(plan, constants.OP_DELETE_RANGE, timestamp, begin, ended)
        return at

    # ---- writing ----

    def _change(
        self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int
    ) -> None:
        """Encode one change; *row* is its ROW or start MARKER, *ended* its end MARKER."""
        self.index += 1
        if plan.delivered and self.changes is None:
            self._write(plan, operation, timestamp, row, ended)
        elif plan.delivered:
            self._hand_over(plan, operation, timestamp, row, ended)
        else:
            self._omit()

    def _hand_over(
        self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int
    ) -> None:
        """Pass a change to `changes`; encode its message first if it wants one."""
        changes = self.changes
        assert changes is not None  # noqa: S101 (checked before)
        wanted = changes.wants(plan)
        if wanted == constants.WITH_MESSAGE:
            self._write(plan, operation, timestamp, row, ended)
        elif wanted == constants.WITHOUT_MESSAGE:
            self._keep_facts(len(self.bodies), timestamp, operation, self.index - 1, self.at)
            self.bodies.append(b"")
        if wanted == constants.UNWANTED:
            self._omit()
        else:
            changes.write(plan, operation, timestamp, row, ended)

    def _write(self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int) -> None:
        out = self.out
        out.reserve(self.room + self.length + len(plan.constant) + len(self.key))
        is_row = operation <= constants.OP_DELETE
        flags = self.reader.words[row + constants.FLAGS] if is_row else 0
        is_static = flags & constants.ROW_STATIC
        ttl = 0
        expires = -1
        if operation == constants.OP_INSERT and flags & constants.HAS_TTL:
            ttl = self.reader.words[row + constants.TTL]
            expires = self.reader.words[row + constants.LDT]
        row_of_key = row if is_row and not is_static else constants.NOWHERE
        at = out.size
        if self.flat:
            self._payload(plan, row_of_key)
            at = out.size
            out.out[at] = operation << 1
            at = ops.put_long(out.out, at + 1, timestamp)
        else:
            at = ops.put_long(out.out, at, timestamp)
            out.out[at] = operation << 1
            at = ops.put_bytes(out.out, at + 1, plan.constant)
        shown_static = 1 if is_static and operation != constants.OP_DELETE else 0
        out.size = self._put_facts(at, shown_static, ttl, expires, self._fields(plan))
        if self.flat:
            out.byte(0)  # Nothing is truncated.
        else:
            self._payload(plan, row_of_key)
        if self._has_notes(timestamp, expires):
            self._write_notes(plan, timestamp, ttl, expires)
        out.byte(0)
        self._range(plan, row, ended)
        self.starts[self.starts_at] = constants.NOWHERE
        self._keep(plan, operation, timestamp)

    def _payload(self, plan: TablePlan, row: int) -> None:
        """Write all columns; without *row* the clustering columns are null."""
        self._payload_key(plan, row)
        self._payload_cells(plan)
        self.out.reserve(self.room)

    def _keep(self, plan: TablePlan, operation: int, timestamp: int) -> None:
        """End a change with its id and keep its facts."""
        out = self.out
        out.reserve(constants.COLUMN_BYTES)
        at = out.size
        ops.copy(out.out, at, self.ids, self.id_at, self.id_at + constants.ID_BYTES)
        out.size = ops.put_long(out.out, at + constants.ID_BYTES, self.index - 1)
        if self.end_count == len(self.ends):
            self._grow_ends()
        self.ends[self.end_count] = out.size
        self.end_count += 1
        self._keep_facts(len(self.keys), timestamp, operation, self.index - 1, self.at)
        key = self.key
        if self.primary:
            key += ops.take(out.out, self.clustering, self.cells)
        self.keys.append(key)
        self.headers.append(plan.headers)
        self.tables.append(plan.table_name)
        if self.messages is not None:
            self.messages.add_key(key)
        if self.with_starts:
            self.starts_at += plan.payload_count + 1
            self._make_room()

    def _make_room(self) -> None:
        """Make room for the starts of another record."""
        if self.starts_at + self.columns_max >= len(self.starts):
            starts = memoryview(array("i", bytes(8 * (len(self.starts) + self.columns_max))))
            starts[: len(self.starts)] = self.starts
            self.starts = starts

    def _grow_ends(self) -> None:
        ends = memoryview(array("q", bytes(16 * self.end_count)))
        ends[: self.end_count] = self.ends
        self.ends = ends

    def _fields(self, plan: TablePlan) -> bytes:
        """Return the row's updateFields in Avro, usually those of the previous row."""
        if plan.fields_count == self.reader.column_count:
            i = 0
            while i < self.reader.column_count and plan.fields_of[i] == self.reader.columns[i]:
                i += 1
            if i == self.reader.column_count:
                return plan.fields
        columns = [self.reader.columns[i] for i in range(self.reader.column_count)]
        plan.keep_fields(columns)
        return plan.fields

    def _payload_key(self, plan: TablePlan, row: int) -> None:
        """Write the primary key's columns; without *row* the clustering columns are null."""
        out = self.out
        put = self.clustering = self._payload_parts(plan, out.size)
        at = row + constants.WIDTH
        for i in range(plan.key_count, plan.first_cell):
            if row >= 0 and at < self.reader.end and self.reader.words[at] == constants.VALUE:
                value = plan.values[i]
                start = self.reader.words[at + constants.START]
                put = self._nullable(value, put, start, self.reader.words[at + constants.LENGTH])
                at += constants.WIDTH
            else:
                out.out[put] = 0
                put += 1
        out.size = self.cells = put

    # ---- facts about a change besides its message ----

    def facts_of(self, count: int) -> bytes:
        """Return four numbers for each of *count* changes: see `_keep_facts`."""
        return ops.take_words(self.facts, count * constants.FACT_WORDS)

    def index_of(self, record: int) -> int:
        """Return the index of a change in its mutation."""
        return self.facts[record * constants.FACT_WORDS + constants.FACT_INDEX]

    def _keep_facts(
        self, record: int, timestamp: int, operation: int, index: int, mutation: int
    ) -> None:
        """Keep a change's write time, operation, index in its mutation, and mutation."""
        base = record * constants.FACT_WORDS
        if base == len(self.facts):
            self._grow_facts()
        self.facts[base + constants.FACT_TIMESTAMP] = timestamp
        self.facts[base + constants.FACT_OPERATION] = operation
        self.facts[base + constants.FACT_INDEX] = index
        self.facts[base + constants.FACT_MUTATION] = mutation
        before, self.last = self.last, record * constants.SUM_WORDS
        self.checksums[self.last] = self.checksums[self.last + 1] = 0
        self._divide(before, index)

    def _grow_facts(self) -> None:
        grown = memoryview(array("q", bytes(16 * len(self.facts))))
        grown[: len(self.facts)] = self.facts
        self.facts = grown
        grown = memoryview(array("q", bytes(16 * len(self.checksums))))
        grown[: len(self.checksums)] = self.checksums
        self.checksums = grown

    # ---- a plain row in one pass ----

    def _head(self, start: int, end: int, messaging: int) -> Header | None:
        """Read up to the cells of a mutation that writes only one row. Return its columns.

        The parser's operations are then its clustering columns. None: it must be parsed.

        Raises:
            BadMutationError: as in `Cutter.cut`.

        """
        cutter = self.reader.cutter
        cutter.begin(start, end, messaging)
        if not self._up_to_columns(start, end, messaging):
            return None
        header = cutter.header()
        at = cutter.at
        if (
            at + 1 >= end or self.reader.buf[at] >= constants.VINT_MORE
        ):  # The estimate is mostly one row.
            return None
        self.row_flags = self.reader.buf[at + 1]
        kind = self.row_flags & ~constants.HAS_COMPLEX_DELETION
        if kind not in (_INSERT, _UPDATE, _EXPIRING_INSERT):
            return None
        cutter.at = at + 2
        cutter.clustering(cutter.layout.clustering_count)
        return header if self._times(kind, header) else None

    def _times(self, kind: int, header: Header) -> int:
        """Read the row's times, and set the operation and the start of each cell.

        The cells of an update have their own times: 0 unless that of the first is short.
        """
        cutter = self.reader.cutter
        self.operation = constants.OP_INSERT
        self.mark_bytes = 1
        self.mark = _OF_ROW
        if kind == _EXPIRING_INSERT:
            at = cutter.at
            cutter.at = self.bases_at
            cutter.ttl_bases()
            cutter.at = at
            self.mark = _EXPIRING_WITH_ROW
        cutter.row_times(kind)
        if kind == _UPDATE:
            at = cutter.at
            if header.simple < 1 or cutter.end - at < _UPDATE_MARK_BYTES or self.reader.buf[at]:
                return 0
            if self.reader.buf[at + 1] >= constants.VINT_MORE:
                return 0
            self.operation = constants.OP_UPDATE
            self.mark_bytes = _UPDATE_MARK_BYTES
            self.mark = self.reader.buf[at + 1] << 8
            cutter.at = at + 1
            cutter.row_timestamp = cutter.timestamp()
            cutter.at = at
        return 1

    def _up_to_columns(self, at: int, end: int, messaging: int) -> int:
        """Read the bytes before the columns; 0 if it is not exactly one update of rows."""
        cutter = self.reader.cutter
        if messaging >= constants.MESSAGING_60:
            at += 1
        if end - at < _HEAD_BYTES or self.reader.buf[at] != 1:
            return 0
        table = cutter.catalogue.find(
            ops.u64(self.reader.buf, at + 1), ops.u64(self.reader.buf, at + 9)
        )
        if table < 0:
            return 0
        cutter.layout = cutter.catalogue.layouts[table]
        at += 17
        if messaging >= constants.MESSAGING_60:
            at = self._behind(at)  # The schema epoch.
        self.reader.key_start = at + 1
        self.reader.key_length = self.reader.buf[at]
        at = self.reader.key_start + self.reader.key_length
        if self.reader.key_length >= constants.VINT_MORE or end - at < _BASES_BYTES:
            return 0
        if self.reader.buf[at] != constants.HAS_ROW_ESTIMATE:
            return 0
        cutter.at = at + 1
        cutter.time_base()
        self.bases_at = cutter.at
        cutter.at = self._behind(self._behind(cutter.at))  # The bases of deletion times and TTLs.
        return 1

    def _behind(self, at: int) -> int:
        """Return the end of the vint at buf[at]."""
        return at + 1 + ops.vint_extra(self.reader.buf[at])

    def _plain_row(self, plan: TablePlan, header: Header) -> int:
        """Write the change and set `key`; 0 if it is not plain, even if partly written."""
        out = self.out
        cutter = self.reader.cutter
        self.length = cutter.end - cutter.start
        out.size = 0
        self._key(plan)
        if not header.fields:
            header.fields = plan.fields_avro(list(header.columns)[: header.count])
        out.reserve(self.room + len(self.key) + len(plan.constant) + len(header.fields))
        at = 0
        if not self.flat:
            at = ops.put_long(out.out, 0, cutter.row_timestamp)
            out.out[at] = self.operation << 1
            at = ops.put_bytes(out.out, at + 1, plan.constant)
            at = self._put_facts(at, 0, cutter.row_ttl, cutter.row_ldt, header.fields)
        at = self.clustering = self._payload_parts(plan, at)
        for i in range(plan.key_count, plan.first_cell):
            base = (i - plan.key_count) * constants.WIDTH
            self.starts[self.starts_at + i] = at
            value = plan.values[i]
            start = cutter.words[base + constants.START]
            at = self._nullable(value, at, start, cutter.words[base + constants.LENGTH])
        self.cells = at
        at = self._plain_cells(plan, header, at)
        if at < 0:
            return 0
        if self.flat:
            out.size = at
            out.reserve(self.room + len(header.fields))
            out.out[at] = self.operation << 1
            at = ops.put_long(out.out, at + 1, cutter.row_timestamp)
            at = self._put_facts(at, 0, cutter.row_ttl, cutter.row_ldt, header.fields)
            out.out[at] = 0  # Nothing is truncated.
            at += 1
        out.out[at] = out.out[at + 1] = 0  # Neither notes nor a range.
        out.size = at + 2
        return 1

    def _put_facts(self, at: int, is_static: int, ttl: int, expires: int, fields: bytes) -> int:
        """Write whether the row is static, its TTL and expiry, -1 for never, and updateFields."""
        self.out.out[at] = is_static
        at = self._union(at + 1, ttl, expires >= 0)
        at = self._union(at, expires, expires >= 0)
        return ops.put_bytes(self.out.out, at, fields)

    def _plain_cells(self, plan: TablePlan, header: Header, at: int) -> int:
        """Write all columns outside the key. Return their end, -1 if not all are plain.

        Messages have columns by name; the log has the simple ones before the complex ones.
        """
        cutter = self.reader.cutter
        self.plain_row[constants.PLAIN_COLUMN] = 0
        self.plain_row[constants.PLAIN_SIMPLE] = cutter.at
        self.plain_row[constants.PLAIN_COMPLEX] = constants.NOWHERE
        self.plain_row[constants.PLAIN_BASE_US] = cutter.min_timestamp
        self.plain_row[constants.PLAIN_ROW_US] = cutter.row_timestamp
        self.plain_row[constants.PLAIN_DELETIONS] = self.row_flags & constants.HAS_COMPLEX_DELETION
        self.plain_row[constants.PLAIN_MARK] = self.mark
        self.plain_row[constants.PLAIN_MARK_BYTES] = self.mark_bytes
        self.plain_row[constants.PLAIN_TTL] = cutter.row_ttl
        self.plain_row[constants.PLAIN_EXPIRES] = cutter.row_ldt
        if not header.rises:
            self.plain_row[constants.PLAIN_COMPLEX] = self._behind_simple(header)
            if self.plain_row[constants.PLAIN_COMPLEX] < 0:
                return -1
        column = plan.first_cell
        at = self._run(plan, header, column, at)
        while self.plain_row[constants.PLAIN_COLUMN] < header.count:
            column = header.order[self.plain_row[constants.PLAIN_COLUMN]]
            if plan.complex[column]:
                return -1
            self.starts[self.starts_at + column] = at
            at = self._plain_cell(plan, column, at)
            if at < 0:
                return -1
            self.plain_row[constants.PLAIN_COLUMN] += 1
            column += 1
            at = self._run(plan, header, column, at)
        if header.count:
            column = header.order[header.count - 1] + 1
        while column < plan.payload_count:
            self.starts[self.starts_at + column] = at
            self.out.out[at] = 0
            at += 1
            column += 1
        self.starts[self.starts_at + column] = at
        end = self.plain_row[constants.PLAIN_COMPLEX]
        if end < 0:
            end = self.plain_row[constants.PLAIN_SIMPLE]
        return (
            at
            if end + 1 == cutter.end and self.reader.buf[end] & constants.END_OF_PARTITION
            else -1
        )

    def _behind_simple(self, header: Header) -> int:
        """Return the end of the simple columns' cells, -1 if not all are plain."""
        cutter = self.reader.cutter
        begin = cutter.at
        for i in range(header.simple):
            length = self._length(header.columns[i])
            if length < 0:
                return -1
            cutter.at += length
        found = cutter.at if header.simple >= 0 else -1
        cutter.at = begin
        return found

    def _length(self, column: int) -> int:
        """Read up to a simple cell's value. Return its length, -1 if the cell is not plain."""
        cutter = self.reader.cutter
        if cutter.u8() != self.mark & _FLAGS:
            return -1
        if self.mark_bytes > 1 and cutter.u8() != self.mark >> 8:
            return -1
        length = cutter.layout.fixed[column]
        if length < 0:
            length = cutter.length()
        return length if 0 < length <= cutter.end - cutter.at else -1

    def _run(self, plan: TablePlan, header: Header, column: int, at: int) -> int:
        """Write plain cells. Return their end."""
        return ops.put_plain(
            self.out.out,
            at,
            len(self.out.out) - self.room,
            self.plain_row,
            column,
            header.order,
            header.count,
            plan.forms,
            self.reader.buf,
            self.reader.cutter.end,
            self.starts,
            self.starts_at,
        )

    def _plain_cell(self, plan: TablePlan, column: int, at: int) -> int:
        """Write a simple column. Return its end, -1 if the cell is not plain."""
        cutter = self.reader.cutter
        cutter.at = self.plain_row[constants.PLAIN_SIMPLE]
        length = self._length(column)
        if length < 0:
            return -1
        self.out.out[at] = 2
        value = plan.values[column]
        at = self._value(value, at + 1, cutter.at, length)
        self.plain_row[constants.PLAIN_SIMPLE] = cutter.at + length
        return at

    # ---- the columns of a row ----

    def _key(self, plan: TablePlan) -> None:
        """Encode the partition key of the messages that follow."""
        out = self.out
        begin = out.size
        self.room = self.length + plan.fixed_bytes
        out.reserve(self.room)
        if plan.key_count == 1:
            value = plan.values[0]
            ended = self._value(value, begin, self.reader.key_start, self.reader.key_length)
        else:
            at = self.reader.key_start
            end = at + self.reader.key_length
            ended = begin
            for i in range(plan.key_count):  # Each part: 2 bytes of length before, one byte after.
                length = self.reader.part_length(plan, at, end)
                value = plan.values[i]
                ended = self._value(value, ended, at + 2, length)
                at += length + 3
            if at != end:
                self.reader.bad_key(plan)
        self.key = ops.take(out.out, begin, ended)
        out.size = begin

    def _payload_parts(self, plan: TablePlan, put: int) -> int:
        """Write the partition key's columns at out[put], where there is room. Return their end."""
        if plan.key_count == 1:
            self.starts[self.starts_at] = put
            self.out.out[put] = 2
            # This is also a record of one field.
            return ops.put_bytes(self.out.out, put + 1, self.key)
        at = self.reader.key_start
        for i in range(plan.key_count):
            length = self.reader.part_length(
                plan, at, self.reader.key_start + self.reader.key_length
            )
            value = plan.values[i]
            self.starts[self.starts_at + i] = put
            put = self._nullable(value, put, at + 2, length)
            at += length + 3
        return put

    def _payload_cells(self, plan: TablePlan) -> None:
        """Write the static and regular columns."""
        out = self.out
        out.reserve(self.room)
        at = out.size
        for column in range(plan.first_cell, plan.payload_count):
            cell = self.reader.where[column] if self.reader.column_count else constants.NOWHERE
            if cell < 0 or (
                not plan.complex[column]
                and (
                    self.reader.words[cell + constants.FLAGS] & constants.IS_DELETED
                    or (
                        self.reader.words[cell + constants.LENGTH] == 0 and not plan.empties[column]
                    )
                )
            ):
                out.out[at] = 0
                at += 1
                continue
            out.out[at] = 2
            start = self.reader.words[cell + constants.START]
            length = self.reader.words[cell + constants.LENGTH]
            ended = ops.put_value(
                out.out, at + 1, plan.codes[column], self.reader.buf, start, length
            )
            if ended < 0:
                out.size = at + 1
                if not plan.complex[column]:
                    out.value(plan.values[column], start, length)
                elif plan.kind[column] == constants.COMPLEX_UDT:
                    self._fields_by_name(plan, column, cell)
                else:
                    self._complex(plan, column, cell)
                out.reserve(self.room)
                ended = out.size
            at = ended
        out.size = at

    def _complex(self, plan: TablePlan, column: int, at: int) -> None:
        """Write the cells of a complex column that are not ignored."""
        out = self.out
        count = 0
        cell = at + constants.WIDTH
        while self.reader.is_path_cell(cell):
            count += not self.reader.words[cell + constants.FLAGS] & constants.HIDDEN
            cell += constants.WIDTH
        out.reserve(self.room)
        deleted = self.reader.words[at + constants.FLAGS] & 1
        put = self._mode(out.size, deleted, self.reader.words[at + constants.TIMESTAMP])
        if count:
            put = ops.put_long(out.out, put, count)
        while count:
            at += constants.WIDTH
            if not self.reader.words[at + constants.FLAGS] & constants.HIDDEN:
                if put + self.room > len(out.out):
                    out.size = put
                    out.reserve(self.room)
                put = self._complex_cell(plan, column, at, put)
                count -= 1
        out.out[put] = 0
        out.size = put + 1

    def _mode(self, at: int, deleted: int, timestamp: int) -> int:
        """Write whether the cells replace the column, and the time of its deletion."""
        self.out.out[at] = _REPLACE_BYTE if deleted else _MERGE_BYTE
        return self._union(at + 1, timestamp, deleted)

    def _complex_cell(self, plan: TablePlan, column: int, cell: int, at: int) -> int:
        flags = self.reader.words[cell + constants.FLAGS]
        removed = flags & constants.IS_DELETED
        value = plan.paths[column]
        at = self._value(
            value,
            at,
            self.reader.words[cell + constants.PATH],
            self.reader.words[cell + constants.PATH_LENGTH],
        )
        if plan.kind[column] != constants.COMPLEX_SET:
            length = constants.NOWHERE if removed else self.reader.words[cell + constants.LENGTH]
            value = plan.cells[column]
            at = self._nullable(value, at, self.reader.words[cell + constants.START], length)
        return self._cell_facts(cell, at)

    def _fields_by_name(self, plan: TablePlan, column: int, at: int) -> None:
        """Write the cells of a UDT, each at the place of its field; they are in that order."""
        out = self.out
        out.reserve(self.room)
        deleted = self.reader.words[at + constants.FLAGS] & 1
        put = self._mode(out.size, deleted, self.reader.words[at + constants.TIMESTAMP])
        udt = plan.values[column]
        cell = self._shown(at + constants.WIDTH)
        for i in range(udt.count):
            if put + self.room > len(out.out):
                out.size = put
                out.reserve(self.room)
            if cell >= 0 and self._position(cell) == i:
                out.out[put] = 2
                flags = self.reader.words[cell + constants.FLAGS]
                length = (
                    constants.NOWHERE
                    if flags & constants.IS_DELETED
                    else self.reader.words[cell + constants.LENGTH]
                )
                value = udt.inner[i]
                put = self._nullable(
                    value, put + 1, self.reader.words[cell + constants.START], length
                )
                put = self._cell_facts(cell, put)
                cell = self._shown(cell + constants.WIDTH)
            else:
                out.out[put] = 0
                put += 1
        if cell >= 0:
            self._bad_fields(udt)
        out.size = put

    def _shown(self, cell: int) -> int:
        """Return the next cell of a complex column that is not ignored, -1 for none."""
        while self.reader.is_path_cell(cell):
            if not self.reader.words[cell + constants.FLAGS] & constants.HIDDEN:
                return cell
            cell += constants.WIDTH
        return constants.NOWHERE

    def _position(self, cell: int) -> int:
        """Return the number of a cell's field in a UDT, -1 if its path is not a position."""
        at = self.reader.words[cell + constants.PATH]
        if self.reader.words[cell + constants.PATH_LENGTH] != constants.POSITION_BYTES:
            return constants.NOWHERE
        return self.reader.buf[at] << 8 | self.reader.buf[at + 1]

    def _bad_fields(self, udt: ValuePlan) -> None:
        raise BadValueError(
            f"the cells of a {udt.cql_type} do not fit its {udt.count} fields",
            hint="give the schema that the writer had",
        )

    def _cell_facts(self, cell: int, at: int) -> int:
        """Write a cell's properties besides its value at out[at]. Return their end."""
        flags = self.reader.words[cell + constants.FLAGS]
        self.out.out[at] = 1 if flags & constants.IS_DELETED else 0
        at = ops.put_long(self.out.out, at + 1, self.reader.words[cell + constants.TIMESTAMP])
        at = self._union(at, self.reader.words[cell + constants.TTL], flags & constants.IS_EXPIRING)
        return self._union(
            at, self.reader.words[cell + constants.LDT], flags & constants.IS_EXPIRING
        )

    def _value(self, value: ValuePlan, at: int, start: int, length: int) -> int:
        """Write a non-null value at out[at], where there is room. Return its end."""
        out = self.out
        ended = -1
        if length > 0:
            ended = ops.put_value(out.out, at, value.code, self.reader.buf, start, length)
        if ended < 0:
            out.size = at
            out.required(value, start, length)
            out.reserve(self.room)
            ended = out.size
        return ended

    def _nullable(self, value: ValuePlan, at: int, start: int, length: int) -> int:
        """Write a value in a union with null, for *length* -1 and "no value". Return its end."""
        if length < 0 or (length == 0 and not value.allows_empty):
            self.out.out[at] = 0
            return at + 1
        self.out.out[at] = 2
        return self._value(value, at + 1, start, length)

    def _optional(self, number: int, given: int) -> None:
        """Write null or a number."""
        self.out.reserve(constants.COLUMN_BYTES)
        self.out.size = self._union(self.out.size, number, given)

    def _has_notes(self, timestamp: int, expires: int) -> int:
        """Return whether a simple cell has facts besides its value; most do not."""
        if self.reader.column_count == 0:
            return 0
        differs = self.reader.newest_simple > timestamp or self.reader.oldest_simple < timestamp
        return 1 if differs or self.reader.special or expires >= 0 else 0

    def _write_notes(self, plan: TablePlan, timestamp: int, ttl: int, expires: int) -> None:
        out = self.out
        count = 0
        for i in range(self.reader.column_count):
            count += self.reader.has_note(plan, self.reader.columns[i], timestamp, ttl, expires)
        if count:
            out.long(count)
        for i in range(self.reader.column_count):
            column = self.reader.columns[i]
            if self.reader.has_note(plan, column, timestamp, ttl, expires):
                at = self.reader.where[column]
                flags = self.reader.words[at + constants.FLAGS]
                name = plan.names[column]
                out.constant(name)
                written = self.reader.words[at + constants.TIMESTAMP]
                self._optional(written, written != timestamp)
                self._optional(self.reader.words[at + constants.TTL], flags & constants.IS_EXPIRING)
                self._optional(self.reader.words[at + constants.LDT], flags & constants.IS_EXPIRING)
                out.byte(self.reader.is_empty(plan, column, at))

    def _union(self, at: int, number: int, given: int) -> int:
        """Write null or a number at out[at], where there is room. Return its end."""
        if given:
            self.out.out[at] = 2
            return ops.put_long(self.out.out, at + 1, number)
        self.out.out[at] = 0
        return at + 1

    def _range(self, plan: TablePlan, begin: int, ended: int) -> None:
        if ended < 0:
            self.out.byte(0)
        else:
            self.out.byte(2)
            kind = self.reader.words[begin + constants.FLAGS]
            self._bound(plan, begin, kind in (constants.INCL_START, constants.EXCL_END_INCL_START))
            kind = self.reader.words[ended + constants.FLAGS]
            self._bound(plan, ended, kind in (constants.INCL_END, constants.INCL_END_EXCL_START))

    def _bound(self, plan: TablePlan, at: int, inclusive: int) -> None:
        """Write one side of a range; a bound without values is open."""
        count = self.reader.words[at + constants.COLUMN]
        if count:
            self.out.byte(2)
            self._bound_values(plan, at, count)
            self.out.long(count)
            self.out.byte(1 if inclusive else 0)
        else:
            self.out.byte(0)

    def _bound_values(self, plan: TablePlan, at: int, count: int) -> None:
        out = self.out
        for i in range(plan.first_cell - plan.key_count):
            at += constants.WIDTH
            if i < count:
                value = plan.values[plan.key_count + i]
                out.optional(
                    value,
                    self.reader.words[at + constants.START],
                    self.reader.words[at + constants.LENGTH],
                )
            else:
                out.byte(0)
