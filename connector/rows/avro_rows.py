"""Writes images of rows in Avro, from the bytes of their states, without objects. Hot.

The bytes are the same as when the values are written as objects. For one thread.
"""

from collections.abc import Callable

from headrace.connector.rows import kinds
from headrace.connector.rows.byte_folding import ByteFold
from headrace.connector.rows.message_pack import Form
from headrace.connector.rows.state_reading import StateReader
from headrace.connector.serde.transcode import octets

_NEVER = -(1 << 63)
_NIL = 0xC0
_TRUE = 0xC3
_NO_IMAGE = b"\0"  # Null, the first type of the union.
_LONG_BYTES = 10
_DOUBLE_BYTES = 8


class AvroRows(StateReader):
    """Writes images of rows, as `image_fields` describes them, in a union with null."""

    def __init__(  # noqa: PLR0913, PLR0917 (what a schema says of images)
        self,
        fold: ByteFold,
        key: list[int],
        names: list[bytes],
        orders: list[Callable[[bytes], object] | None],
        replace: int,
        single: Callable[[bytes], bytes],
    ) -> None:
        """*key* are column numbers of the key; *names* are all columns, as Avro strings.

        *orders* contains the sort order of each column's cells, for `StateReader`. *replace* is the
        number of this mode of a collection. *single* turns a double into a float of 32 bits.
        """
        super().__init__(fold, key)
        self.names = names
        self.orders = orders
        self.replace = replace
        self.single = single

    def key_parts(self, values: bytes, columns: list[int]) -> list[bytes | None]:
        """Return the encoded value of each column of the table, or None if it is not in the key.

        *values* is an array of the values of *columns*, in MessagePack.
        """
        made: list[bytes | None] = [None] * len(self.names)
        self.state = values
        self.mem = values
        self.place = 0
        self.limit = len(values)
        for i in range(self._array_size()):
            column = columns[i]
            form = self.plan.columns[column]
            self.size = 0
            self._reserve(1)
            self._from(form)
            made[column] = octets.take(self.out, 0, self.size)
        return made

    def image(  # noqa: PLR0913, PLR0917 (plain numbers, for C)
        self,
        key: list[bytes | None],
        columns: list[int],
        after: int,
        at_s: int,
        is_row: int,
        is_whole: int,
    ) -> bytes:
        """Return the image of the row at *at_s*, from the state taken, with these columns.

        *key* comes from `key_parts`. Deletions up to *after* cover the whole row. If it *is_row*,
        the INSERT alone can make it exist. Unless it *is_whole*, only columns in the state are
        known.
        """
        is_there = self.show(columns, after, at_s)
        if is_whole and not is_there and not (is_row and self.is_live(after, at_s)):
            return _NO_IMAGE
        self.size = 0
        self._lead_byte(2)  # The second type of the union.
        for i in range(len(self.names)):
            part = key[i]
            if part is not None:
                self._reserve(len(part))
                self._constant(part)
            elif self.values[i]:
                self._value(i, at_s)
            else:
                self._lead_byte(0)
        known = 0
        for i in range(len(columns)):
            if is_whole or self.places[columns[i]]:
                known += 1
        self._known(columns, is_whole, known)
        self._expiry(columns, is_whole, known)
        return octets.take(self.out, 0, self.size)

    def _known(self, columns: list[int], is_whole: int, known: int) -> None:
        """Write the names of the columns that are known."""
        self._put_count(known)
        if known:
            for i in range(len(columns)):
                column = columns[i]
                if is_whole or self.places[column]:
                    name = self.names[column]
                    self._reserve(len(name))
                    self._constant(name)
            self._put_count(0)

    def _expiry(self, columns: list[int], is_whole: int, known: int) -> None:
        """Write when each known column expires."""
        self._put_count(known)
        if known:
            for i in range(len(columns)):
                column = columns[i]
                if self.values[column] and self.expiries[column] != _NEVER:
                    self._lead_byte(2)
                    self._put_count(self.expiries[column])
                elif is_whole or self.places[column]:
                    self._lead_byte(0)
            self._put_count(0)

    def _put_count(self, number: int) -> None:
        self._reserve(_LONG_BYTES)
        self._put_long(number)

    def _value(self, column: int, at_s: int) -> None:
        """Write the value of a column in the union with null."""
        at = self.values[column]
        self.place = at
        form = self.plan.columns[column]
        if form.way == kinds.WHOLE:
            self._from(form)
        else:
            self._by_cell(form.inner, self._cells_of(column, self.orders[column], at_s))  # type: ignore[arg-type]  # An option has it.

    def _by_cell(self, form: Form, cells: list[tuple[object, int, int, int]]) -> None:
        """Write a collection or UDT, in the mode that replaces the previous value."""
        self._lead_byte(2)
        self._put_count(self.replace)
        self._lead_byte(0)  # No deletion.
        if form.way == kinds.FIELDS:
            n = 0
            for i in range(len(form.labels)):
                if n < len(cells) and cells[n][0] == i:
                    self._lead_byte(2)
                    self._cell(form, i, cells[n])
                    n += 1
                else:
                    self._lead_byte(0)
        else:
            self._put_count(len(cells))
            for i in range(len(cells)):
                self._cell(form, -1, cells[i])
            self._lead_byte(0)

    def _cell(self, form: Form, field: int, cell: tuple[object, int, int, int]) -> None:
        """Write a cell, with its key if it belongs to a collection."""
        self.place = cell[1]
        if field >= 0:
            self._leave()
            self._from(form.parts[field])
        else:
            self._from(form.parts[0])
            if len(form.parts) > 1:
                self._from(form.parts[1])
        self._lead_byte(0)  # It is not removed.
        self._put_count(cell[2])
        self._lead_byte(0)  # No TTL.
        expires_s = cell[3]
        if expires_s == _NEVER:
            self._lead_byte(0)
        else:
            self._lead_byte(2)
            self._put_count(expires_s)

    # ---- MessagePack as Avro ----

    def _from(self, form: Form) -> None:
        """Write the value at the cursor in the state."""
        kind = form.kind
        self._reserve(_LONG_BYTES)
        if kind == octets.OPTION:
            if self._lead() == _NIL:
                self._byte(0)
            else:
                self.place -= 1
                self._byte(2)
                self._from(form.inner)  # type: ignore[arg-type]  # An option has it.
        elif kind == octets.LONG:
            self._put_long(self._int())
        elif kind == octets.STRING:
            end = self._text_end()
            self._sized(self.text_at, end)
        elif kind == octets.BYTES:
            length = len(self._binary_read())
            self._sized(self.place - length, self.place)
        elif kind == octets.BOOLEAN:
            self._byte(self._lead() == _TRUE)
        elif kind == octets.REAL:
            self._real(form)
        elif kind == octets.RECORD:
            self._record(form)
        elif kind in (octets.ARRAY, octets.MAP):
            self._several(form)
        else:
            self._named(form)

    def _sized(self, begin: int, end: int) -> None:
        self._put_long(end - begin)
        self._copy_state(begin, end)

    def _real(self, form: Form) -> None:
        self._ahead(1 + _DOUBLE_BYTES)
        if form.size_bytes == _DOUBLE_BYTES:
            for i in range(_DOUBLE_BYTES):
                self._byte(self.mem[self.place - 1 - i])
        else:
            self._constant(
                self.single(octets.take(self.mem, self.place - _DOUBLE_BYTES, self.place))
            )

    def _record(self, form: Form) -> None:
        count = len(form.parts)
        if self._map_size() != count:
            self._bad_state()
        for i in range(count):
            begin = self.place
            end = self._text_end()
            if not octets.same(self.mem, begin, end, form.labels[i]):
                self._bad_state()
            self._from(form.parts[i])

    def _several(self, form: Form) -> None:
        is_map = form.kind == octets.MAP
        count = self._map_size() if is_map else self._array_size()
        inner = form.parts[0]
        if count:
            self._put_long(count)
            for _ in range(count):
                if is_map:
                    end = self._text_end()
                    self._reserve(_LONG_BYTES)
                    self._sized(self.text_at, end)
                    self._from(inner.parts[1])
                else:
                    self._from(inner)
            self._reserve(1)
        self._byte(0)

    def _named(self, form: Form) -> None:
        """Write a symbol of an enum, bytes of a fixed size, or null."""
        if form.kind == octets.ENUM:
            begin = self.place
            end = self._text_end()
            number = 0
            while number < len(form.labels) and not octets.same(
                self.mem, begin, end, form.labels[number]
            ):
                number += 1
            if number == len(form.labels):
                self._bad_state()
            self._put_long(number)
        elif not form.size_bytes:
            self._leave()
        else:
            length = len(self._binary_read())
            self._copy_state(self.place - length, self.place)
