"""Reads the row of a change, and the values of a state, for images. Hot.

Changes are in Avro and states in MessagePack, as for `byte_folding`; objects are not made. For one
thread.
"""

from array import array
from collections.abc import Callable

from headrace.connector.rows import kinds
from headrace.connector.rows.byte_folding import ByteFold, Plan
from headrace.connector.rows.message_pack import Form, Packer
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece

_NEVER = -(1 << 63)
_EMPTY = b"\x82\xa7deleted\xd3\x80\0\0\0\0\0\0\0\xa7columns\x80"
_DELETED = b"deleted"
_COLUMNS = b"columns"
_LIVE = b"live"
_MARK = b"seeded"
_CELLS = b"cells"
_NIL = 0xC0
_TRUE = 0xC3
_BEHIND_KEY = 4  # The number of parts of a cell after its key and value.


class StateReader(Packer):
    """Reads changes that a fold has read, and states of rows of its schema."""

    def __init__(self, fold: ByteFold, key: list[int]) -> None:
        """*key* are the numbers of the columns of the partition key."""
        super().__init__()
        self.fold = fold
        self.plan: Plan = self.fold.plan
        self.key_columns = key
        count = len(self.plan.columns)
        self.places = memoryview(array("q", bytes(8 * count)))
        self.values = memoryview(array("q", bytes(8 * count)))
        self.expiries = memoryview(array("q", bytes(8 * count)))
        self.afters = memoryview(array("q", bytes(8 * count)))
        self.state = b""
        self.deleted = self.live_us = _NEVER
        self.live_expires_s = self.expires_s = self.cell_us = 0
        self.live_expires = self.has_expires = self.is_marked = self.has_cells = 0
        self.depends_on_time = 0

    # ---- a change ----

    def key(self) -> bytes:
        """Return an array of the key values of the change.

        It contains those of the partition key and, if the change is about a row, of the clustering.
        """
        fold = self.fold
        clustering = self.plan.clustering
        is_wide = fold.operation == kinds.DELETE_RANGE or (
            fold.operation == kinds.DELETE_PARTITION and len(clustering) > 0
        )
        own = self.key_columns
        count = len(own)
        of_row = 0 if fold.is_static or is_wide else len(clustering)
        self.size = 0
        self._head(count + of_row, 0x90, 0xDC)
        for i in range(count + of_row):
            column = own[i] if i < count else clustering[i - count]
            self._pack_column(column, self.plan.columns[column])
        return octets.take(self.out, 0, self.size)

    def newest_us(self) -> int:
        """Return the newest time at which a part of the change was written, in µs."""
        fold = self.fold
        newest = fold.written_us
        self.has_cells = 0
        for i in range(len(self.plan.columns)):
            if fold.noted[i]:
                self._go_to(fold.noted[i])
                if self._long():
                    noted = self._long()
                    if noted:
                        newest = max(newest, noted)
        for i in range(fold.count):
            column = fold.order[i]
            form = self.plan.columns[column]
            if form.way != kinds.WHOLE:
                self.has_cells = 1
                self._go_to(fold.starts[self.plan.first + column])
                if self._long():
                    newest = max(newest, self._newest_cell(form.inner.piece, newest))  # type: ignore[union-attr]
        return newest

    def _newest_cell(self, piece: Piece, newest: int) -> int:
        """Return the newest time in a collection or UDT, or *newest*."""
        self._skip(piece.parts[0])
        if self._long():
            newest = max(newest, self._long())
        cells = piece.parts[2]
        if cells.kind == octets.RECORD:
            for part in cells.parts:
                if self._long():
                    newest = max(newest, self._cell_time(part.inner))  # type: ignore[arg-type]
            return newest
        left = self._block()
        while left:
            for _ in range(left):
                newest = max(newest, self._cell_time(cells.inner))  # type: ignore[arg-type]
            left = self._block()
        return newest

    def _cell_time(self, cell: Piece) -> int:
        count = len(cell.parts)
        for i in range(count - _BEHIND_KEY + 1):
            self._skip(cell.parts[i])
        written = self._long()
        self._skip(cell.parts[count - 2])
        self._skip(cell.parts[count - 1])
        return written

    def _go_to(self, at: int) -> None:
        """Move to a byte of the change."""
        self.buf = self.fold.change
        self.end = len(self.fold.change)
        self.at = at

    def _pack_column(self, column: int, form: Form) -> None:
        self._go_to(self.fold.starts[self.plan.first + column])
        self._pack(form)

    # ---- a state ----

    def take(self, state: bytes | None) -> None:
        """Read a state, to which the other methods then refer; None is a row without changes.

        Raises:
            BadStateError: the state is damaged.

        """
        self.state = _EMPTY if state is None else state
        self.mem = self.state
        self.place = 0
        self.limit = len(self.state)
        self.deleted = self.live_us = _NEVER
        self.live_expires = self.is_marked = self.depends_on_time = 0
        for i in range(len(self.plan.columns)):
            self.places[i] = 0
            self.values[i] = 0
        for _ in range(self._map_size()):
            end = self._text_end()
            start = self.text_at
            if octets.same(self.mem, start, end, _DELETED):
                self.deleted = self._int()
            elif octets.same(self.mem, start, end, _COLUMNS):
                self._take_columns()
            elif octets.same(self.mem, start, end, _LIVE):
                self._take_live()
            else:
                if octets.same(self.mem, start, end, _MARK):
                    self.is_marked = 1
                self._leave()
        if self.place != self.limit:
            self._bad_state()

    def _take_columns(self) -> None:
        labels = self.plan.labels
        guess = 0
        for _ in range(self._map_size()):
            begin = self.place
            end = self._text_end()
            for _ in range(len(labels)):
                if guess >= len(labels):
                    guess = 0
                if octets.same(self.mem, begin, end, labels[guess]):
                    self.places[guess] = end
                    break
                guess += 1
            guess += 1
            self._leave()

    def _take_live(self) -> None:
        if self._array_size() != 3:  # noqa: PLR2004 (time, whether it expires, expiry)
            self._bad_state()
        self.live_us = self._int()
        self.live_expires = self._lead() == _TRUE
        self.live_expires_s = self._int()
        if self.live_expires:
            self.depends_on_time = 1

    def show(self, columns: list[int], after: int, at_s: int) -> int:
        """Find which of these columns have a value at *at_s*; return whether any has.

        Deletions up to *after* cover the whole row.
        """
        is_there = 0
        for i in range(len(columns)):
            column = columns[i]
            at = self.places[column]
            self.values[column] = 0
            if at:
                self.place = at
                self.expiries[column] = _NEVER
                self.afters[column] = after
                if self.mem[at] & 0xF0 == 0x90:  # noqa: PLR2004 (an array: it was written whole)
                    if self._lives(after, at_s):
                        self.values[column] = self._content()
                        if self.has_expires:
                            self.expiries[column] = self.expires_s
                        is_there = 1
                elif self._any_lives(column, after, at_s):
                    self.values[column] = at
                    is_there = 1
        return is_there

    def is_live(self, after: int, at_s: int) -> bool:
        """Return whether an INSERT makes the row exist, independent of its values."""
        return self.live_us > after and (not self.live_expires or self.live_expires_s > at_s)

    def _lives(self, after: int, at_s: int) -> int:
        """Read a cell up to its content; return whether its value is live."""
        if self._array_size() != 3:  # noqa: PLR2004 (time, expiry, content)
            self._bad_state()
        written = self.cell_us = self._int()
        self.has_expires = 0
        if self._lead() != _NIL:
            self.place -= 1
            self.has_expires = self.depends_on_time = 1
            self.expires_s = self._int()
        is_dead = self._lead() == _NIL
        self.place -= 1
        return written > after and not is_dead and (not self.has_expires or self.expires_s > at_s)

    def _content(self) -> int:
        """Return the position of the value in the content at the cursor."""
        if self._array_size() != 2:  # noqa: PLR2004 (key and value)
            self._bad_state()
        self._leave()
        return self.place

    def _any_lives(self, column: int, after: int, at_s: int) -> int:
        """Return whether a collection or UDT at the cursor has a live cell."""
        cells = 0
        for _ in range(self._map_size()):
            end = self._text_end()
            if octets.same(self.mem, self.text_at, end, _DELETED):
                after = max(after, self._int())
            elif octets.same(self.mem, self.text_at, end, _CELLS):
                cells = self.place
                self._leave()
            else:
                self._bad_state()
        if not cells:
            self._bad_state()
        self.afters[column] = after
        self.place = cells
        found = 0
        for _ in range(self._map_size()):
            self._leave()
            begin = self.place
            if self._lives(after, at_s):
                found = 1
            self.place = begin
            self._leave()
        return found

    def _cells_of(
        self, column: int, order: Callable[[bytes], object] | None, at_s: int
    ) -> list[tuple[object, int, int, int]]:
        """Return the cells of a column that is shown, sorted by key.

        Each is a tuple of its sort key, the position of its content, its write time in µs, and its
        expiry in s, or _NEVER. Without *order*, keys are strings, integers or names of fields;
        otherwise *order* makes a sort key from a key's MessagePack.
        """
        form: Form = self.plan.columns[column].inner  # type: ignore[assignment]  # An option has it.
        after = self.afters[column]
        self.place = self.values[column]
        cells = 0
        for _ in range(self._map_size()):
            end = self._text_end()
            if octets.same(self.mem, self.text_at, end, _CELLS):
                cells = self.place
            self._leave()
        self.place = cells
        found: list[tuple[object, int, int, int]] = []
        for _ in range(self._map_size()):
            self._leave()
            begin = self.place
            if self._lives(after, at_s):
                expires_s = self.expires_s if self.has_expires else _NEVER
                if self._array_size() != 2:  # noqa: PLR2004 (key and value)
                    self._bad_state()
                at = self.place
                found.append((self._order(form, order), at, self.cell_us, expires_s))
            self.place = begin
            self._leave()
        found.sort()
        return found

    def _order(self, form: Form, order: Callable[[bytes], object] | None) -> object:
        """Return a sort key for the key at the cursor."""
        begin = self.place
        if order is not None:
            return order(self._slice(begin))
        lead = self.mem[begin]
        if lead & 0xE0 != 0xA0 and not 0xD9 <= lead <= 0xDB:  # noqa: PLR2004 (no string)
            return self._int()
        end = self._text_end()
        if form.way != kinds.FIELDS:
            return octets.take(self.mem, self.text_at, end)
        number = 0
        while number < len(form.labels) and not octets.same(
            self.mem, begin, end, form.labels[number]
        ):
            number += 1
        return number

    def _slice(self, at: int) -> bytes:
        """Return the bytes of the value at *at*."""
        self.place = at
        self._leave()
        return octets.take(self.mem, at, self.place)
