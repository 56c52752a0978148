"""Converts changes from the envelope `cep44` to another one, Avro to Avro, without objects.

It walks the bytes of a change once to find its fields; the rest is copying, except for the few
types that differ between envelopes. `shaping` makes the plan, once for each schema. For one thread.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece, Walk
from headrace.plugins import BadRecordError, Headers

_ID_BYTES = 16
_SPAN_HEX = 16
_US_MAX = 9_223_372_036_854_775  # The greatest whose nanoseconds fit into a long.
_COLUMN_BYTES = 16  # The most that Debezium has around a column's value.
_SOURCE_BYTES = 256  # The most that it has around all of them, without names.
_NUMBER_BYTES = 21  # The most digits of a number.
_UNKNOWN = -1
_NEVER_AND_SET = b"\0\1"  # Of a column: it never expires, and is set.


class Shape:
    """The plan for changes of one schema; `facts` has the places of envelope fields."""

    def __init__(  # noqa: PLR0913 (the parts of a plan)
        self,
        *,
        envelope: int,
        fields: Sequence[Piece],
        payload: int,
        columns: Sequence[Piece],
        facts: Mapping[int, int],
        operations: Sequence[str],
        key: Sequence[Piece],
        clustering: Sequence[int],
        clustering_pieces: Sequence[Piece],
        buried: Sequence[int],
        runs: Sequence[tuple[int, int]] = (),
        headers: Sequence[tuple[str, int, int]] = (),
        names: Sequence[str] = (),
        key_columns: Sequence[int] = (),
        constants: Sequence[bytes] = (),
        marks: Sequence[bytes] = (),
        range_of: Callable[[bytes], bytes] | None = None,
        source: Sequence[tuple[int, bool]] = (),
        images: Sequence[Piece] = (),
        before: int = _UNKNOWN,
        after: int = _UNKNOWN,
        wide: Sequence[int] = (),
    ) -> None:
        """Keep the plan.

        *fields* are the change's fields, of which *payload* has the *columns*. *clustering* are the
        columns that follow those of the *key*, with pieces of their own. *buried* are the numbers
        of operations that delete all under a key. *headers* are added to the change's headers: each
        has a name, the number of a fact, and its field. For `flat`, *runs* are ranges of fields
        after the columns, the end exclusive. For `debezium`, *names* are the names of columns,
        *key_columns* are always written, *constants* are in `source`, *marks* are the names of
        operations, and *range_of* makes the bounds of a range. *source* are the fields of `source`
        that only this source has, first its `name`: for each the field of the change, or -1, and
        whether it is written as digits. *images* are the last fields of a change, its images; for
        `debezium`, *before* and *after* are their places, and *wide* the numbers of operations on
        many rows, which have none.
        """
        self.envelope = envelope
        self.fields = list(fields)
        self.payload = payload
        self.columns = list(columns)
        self.same = int(all(piece.same for piece in columns))
        self.places = memoryview(
            array("i", [facts.get(fact, _UNKNOWN) for fact in range(octets.FACTS)])
        )
        self.operations = [name.encode() for name in operations]
        self.key = list(key)
        self.same_key = int(all(piece.same for piece in key) and not clustering)
        self.clustering = list(clustering)
        self.clustering_pieces = list(clustering_pieces)
        self.buried = memoryview(array("i", [n in buried for n in range(len(operations))]))
        self.runs = list(runs)
        self.names = [octets.sized(name.encode()) for name in names]
        self.is_key = memoryview(array("i", [n in key_columns for n in range(len(columns) + 1)]))
        self.constants = list(constants)
        self.marks = list(marks)
        self.range_of = range_of
        self.headers = list(headers)
        self.sources = memoryview(array("i", [place for place, _ in source] or [_UNKNOWN]))
        self.digits = memoryview(array("i", [int(digits) for _, digits in source] or [0]))
        self.images, self.images_at = list(images), len(fields) - len(images)
        self.before, self.after = before, after
        self.wide = memoryview(array("i", [n in wide for n in range(len(operations) + 1)]))
        self.updated = b""  # The updateFields of the previous change, and the columns they name.
        self.written = memoryview(array("i", [0] * (len(columns) + 1)))
        self.room = _SOURCE_BYTES + 3 * _COLUMN_BYTES * (len(columns) + 2)  # With both images.
        self.room += sum(map(len, constants)) + _NUMBER_BYTES * len(source)


class Reshaper(Walk):
    """Makes messages of changes. `failed` lists the indexes of failed changes, with reasons."""

    def __init__(self) -> None:
        """Make nothing yet."""
        super().__init__()
        self.starts = memoryview(array("q", [0] * 64))  # The starts of the change's fields,
        self.begins = memoryview(array("q", [0] * 64))  # those of its columns,
        self.expires = memoryview(array("q", [0] * 64))  # and when these expire, 0 for never.
        self.in_image = memoryview(array("q", [0] * 64))  # The starts of the columns of an image,
        self.known = memoryview(array("q", [0] * 64))  # whether these are known,
        self.named = memoryview(array("q", [0] * 64))  # and those that are, in their order.

    def apply(
        self,
        shapes: Mapping[bytes, Shape],
        keys: Sequence[bytes | None],
        values: Sequence[bytes],
        headers: Sequence[Headers],
    ) -> None:
        """Make a message of each change, by the shape of the schema id in its first header.

        The results are in attributes: `operations` and `timestamps` are those of the messages,
        `kept` are their indexes in *values*.
        """
        self.keys: list[bytes | None] = []
        self.values: list[bytes] = []
        self.headers: list[Headers] = []
        self.kept: list[int] = []
        self.operations: list[int] = []
        self.timestamps: list[int] = []
        self.tombstones: list[int] = []
        self.failed: list[tuple[int, BadRecordError]] = []
        before: Headers | None = None
        for index in range(len(values)):
            given = headers[index]
            if given is not before:
                before = given
                shape = shapes[given[0][1]]
            try:
                self._scan(shape, values[index])
                operation = self._number(shape, octets.OPERATION)
                if not 0 <= operation < len(shape.operations):
                    self._bad()
                made = self._value(shape, values[index])
                key = self._key(shape, keys[index])
                if shape.headers:
                    given += self._facts(shape, operation)
            except BadRecordError as error:
                self.failed.append((index, error))
                continue
            if shape.buried[operation]:
                self.tombstones.append(len(self.values))
            self.keys.append(key)
            self.values.append(made)
            self.headers.append(given)
            self.kept.append(index)
            self.operations.append(operation)
            self.timestamps.append(self._number(shape, octets.TIMESTAMP))

    def _scan(self, shape: Shape, content: bytes) -> None:
        """Find the starts of fields and columns."""
        self.buf = content
        self.at = 0
        self.end = len(content)
        count = len(shape.fields)
        columns = len(shape.columns)
        updated = shape.places[octets.UPDATED]
        length = len(shape.updated)
        if count >= len(self.starts) or columns >= len(self.begins):
            self._widen(max(count, columns) + 1)
        for i in range(count):
            self.starts[i] = self.at
            if i == shape.payload:
                self._note_starts(shape.columns, self.begins)
            elif (
                i == updated
                and 0 < length <= self.end - self.at
                and octets.same(self.buf, self.at, self.at + length, shape.updated)
            ):
                self.at += length  # Mostly those of the previous change.
            else:
                self._skip(shape.fields[i])
        self.starts[count] = self.at
        if self.at != self.end:
            self._bad()
        self.room = 2 * self.end + shape.room

    def _widen(self, count: int) -> None:
        self.starts = memoryview(array("q", [0] * count))
        self.begins = memoryview(array("q", [0] * count))
        self.expires = memoryview(array("q", [0] * count))
        self.in_image = memoryview(array("q", [0] * count))
        self.known = memoryview(array("q", [0] * count))
        self.named = memoryview(array("q", [0] * count))

    def _number(self, shape: Shape, fact: int) -> int:
        """Return a fact that is a number."""
        return self._number_at(shape.places[fact])

    def _number_at(self, place: int) -> int:
        """Return the number in a field."""
        self.at = self.starts[place]
        return self._long()

    # ---- messages ----

    def _value(self, shape: Shape, content: bytes) -> bytes:
        if shape.envelope == octets.OWN and shape.same:
            return content
        self.size = 0
        self._reserve(self.room)
        if shape.envelope == octets.DEBEZIUM:
            self._debezium(shape)
        else:
            if shape.envelope == octets.OWN:
                self._copy(0, self.starts[shape.payload])
            self._columns(shape)
            if shape.envelope == octets.OWN:
                self._copy(self.starts[shape.payload + 1], self.starts[shape.images_at])
            else:
                for first, last in shape.runs:
                    self._copy(self.starts[first], self.starts[last])
            self.at = self.starts[shape.images_at]
            for piece in shape.images:
                self._put(piece)
        return octets.take(self.out, 0, self.size)

    def _columns(self, shape: Shape) -> None:
        if shape.same:
            self._copy(self.begins[0], self.begins[len(shape.columns)])
        else:
            self.at = self.begins[0]
            for piece in shape.columns:
                self._put(piece)

    def _key(self, shape: Shape, content: bytes | None) -> bytes | None:
        """Return the key: the given one, followed by the clustering columns."""
        if content is None or shape.same_key:
            return content
        self.size = 0
        self._reserve(self.room + 2 * len(content))
        for i in range(len(shape.clustering)):  # First, while the buffer has the change.
            self.at = self.begins[shape.clustering[i]]
            self._put(shape.clustering_pieces[i])
        clustering = octets.take(self.out, 0, self.size)
        change, end = self.buf, self.end
        self.size = 0
        self.buf = content
        self.at = 0
        self.end = len(content)
        for piece in shape.key:
            self._put(piece)
        if self.at != self.end:
            self._bad()
        made = octets.take(self.out, 0, self.size)
        self.buf = change
        self.end = end
        return made + clustering

    def _facts(self, shape: Shape, operation: int) -> Headers:
        made = []
        for name, fact, place in shape.headers:
            if fact == octets.OPERATION:
                content = shape.operations[operation]
            elif fact == octets.MUTATION:
                content = self._mutation(shape).hex().encode()
            elif fact == octets.TEXT:
                content = self._text(place)
            elif fact == octets.TRACE:
                content = self._trace(shape)
            else:
                content = b"%d" % self._number_at(place)
            made.append((name, content))
        return tuple(made)

    def _mutation(self, shape: Shape) -> bytes:
        at = self.starts[shape.places[octets.MUTATION]]
        return octets.take(self.buf, at, at + _ID_BYTES)

    def _text(self, place: int) -> bytes:
        """Return the string in a field."""
        self.at = self.starts[place]
        self._long()
        return octets.take(self.buf, self.at, self.starts[place + 1])

    def _trace(self, shape: Shape) -> bytes:
        """Return W3C's header: the mutation is the trace, the change a span of it."""
        mutation = self._mutation(shape)
        index = b"%d" % self._number(shape, octets.INDEX)
        span = sha256(mutation + index).hexdigest()[:_SPAN_HEX]
        return f"00-{mutation.hex()}-{span}-01".encode()

    # ---- the envelope `debezium` ----

    def _debezium(self, shape: Shape) -> None:
        timestamp = self._number(shape, octets.TIMESTAMP)
        milliseconds = timestamp // 1_000
        constants = shape.constants
        self._put_long(milliseconds)
        self._constant(shape.marks[self._number(shape, octets.OPERATION)])
        self._constant(constants[0])  # version, connector
        self._source(shape, 0)
        self._put_long(milliseconds)
        self._constant(constants[1])  # snapshot, db; sequence is not null
        index = self._number(shape, octets.INDEX)
        count = self._number(shape, octets.OF)
        self._put_long(3 + self._digits(index) + self._digits(count))
        self._byte(0x5B)  # [
        self._put_digits(index, self._digits(index), 0)
        self._byte(0x2C)  # ,
        self._put_digits(count, self._digits(count), 0)
        self._byte(0x5D)  # ]
        self._byte(2)
        self._put_long(timestamp)
        if -_US_MAX <= timestamp <= _US_MAX:
            self._byte(2)
            self._put_long(timestamp * 1_000)
        else:
            self._byte(0)
        for i in range(1, len(shape.sources)):
            self._source(shape, i)
        if shape.before != _UNKNOWN:
            self._image(shape, shape.before)
        if shape.after != _UNKNOWN and not shape.wide[self._number(shape, octets.OPERATION)]:
            self._image(shape, shape.after)
        else:
            self._byte(2)
            self._note_written(shape)
            self._note_expiry(shape)
            for column in range(len(shape.columns)):
                self._cell(shape, column, shape.written[column])
            self._bounds(shape)

    def _image(self, shape: Shape, place: int) -> None:
        """Write an image, or null."""
        self.at = self.starts[place]
        if self._long():
            self._byte(2)
            self._known_columns(shape)
            self._byte(0)  # No bounds of a range.
            self._byte(0)
        else:
            self._byte(0)

    def _known_columns(self, shape: Shape) -> None:
        """Write each known column of the image at the cursor with its value, the others as null."""
        begins = self.begins
        self.begins = self.in_image
        self.in_image = begins  # Those of the change, which its key needs.
        self._note_starts(shape.columns, self.begins)
        for i in range(len(shape.columns)):
            self.known[i] = 0
            self.expires[i] = 0
        column = 0
        count = 0
        left = self._block()
        while left:
            column = self._column(shape, column)
            if count == len(shape.columns):
                self._bad()
            self.known[column] = 1
            self.named[count] = column
            count += 1
            left -= 1
            if not left:
                left = self._block()
        i = 0
        left = self._block()
        while left:
            if i == count:
                self._bad()
            self.expires[self.named[i]] = self._long() and self._long()
            i += 1
            left -= 1
            if not left:
                left = self._block()
        for column in range(len(shape.columns)):
            self._cell(shape, column, self.known[column])
        begins = self.begins
        self.begins = self.in_image
        self.in_image = begins

    def _source(self, shape: Shape, i: int) -> None:
        """Write a field of `source` that only this source has; without one, an empty string."""
        place = shape.sources[i]
        if place == _UNKNOWN:
            self._byte(0)
        elif shape.digits[i]:
            self._put_number(self._number_at(place))
        else:
            # A plugin may name a field more than once.
            self._reserve(self.starts[place + 1] - self.starts[place] + self.room)
            self._copy(self.starts[place], self.starts[place + 1])

    def _note_written(self, shape: Shape) -> None:
        """Find the columns that updateFields names; mostly those of the previous change."""
        place = shape.places[octets.UPDATED]
        if not octets.same(self.buf, self.starts[place], self.starts[place + 1], shape.updated):
            shape.updated = b""
            for i in range(len(shape.columns)):
                shape.written[i] = 0
            self.at = self.starts[place]
            column = 0
            left = self._block()
            while left:
                column = self._column(shape, column)
                shape.written[column] = 1
                left -= 1
                if not left:
                    left = self._block()
            shape.updated = octets.take(self.buf, self.starts[place], self.starts[place + 1])

    def _note_expiry(self, shape: Shape) -> None:
        """Find when columns expire: by their own expiry, or by that of the row."""
        self.at = self.starts[shape.places[octets.EXPIRES]]
        expires = self._long() and self._long()
        for i in range(len(shape.columns)):
            self.expires[i] = expires if shape.written[i] else 0
        self.at = self.starts[shape.places[octets.NOTES]]
        column = 0
        left = self._block()
        while left:
            column = self._column(shape, column)
            for part in range(3):  # The write time, the TTL, the expiry.
                number = self._long() and self._long()
                if part == 2:  # noqa: PLR2004 (the last of them)
                    self.expires[column] = number
            self._pass(1)
            left -= 1
            if not left:
                left = self._block()

    def _column(self, shape: Shape, first: int) -> int:
        """Return the column that the string at the cursor names; search from *first* on."""
        begin = self.at
        self._pass(self._long())
        count = len(shape.names)
        for i in range(count):
            column = (first + i) % count
            if octets.same(self.buf, begin, self.at, shape.names[column]):
                return column
        self._bad()
        return _UNKNOWN

    def _cell(self, shape: Shape, column: int, is_shown: int) -> None:
        """Write a column's value, its expiry, and that it is set; or null, if *is_shown* is 0."""
        begin = self.begins[column]
        piece = shape.columns[column]
        if is_shown or (shape.is_key[column] and self.buf[begin]):
            self._byte(2)
            if piece.same:
                self._copy(begin, self.begins[column + 1])
            else:
                self.at = begin
                self._put(piece)
            if self.expires[column]:
                self._byte(2)
                self._put_long(self.expires[column] * 1_000_000)
                self._byte(1)
            else:
                self._constant(_NEVER_AND_SET)
        else:
            self._byte(0)

    def _bounds(self, shape: Shape) -> None:
        place = shape.places[octets.RANGE]
        if self.buf[self.starts[place]] == 0:
            self._byte(0)
            self._byte(0)
        else:
            assert shape.range_of is not None  # noqa: S101 (this envelope's plans have it)
            made = shape.range_of(octets.take(self.buf, self.starts[place], self.starts[place + 1]))
            self._reserve(len(made))
            self._constant(made)
