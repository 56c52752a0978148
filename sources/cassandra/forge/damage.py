"""Intended damage: which byte of which part of a segment is changed, and how."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.segments import Forged
from headrace.sources.cassandra.forge.wire import MARKER_BYTES

_HEADER_CRC_BYTES: Final = 4
# The offset of each part from the start of its section or entry; from its end if negative.
_SECTION_PARTS: Final = {"marker": 0, "marker_crc": 4, "content": MARKER_BYTES}
_ENTRY_PARTS: Final = {"size": 0, "size_crc": 4, "body": 8, "crc": -4}


class Damage(msgspec.Struct, frozen=True):
    """One change: at a byte of the file, of section n, or of entry n, all counted from 0.

    `byte` is counted from the start of `part`. It is replaced by `put`, or xor-ed with `xor`; with
    `cut` the file ends there.
    """

    byte: int = 0
    section: int | None = None
    entry: int | None = None
    part: str = ""
    xor: int = 0xFF
    put: bytes = b""
    cut: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Damage":  # Any: parsed YAML or JSON.
        """Return the damage that a script describes.

        Raises:
            ScriptError: it has an unknown member or part.

        """
        unknown = given.keys() - cls.__struct_fields__
        if unknown:
            hint = f"corrupt has {', '.join(cls.__struct_fields__)}"
            raise ScriptError(f"corrupt has no {', '.join(sorted(unknown))}", hint=hint)
        try:
            put = bytes.fromhex(given.get("put", ""))
        except ValueError as error:
            raise ScriptError(f"put is hexadecimal, found {given['put']!r}") from error
        return cls(**{**given, "put": put})

    def at(self, made: Forged) -> int:
        """Return the position of the byte in the file."""
        try:
            return self._start(made) + self.byte
        except (IndexError, KeyError) as error:
            raise ScriptError(f"there is no {self._name()}") from error

    def _start(self, made: Forged) -> int:
        if self.section is not None:
            starts = [made.header_bytes, *made.file_ends[:-1]]
            return starts[self.section] + _SECTION_PARTS[self.part or "marker"]
        if self.entry is not None:
            if made.file_ends != made.section_ends:
                raise ScriptError("only a segment that is not wrapped has entries in its file")
            begins = [end - size for end, size in zip(made.ends, made.sizes, strict=True)]
            offset = _ENTRY_PARTS[self.part or "body"]
            return (made.ends if offset < 0 else begins)[self.entry] + offset
        if self.part == "header_crc":
            return made.header_bytes - _HEADER_CRC_BYTES
        return 0

    def _name(self) -> str:
        if self.section is not None:
            return f"section {self.section} with {self.part}".removesuffix(" with ")
        return f"entry {self.entry} with {self.part}".removesuffix(" with ")


def damaged(made: Forged, damages: Sequence[Damage]) -> bytes:
    """Return the segment's bytes with all damage applied."""
    content = bytearray(made.content)
    for damage in damages:
        at = damage.at(made)
        if not 0 <= at < len(content):
            raise ScriptError(f"the file has no byte {at}")
        if damage.cut:
            del content[at:]
        elif damage.put:
            content[at : at + len(damage.put)] = damage.put
        else:
            content[at] ^= damage.xor
    return bytes(content)
