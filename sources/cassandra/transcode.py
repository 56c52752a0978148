"""Agreed mutations to Avro messages without making a change, a cell or a value in Python.

The cutter's operations are walked once to find a row's columns and once to write them; keys and
values are the only objects made. Envelope and types are those of `avro`, whose values fastavro
encodes to the same bytes. For one thread.
"""

from array import array
from collections.abc import Sequence

from headrace.plugins import EncodedRecords, HeadraceError, Headers, Quarantined
from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.avro_bytes import AvroBytes, ValuePlan
from headrace.sources.cassandra.avro_schema import avro_names, payload_columns
from headrace.sources.cassandra.cut import Cutter
from headrace.sources.cassandra.intake import Outbox
from headrace.sources.cassandra.layout import Catalogue
from headrace.sources.cassandra.schema import ColumnKind, Schema, TableSchema
from headrace.sources.cassandra.types import CqlType

_NEVER = -(1 << 63)  # A drop time that covers no cell; also "no write time yet".
_HIDDEN = 0x1000  # In an operation's flags: Cassandra would not read it.
_REPLACE_BYTE, _MERGE_BYTE = 0, 2  # The enum CollectionMode, as its zigzag byte.


class TablePlan:
    """One table, ready for encoding. Arrays are by index into `TableSchema.columns`."""

    def __init__(self, table: TableSchema, headers: Headers) -> None:
        """Derive everything that all of the table's messages share."""
        self.table_name = table.qualified
        self.headers = headers
        columns = table.columns
        payload = payload_columns(table)
        names = [_string(alias) for alias in avro_names(tuple(c.name for c in payload))]
        self.names = names + [b""] * (len(columns) - len(names))
        self.payload_count = len(payload)
        self.constant = _string(table.keyspace) + _string(table.name)
        kinds = [column.kind for column in payload]
        self.key_count = kinds.count(ColumnKind.PARTITION_KEY)
        self.clustering_count = kinds.count(ColumnKind.CLUSTERING)
        self.values = [ValuePlan(column.type) for column in columns]
        self.complex = memoryview(array("i", [int(column.is_complex) for column in columns]))
        self.kind = memoryview(array("i", [_complex_kind(column.type) for column in columns]))
        self.paths = [
            ValuePlan(column.type.path_type if column.is_complex else column.type)
            for column in columns
        ]
        self.cells = [ValuePlan(_cell_type(column.type)) for column in columns]
        # Cells written at or before this do not count.
        self.dropped = memoryview(
            array(
                "q",
                [
                    (1 << 63) - 1
                    if c.is_dropped
                    else _NEVER
                    if c.dropped_us is None
                    else c.dropped_us
                    for c in columns
                ],
            )
        )


class Transcoder:
    """Encodes outboxes."""

    def __init__(self, schema: Schema, plans: dict[int, TablePlan]) -> None:
        """*plans* has the delivered tables by their index in the schema's catalogue."""
        catalogue = Catalogue(schema)
        self.cutter = Cutter(catalogue)
        self.plans = [plans.get(index) for index in range(len(catalogue.tables))]
        self.out = AvroBytes()
        self.id = memoryview(bytearray(16))
        widest = max([len(table.columns) for table in catalogue.tables], default=0)
        self.where = memoryview(array("q", bytes(8 * (widest + 1))))
        self.columns = memoryview(array("i", bytes(4 * (widest + 1))))
        self.marked = memoryview(bytearray(widest + 1))
        self.column_count = 0

    def encode(self, outbox: Outbox, nodes: Sequence[str]) -> EncodedRecords:
        """Encode every mutation; one that does not fit is quarantined whole, the others go on."""
        self.keys: list[bytes | None] = []
        self.bodies: list[bytes] = []
        self.headers: list[Headers] = []
        self.tables: list[str] = []
        quarantined: list[Quarantined] = []
        node_names = [_string(node) for node in nodes]
        self.cutter.attach(outbox.data)
        self.out.attach(outbox.data)
        self.buf = outbox.data
        for i in range(outbox.count):
            base = i * codes.MAIL_WIDTH
            made = len(self.bodies)
            try:
                self._mutation(outbox, base, node_names[outbox.meta[base + codes.MAIL_HOST]])
            except HeadraceError as error:
                self.marked = memoryview(bytearray(len(self.marked)))
                for column in (self.keys, self.bodies, self.headers, self.tables):
                    del column[made:]
                quarantined.append(_quarantined(outbox, base, nodes, error))
        return EncodedRecords(self.keys, self.bodies, self.headers, self.tables, quarantined)

    def _mutation(self, outbox: Outbox, base: int, node: bytes) -> None:
        """Encode one mutation's changes; the fields that they share are written once."""
        start = outbox.meta[base + codes.MAIL_START]
        end = outbox.meta[base + codes.MAIL_END]
        count = self.cutter.cut_range(start, end, outbox.meta[base + codes.MAIL_MESSAGING])
        self.words = self.cutter.words
        self.end = count * codes.WIDTH
        changes = self._count_changes()
        native.sha16(self.buf, start, end, self.id, 0)
        out = self.out
        out.size = 0
        out.long(changes)
        out.long(outbox.meta[base + codes.MAIL_COPIES])
        out.constant(node)
        out.long(outbox.meta[base + codes.MAIL_SEGMENT])
        out.long(outbox.meta[base + codes.MAIL_POSITION])
        self.tail_end = out.size
        self.index = 0
        at = 0
        while at < self.end:
            at = self._update(at)

    def _count_changes(self) -> int:
        """Return how many changes will be made, and hide what Cassandra would not read."""
        changes = 0
        at = 0
        plan = None
        while at < self.end:
            kind = self.words[at]
            if kind == codes.UPDATE:
                plan = self.plans[self.words[at + codes.COLUMN]]
            elif plan is None:
                pass
            elif kind == codes.ROW:
                following = self._gather(plan, at)
                if self.row_deletion >= 0:
                    changes += 1
                if self.words[at + codes.FLAGS] & codes.HAS_TIMESTAMP or self.column_count:
                    changes += 1
                at = following
                continue
            elif kind == codes.PARTITION_DELETION or kind == codes.MARKER_OPEN:  # noqa: PLR1714
                changes += 1
            at += codes.WIDTH
        return changes

    def _update(self, at: int) -> int:
        """Encode the changes of the update at *at* and return where the next one is."""
        plan = self.plans[self.words[at + codes.COLUMN]]
        self.key_start = self.words[at + codes.START]
        self.key_length = self.words[at + codes.LENGTH]
        at += codes.WIDTH
        self.range_open = 0
        if plan is not None:
            self._key(plan)
        while at < self.end and self.words[at] != codes.UPDATE:
            kind = self.words[at]
            if plan is None:
                at += codes.WIDTH
            elif kind == codes.PARTITION_DELETION:
                self.column_count = 0
                self._change(
                    plan, codes.OP_DELETE_PARTITION, self.words[at + codes.TIMESTAMP], -1, -1
                )
                at += codes.WIDTH
            elif kind == codes.ROW:
                at = self._row(plan, at)
            else:
                at = self._marker(plan, at)
        return at

    def _row(self, plan: TablePlan, at: int) -> int:
        following = self._gather(plan, at)
        columns = self.column_count
        if self.row_deletion >= 0:
            self.column_count = 0
            timestamp = self.words[self.row_deletion + codes.TIMESTAMP]
            self._change(plan, codes.OP_DELETE, timestamp, at, -1)
            self.column_count = columns
        if self.words[at + codes.FLAGS] & codes.HAS_TIMESTAMP:
            self._change(plan, codes.OP_INSERT, self.words[at + codes.TIMESTAMP], at, -1)
        elif columns:
            self._change(plan, codes.OP_UPDATE, self._newest(plan), at, -1)
        return following

    def _gather(self, plan: TablePlan, at: int) -> int:
        """Note where the row's columns are and return where the row ends."""
        at += codes.WIDTH
        self.row_deletion = -1
        self.column_count = 0
        while at < self.end:
            kind = self.words[at]
            column = self.words[at + codes.COLUMN]
            if kind == codes.ROW_DELETION:
                self.row_deletion = at
                at += codes.WIDTH
            elif kind == codes.VALUE:
                at += codes.WIDTH
            elif kind == codes.CELL:
                if self.words[at + codes.TIMESTAMP] > plan.dropped[column]:
                    self._mention(column, at)
                at += codes.WIDTH
            elif kind == codes.COMPLEX:
                at = self._gather_complex(plan, at, column)
            else:
                break
        return at

    def _gather_complex(self, plan: TablePlan, at: int, column: int) -> int:
        begin = at
        dropped = plan.dropped[column]
        deleted = self.words[at + codes.FLAGS] & 1
        kept = 1 if deleted and self.words[at + codes.TIMESTAMP] > dropped else 0
        if deleted and not kept:
            self.words[at + codes.FLAGS] = 0
        at += codes.WIDTH
        while (
            at < self.end
            and self.words[at] == codes.CELL
            and self.words[at + codes.PATH_LENGTH] >= 0
        ):
            if self.words[at + codes.TIMESTAMP] > dropped:
                kept += 1
            else:
                self.words[at + codes.FLAGS] |= _HIDDEN
            at += codes.WIDTH
        if kept:
            self._mention(column, begin)
        return at

    def _mention(self, column: int, at: int) -> None:
        if self.column_count == len(self.columns):
            self.cutter.fail("a column list that names a column twice")
        self.columns[self.column_count] = column
        self.where[column] = at
        self.column_count += 1

    def _newest(self, plan: TablePlan) -> int:
        """Return the newest write time of the row's cells; without cells, of its deletions."""
        newest = _NEVER
        deletion = _NEVER
        for i in range(self.column_count):
            column = self.columns[i]
            at = self.where[column]
            if not plan.complex[column]:
                newest = max(newest, self.words[at + codes.TIMESTAMP])
                continue
            if self.words[at + codes.FLAGS] & 1:
                deletion = max(deletion, self.words[at + codes.TIMESTAMP])
            at += codes.WIDTH
            while (
                at < self.end
                and self.words[at] == codes.CELL
                and self.words[at + codes.PATH_LENGTH] >= 0
            ):
                if not self.words[at + codes.FLAGS] & _HIDDEN:
                    newest = max(newest, self.words[at + codes.TIMESTAMP])
                at += codes.WIDTH
        return deletion if newest == _NEVER else newest

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

    def _range_end(self, at: int) -> int:
        """Return the next marker, which ends the range that is open."""
        while at < self.end and self.words[at] != codes.MARKER:
            if self.words[at] == codes.UPDATE:
                break
            at += codes.WIDTH
        if at >= self.end or self.words[at] != codes.MARKER:
            self.cutter.fail("a range does not end")
        return at

    # ---- writing ----

    def _key(self, plan: TablePlan) -> None:
        """Encode the partition key, and remember where its parts are in `key_parts`."""
        out = self.out
        out.size = self.tail_end
        at = self.key_start
        end = at + self.key_length
        for i in range(plan.key_count):
            length = self._key_part(plan, i, at, end)
            start = at if plan.key_count == 1 else at + 2
            out.required(plan.values[i], start, length)
            at = start + length + (0 if plan.key_count == 1 else 1)
        if at != end:
            self.cutter.fail(f"a partition key of {self.key_length} bytes has other parts")
        self.key = out.bytes_from(self.tail_end)

    def _key_part(self, plan: TablePlan, i: int, at: int, end: int) -> int:
        """Return the length of key part *i*; of several, each has 2 bytes before and one after."""
        if plan.key_count == 1:
            return end - at
        length = -1
        if at + 2 <= end:
            length = self.buf[at] << 8 | self.buf[at + 1]
        if length < 0 or at + 2 + length >= end:
            self.cutter.fail(f"part {i} of a partition key of {self.key_length} bytes is cut short")
        return length

    def _change(
        self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int
    ) -> None:
        """Encode one change; *row* is its ROW or start MARKER, *ended* its end MARKER, or -1."""
        out = self.out
        out.size = self.tail_end
        is_row = operation <= codes.OP_DELETE
        flags = self.words[row + codes.FLAGS] if is_row else 0
        ttl = 0
        expires = -1
        if operation == codes.OP_INSERT and flags & codes.HAS_TTL:
            ttl = self.words[row + codes.TTL]
            expires = self.words[row + codes.LDT]
        out.long(timestamp)
        out.byte(operation << 1)
        out.constant(plan.constant)
        is_static = 1 if flags & codes.ROW_STATIC and operation != codes.OP_DELETE else 0
        out.byte(is_static)
        self._union(ttl, expires >= 0)
        self._union(expires, expires >= 0)
        if self.column_count:
            out.long(self.column_count)
            for i in range(self.column_count):
                name = plan.names[self.columns[i]]
                out.constant(name)
        out.byte(0)
        self._payload(plan, row if is_row and not flags & codes.ROW_STATIC else -1)
        self._notes(plan, timestamp, ttl, expires)
        self._range(plan, row, ended)
        out.raw(self.id, 0, 16)
        out.long(self.index)
        self.index += 1
        out.raw(out.out, 0, self.tail_end)
        self.keys.append(self.key)
        self.bodies.append(out.bytes_from(self.tail_end))
        self.headers.append(plan.headers)
        self.tables.append(plan.table_name)

    def _union(self, number: int, given: bool) -> None:
        if given:
            self.out.byte(2)
            self.out.long(number)
        else:
            self.out.byte(0)

    def _payload(self, plan: TablePlan, row: int) -> None:
        out = self.out
        at = self.key_start
        for i in range(plan.key_count):
            length = self._key_part(plan, i, at, self.key_start + self.key_length)
            start = at if plan.key_count == 1 else at + 2
            out.optional(plan.values[i], start, length)
            at = start + length + 1
        at = row + codes.WIDTH
        for i in range(plan.key_count, plan.key_count + plan.clustering_count):
            if row < 0 or at >= self.end or self.words[at] != codes.VALUE:
                out.byte(0)
                continue
            out.optional(
                plan.values[i], self.words[at + codes.START], self.words[at + codes.LENGTH]
            )
            at += codes.WIDTH
        for i in range(self.column_count):
            self.marked[self.columns[i]] = 1
        for column in range(plan.key_count + plan.clustering_count, plan.payload_count):
            if not self.marked[column]:
                out.byte(0)
                continue
            self.marked[column] = 0
            at = self.where[column]
            if plan.complex[column]:
                self._complex(plan, column, at)
            elif self.words[at + codes.FLAGS] & codes.IS_DELETED:
                out.byte(0)
            else:
                out.optional(
                    plan.values[column], self.words[at + codes.START], self.words[at + codes.LENGTH]
                )

    def _complex(self, plan: TablePlan, column: int, at: int) -> None:
        out = self.out
        out.byte(2)
        deleted = self.words[at + codes.FLAGS] & 1
        out.byte(_REPLACE_BYTE if deleted else _MERGE_BYTE)
        self._union(self.words[at + codes.TIMESTAMP], deleted != 0)
        begin = at + codes.WIDTH
        count = 0
        at = begin
        while (
            at < self.end
            and self.words[at] == codes.CELL
            and self.words[at + codes.PATH_LENGTH] >= 0
        ):
            if not self.words[at + codes.FLAGS] & _HIDDEN:
                count += 1
            at += codes.WIDTH
        if count:
            out.long(count)
        for cell in range(begin, at, codes.WIDTH):
            if not self.words[cell + codes.FLAGS] & _HIDDEN:
                self._complex_cell(plan, column, cell)
        out.byte(0)

    def _complex_cell(self, plan: TablePlan, column: int, cell: int) -> None:
        out = self.out
        flags = self.words[cell + codes.FLAGS]
        removed = flags & codes.IS_DELETED
        kind = plan.kind[column]
        start = self.words[cell + codes.START]
        length = -1 if removed else self.words[cell + codes.LENGTH]
        out.required(
            plan.paths[column], self.words[cell + codes.PATH], self.words[cell + codes.PATH_LENGTH]
        )
        if kind == codes.COMPLEX_UDT:
            if length < 0:
                out.byte(0)
            else:
                out.byte(2)
                out.long(length)
                out.raw(self.buf, start, start + length)
        elif kind != codes.COMPLEX_SET:
            out.optional(plan.cells[column], start, length)
        out.byte(1 if removed else 0)
        out.long(self.words[cell + codes.TIMESTAMP])
        expiring = flags & codes.IS_EXPIRING
        self._union(self.words[cell + codes.TTL], expiring != 0)
        self._union(self.words[cell + codes.LDT], expiring != 0)

    def _notes(self, plan: TablePlan, timestamp: int, ttl: int, expires: int) -> None:
        """Write what simple cells say beyond their value."""
        out = self.out
        count = 0
        for i in range(self.column_count):
            count += self._has_note(plan, self.columns[i], timestamp, ttl, expires)
        if count:
            out.long(count)
            for i in range(self.column_count):
                column = self.columns[i]
                if self._has_note(plan, column, timestamp, ttl, expires):
                    at = self.where[column]
                    flags = self.words[at + codes.FLAGS]
                    name = plan.names[column]
                    out.constant(name)
                    written = self.words[at + codes.TIMESTAMP]
                    self._union(written, written != timestamp)
                    expiring = flags & codes.IS_EXPIRING
                    self._union(self.words[at + codes.TTL], expiring != 0)
                    self._union(self.words[at + codes.LDT], expiring != 0)
                    out.byte(self._is_empty(plan, column, at))
        out.byte(0)

    def _has_note(
        self, plan: TablePlan, column: int, timestamp: int, ttl: int, expires: int
    ) -> int:
        if plan.complex[column]:
            return 0
        at = self.where[column]
        if self.words[at + codes.TIMESTAMP] != timestamp:
            return 1
        if self.words[at + codes.FLAGS] & codes.IS_EXPIRING:
            if self.words[at + codes.TTL] != ttl or self.words[at + codes.LDT] != expires:
                return 1
        elif expires >= 0:
            return 1
        return self._is_empty(plan, column, at)

    def _is_empty(self, plan: TablePlan, column: int, at: int) -> int:
        value = plan.values[column]
        if self.words[at + codes.FLAGS] & codes.IS_DELETED or value.allows_empty:
            return 0
        return 1 if self.words[at + codes.LENGTH] == 0 else 0

    def _range(self, plan: TablePlan, begin: int, ended: int) -> None:
        if ended < 0:
            self.out.byte(0)
        else:
            self.out.byte(2)
            kind = self.words[begin + codes.FLAGS]
            self._bound(plan, begin, kind in (codes.INCL_START, codes.EXCL_END_INCL_START))
            kind = self.words[ended + codes.FLAGS]
            self._bound(plan, ended, kind in (codes.INCL_END, codes.INCL_END_EXCL_START))

    def _bound(self, plan: TablePlan, at: int, inclusive: int) -> None:
        """Write one side of a range; a bound without values is an open side."""
        count = self.words[at + codes.COLUMN]
        if count:
            self.out.byte(2)
            self._bound_values(plan, at, count)
            self.out.long(count)
            self.out.byte(1 if inclusive else 0)
        else:
            self.out.byte(0)

    def _bound_values(self, plan: TablePlan, at: int, count: int) -> None:
        out = self.out
        for i in range(plan.clustering_count):
            at += codes.WIDTH
            if i < count:
                value = plan.values[plan.key_count + i]
                out.optional(value, self.words[at + codes.START], self.words[at + codes.LENGTH])
            else:
                out.byte(0)


def _string(text: str) -> bytes:
    """Return *text* as Avro writes a string."""
    raw = text.encode()
    out = AvroBytes()
    out.text_constant(raw)
    return out.bytes_from(0)


def _cell_type(cql_type: CqlType) -> CqlType:
    """Return the type of a list's or map's values; of other types it is not asked."""
    return cql_type.arguments[len(cql_type.arguments) - 1] if cql_type.arguments else cql_type


def _complex_kind(cql_type: CqlType) -> int:
    if cql_type.is_udt:
        return codes.COMPLEX_UDT
    return codes.COMPLEX_SET if cql_type.name == "set" else codes.COMPLEX_OTHER


def _quarantined(
    outbox: Outbox, base: int, nodes: Sequence[str], error: HeadraceError
) -> Quarantined:
    meta = memoryview(outbox.meta)[base : base + codes.MAIL_WIDTH].tolist()
    node, segment = nodes[meta[codes.MAIL_HOST]], meta[codes.MAIL_SEGMENT]
    place = f"node {node}: segment {segment}: entry that ends at {meta[codes.MAIL_POSITION]}"
    raw = bytes(outbox.data[meta[codes.MAIL_START] : meta[codes.MAIL_END]])
    return Quarantined(place, error.code, str(error), raw)
