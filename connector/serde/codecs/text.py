"""Plain text for readable keys: the columns' values, separated by colons."""

from typing import Any, Final

import msgspec

from headrace.connector.serde.codecs.records import UnfitRecordError
from headrace.plugins import Codec, Record

_ENCODER: Final = msgspec.json.Encoder()
_NULL: Final = r"\N"


class TextCodec(Codec):
    r"""Writes the value of a single column; for several, `\` escapes `\` and `:` in values.

    Null is `\N`, bytes are `0x` and hex digits, booleans are `true` and `false`, and composite
    values are JSON. Different keys have different strings.
    """

    def key(self, record: Record) -> bytes | None:
        """Return the key's columns."""
        if record.key is None:
            return None
        values = list(record.key.values())
        if len(values) == 1:
            return _text(values[0]).encode()
        return ":".join(_NULL if value is None else _escaped(value) for value in values).encode()

    def value(self, record: Record) -> bytes:
        """Raise UnfitRecordError: a change cannot be text."""
        raise UnfitRecordError("a value cannot be text", place=record.schema.table)


def _escaped(value: Any) -> str:  # noqa: ANN401 (a column's value)
    return _text(value).replace("\\", r"\\").replace(":", r"\:")


def _text(value: Any) -> str:  # noqa: ANN401 (a column's value)
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)  # JSON cannot express NaN and infinities.
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return _ENCODER.encode(value).decode()
