"""Folds a change from its bytes in Avro into the bytes of a row's state. Hot.

A state has the form that `folding` describes, in MessagePack; so has the result. A `Plan` is a
schema that `fold_plans` prepared. For one thread.

A *single* is the state of a row that had one change: that change, not yet folded. It is preceded by
a byte that never occurs in MessagePack and the id of the change's schema.
"""

from array import array
from collections.abc import Callable

from headrace.connector.rows import kinds
from headrace.connector.rows.message_pack import Form, Packer
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece

_NEVER = -(1 << 63)
_EMPTY = b"\x82\xa7deleted\xd3\x80\0\0\0\0\0\0\0\xa7columns\x80"
_NOTHING = b"\x92\xc0\xc0"  # No state of the row, and none of its partition.
_DELETED = b"deleted"
_COLUMNS = b"columns"
_RANGES = b"ranges"
_LIVE = b"live"
_CELLS = b"cells"
_MEMBERS_MAX = 15
_COLUMNS_MAX = 0xFFFF
_SINGLE_BYTES = 17  # Of the header of a single.
_NUMBER_BYTES = 10  # The maximum bytes of a number, plus one.
_NIL = 0xC0
_SINGLE = 0xC1  # Never used by MessagePack.
_FALSE = 0xC2
_TRUE = 0xC3


def single_of(schema_id: bytes) -> bytes:
    """Return the header for singles of a schema."""
    return bytes((_SINGLE,)) + schema_id


def is_single(state: bytes) -> bool:
    """Return whether a state is a single."""
    return len(state) > 0 and state[0] == _SINGLE


def schema_id_of(single: bytes) -> bytes:
    """Return the id of the schema of the change in a single."""
    return single[1:_SINGLE_BYTES]


class Plan:
    """A prepared schema of changes. `first` is the index of the first column in `pieces`."""

    def __init__(  # noqa: PLR0913 (the parts of a schema)
        self,
        pieces: list[Piece],
        columns: list[Form],
        names: list[bytes],
        labels: list[bytes],
        *,
        places: dict[str, int],
        note: list[Piece],
        bound: Form,
        clustering: list[int],
        fields: list[Form],
        field_labels: list[bytes],
        is_less: Callable[[bytes, bytes], bool],
    ) -> None:
        """*pieces* are the envelope's fields up to the range, with columns for the payload.

        *fields* are the same fields, in the form for a document.
        """
        self.pieces = pieces
        self.columns = columns
        self.names = names
        self.labels = labels
        self.note = note
        self.bound = bound
        self.clustering = clustering
        self.fields = fields
        self.field_labels = field_labels
        self.is_less = is_less
        self.first = places["payload"]
        self.timestamp = places["timestampMicros"]
        self.operation = places["operationType"]
        self.static = places["isStatic"]
        self.expires = places["expires"]
        self.updated = places["updateFields"]
        self.notes = places["cells"]
        self.range = places["range"]
        # The number of pieces that identify the row of a change.
        self.row_pieces = max(self.static, self.first + max(clustering, default=-1)) + 1


class ByteFold(Packer):
    """Folds changes of one schema: `read` a change, then `fold` it into the state of its row."""

    def __init__(self, plan: Plan) -> None:
        """Fold changes of *plan*."""
        super().__init__()
        self.plan = plan
        count = len(plan.columns)
        self.starts = memoryview(array("q", bytes(8 * (len(plan.pieces) + 1))))
        self.written_columns = memoryview(array("q", bytes(8 * count)))
        self.noted = memoryview(array("q", bytes(8 * count)))
        self.order = memoryview(array("q", bytes(8 * count)))
        self.head = self.head_owner = bytearray(2 * _NUMBER_BYTES)
        self.head_bytes = 0
        self.count = 0
        self.change = self.state = b""
        self.found: bytes | None = None
        self.written_us = self.operation = self.expires_s = self.ranges = 0
        self.is_static = self.has_expires = 0

    # ---- a change ----

    def read(self, change: bytes) -> None:
        """Read a change, to which the other methods then refer.

        Raises:
            BadAvroError: it does not fit the schema.

        """
        plan = self.plan
        self._read_pieces(change, len(plan.pieces))
        self.written_us = self._long_from(self.starts[plan.timestamp])
        self.at = self.starts[plan.expires]
        self.has_expires = self._optional()
        self.expires_s = self.number
        self.size = 0
        self._cell_head(self.written_us, self.has_expires, self.expires_s)
        octets.copy(self.head, 0, self.out, 0, self.size)
        self.head_bytes = self.size

    def _read_pieces(self, change: bytes, count: int) -> None:
        """Note where the first *count* fields are, and read those that identify the row."""
        plan = self.plan
        self._begin(change)
        for i in range(count):
            piece = plan.pieces[i]
            self.starts[i] = self.at
            if i == plan.updated and count > plan.row_pieces:
                self._read_columns()
            elif i == plan.notes:
                self._read_notes()
            else:  # Equivalent to `_skip`, but without a call.
                end = octets.skip(self.buf, self.at, self.end, piece.plan, 0)
                if end < 0:
                    self._bad()
                self.at = end
        self.starts[count] = self.at
        self.operation = self._long_from(self.starts[plan.operation])
        if not 0 <= self.operation <= kinds.DELETE_PARTITION:
            self._bad()
        self.is_static = self.buf[self.starts[plan.static]]

    def rows(
        self,
        changes: list[bytes],
        begin: int,
        end: int,
        operations: list[int],
        written_us: list[int],
    ) -> list[bytes]:
        """Return the row name of each change from *begin* to before *end*.

        Append the operation and the write time of each.

        Raises BadAvroError: the names do not fit the schema; `read` checks the rest.
        """
        made = []
        for i in range(begin, end):
            self._read_pieces(changes[i], self.plan.row_pieces)
            operations.append(self.operation)
            written_us.append(self._long_from(self.starts[self.plan.timestamp]))
            made.append(self.row())
        return made

    def document(self, change: bytes) -> bytes:
        """Return a change in MessagePack, up to its range. Raises BadAvroError."""
        plan = self.plan
        self._begin(change)
        self.size = 0
        count = len(plan.fields)
        self._head(count, 0x80, 0xDE)
        for i in range(count):
            self._label(plan.field_labels[i])
            self._pack(plan.fields[i])
        return octets.take(self.out, 0, self.size)

    def row(self) -> bytes:
        """Return the name of the change's row; empty if it is about a partition."""
        plan = self.plan
        count = len(plan.clustering)
        wide = self.operation == kinds.DELETE_RANGE or (
            self.operation == kinds.DELETE_PARTITION and count > 0
        )
        if self.is_static or wide:
            return b""
        self.size = 0
        self._head(count, 0x90, 0xDC)
        for i in range(count):
            column = plan.clustering[i]
            self.at = self.starts[plan.first + column]
            self._pack(plan.columns[column])
        return octets.take(self.out, 0, self.size)

    def _begin(self, change: bytes) -> None:
        self.change = change  # Owns the memory that `buf` points to.
        self.buf = change
        self.at = 0
        self.end = len(change)

    def _long_from(self, at: int) -> int:
        self.at = at
        return self._long()

    def _optional(self) -> int:
        """Read an optional number into `number`, or 0; return whether it is present."""
        self.number = 0
        if not self._long():
            return 0
        self.number = self._long()
        return 1

    def _read_columns(self) -> None:
        """Read the names of the written columns; note them, and their order."""
        for i in range(len(self.plan.columns)):
            self.written_columns[i] = 0
            self.noted[i] = 0
        self.count = 0
        column = -1
        left = self._block()
        while left:
            for _ in range(left):
                column = self._column(column + 1)
                if not self.written_columns[column]:
                    self.written_columns[column] = 1
                    self.order[self.count] = column
                    self.count += 1
            left = self._block()

    def _read_notes(self) -> None:
        """Note where the notes of columns are."""
        left = self._block()
        while left:
            for _ in range(left):
                column = self._column(0)
                self.noted[column] = self.at
                for piece in self.plan.note:
                    self._skip(piece)
            left = self._block()

    def _column(self, guess: int) -> int:
        """Read a name; return the number of its column; *guess* is the likely one."""
        length = self._long()
        start = self.at
        self._pass(length)
        names = self.plan.names
        column = guess
        for _ in range(len(names)):
            if column >= len(names):
                column = 0
            if octets.same(self.buf, start, self.at, names[column]):
                return column
            column += 1
        self._bad()
        return 0

    # ---- a state ----

    def fold_many(  # noqa: PLR0913, PLR0917 (lists and numbers, for C)
        self,
        rows: list[int],
        partitions: list[int] | None,
        changes: list[bytes],
        operations: list[int],
        begin: int,
        end: int,
        states: list[bytes | None],
        befores: list[bytes] | None,
        single: bytes,
    ) -> int:
        """Fold changes from *begin* on into *states*, which are indexed by row number.

        *operations* are the changes' operations. If requested, append an array of two states for
        each change: those of its row and its partition before it. Without *partitions*, partitions
        have no state. A new state is *single* plus the change, for `alone`; without *single*, it is
        folded. Stop before *end*, after a change of many rows or of a partition with ranges; return
        the place.

        Raises:
            BadAvroError: a change does not fit the schema.
            BadStateError: a state is damaged.

        """
        for i in range(begin, end):
            row = rows[i]
            around = None
            if partitions is not None and partitions[i] != row:
                around = states[partitions[i]]
                if around is not None and is_single(around):
                    around = states[partitions[i]] = self.alone(around)
            state = states[row]
            if state is None and single:
                states[row] = single + changes[i]
                self.found = None
                self.ranges = 0
            else:
                if state is not None and is_single(state):
                    state = self.alone(state)
                self.read(changes[i])
                states[row] = self.fold(state)
            if befores is not None:
                befores.append(self._before(around))
            if self.ranges or operations[i] >= kinds.DELETE_RANGE:
                return i + 1
        return end

    def alone(self, state: bytes) -> bytes:
        """Return the state made by one change, which follows the header of a single in *state*.

        Raises:
            BadAvroError: the change does not fit the schema.

        """
        self.read(state[_SINGLE_BYTES:])
        return self.fold(None)

    def _before(self, around: bytes | None) -> bytes:
        if self.found is None and around is None:
            return _NOTHING
        self.size = 0
        self._lead_byte(0x92)
        if self.found is None:
            self._lead_byte(_NIL)
        else:
            self._binary(self.found)
        if around is None:
            self._lead_byte(_NIL)
        else:
            self._binary(around)
        return octets.take(self.out, 0, self.size)

    def fold(self, state: bytes | None) -> bytes:
        """Return *state* with the change that was read; repeating a change has no effect.

        Raises:
            BadStateError: the state is damaged.

        """
        self.found = state
        self.state = _EMPTY if state is None else state
        self.mem = self.state
        self.place = 0
        self.limit = len(self.state)
        self.size = 0
        self.is_sorted = 0
        self.ranges = 0
        members = self._map_size()
        seen = 0
        self._reserve(1)
        self.size = 1
        for _ in range(members):
            seen |= self._fold_member()
        if seen & 3 != 3 or self.place != self.limit:  # noqa: PLR2004 (both)
            self._bad_state()
        if self.operation == kinds.DELETE_RANGE and not seen & 4:
            self._fold_ranges(0)
            members += 1
        if self.operation == kinds.INSERT and not seen & 8:
            self._text(_LIVE)
            self._put_live()
            members += 1
        if members > _MEMBERS_MAX:
            self._bad_state()
        self.out[0] = 0x80 | members
        return octets.take(self.out, 0, self.size)

    def _fold_member(self) -> int:
        """Fold a member of the state; return the bit that identifies it."""
        begin = self.place
        end = self._text_end()
        start = self.text_at
        self.place = end
        if octets.same(self.mem, start, end, _DELETED):
            deleted = self._int()
            if self.operation in (kinds.DELETE, kinds.DELETE_PARTITION):
                deleted = max(deleted, self.written_us)
            self._text(_DELETED)
            self._put_int(deleted)
            return 1
        if octets.same(self.mem, start, end, _COLUMNS):
            self._text(_COLUMNS)
            self._fold_columns()
            return 2
        if octets.same(self.mem, start, end, _RANGES):
            self._fold_ranges(1)
            return 4
        if octets.same(self.mem, start, end, _LIVE):
            self._text(_LIVE)
            self._fold_live()
            return 8
        self._leave()
        self._copy_state(begin, self.place)
        return 0

    def _fold_live(self) -> None:
        """Keep the newer of the row's INSERT and the change's."""
        begin = self.place
        if self._array_size() != 3:  # noqa: PLR2004 (time, whether it expires, expiry)
            self._bad_state()
        written = self._int()
        flag = self._lead()
        expires = self._int()
        is_newer = self.operation == kinds.INSERT
        if is_newer and written != self.written_us:
            is_newer = written < self.written_us
        elif is_newer and (flag == _TRUE) != (self.has_expires != 0):
            is_newer = self.has_expires != 0
        elif is_newer:
            is_newer = expires < self.expires_s
        if is_newer:
            self._put_live()
        else:
            self._copy_state(begin, self.place)

    def _put_live(self) -> None:
        self._lead_byte(0x93)
        self._put_int(self.written_us)
        self._lead_byte(_TRUE if self.has_expires else _FALSE)
        self._put_int(self.expires_s)

    def _fold_ranges(self, known: int) -> None:
        """Add the range that the change deletes; *known* says that the state has ranges."""
        entry = self._range() if self.operation == kinds.DELETE_RANGE else b""
        self._text(_RANGES)
        head = self.size
        self._reserve(5)
        self.size += 5
        count = self._array_size() if known else 0
        is_there = not entry
        for _ in range(count):
            begin = self.place
            self._leave()
            is_there = is_there or octets.same(self.mem, begin, self.place, entry)
            self._copy_state(begin, self.place)
        if not is_there:
            self._label(entry)
            count += 1
        self._long_head(head, 0xDD, count)
        self.ranges = count

    def _range(self) -> bytes:
        begin = self.size
        self.at = self.starts[self.plan.range]
        if not self._long():
            self._bad()
        self._lead_byte(0x93)
        self._put_int(self.written_us)
        self._pack(self.plan.bound)
        self._pack(self.plan.bound)
        entry = octets.take(self.out, begin, self.size)
        self.size = begin
        return entry

    # ---- columns ----

    def _fold_columns(self) -> None:
        labels = self.plan.labels
        head = self.size
        self._reserve(3)
        self.size += 3
        made = self._map_size()
        guess = 0
        copied = self.place
        for _ in range(made):
            column = self._state_column(guess)
            begin = self.place
            self._leave()
            if column >= 0:
                guess = column + 1
                if self.written_columns[column]:
                    end = self.place
                    self._copy_state(copied, begin)
                    self._fold_column(column, begin, end)
                    self.written_columns[column] = 2
                    self.place = copied = end
        self._copy_state(copied, self.place)
        for i in range(self.count):
            column = self.order[i]
            if self.written_columns[column] == 1:
                self._label(labels[column])
                self._fold_column(column, 0, 0)
                made += 1
            self.written_columns[column] = 1
        if made > _COLUMNS_MAX:
            self._bad_state()
        self.out[head] = 0xDE
        self.out[head + 1] = made >> 8
        self.out[head + 2] = made & 0xFF

    def _state_column(self, guess: int) -> int:
        """Read a name in the state; return its column, or -1 if the schema does not have it.

        *guess* is the likely column.
        """
        labels = self.plan.labels
        begin = self.place
        end = self._text_end()
        self.place = end
        column = guess
        for _ in range(len(labels)):
            if column >= len(labels):
                column = 0
            if octets.same(self.mem, begin, end, labels[column]):
                return column
            column += 1
        return -1

    def _fold_column(self, column: int, at: int, end: int) -> None:
        """Write the newer of a column's values in the state, if present, and in the change."""
        form = self.plan.columns[column]
        self.at = self.starts[self.plan.first + column]
        is_null = not self._long()
        if form.way != kinds.WHOLE and not is_null:
            self._fold_cells(form.inner, at)  # type: ignore[arg-type]  # An option has it.
        else:
            self._fold_value(form, column, at, end, is_null)

    def _fold_value(self, form: Form, column: int, at: int, end: int, is_null: int) -> None:
        begin = self.at
        written = self.written_us
        has_expires = self.has_expires
        expires = self.expires_s
        is_empty = 0
        start = self.size
        if self.noted[column]:
            self.at = self.noted[column]
            if self._optional():
                written = self.number
            self._optional()
            has_expires = self._optional()
            expires = self.number
            is_empty = self.buf[self.at]
            self._cell_head(written, has_expires, expires)
        else:
            self._change_head()
        is_dead = is_null and not is_empty
        if is_dead:
            self._lead_byte(_NIL)
        else:
            self._lead_byte(0x92)
            self._lead_byte(_NIL)
            if is_null:
                self._lead_byte(_NIL)
            else:
                self.at = begin
                self._pack(form.inner)  # type: ignore[arg-type]  # An option has it.
        if at and not self._is_newer(at, start, written, has_expires, expires, is_dead):
            self.size = start
            self._copy_state(at, end)

    def _is_newer(  # noqa: PLR0911, PLR0913, PLR0917 (plain numbers, for C; a way out for each rule)
        self, at: int, start: int, written: int, has_expires: int, expires: int, is_dead: int
    ) -> int:
        """Return whether a cell that begins at *start* beats the one in the state at *at*."""
        self.place = at
        if self.mem[at] != 0x93:  # noqa: PLR2004 (three parts)
            return 1  # The column was previously written cell by cell.
        self.place += 1
        known_written = self._int()
        known_has = self.mem[self.place] != _NIL
        known_expires = 0
        if known_has:
            known_expires = self._int()
        else:
            self.place += 1
        known_dead = self.mem[self.place] == _NIL
        if known_written != written:
            return known_written < written
        known_later = known_has or known_dead
        later = has_expires or is_dead
        if (known_later != 0) != (later != 0):
            return later != 0
        if (known_dead != 0) != (is_dead != 0):
            return is_dead != 0
        if known_expires != expires:
            return known_expires < expires
        if is_dead:
            return 0
        return self._is_larger(start)

    def _is_larger(self, start: int) -> int:
        """Return whether the value of the cell at *start* is larger than the state's."""
        begin = self.place
        self._leave()
        known = octets.take(self.mem, begin, self.place)
        made = octets.take(self.out, start, self.size)
        return bool(self.plan.is_less(known, made))

    def _cell_head(self, written: int, has_expires: int, expires: int) -> None:
        self._lead_byte(0x93)
        self._put_int(written)
        if has_expires:
            self._put_int(expires)
        else:
            self._lead_byte(_NIL)

    def _change_head(self) -> None:
        """Write the header of a cell with the time and the expiry of its change."""
        if self.head_bytes > self.space - self.size:
            self._reserve(self.head_bytes)
        octets.copy(self.out, self.size, self.head, 0, self.head_bytes)
        self.size += self.head_bytes

    # ---- collections and UDTs ----

    def _fold_cells(self, form: Form, at: int) -> None:
        """Write the cells of a collection or UDT: the state's at *at*, and the change's."""
        place = self.place
        self._skip(form.piece.parts[0])
        known: dict[bytes, bytes] = {}
        deleted = self._known_cells(at, known) if at else _NEVER
        if self._optional():
            deleted = max(deleted, self.number)
        if form.way == kinds.FIELDS:
            for i in range(len(form.labels)):
                if self._long():
                    self._fold_cell(form, i, known)
        else:
            left = self._block()
            while left:
                for _ in range(left):
                    self._fold_cell(form, -1, known)
                left = self._block()
        self.mem = self.state
        self.limit = len(self.state)
        self.place = place
        self._lead_byte(0x82)
        self._text(_DELETED)
        self._put_int(deleted)
        self._text(_CELLS)
        head = self.size
        self._reserve(5)
        self.size += 5
        for path, cell in known.items():
            self._binary(path)
            self._label(cell)
        self._long_head(head, 0xDF, len(known))

    def _known_cells(self, at: int, known: dict[bytes, bytes]) -> int:
        """Read the cells in the state at *at*; return the time of their common deletion."""
        self.place = at
        deleted = _NEVER
        if self.mem[at] & 0xF0 == 0x90:  # noqa: PLR2004 (an array)
            return deleted  # The column was previously written whole.
        for _ in range(self._map_size()):
            end = self._text_end()
            start = self.text_at
            self.place = end
            if octets.same(self.mem, start, end, _DELETED):
                deleted = self._int()
            elif octets.same(self.mem, start, end, _CELLS):
                for _ in range(self._map_size()):
                    path = self._binary_read()
                    begin = self.place
                    self._leave()
                    known[path] = octets.take(self.mem, begin, self.place)
            else:
                self._bad_state()
        return deleted

    def _fold_cell(self, form: Form, field: int, known: dict[bytes, bytes]) -> None:
        """Read a cell, and keep it in *known* unless a newer one is there."""
        start = self.size
        key_at = self.at
        key = form.parts[0]
        if field < 0:
            self.is_sorted = 1
            self._pack(key)
            self.is_sorted = 0
            path = octets.take(self.out, start, self.size)
            self.size = start
            value = form.parts[1] if len(form.parts) > 1 else None
        else:
            path = form.labels[field]
            value = form.parts[field]
        value_at = self.at
        if value is not None:
            self._skip(value.piece)
        self._pass(1)
        is_removed = self.buf[self.at - 1]
        written = self._long()
        self._optional()
        has_expires = self._optional()
        expires = self.number
        end = self.at
        self._cell_head(written, has_expires, expires)
        if is_removed:
            self._lead_byte(_NIL)
        else:
            self._lead_byte(0x92)
            if field < 0 and not key.is_plain:
                self.at = key_at
                self._pack(key)
            else:
                self._label(path)
            if value is None:
                self._lead_byte(_NIL)
            else:
                self.at = value_at
                self._pack(value)
        self.at = end
        self._keep_newer(known, path, start, written, has_expires, expires, is_removed)
        self.size = start

    def _keep_newer(  # noqa: PLR0913, PLR0917 (plain numbers, for C)
        self,
        known: dict[bytes, bytes],
        path: bytes,
        start: int,
        written: int,
        has_expires: int,
        expires: int,
        is_dead: int,
    ) -> None:
        """Keep the cell that begins at *start* under *path*, unless there is a newer one."""
        cell = known.get(path)
        is_newer = 1
        if cell is not None:
            self.mem = cell
            self.limit = len(cell)
            is_newer = self._is_newer(0, start, written, has_expires, expires, is_dead)
        if is_newer:
            known[path] = octets.take(self.out, start, self.size)
