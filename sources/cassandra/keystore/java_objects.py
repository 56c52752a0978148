"""Java's serialisation, as far as a sealed key needs it: objects, strings, byte arrays. Pure.

It loads no class and runs no code: an object is returned as its fields by name.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

MAGIC: Final = bytes.fromhex("aced0005")
DEPTH_MAX: Final = 16

_NULL, _REFERENCE, _CLASS, _OBJECT, _TEXT, _ARRAY = 0x70, 0x71, 0x72, 0x73, 0x74, 0x75
_BLOCK, _END, _ENUM = 0x77, 0x78, 0x7E
_FIRST_HANDLE: Final = 0x7E0000
_WRITES_ITSELF, _SERIALIZABLE = 0x01, 0x02
_NUMBER_BYTES: Final = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}
_BYTE_ARRAY: Final = "[B"


class JavaObjectError(Exception):
    """The bytes are not a serialised object, or one of an unsupported kind."""


class DataInput:
    """Reads Java's data streams: big-endian numbers, strings with a length, bytes."""

    def __init__(self, content: bytes) -> None:
        """Start at the first byte."""
        self._content = content
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes."""
        part = self._content[self._at : self._at + size]
        if size < 0 or len(part) < size:
            raise JavaObjectError("it is cut short")
        self._at += size
        return part

    def number(self, size: int) -> int:
        """Return an unsigned number of *size* bytes."""
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        """Return a string; Java's forms of zero and of supplementary characters are lossy."""
        return self.take(self.number(2)).decode("utf-8", "replace")


class _Class(msgspec.Struct, frozen=True):
    name: str
    flags: int
    fields: tuple[tuple[str, str], ...]  # Type letter and name.
    parent: "_Class | None"


def read_object(cursor: DataInput) -> Mapping[str, Any]:  # Any: strings, bytes, numbers, mappings.
    """Return the fields of the serialised object at *cursor*, including those of its superclasses.

    Raises:
        JavaObjectError: there is no supported object.

    """
    if cursor.take(len(MAGIC)) != MAGIC:
        raise JavaObjectError("no serialised object")
    found = _Reader(cursor).value(0)
    if not isinstance(found, Mapping):
        raise JavaObjectError("no object")
    return found


class _Reader:
    """Reads one stream; `_seen` has the values that later bytes may refer to, in order."""

    def __init__(self, cursor: DataInput) -> None:
        self._cursor = cursor
        self._seen: list[Any] = []  # Any: all values so far, for references.
        self._readers: Mapping[int, Callable[[int], Any]] = {
            _NULL: lambda _depth: None,
            _REFERENCE: self._reference,
            _CLASS: self._class,
            _OBJECT: self._object,
            _TEXT: self._text,
            _ARRAY: self._array,
            _ENUM: self._enum,
        }

    def value(self, depth: int) -> Any:  # noqa: ANN401 (see read_object)
        kind = self._cursor.number(1)
        if depth > DEPTH_MAX or kind not in self._readers:
            raise JavaObjectError(f"what begins with {kind:02x}, {depth} deep")
        return self._readers[kind](depth + 1)

    def _reference(self, _depth: int) -> Any:  # noqa: ANN401 (see read_object)
        handle = self._cursor.number(4) - _FIRST_HANDLE
        if not 0 <= handle < len(self._seen):
            raise JavaObjectError("a reference to nothing")
        return self._seen[handle]

    def _text(self, _depth: int) -> str:
        found = self._cursor.text()
        self._seen.append(found)
        return found

    def _class(self, depth: int) -> _Class:
        cursor = self._cursor
        name, _uid = cursor.text(), cursor.take(8)
        place = len(self._seen)
        self._seen.append(None)
        flags = cursor.number(1)
        fields = []
        for _ in range(cursor.number(2)):
            letter, field_name = cursor.take(1).decode("latin-1"), cursor.text()
            if letter not in _NUMBER_BYTES:
                self.value(depth)  # Its class's name.
            fields.append((letter, field_name))
        self._annotations(depth)
        parent = self._class_or_none(depth)
        self._seen[place] = found = _Class(name, flags, tuple(fields), parent)
        return found

    def _class_or_none(self, depth: int) -> _Class | None:
        found = self.value(depth)
        if found is not None and not isinstance(found, _Class):
            raise JavaObjectError("no class where one belongs")
        return found

    def _object(self, depth: int) -> Mapping[str, Any]:
        described = self._class_or_none(depth)
        if described is None:
            raise JavaObjectError("an object without a class")
        found: dict[str, Any] = {}
        self._seen.append(found)
        lineage = []
        while described is not None:
            lineage.append(described)
            described = described.parent
        for part in reversed(lineage):
            if not part.flags & _SERIALIZABLE:
                raise JavaObjectError(f"an object of {part.name}")
            for letter, name in part.fields:
                width = _NUMBER_BYTES.get(letter)
                found[name] = self._cursor.number(width) if width else self.value(depth)
            if part.flags & _WRITES_ITSELF:
                self._annotations(depth)
        return found

    def _array(self, depth: int) -> bytes:
        described = self._class_or_none(depth)
        if described is None or described.name != _BYTE_ARRAY:
            raise JavaObjectError("an array of other things than bytes")
        found = self._cursor.take(self._cursor.number(4))
        self._seen.append(found)
        return found

    def _enum(self, depth: int) -> Any:  # noqa: ANN401 (see read_object)
        self._class_or_none(depth)
        self._seen.append(None)
        return self.value(depth)

    def _annotations(self, depth: int) -> None:
        """Skip the data that a class wrote itself."""
        while True:
            kind = self._cursor.number(1)
            if kind == _END:
                return
            if kind != _BLOCK:
                raise JavaObjectError(f"an annotation that begins with {kind:02x}, {depth} deep")
            self._cursor.take(self._cursor.number(1))
