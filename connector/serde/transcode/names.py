"""Reads the name of a change in Avro: its mutation, and its index there."""

import struct
from collections.abc import Sequence

from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece, Walk

_MUTATION_BYTES = 16
_INDEX = struct.Struct(">I")


class NameReader(Walk):
    """Reads the names of changes of one schema. For one thread."""

    def __init__(self, fields: Sequence[Piece], *, mutation: int, index: int) -> None:
        """*fields* are a change's fields; *mutation* and *index* are the places of two of them."""
        super().__init__()
        self.fields = list(fields)[: max(mutation, index) + 1]
        self.mutation = mutation
        self.index = index

    def of(self, value: bytes, start: int) -> bytes:
        """Return the 16 bytes of the mutation, followed by the index in 4 bytes.

        The change begins at *start* in *value*.

        Raises:
            BadAvroError: the value does not fit its schema.

        """
        self.buf = value
        self.at = start
        self.end = len(value)
        begin = number = 0
        for place in range(len(self.fields)):
            if place == self.index:
                number = self._long()
                continue
            if place == self.mutation:
                begin = self.at
            self._skip(self.fields[place])
        if not 0 <= number <= 0xFFFF_FFFF:  # noqa: PLR2004 (the range of four bytes)
            self._bad()
        return octets.take(self.buf, begin, begin + _MUTATION_BYTES) + _INDEX.pack(number)
