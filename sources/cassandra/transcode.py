"""Agreed mutations to Avro messages without making a change, a cell or a value in Python.

The cutter's operations are walked once to find a row's columns and once to write them; keys and
values are the only objects made. Envelope and types are those of `avro`, whose values fastavro
encodes to the same bytes. For one thread.
"""

from array import array
from collections.abc import Sequence
from contextlib import suppress

from headrace.plugins import EncodedRecords, Facts, Headers, HeadraceError, Quarantined
from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.errors import UnknownTableError
from headrace.sources.cassandra.intake import Outbox
from headrace.sources.cassandra.plain_row import PlainRow
from headrace.sources.cassandra.salvage import mail_set_aside
from headrace.sources.cassandra.table_plan import EpochSource, TablePlan, avro_string

_NEVER = -(1 << 63)  # A drop time that covers no cell; also "no write time yet".
_ENDS_FIRST = 16
_NOWHERE = -1


class Transcoder(PlainRow):
    """Encodes outboxes."""

    def __init__(self, epochs: EpochSource) -> None:
        """Encode each mutation with what *epochs* gives for its epoch."""
        super().__init__()
        self.epochs = epochs
        self.epoch = _NOWHERE
        self.takes_plain = 1
        self.node_names: Sequence[str] = ()
        self.nodes: list[bytes] = []  # As Avro strings.
        self.ids = memoryview(bytearray(codes.ID_BYTES))
        self.ends = memoryview(array("q", bytes(8 * _ENDS_FIRST)))  # Where each change ends.

    def encode(self, outbox: Outbox, nodes: Sequence[str]) -> EncodedRecords:
        """Encode every mutation; one that does not fit is quarantined whole, the others go on."""
        self.keys: list[bytes | None] = []
        self.bodies: list[bytes] = []
        self.headers: list[Headers] = []
        self.tables: list[str] = []
        quarantined: list[Quarantined] = []
        if nodes != self.node_names:
            self.node_names = list(nodes)
            self.nodes = [avro_string(name) for name in nodes]
        self.epoch = _NOWHERE
        self.attach(outbox.data)
        self.identify(outbox)
        self.at = 0
        while self.at < outbox.count:
            try:
                self._go_on(outbox)
            except HeadraceError:
                self._undo()
                error = self._judged(outbox)
                if error is not None:
                    base = self.at * codes.MAIL_WIDTH
                    quarantined.append(mail_set_aside(outbox, base, nodes, error))
                self.at += 1
        facts = self._facts(outbox)
        return EncodedRecords(
            self.keys, self.bodies, self.headers, self.tables, quarantined, facts=facts
        )

    def _facts(self, outbox: Outbox) -> Facts:
        """Return what is known of the changes and of all mutations."""
        width = codes.MAIL_WIDTH
        changes = memoryview(self.facts_of(len(self.bodies))).cast("q")
        mails = memoryview(native.take_words(outbox.meta, outbox.count * width)).cast("q")
        return Facts(
            timestamps_us=changes[0 :: codes.FACT_WORDS],
            operations=changes[1 :: codes.FACT_WORDS],
            indexes=changes[2 :: codes.FACT_WORDS],
            mutations=changes[3 :: codes.FACT_WORDS],
            ids=native.take(self.ids, 0, outbox.count * codes.ID_BYTES),
            places={
                "node": mails[codes.MAIL_HOST :: width],
                "segment": mails[codes.MAIL_SEGMENT :: width],
                "position": mails[codes.MAIL_POSITION :: width],
                "copies": mails[codes.MAIL_COPIES :: width],
            },
            nodes=self.node_names,
        )

    def identify(self, outbox: Outbox) -> None:
        """Set `ids`: 16 bytes for each mutation, the first half of the SHA-256 of its bytes."""
        if codes.ID_BYTES * outbox.count > len(self.ids):
            self.ids = memoryview(bytearray(2 * codes.ID_BYTES * outbox.count))
        native.sha16_all(outbox.data, outbox.meta, codes.MAIL_WIDTH, outbox.count, self.ids)

    def _go_on(self, outbox: Outbox) -> None:
        """Encode the mutations from `at` on, to the end or to one that does not fit."""
        while self.at < outbox.count:
            self.id_at = self.at * codes.ID_BYTES
            self.made = len(self.bodies)
            epoch = outbox.meta[self.at * codes.MAIL_WIDTH + codes.MAIL_EPOCH]
            if epoch != self.epoch:
                self._enter(outbox, epoch)
            self._mutation(outbox)
            self.at += 1

    def _enter(self, outbox: Outbox, epoch: int) -> None:
        """Go on with the tables of another epoch."""
        made = self.epochs.plans_of(epoch)
        self.use(made.cutter, made.columns_max)
        self.cutter.attach(outbox.data)
        self.plans = made.plans
        self.epoch = epoch

    def _undo(self) -> None:
        """Take back what was made of the mutation at hand."""
        self.forget()
        for column in (self.keys, self.bodies, self.headers, self.tables):
            del column[self.made :]

    def _judged(self, outbox: Outbox) -> HeadraceError | None:
        """Encode a mutation the way of all, for there may be worse behind what the short one met.

        Returns what does not fit, if it cannot be rescued either.
        """
        takes_plain = self.takes_plain
        self.takes_plain = 0
        found = None
        try:
            self._mutation(outbox)
        except HeadraceError as error:
            self._undo()
            found = None if self._rescued(outbox, error) else error
        self.takes_plain = takes_plain
        return found

    def _rescued(self, outbox: Outbox, error: HeadraceError) -> bool:
        """Encode a mutation that does not fit its epoch with another, or as far as it is known.

        What stands before an unknown table is delivered when nothing to deliver can be behind it.
        """
        base = self.at * codes.MAIL_WIDTH
        epoch = outbox.meta[base + codes.MAIL_EPOCH]
        for other in self.epochs.others(epoch):
            self._enter(outbox, other)
            try:
                self._mutation(outbox)
            except HeadraceError:
                self._undo()
            else:
                return True
        self._enter(outbox, epoch)
        if not isinstance(error, UnknownTableError):
            return False
        try:
            with suppress(UnknownTableError):  # Once more: so the cutter stands at that table.
                self._mutation(outbox)
            rest = native.take(outbox.data, self.cutter.at, outbox.meta[base + codes.MAIL_END])
            if self.cutter.is_neighbour() and not self.epochs.hides(epoch, rest):
                self._changes(outbox, self.cutter.count)
                self.epochs.pass_over(error)
                return True
        except HeadraceError:
            self._undo()
        return False

    def _mutation(self, outbox: Outbox) -> None:
        """Cut and encode the mutation at hand."""
        base = self.at * codes.MAIL_WIDTH
        start = outbox.meta[base + codes.MAIL_START]
        end = outbox.meta[base + codes.MAIL_END]
        messaging = outbox.meta[base + codes.MAIL_MESSAGING]
        if not self.takes_plain or not self._plain(outbox, start, end, messaging):
            self._changes(outbox, self.cutter.cut_range(start, end, messaging))

    def _plain(self, outbox: Outbox, start: int, end: int, messaging: int) -> int:
        """Encode the mutation at hand if it is a plain insert; say whether it is."""
        header = self._head(start, end, messaging)
        if header is None:
            return 0
        plan = self.plans[self.cutter.layout.index]
        if not plan.is_plain or not self._insert(plan, header):
            return 0
        self.index = 1
        self.end_count = 0
        self._keep(plan, codes.OP_INSERT, self.cutter.row_timestamp)
        self._close(outbox)
        return 1

    def _changes(self, outbox: Outbox, count: int) -> None:
        """Encode *count* operations: first the changes, then the fields that need their number."""
        if self.lists != self.cutter.lists:  # Taking a view costs more than a row's fields.
            self.lists = self.cutter.lists
            self.words = self.cutter.words
        base = self.at * codes.MAIL_WIDTH
        self.end = count * codes.WIDTH
        self.length = outbox.meta[base + codes.MAIL_END] - outbox.meta[base + codes.MAIL_START]
        self.index = 0
        self.end_count = 0
        out = self.out
        out.size = 0
        at = 0
        while at < self.end:
            at = self._update(at)
        self._close(outbox)

    def _close(self, outbox: Outbox) -> None:
        """End the changes with what needs their number."""
        base = self.at * codes.MAIL_WIDTH
        out = self.out
        node = self.nodes[outbox.meta[base + codes.MAIL_HOST]]
        out.reserve(len(node) + codes.COLUMN_BYTES)
        tail = out.size
        at = native.put_long(out.out, tail, self.index)
        at = native.put_long(out.out, at, outbox.meta[base + codes.MAIL_COPIES])
        at = native.put_bytes(out.out, at, node)
        at = native.put_long(out.out, at, outbox.meta[base + codes.MAIL_SEGMENT])
        out.size = native.put_long(out.out, at, outbox.meta[base + codes.MAIL_POSITION])
        self._finish(tail, out.size)

    def _finish(self, tail: int, tail_end: int) -> None:
        """Join each change with the tail that all of the mutation's changes share."""
        out = self.out
        if self.end_count == 1:  # The tail stands behind it already.
            self.bodies.append(out.bytes_from(0))
        else:
            begin = 0
            for i in range(self.end_count):
                end = self.ends[i]
                out.size = tail_end
                out.reserve(end - begin + tail_end - tail)
                native.copy(out.out, tail_end, out.out, begin, end)
                native.copy(out.out, tail_end + end - begin, out.out, tail, tail_end)
                out.size = tail_end + end - begin + tail_end - tail
                self.bodies.append(out.bytes_from(tail_end))
                begin = end

    def _update(self, at: int) -> int:
        """Encode the changes of the update at *at* and return where the next one is."""
        plan = self.plans[self.words[at + codes.COLUMN]]
        self.key_start = self.words[at + codes.START]
        self.key_length = self.words[at + codes.LENGTH]
        at += codes.WIDTH
        self.range_open = 0
        if plan.delivered:
            self._key(plan)
        while at < self.end and self.words[at] != codes.UPDATE:
            kind = self.words[at]
            if kind == codes.ROW:
                at = self._row(plan, at)
            elif kind == codes.MARKER:
                at = self._marker(plan, at)
            else:
                timestamp = self.words[at + codes.TIMESTAMP]
                self._change(plan, codes.OP_DELETE_PARTITION, timestamp, _NOWHERE, _NOWHERE)
                at += codes.WIDTH
        return at

    def _row(self, plan: TablePlan, at: int) -> int:
        following = self._gather(plan, at)
        columns = self.column_count
        if self.row_deletion >= 0:
            self.column_count = 0
            timestamp = self.words[self.row_deletion + codes.TIMESTAMP]
            self._change(plan, codes.OP_DELETE, timestamp, at, _NOWHERE)
            self.column_count = columns
        if self.words[at + codes.FLAGS] & codes.HAS_TIMESTAMP:
            timestamp = self.words[at + codes.TIMESTAMP]
            self._change(plan, codes.OP_INSERT, timestamp, at, _NOWHERE)
        elif columns:
            timestamp = self.newest_deletion if self.newest == _NEVER else self.newest
            self._change(plan, codes.OP_UPDATE, timestamp, at, _NOWHERE)
        for i in range(columns):
            self.where[self.columns[i]] = _NOWHERE
        self.column_count = 0
        return following

    def _marker(self, plan: TablePlan, at: int) -> int:
        """Encode the range that starts at a marker; a mere end was used by its start."""
        begin = at
        opened = -1
        at += codes.WIDTH
        while at < self.end and codes.VALUE <= self.words[at] <= codes.MARKER_OPEN:
            kind = self.words[at]
            if kind not in (codes.VALUE, codes.MARKER_CLOSE, codes.MARKER_OPEN):
                break
            if kind == codes.MARKER_OPEN:
                opened = at
            elif kind == codes.MARKER_CLOSE:
                if not self.range_open:
                    self.cutter.fail("a range ends that did not start")
                self.range_open = 0
            at += codes.WIDTH
        if opened >= 0:
            if self.range_open:
                self.cutter.fail("a range starts inside another")
            self.range_open = 1
            ended = self._range_end(at)
            self.column_count = 0
            timestamp = self.words[opened + codes.TIMESTAMP]
            self._change(plan, codes.OP_DELETE_RANGE, timestamp, begin, ended)
        return at

    # ---- writing ----

    def _change(
        self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int
    ) -> None:
        """Encode one change; *row* is its ROW or start MARKER, *ended* its end MARKER."""
        self.index += 1
        if plan.delivered:
            self._write(plan, operation, timestamp, row, ended)

    def _write(self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int) -> None:
        out = self.out
        out.reserve(self.room + self.length + len(plan.constant) + len(self.key))
        is_row = operation <= codes.OP_DELETE
        flags = self.words[row + codes.FLAGS] if is_row else 0
        is_static = flags & codes.ROW_STATIC
        ttl = 0
        expires = -1
        if operation == codes.OP_INSERT and flags & codes.HAS_TTL:
            ttl = self.words[row + codes.TTL]
            expires = self.words[row + codes.LDT]
        at = native.put_long(out.out, out.size, timestamp)
        out.out[at] = operation << 1
        at = native.put_bytes(out.out, at + 1, plan.constant)
        out.out[at] = 1 if is_static and operation != codes.OP_DELETE else 0
        at = self._union(at + 1, ttl, expires >= 0)
        at = self._union(at, expires, expires >= 0)
        fields = self._fields(plan)
        out.size = native.put_bytes(out.out, at, fields)
        self._payload_key(plan, row if is_row and not is_static else _NOWHERE)
        self._payload_cells(plan)
        if self._has_notes(timestamp, expires):
            self._write_notes(plan, timestamp, ttl, expires)
        out.byte(0)
        self._range(plan, row, ended)
        self._keep(plan, operation, timestamp)

    def _keep(self, plan: TablePlan, operation: int, timestamp: int) -> None:
        """End a change with its id and keep what is known of it."""
        out = self.out
        out.reserve(codes.COLUMN_BYTES)
        at = out.size
        native.copy(out.out, at, self.ids, self.id_at, self.id_at + codes.ID_BYTES)
        out.size = native.put_long(out.out, at + codes.ID_BYTES, self.index - 1)
        if self.end_count == len(self.ends):
            self._grow_ends()
        self.ends[self.end_count] = out.size
        self.end_count += 1
        self._keep_facts(len(self.keys), timestamp, operation, self.index - 1, self.at)
        self.keys.append(self.key)
        self.headers.append(plan.headers)
        self.tables.append(plan.table_name)

    def _grow_ends(self) -> None:
        ends = memoryview(array("q", bytes(16 * self.end_count)))
        ends[: self.end_count] = self.ends
        self.ends = ends

    def _fields(self, plan: TablePlan) -> bytes:
        """Return the row's updateFields as Avro; rows mostly mention what the row before did."""
        if plan.fields_count == self.column_count:
            i = 0
            while i < self.column_count and plan.fields_of[i] == self.columns[i]:
                i += 1
            if i == self.column_count:
                return plan.fields
        columns = [self.columns[i] for i in range(self.column_count)]
        plan.keep_fields(columns)
        return plan.fields

    def _payload_key(self, plan: TablePlan, row: int) -> None:
        """Write the primary key's columns; without *row* the clustering columns are null."""
        out = self.out
        put = self._payload_parts(plan, out.size)
        at = row + codes.WIDTH
        for i in range(plan.key_count, plan.first_cell):
            if row >= 0 and at < self.end and self.words[at] == codes.VALUE:
                value = plan.values[i]
                start = self.words[at + codes.START]
                put = self._nullable(value, put, start, self.words[at + codes.LENGTH])
                at += codes.WIDTH
            else:
                out.out[put] = 0
                put += 1
        out.size = put
