"""The part of ASN.1's DER that key stores use: tags, lengths, a few values. Pure."""

from typing import Final

INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
OBJECT_ID: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31
BMP_STRING: Final = 0x1E
EXPLICIT_0: Final = 0xA0

_LONG_LENGTH: Final = 0x80
_LENGTH_BYTES_MAX: Final = 4
_MORE: Final = 0x80


class DerError(Exception):
    """Unexpected bytes; caught where the file is known."""


class Der:
    """A cursor over the consecutive values in *content*."""

    def __init__(self, content: bytes) -> None:
        """Start before the first value."""
        self._content = content
        self._at = 0

    def __bool__(self) -> bool:
        """Return whether there is another value."""
        return self._at < len(self._content)

    def next(self, tag: int) -> bytes:
        """Return the content of the next value, which has *tag*.

        Raises:
            DerError: it has another tag, is missing, or is cut short.

        """
        head = self._take(2)
        size = head[1]
        if size & _LONG_LENGTH:
            count = size - _LONG_LENGTH
            if not 0 < count <= _LENGTH_BYTES_MAX:
                raise DerError
            size = int.from_bytes(self._take(count), "big")
        if head[0] != tag:
            raise DerError
        return self._take(size)

    def inside(self, tag: int) -> "Der":
        """Return a cursor over the content of the next value, which has *tag*."""
        return Der(self.next(tag))

    def is_next(self, tag: int) -> bool:
        """Return whether the next value exists and has *tag*."""
        return bool(self) and self._content[self._at] == tag

    def integer(self) -> int:
        """Return the next value, an integer."""
        return int.from_bytes(self.next(INTEGER), "big", signed=True)

    def object_id(self) -> str:
        """Return the next value, an object identifier, as numbers separated by dots."""
        content = self.next(OBJECT_ID)
        numbers = [0]
        for byte in content:
            numbers[-1] = numbers[-1] << 7 | byte & ~_MORE
            if not byte & _MORE:
                numbers.append(0)
        first = min(numbers[0] // 40, 2)
        return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))

    def _take(self, size: int) -> bytes:
        part = self._content[self._at : self._at + size]
        if len(part) < size:
            raise DerError
        self._at += size
        return part
