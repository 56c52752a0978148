"""Edits Avro by transforms that are known in advance: drops, replaces and adds. Hot.

`transforms.edits` makes an `Edit` from a transform and a schema. For one thread.
"""

from collections.abc import Mapping, Sequence

from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece, Walk
from headrace.plugins import Headers

_TIME_BYTES = 11  # An optional long.


class Edit:
    """The edit of a value whose type is *piece*; *parts* are the edits of its inner values."""

    def __init__(
        self,
        action: int,
        piece: Piece | None = None,
        *parts: "Edit",
        content: bytes = b"",
        adds_time: bool = False,
    ) -> None:
        """Keep the plan; *action* is a number of `octets`, for an option or record its kind.

        Options and records have no *piece*. *content* is appended to a record's fields, and then,
        if *adds_time*, the write time in ms.
        """
        self.action = action
        self.piece = piece
        self.parts = list(parts)
        self.content = content
        self.adds_time = int(adds_time)
        self.room: int = len(content) + _TIME_BYTES + sum(part.room for part in parts)


class Editor(Walk):
    """Applies edits to messages."""

    def apply(
        self,
        edits: Mapping[bytes, tuple[Sequence[Edit], Sequence[Edit]]],
        keys: Sequence[bytes | None],
        values: Sequence[bytes],
        headers: Sequence[Headers],
        timestamps: Sequence[int],
    ) -> tuple[list[bytes | None], list[bytes]]:
        """Return edited keys and values; the first header's schema id selects the edits.

        *timestamps* are the write times, in µs.

        Raises:
            BadAvroError: the bytes do not fit the schema of the edit.

        """
        made_keys: list[bytes | None] = []
        made: list[bytes] = []
        before: Headers | None = None
        for i in range(len(values)):
            given = headers[i]
            if given is not before:
                before = given
                of_key, of_value = edits[given[0][1]]
            key, value = keys[i], values[i]
            for edit in of_value:
                value = self._edited(edit, value, timestamps[i])
            if key is not None:
                for edit in of_key:
                    key = self._edited(edit, key, timestamps[i])
            made_keys.append(key)
            made.append(value)
        return made_keys, made

    def _edited(self, edit: Edit, content: bytes, timestamp: int) -> bytes:
        self.buf = content
        self.at = self.size = 0
        self.end = len(content)
        self.room = self.end + edit.room
        self._reserve(self.room)
        self._edit(edit, timestamp)
        if self.at != self.end:
            self._bad()
        return octets.take(self.out, 0, self.size)

    def _edit(self, edit: Edit, timestamp: int) -> None:
        """Write the value at the cursor, edited."""
        begin = self.at
        if edit.action == octets.RECORD:
            for part in edit.parts:
                # Adjacent kept fields are copied at once.
                if part.action == octets.KEEP:
                    self._skip(part.piece)  # type: ignore[arg-type]
                else:
                    self._copy(begin, self.at)
                    self._edit(part, timestamp)
                    begin = self.at
            self._copy(begin, self.at)
            self._constant(edit.content)
            if edit.adds_time:
                self._byte(2)
                self._put_long(timestamp // 1_000)
        elif edit.action == octets.OPTION:
            if self._long():
                self._byte(2)
                self._edit(edit.parts[0], timestamp)
            else:
                self._byte(0)
        elif edit.action == octets.CONVERT:
            self._put(edit.piece)  # type: ignore[arg-type]
        else:
            self._skip(edit.piece)  # type: ignore[arg-type]
            if edit.action == octets.REPLACE:
                self._constant(edit.content)
            elif edit.action == octets.KEEP:
                self._copy(begin, self.at)
