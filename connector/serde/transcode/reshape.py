"""Converts changes from the envelope `cep44` to another one, Avro to Avro, without objects.

It walks the bytes of a change once to find its fields; the rest is copying, except for the few
types that differ between envelopes. `shaping` makes the plan, once per schema. For one thread.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate

from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece, Walk
from headrace.plugins import BadRecordError, Headers

_ID_BYTES = 16
_SPAN_HEX = 16
_US_MAX = 9_223_372_036_854_775  # The greatest number whose nanoseconds fit into a long.
_COLUMN_BYTES = 16  # The maximum that Debezium has around a column's value.
_SOURCE_BYTES = 256  # The maximum around all of them, without names.
_NUMBER_BYTES = 21  # The maximum digits of a number.
_UNKNOWN = -1
_NO_STARTS = memoryview(array("i"))


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

        *fields* are the change's fields, of which *payload* contains the *columns*. *clustering*
        are the columns that follow those of the *key*, with separate pieces. *buried* are the
        numbers of operations that delete everything under a key. *headers* are added to the
        change's headers: each has a name, the number of a fact, and its field. For `flat`, *runs*
        are ranges of fields after the columns, the end exclusive. For `debezium`, *names* are the
        names of columns, *key_columns* are always written, *constants* are in `source`, *marks* are
        the names of operations, and *range_of* makes the bounds of a range. *source* are the fields
        of `source` that only this source has, first its `name`: for each the field of the change,
        or -1, and whether it is written as digits. *images* are the last fields of a change, its
        images; for `debezium`, *before* and *after* are their places, and *wide* the numbers of
        operations on many rows, which have none.
        """
        self.envelope, self.payload = envelope, payload
        self.fields, self.nodes = Piece(octets.RECORD, *fields), _nodes_of(fields)
        self.row = Piece(octets.RECORD, *columns)
        self.columns = list(columns)
        self.sames = _ints([piece.same for piece in columns] or [1])
        self.same = self.row.same
        # What is not only skipped: the payload and updateFields, in their order, and the end.
        self.stops = _ints([*sorted((payload, facts[octets.UPDATED])), len(fields)])
        self.places = _ints([facts.get(fact, _UNKNOWN) for fact in range(octets.FACTS)])
        self.operations = [name.encode() for name in operations]
        self.key = list(key)
        self.same_key = int(all(piece.same for piece in key) and not clustering)
        self.clustering = list(clustering)
        self.clustering_pieces = list(clustering_pieces)
        self.buried = _ints([n in buried for n in range(len(operations))])
        self.runs, self.headers = list(runs), list(headers)
        self.names = [octets.sized(name.encode()) for name in names]
        self.is_key = _ints([n in key_columns for n in range(len(columns) + 1)])
        self.constants, self.marks = list(constants), list(marks)
        self.range_of = range_of
        self.sources = _ints([place for place, _ in source] or [_UNKNOWN])
        self.digits = _ints([int(digits) for _, digits in source] or [0])
        self.images, self.images_at = list(images), len(fields) - len(images)
        self.before, self.after = before, after
        self.wide = _ints([n in wide for n in range(len(operations) + 1)])
        self.updated = b""  # The updateFields of the previous change, and the columns they name.
        self.written = memoryview(array("q", [0] * (len(columns) + 1)))
        self.room = _SOURCE_BYTES + octets.SPILL_BYTES
        self.room += 3 * _COLUMN_BYTES * (len(columns) + 2)  # With both images.
        self.room += sum(map(len, constants)) + _NUMBER_BYTES * len(source)


def _ints(numbers: Iterable[int]) -> memoryview:
    return memoryview(array("i", numbers))


def _nodes_of(fields: Sequence[Piece]) -> memoryview:
    """Return where the nodes of the fields begin in the plan of a record with all of them."""
    sizes = [len(piece.plan) for piece in fields]
    return _ints(accumulate(sizes, initial=octets.NODE_WORDS))


class Reshaper(Walk):
    """Makes messages from changes. `failed` lists the indexes of failed changes, with reasons."""

    def __init__(self) -> None:
        """Start with nothing made."""
        super().__init__()
        self.starts = memoryview(array("q", [0] * 64))  # The starts of the change's fields,
        self.begins = memoryview(array("q", [0] * 64))  # those of its columns,
        self.expires = memoryview(array("q", [0] * 64))  # and their expiry, 0 for never.
        self.in_image = memoryview(array("q", [0] * 64))  # The starts of the columns of an image,
        self.known = memoryview(array("q", [0] * 64))  # whether these are known,
        self.named = memoryview(array("q", [0] * 64))  # and those that are, in their order.
        self.given = _NO_STARTS  # Of the columns of all changes,
        self.given_at = 0  # those of the next change.
        self.repeats = 0  # Whether updateFields are those of the previous change.
        self.written_us = memoryview(array("q"))
        self.made = 0

    def apply(
        self,
        shapes: Mapping[bytes, Shape],
        keys: Sequence[bytes | None],
        values: Sequence[bytes],
        headers: Sequence[Headers],
        starts: memoryview | None = None,
    ) -> None:
        """Make a message of each change; the first header's schema id selects the shape.

        *starts* are those of `EncodedRecords`.
        The results are in attributes: `operations` are those of the messages, `kept` are their
        indexes in *values*.
        """
        self.keys: list[bytes | None] = []
        self.values: list[bytes] = []
        self.headers: list[Headers] = []
        self.operations: list[int] = []
        self.tombstones: list[int] = []
        self.failed: list[tuple[int, BadRecordError]] = []
        self.given = _NO_STARTS if starts is None else starts
        self.given_at = 0
        if len(values) > len(self.written_us):
            self.written_us = memoryview(array("q", bytes(16 * len(values))))
        before: Headers | None = None
        made = 0
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
                value = self._value(shape, values[index])
                key = self._key(shape, keys[index])
                if shape.headers:
                    given += self._facts(shape, operation)
            except BadRecordError as error:
                self.failed.append((index, error))
                continue
            if shape.buried[operation]:
                self.tombstones.append(made)
            self.keys.append(key)
            self.values.append(value)
            self.headers.append(given)
            self.operations.append(operation)
            self.written_us[made] = self._number(shape, octets.TIMESTAMP)
            made += 1
        self.kept: Sequence[int] = range(len(values))
        if self.failed:
            lost = {index for index, _ in self.failed}
            self.kept = [index for index in self.kept if index not in lost]
        self.made = made

    def timestamps(self) -> list[int]:
        """Return the write times of the messages, in µs."""
        return [self.written_us[i] for i in range(self.made)]

    def _scan(self, shape: Shape, content: bytes) -> None:
        """Find the starts of fields and columns."""
        self.buf = content
        self.at = 0
        self.end = len(content)
        count = len(shape.nodes) - 1
        columns = len(shape.columns)
        if count >= len(self.starts) or columns >= len(self.begins):
            self._widen(max(count, columns) + 1)
        self.repeats = 0
        given = self.given_at
        self.given_at += columns + 1
        at = self._between(shape, 0, 0, shape.stops[0])
        for i in range(2):  # The payload, updateFields, and what follows each.
            if shape.stops[i] == shape.payload:
                self.starts[shape.payload] = at
                at = self._payload(shape, at, given)
            else:
                at = self._updated(shape, at)
            at = self._between(shape, at, shape.stops[i] + 1, shape.stops[i + 1])
        if at != self.end:
            self._bad()
        self.room = 2 * self.end + shape.room

    def _between(self, shape: Shape, at: int, field: int, until: int) -> int:
        """Find the starts of fields before *until*, and where the last ends."""
        plan = shape.fields.plan
        ended = octets.note_starts(
            self.buf, at, self.end, plan, shape.nodes[field], self.starts, field, until
        )
        return self._found(at, ended)

    def _payload(self, shape: Shape, at: int, given: int) -> int:
        """Find the starts of columns, or take those that are given, and return their end."""
        count = len(shape.columns)
        if self.given_at <= len(self.given) and self.given[given] >= 0:
            ended = octets.take_starts(self.given, given, count, at, self.end, self.begins)
        else:
            plan = shape.row.plan
            ended = octets.note_starts(
                self.buf, at, self.end, plan, octets.NODE_WORDS, self.begins, 0, count
            )
        return self._found(at, ended)

    def _updated(self, shape: Shape, at: int) -> int:
        """Return the end of updateFields; mostly they are those of the previous change."""
        place = shape.places[octets.UPDATED]
        self.starts[place] = at
        length = len(shape.updated)
        if 0 < length <= self.end - at and octets.same(self.buf, at, at + length, shape.updated):
            self.repeats = 1
            return at + length
        ended = octets.skip(self.buf, at, self.end, shape.fields.plan, shape.nodes[place])
        return self._found(at, ended)

    def _found(self, at: int, ended: int) -> int:
        """Return *ended*; -1 if the bytes at *at* do not fit the schema."""
        if ended < 0:
            self.at = at
            self._bad()
        return ended

    def _widen(self, count: int) -> None:
        self.starts = memoryview(array("q", [0] * count))
        self.begins = memoryview(array("q", [0] * count))
        self.expires = memoryview(array("q", [0] * count))
        self.in_image = memoryview(array("q", [0] * count))
        self.known = memoryview(array("q", [0] * count))
        self.named = memoryview(array("q", [0] * count))

    def _number(self, shape: Shape, fact: int) -> int:
        """Return a numeric fact."""
        return self._number_at(shape.places[fact])

    def _number_at(self, place: int) -> int:
        """Return the number in a field."""
        return octets.number_at(self.buf, self.starts[place], self.end)

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
        for i in range(len(shape.clustering)):  # First, while the buffer contains the change.
            self.at = self.begins[shape.clustering[i]]
            self._put(shape.clustering_pieces[i])
            self._check_end(shape.clustering[i])
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
        """Return W3C's header: the mutation is the trace, the change is a span."""
        mutation = self._mutation(shape)
        index = b"%d" % self._number(shape, octets.INDEX)
        span = sha256(mutation + index).hexdigest()[:_SPAN_HEX]
        return f"00-{mutation.hex()}-{span}-01".encode()

    # ---- the envelope `debezium` ----

    def _debezium(self, shape: Shape) -> None:
        operation = self._number(shape, octets.OPERATION)
        self._head(shape, operation)
        if shape.before != _UNKNOWN:
            self._image(shape, shape.before)
        if shape.after != _UNKNOWN and not shape.wide[operation]:
            self._image(shape, shape.after)
        else:
            self.out[self.size] = 2
            self.size += 1
            if not self.repeats:
                self._note_written(shape)
            self._struct(shape, shape.written, self._note_expiry(shape))
            self._bounds(shape)

    def _head(self, shape: Shape, operation: int) -> None:
        """Write everything before the images."""
        timestamp = self._number(shape, octets.TIMESTAMP)
        milliseconds = timestamp // 1_000
        at = octets.put_long(self.out, self.size, milliseconds)
        at = octets.put_bytes(self.out, at, shape.marks[operation])
        self.size = octets.put_bytes(self.out, at, shape.constants[0])  # version, connector
        self._source(shape, 0)
        at = octets.put_long(self.out, self.size, milliseconds)
        # snapshot, db; sequence is not null, and its length is one byte.
        length = octets.put_bytes(self.out, at, shape.constants[1])
        self.out[length + 1] = 0x5B  # [
        at = octets.put_decimal(self.out, length + 2, self._number(shape, octets.INDEX))
        self.out[at] = 0x2C  # ,
        at = octets.put_decimal(self.out, at + 1, self._number(shape, octets.OF))
        self.out[at] = 0x5D  # ]
        self.out[length] = (at - length) << 1
        self.out[at + 1] = 2
        at = octets.put_long(self.out, at + 2, timestamp)
        if -_US_MAX <= timestamp <= _US_MAX:
            self.out[at] = 2
            at = octets.put_long(self.out, at + 1, timestamp * 1_000)
        else:
            self.out[at] = 0
            at += 1
        self.size = at
        for i in range(1, len(shape.sources)):
            self._source(shape, i)

    def _image(self, shape: Shape, place: int) -> None:
        """Write an image, or null."""
        self.at = self.starts[place]
        if self._long():
            self._byte(2)
            self._known_columns(shape)
            self._byte(0)  # Without bounds of a range.
            self._byte(0)
        else:
            self._byte(0)

    def _known_columns(self, shape: Shape) -> None:
        """Write the known columns of the image at the cursor with values, others as null."""
        begins = self.begins
        self.begins = self.in_image
        self.in_image = begins  # The change's, which its key needs.
        self._note_starts(shape.row, self.begins)
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
        self._struct(shape, self.known, 1)
        begins = self.begins
        self.begins = self.in_image
        self.in_image = begins

    def _source(self, shape: Shape, i: int) -> None:
        """Write a field of `source` that only this source has, or an empty string without one."""
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
        """Find the columns that updateFields names; the next change may reuse them."""
        place = shape.places[octets.UPDATED]
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

    def _note_expiry(self, shape: Shape) -> int:
        """Find when columns expire: by their own expiry, or by that of the row.

        Return 0 if there is neither.
        """
        self.at = self.starts[shape.places[octets.EXPIRES]]
        notes = self.starts[shape.places[octets.NOTES]]
        if not self.buf[self.at] and not self.buf[notes]:
            return 0
        expires = self._long() and self._long()
        for i in range(len(shape.columns)):
            self.expires[i] = expires if shape.written[i] else 0
        self.at = notes
        column = 0
        left = self._block()
        while left:
            column = self._column(shape, column)
            for part in range(3):  # The write time, the TTL, the expiry.
                number = self._long() and self._long()
                if part == 2:  # noqa: PLR2004 (the last one)
                    self.expires[column] = number
            self._pass(1)
            left -= 1
            if not left:
                left = self._block()
        return 1

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

    def _struct(self, shape: Shape, shown: memoryview, may_expire: int) -> None:
        """Write each column's value and expiry, and that it is set; or null if not shown.

        *shown* marks the shown ones; columns of the key always are. With *may_expire*, `expires` is
        set.
        """
        at = self.size
        for column in range(len(shape.columns)):
            begin = self.begins[column]
            if not shown[column] and not (shape.is_key[column] and self.buf[begin]):
                self.out[at] = 0
                at += 1
                continue
            self.out[at] = 2
            at += 1
            if shape.sames[column]:
                end = self.begins[column + 1]
                at = octets.put_part(self.out, at, self.buf, begin, end, self.end)
            else:
                self.size = at
                self.at = begin
                self._put(shape.columns[column])
                self._check_end(column)
                at = self.size
            if may_expire and self.expires[column]:
                self.out[at] = 2
                at = octets.put_long(self.out, at + 1, self.expires[column] * 1_000_000)
            else:
                self.out[at] = 0
                at += 1
            self.out[at] = 1
            at += 1
        self.size = at

    def _check_end(self, column: int) -> None:
        """Check that a column ends where the next begins: a source may have said where."""
        if self.at != self.begins[column + 1]:
            self._bad()

    def _bounds(self, shape: Shape) -> None:
        place = shape.places[octets.RANGE]
        if self.buf[self.starts[place]] == 0:
            self._byte(0)
            self._byte(0)
        else:
            assert shape.range_of is not None  # noqa: S101 (plans of this envelope have it)
            made = shape.range_of(octets.take(self.buf, self.starts[place], self.starts[place + 1]))
            self._reserve(len(made))
            self._constant(made)


def runs(headers: list[Headers]) -> list[tuple[int, int, bytes]]:
    """Return the runs of records with one schema id, which is in their first headers.

    Each has the index of the first record, the index after the last, and the id.
    """
    made = []
    begin = 0
    before: Headers | None = None
    schema_id = b""
    for i in range(len(headers)):
        given = headers[i]
        if given is not before:
            if before is not None and given[0][1] != schema_id:
                made.append((begin, i, schema_id))
                begin = i
            before = given
            schema_id = given[0][1]
    if headers:
        made.append((begin, len(headers), schema_id))
    return made
