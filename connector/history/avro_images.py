"""Images of rows in Avro, as fields after those of their changes."""

import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.connector.history.reading import Past, Row
from headrace.connector.history.rendering import Shape, cell_order
from headrace.connector.rows.avro_rows import AvroRows
from headrace.connector.serde.avro_types import definitions, field_of
from headrace.connector.serde.image_fields import image_type
from headrace.connector.serde.transcode import octets
from headrace.plugins import Document, RecordSchema

NO_IMAGE: Final = b"\0"  # null, the first type of the union.
_REPLACE: Final = "replace"
_PACK: Final = msgspec.msgpack.Encoder()
_DOUBLE: Final = struct.Struct(">d")
_SINGLE: Final = struct.Struct("<f")


class ImagedSchema:
    """The schema of a table's changes with images, and a writer of these images."""

    def __init__(self, shape: Shape, images: Sequence[str]) -> None:
        """Append *images*, some of `pre` and `post` in this order, to a schema's fields."""
        schema = shape.schema
        payload = field_of(schema.value, "payload")
        assert payload is not None  # noqa: S101 (every change has it)
        columns = payload["type"]
        image = image_type(columns["name"])
        own = [
            {"name": name, "type": ["null", image["name"] if number else image], "default": None}
            for number, name in enumerate(images)
        ]
        value = {**schema.value, "fields": [*schema.value["fields"], *own]}
        text = f"{schema.text} /* with images: {', '.join(images)} */"
        self.schema = RecordSchema.of(schema.table, text, key=schema.key, value=value)
        self._shape = shape
        view = shape.view
        names = [*view.types]
        self._key_columns = [names.index(name) for name in (*view.key, *view.clustering)]
        known = definitions(schema.value)
        self._rows = AvroRows(
            shape.fold,
            shape.key_columns,
            [octets.sized(name.encode()) for name in names],
            [cell_order(view.types[name]) for name in names],
            _number_of_replace(known.values()),
            _single,
        )
        self._key: tuple[Row | None, list[bytes | None]] = (None, [])
        self._last: tuple[object, int | None, bytes] = (None, None, b"")  # `of`, time and image.

    def image(self, row: Row, past: Past, state: bytes | None, at_s: int) -> bytes:
        """Return the image of *row* in a state of its *past* at *at_s*, in a union with null.

        Unless the row is known completely, it has only columns that *state* has.
        """
        of = past.of(row, state)
        if self._last[0] == of and self._last[1] in (None, at_s):
            return self._last[2]
        rows = self._rows
        if self._key[0] is not row:
            values = _PACK.encode((*row.partition, *(row.clustering or ())))
            self._key = row, rows.key_parts(values, self._key_columns)
        after, is_whole = row.taken(rows, state, past.partition, at_s, past.coverage)
        is_row = row.clustering is not None
        columns = self._shape.columns[is_row]
        made = rows.image(self._key[1], columns, after, at_s, is_row, bool(is_whole))
        self._last = of, at_s if rows.depends_on_time else None, made
        return made


def _single(double: bytes) -> bytes:
    """Return a MessagePack double as a 32-bit float in Avro."""
    return _SINGLE.pack(*_DOUBLE.unpack(double))


def _number_of_replace(types: Iterable[Document]) -> int:
    """Return the number of the mode in which a collection replaces its old value."""
    modes = (each["symbols"] for each in types if _REPLACE in each.get("symbols", ()))
    return int(next(modes, [_REPLACE]).index(_REPLACE))
