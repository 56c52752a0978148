"""Writes Avro values as MessagePack, and reads MessagePack. Hot: without Python objects.

The constants are those of the specification. The bytes are the same as msgspec writes for a decoded
value, except that a float always has 64 bits, as in Python.
"""

# ruff: noqa: PLR2004 (the numbers of MessagePack)

from headrace.connector.rows import kinds
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece, Walk
from headrace.plugins import FatalError

_NIL = 0xC0
_FALSE = 0xC2
_TRUE = 0xC3


class BadStateError(FatalError):
    """The state of a row is damaged: the store of states changed it."""

    code = "bad_state"


class Form:
    """A type of the envelope: `piece` skips a value, the rest describes it in a state."""

    def __init__(
        self,
        piece: Piece,
        *parts: "Form",
        labels: list[bytes] | None = None,
        order: list[int] | None = None,
        way: int = kinds.WHOLE,
    ) -> None:
        """*parts* are its inner types; *labels* a record's field names, in MessagePack.

        *order* contains the numbers of these fields, sorted by name. For a column whose *way* is
        CELLS, the parts are the types of keys and, if there are any, of values.
        """
        self.piece = piece
        self.kind = piece.kind
        self.size_bytes = piece.size_bytes
        self.parts = list(parts)
        self.inner = parts[0] if parts else None
        self.labels = labels or []
        self.way = way
        self.order = order or []
        self.is_plain: int = int(not self.order and all(part.is_plain for part in parts))


class Packer(Walk):
    """A cursor in MessagePack in addition to one in Avro; output is MessagePack."""

    def __init__(self) -> None:
        """Start with nothing read."""
        super().__init__()
        self.mem = b""
        self.place = self.limit = self.text_at = 0
        self.is_sorted = 0  # Whether the fields of records are sorted by name.

    # ---- writing ----

    def _pack(self, form: Form) -> None:
        """Write the value at the cursor."""
        kind = form.kind
        if kind == octets.OPTION:
            if self._long():
                self._pack(form.inner)  # type: ignore[arg-type]  # An option has it.
            else:
                self._lead_byte(_NIL)
        elif kind == octets.LONG:
            self._put_int(self._long())
        elif kind in (octets.STRING, octets.BYTES):
            self._pack_text(kind)
        elif kind == octets.BOOLEAN:
            self._pass(1)
            self._lead_byte(_TRUE if self.buf[self.at - 1] else _FALSE)
        elif kind == octets.REAL:
            self._pass(form.size_bytes)
            self._big(
                0xCB, octets.real_bits(self.buf, self.at - form.size_bytes, form.size_bytes), 8
            )
        elif kind == octets.RECORD:
            self._pack_record(form)
        elif kind in (octets.ARRAY, octets.MAP):
            self._pack_items(form)
        else:
            self._pack_named(form)

    def _pack_text(self, kind: int) -> None:
        length = self._long()
        start = self.at
        self._pass(length)
        if kind == octets.BYTES:
            self._text_head(length, 0xC4)
        elif length < 32:
            self._lead_byte(0xA0 | length)
        else:
            self._text_head(length, 0xD9)
        self._copy_value(start, self.at)

    def _pack_record(self, form: Form) -> None:
        count = len(form.parts)
        self._head(count, 0x80, 0xDE)
        if not self.is_sorted:
            for i in range(count):
                self._label(form.labels[i])
                self._pack(form.parts[i])
        else:
            self._pack_sorted(form)

    def _pack_sorted(self, form: Form) -> None:
        """Write the fields of a record sorted by name, so that equal records have equal bytes."""
        starts = []
        for part in form.parts:
            starts.append(self.at)
            self._skip(part.piece)
        end = self.at
        for i in form.order:
            self._label(form.labels[i])
            self.at = starts[i]
            self._pack(form.parts[i])
        self.at = end

    def _pack_items(self, form: Form) -> None:
        inner = form.parts[0]
        begin = self.at
        count = 0
        left = self._block()
        while left:
            count += left
            for _ in range(left):
                self._skip(inner.piece)
            left = self._block()
        self.at = begin
        if form.kind == octets.MAP:
            self._head(count, 0x80, 0xDE)
        else:
            self._head(count, 0x90, 0xDC)
        left = self._block()
        while left:
            for _ in range(left):
                if form.kind == octets.MAP:
                    self._pack_text(octets.STRING)
                    self._pack(inner.parts[1])
                else:
                    self._pack(inner)
            left = self._block()

    def _pack_named(self, form: Form) -> None:
        """Write a symbol of an enum, bytes of a fixed size, or null."""
        if form.kind == octets.ENUM:
            number = self._long()
            if not 0 <= number < len(form.labels):
                self._bad()
            self._label(form.labels[number])
        elif not form.size_bytes:
            self._lead_byte(_NIL)
        else:
            start = self.at
            self._pass(form.size_bytes)
            self._text_head(form.size_bytes, 0xC4)
            self._copy_value(start, self.at)

    def _label(self, label: bytes) -> None:
        """Write bytes that are already MessagePack."""
        size = len(label)
        if size > self.space - self.size:
            self._reserve(size)
        octets.copy_bytes(self.out, self.size, label)
        self.size += size

    def _text(self, name: bytes) -> None:
        """Write a short name."""
        self._lead_byte(0xA0 | len(name))
        self._label(name)

    def _binary(self, content: bytes) -> None:
        self._text_head(len(content), 0xC4)
        self._label(content)

    def _lead_byte(self, lead: int) -> None:
        if self.size == self.space:  # It avoids most calls of `_reserve`.
            self._reserve(1)
        self.out[self.size] = lead
        self.size += 1

    def _head(self, count: int, few: int, many: int) -> None:
        """Write the header of an array or map."""
        if count < 16:
            self._lead_byte(few | count)
        elif count <= 0xFFFF:
            self._big(many, count, 2)
        else:
            self._big(many + 1, count, 4)

    def _text_head(self, length: int, lead: int) -> None:
        """Write the header of bytes, or of a string that is not short."""
        if length <= 0xFF:
            self._big(lead, length, 1)
        elif length <= 0xFFFF:
            self._big(lead + 1, length, 2)
        else:
            self._big(lead + 2, length, 4)

    def _long_head(self, at: int, lead: int, count: int) -> None:
        """Write the header of an array or map into the space reserved at *at*."""
        end = self.size
        self.size = at
        self._big(lead, count, 4)
        self.size = end

    def _put_int(self, number: int) -> None:
        if number >= 0:
            if number <= 0x7F:
                self._lead_byte(number)
            elif number <= 0xFF:
                self._big(0xCC, number, 1)
            elif number <= 0xFFFF:
                self._big(0xCD, number, 2)
            elif number <= 0xFFFF_FFFF:
                self._big(0xCE, number, 4)
            else:
                self._big(0xCF, number, 8)
        elif number >= -32:
            self._lead_byte(number & 0xFF)
        elif number >= -0x80:
            self._big(0xD0, number, 1)
        elif number >= -0x8000:
            self._big(0xD1, number, 2)
        elif number >= -0x8000_0000:
            self._big(0xD2, number, 4)
        else:
            self._big(0xD3, number, 8)

    def _big(self, lead: int, number: int, size: int) -> None:
        """Write a byte, and then the lower bytes of a number, the highest first."""
        if self.space - self.size < 9:
            self._reserve(9)
        at = self.size
        self.out[at] = lead
        shift = 8 * size
        while shift:
            shift -= 8
            at += 1
            self.out[at] = number >> shift & 0xFF
        self.size = at + 1

    def _copy_value(self, start: int, end: int) -> None:
        """Write bytes of the change unchanged."""
        if end - start > self.space - self.size:
            self._reserve(end - start)
        octets.copy(self.out, self.size, self.buf, start, end)
        self.size += end - start

    def _copy_state(self, start: int, end: int) -> None:
        """Write bytes of the state unchanged."""
        if end - start > self.space - self.size:
            self._reserve(end - start)
        octets.copy(self.out, self.size, self.mem, start, end)
        self.size += end - start

    # ---- reading ----

    def _lead(self) -> int:
        if self.place >= self.limit:
            self._bad_state()
        self.place += 1
        return self.mem[self.place - 1]

    def _ahead(self, count: int) -> None:
        """Skip bytes."""
        if count > self.limit - self.place:
            self._bad_state()
        self.place += count

    def _whole(self, size: int) -> int:
        """Read an unsigned number."""
        self._ahead(size)
        number = 0
        for i in range(self.place - size, self.place):
            number = number << 8 | self.mem[i]
        return number

    def _int(self) -> int:
        lead = self._lead()
        if lead <= 0x7F:
            return lead
        if lead >= 0xE0:
            return lead - 0x100
        if 0xCC <= lead <= 0xCE:
            return self._whole(1 << lead - 0xCC)
        if 0xCF <= lead <= 0xD3:
            size = 8 if lead == 0xCF else 1 << lead - 0xD0
            number = self._whole(size)
            top = 64 - 8 * size
            if lead != 0xCF:
                return octets.signed(number << top) >> top
            if not number >> 63:
                return octets.signed(number)
        self._bad_state()
        return 0

    def _map_size(self) -> int:
        return self._size_of(0x80, 0xDE)

    def _array_size(self) -> int:
        return self._size_of(0x90, 0xDC)

    def _size_of(self, few: int, many: int) -> int:
        """Read the header of an array or map; return the number of its parts."""
        lead = self._lead()
        if lead & 0xF0 == few:
            return lead & 0x0F
        if lead not in (many, many + 1):
            self._bad_state()
        return self._whole(2 if lead == many else 4)

    def _text_end(self) -> int:
        """Read the header of a string; note its begin, and return its end."""
        lead = self._lead()
        length = lead & 0x1F
        if lead & 0xE0 != 0xA0:
            if not 0xD9 <= lead <= 0xDB:
                self._bad_state()
            length = self._whole(1 << lead - 0xD9)
        self.text_at = self.place
        self._ahead(length)
        return self.place

    def _binary_read(self) -> bytes:
        lead = self._lead()
        if not 0xC4 <= lead <= 0xC6:
            self._bad_state()
        length = self._whole(1 << lead - 0xC4)
        begin = self.place
        self._ahead(length)
        return octets.take(self.mem, begin, self.place)

    def _leave(self) -> None:
        """Skip a value."""
        left = 1
        while left:
            left += self._leave_one() - 1

    def _leave_one(self) -> int:  # noqa: C901 (the kinds of MessagePack)
        """Skip a value without its parts; return how many parts it has."""
        lead = self._lead()
        if lead <= 0x7F or lead >= 0xE0 or lead in (_NIL, _FALSE, _TRUE):
            return 0
        if lead <= 0x8F:
            return 2 * (lead & 0x0F)
        if lead <= 0x9F:
            return lead & 0x0F
        if lead <= 0xBF:
            self._ahead(lead & 0x1F)
        elif 0xC4 <= lead <= 0xC6:
            self._ahead(self._whole(1 << lead - 0xC4))
        elif lead in (0xCA, 0xCB):
            self._ahead(4 << lead - 0xCA)
        elif 0xCC <= lead <= 0xD3:
            self._ahead(1 << (lead & 3))
        elif 0xD9 <= lead <= 0xDB:
            self._ahead(self._whole(1 << lead - 0xD9))
        elif lead in (0xDC, 0xDD):
            return self._whole(2 << lead - 0xDC)
        elif lead in (0xDE, 0xDF):
            return 2 * self._whole(2 << lead - 0xDE)
        else:
            self._bad_state()
        return 0

    def _bad_state(self) -> None:
        raise BadStateError(
            "the state of a row is damaged",
            place=f"byte {self.place} of {self.limit}",
            hint="restore what keeps the states, or fold all changes again",
        )
