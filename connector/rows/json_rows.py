"""Writes images of rows, and changes, as JSON: from bytes, without objects. Hot.

The text is the same as that of `json.dumps` without escapes for non-ASCII letters. For one thread.
"""

from collections.abc import Callable, Sequence

from headrace.connector.rows import json_ways
from headrace.connector.rows.byte_folding import ByteFold
from headrace.connector.rows.state_reading import StateReader
from headrace.connector.serde.transcode import octets

_ROOM = 32  # For a number or a time.
_NIL = 0xC0
_FALSE = 0xC2
_TRUE = 0xC3
_BLANK = 0x20
_QUOTE = 0x22
_SLASH = 0x5C
_HEXADECIMAL = b"0123456789abcdef"
_MS_PER_DAY = 86_400_000
_FIRST_DAY = -719_162  # 0001-01-01,
_LAST_DAY = 2_932_896  # and 9999-12-31, in days since 1970.
_DATE_ZERO = 1 << 31  # The day 1970-01-01 in Cassandra's numbers.


class Member:
    """How a value is written as a member of an object, or as an element."""

    def __init__(
        self,
        label: bytes,
        way: int,
        written: Callable[[bytes], bytes],
        parts: Sequence["Member"] = (),
        order: Callable[[bytes], object] | None = None,
    ) -> None:
        """*label* is the JSON before the value: its name and a colon.

        *written* converts the MessagePack of a value that is CALLED, or of a collection or UDT of a
        change. *parts* describe its cells: the fields of a UDT, otherwise keys and values. *order*
        is passed to `StateReader`.
        """
        self.label = label
        self.way = way
        self.written = written
        self.parts = list(parts)
        self.order = order


class JsonRows(StateReader):
    """Writes changes that a fold has read, and rows of its schema, as JSON objects."""

    def __init__(
        self,
        fold: ByteFold,
        key: list[int],
        members: list[Member],
        quoted: Callable[[bytes], bytes],
    ) -> None:
        """*key* are numbers of columns, *members* describes all columns.

        *quoted* makes a JSON string of UTF-8 with characters that need escapes.
        """
        super().__init__(fold, key)
        self.members = members
        self.payload = self.plan.fields[self.plan.first]
        self.quoted = quoted

    def written(self) -> bytes:
        """Return the columns that the change wrote, in the order of the change."""
        fold = self.fold
        self.size = 0
        self._lead_byte(0x7B)  # {
        for i in range(fold.count):
            column = fold.order[i]
            begin = self.size
            self._pack_column(column, self.payload.parts[column])
            self.state = octets.take(self.out, begin, self.size)
            self.size = begin
            self.mem = self.state
            self.limit = len(self.state)
            self._member(column, i)
            self._put_written(self.members[column])
        self._lead_byte(0x7D)  # }
        return octets.take(self.out, 0, self.size)

    def image(self, columns: list[int], after: int, at_s: int, is_row: int, is_whole: int) -> bytes:
        """Return these columns of the row at *at_s*, from the state taken.

        Deletions up to *after* cover the whole row. If it *is_row*, the INSERT alone can make it
        exist; otherwise these are the static columns of a partition. A missing column is null if
        the row *is_whole*; otherwise it is left out, unless the state has it.
        """
        is_there = self.show(columns, after, at_s)
        if not is_there and not (is_row and self.is_live(after, at_s)):
            return b"{}"
        self.size = 0
        self._lead_byte(0x7B)  # {
        count = 0
        for i in range(len(columns)):
            column = columns[i]
            if is_whole or self.places[column]:
                self._member(column, count)
                count += 1
                self._shown(column, at_s)
        self._lead_byte(0x7D)  # }
        return octets.take(self.out, 0, self.size)

    def _member(self, column: int, number: int) -> None:
        """Write the label before a member's value."""
        member = self.members[column]
        if number:
            self._word(b", ")
        self._word(member.label)

    def _word(self, content: bytes) -> None:
        self._reserve(len(content))
        self._constant(content)

    def _put_written(self, member: Member) -> None:
        """Write a value of a change, which is the whole input."""
        if member.way >= json_ways.SET and self.mem[0] != _NIL:
            self._word(member.written(self.state))
        else:
            self.place = 0
            self._value(member)

    def _shown(self, column: int, at_s: int) -> None:
        """Write a column of a row."""
        member = self.members[column]
        way = member.way
        if not self.values[column]:
            self._word(b"null")
        elif way < json_ways.SET:
            self.place = self.values[column]
            self._value(member)
        else:
            cells = self._cells_of(column, member.order, at_s)
            if way == json_ways.FIELDS:
                self._udt(member, cells)
            else:
                self._several(member, cells)

    def _udt(self, member: Member, cells: list[tuple[object, int, int, int]]) -> None:
        """Write a UDT with all of its fields."""
        self._lead_byte(0x7B)  # {
        n = 0
        for i in range(len(member.parts)):
            part = member.parts[i]
            if i:
                self._word(b", ")
            self._word(part.label)
            if n < len(cells) and cells[n][0] == i:
                self.place = cells[n][1]
                self._leave()
                self._value(part)
                n += 1
            else:
                self._word(b"null")
        self._lead_byte(0x7D)  # }

    def _several(self, member: Member, cells: list[tuple[object, int, int, int]]) -> None:
        """Write a set, a list or a map."""
        way = member.way
        self._lead_byte(0x7B if way == json_ways.MAP else 0x5B)
        for i in range(len(cells)):
            if i:
                self._word(b", ")
            self.place = cells[i][1]
            if way == json_ways.SET:
                self._value(member.parts[0])
            elif way == json_ways.LIST:
                self._leave()
                self._value(member.parts[1])
            else:
                self._name(member.parts[0])
                self._word(b": ")
                self._value(member.parts[1])
        self._lead_byte(0x7D if way == json_ways.MAP else 0x5D)

    def _name(self, member: Member) -> None:
        """Write the key of a map as a string."""
        begin = self.size
        self._value(member)
        if self.out[begin] != _QUOTE:
            text = octets.take(self.out, begin, self.size)
            self.size = begin
            self._word(self.quoted(text))

    def _value(self, member: Member) -> None:
        """Write the value at the cursor of the input."""
        at = self.place
        if self._lead() == _NIL:
            self._word(b"null")
        elif member.way == json_ways.CALLED:
            self._word(member.written(self._slice(at)))
        else:
            self.place = at
            self._reserve(_ROOM)
            self._plain(member.way)

    def _plain(self, way: int) -> None:
        lead = self.mem[self.place]
        if way == json_ways.TIMESTAMP:
            self._timestamp(self._int())
        elif way == json_ways.DATE:
            self._date(self._int())
        elif way == json_ways.BLOB:
            self._blob()
        elif lead in (_TRUE, _FALSE):
            self._word(b"true" if lead == _TRUE else b"false")
        elif lead & 0xE0 == 0xA0 or 0xD9 <= lead <= 0xDB:  # noqa: PLR2004 (a string)
            end = self._text_end()
            self._string(self.text_at, end)
        else:
            self._number(self._int())

    def _string(self, begin: int, end: int) -> None:
        """Write a string whose input is UTF-8."""
        i = begin
        while i < end:
            byte = self.mem[i]
            if byte < _BLANK or byte in (_QUOTE, _SLASH):
                break
            i += 1
        if i < end:
            self._word(self.quoted(octets.take(self.mem, begin, end)))
        else:
            self._lead_byte(_QUOTE)
            self._copy_state(begin, end)
            self._lead_byte(_QUOTE)

    def _blob(self) -> None:
        content = self._binary_read()
        length = len(content)
        self._reserve(2 * length + _ROOM)
        self._constant(b'"0x')
        begin = self.place - length
        for i in range(begin, begin + length):
            byte = self.mem[i]
            self._byte(_HEXADECIMAL[byte >> 4])
            self._byte(_HEXADECIMAL[byte & 15])
        self._byte(_QUOTE)

    def _number(self, number: int) -> None:
        self.size = octets.put_decimal(self.out, self.size, number)

    def _put_digits(self, number: int, digits: int) -> None:
        """Write a non-negative number with this many digits."""
        at = self.size + digits
        self.size = at
        for _ in range(digits):
            at -= 1
            self.out[at] = 0x30 + number % 10
            number //= 10

    def _timestamp(self, ms: int) -> None:
        days = ms // _MS_PER_DAY
        if not _FIRST_DAY <= days <= _LAST_DAY:
            self._number(ms)
        else:
            left = ms - days * _MS_PER_DAY
            self._byte(_QUOTE)
            self._day(days)
            self._byte(0x20)
            self._put_digits(left // 3_600_000, 2)
            self._byte(0x3A)  # :
            self._put_digits(left // 60_000 % 60, 2)
            self._byte(0x3A)
            self._put_digits(left // 1_000 % 60, 2)
            self._byte(0x2E)  # .
            self._put_digits(left % 1_000, 3)
            self._byte(0x5A)  # Z
            self._byte(_QUOTE)

    def _date(self, days: int) -> None:
        if not _FIRST_DAY <= days <= _LAST_DAY:
            self._number(days + _DATE_ZERO)
        else:
            self._byte(_QUOTE)
            self._day(days)
            self._byte(_QUOTE)

    def _day(self, days: int) -> None:
        """Write a day of the Gregorian calendar; years begin in March for this calculation."""
        shifted = days + 719_468  # After 0000-03-01.
        era = shifted // 146_097  # 400 years.
        day = shifted - era * 146_097
        year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
        day -= 365 * year + year // 4 - year // 100
        month = (5 * day + 2) // 153
        day -= (153 * month + 2) // 5
        month += 3 if month < 10 else -9  # noqa: PLR2004 (January and February)
        self._put_digits(year + era * 400 + (1 if month < 3 else 0), 4)  # noqa: PLR2004 (as above)
        self._byte(0x2D)  # -
        self._put_digits(month, 2)
        self._byte(0x2D)
        self._put_digits(day + 1, 2)
