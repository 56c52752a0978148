"""Images of rows in Avro, as fields behind those of the changes that they belong to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from headrace.connector.history.reading import Row
from headrace.connector.history.rendering import EMPTY
from headrace.connector.rows.folding import (
    State,
    TableView,
    deleted_until,
    in_order,
    is_live,
    lives,
)
from headrace.connector.serde.avro_types import definitions, field_of, standalone
from headrace.connector.serde.codecs.records import writer_of
from headrace.connector.serde.image_fields import image_type
from headrace.plugins import Document, RecordSchema

NO_IMAGE: Final = b"\0"  # null, the first type of the union.
_REPLACE: Final = "replace"


class ImagedSchema:
    """The schema of a table's changes with images, and what writes these images."""

    def __init__(self, schema: RecordSchema, images: Sequence[str]) -> None:
        """Put *images*, some of `pre` and `post` in this order, behind the fields of *schema*."""
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
        alone = standalone(image, definitions(schema.value), set())
        self._write: Callable[[Any], bytes] = writer_of(["null", alone])  # type: ignore[arg-type]
        self._view = TableView(schema)
        self._nothing = dict.fromkeys(self._view.types)

    def image(
        self,
        row: Row,
        state: State | None,
        partition: State | None,
        *,
        is_whole: bool,
        at_s: int,
    ) -> bytes:
        """Return the image of *row* at *at_s*, in the union with null.

        Without *is_whole* only columns that *state* has are known.
        """
        view, state = self._view, state or EMPTY
        is_row = row.clustering is not None
        names = view.regular if is_row else view.static
        after = state["deleted"]
        if row.clustering is not None:
            after = deleted_until(view, row.clustering, state, partition)
        found = dict(self._live(names, state["columns"], after, at_s))
        is_there = bool(found) or (is_row and is_live(state, after, at_s))
        if is_whole and not is_there:
            return NO_IMAGE
        known = names if is_whole else [each for each in names if each in state["columns"]]
        of_key = (*view.key, *view.clustering), (*row.partition, *(row.clustering or ()))
        keys = dict(zip(*of_key, strict=False))
        values = {each: value for each, (value, _) in found.items()}
        return self._write(
            {
                "payload": self._nothing | keys | values,
                "knownFields": known,
                "expires": [found[each][1] if each in found else None for each in known],
            }
        )

    def _live(
        self, names: Iterable[str], columns: State, after: int, at_s: int
    ) -> Iterable[tuple[str, tuple[Any, int | None]]]:
        """Yield the columns that are there, each with its value, and when it expires."""
        for name in names:
            column = columns.get(name)
            if isinstance(column, Mapping):
                since = max(after, column["deleted"])
                cells = [cell for cell in column["cells"].values() if lives(cell, since, at_s)]
                if cells:
                    yield name, (self._collection(name, cells), None)
            elif column is not None and lives(column, after, at_s):
                yield name, (column[2][1], column[1])

    def _collection(self, name: str, cells: Sequence[list[Any]]) -> Document:
        """Return cells, each as the fold has it, as a column that replaces what was there."""
        made = {"mode": _REPLACE, "deletedAt": None}
        fields = field_of(self._view.types[name], "fields")
        if fields is not None:
            written = {content[0]: _cell(cell) for cell in cells for content in (cell[2],)}
            named = [field["name"] for field in fields["type"]["fields"]]
            return made | {"fields": {each: written.get(each) for each in named}}
        by_key = [[cell[2][0], cell] for cell in cells]
        ordered = in_order(self._view, name, by_key)
        return made | {"cells": [{"key": key, **_cell(cell)} for key, cell in ordered]}


def _cell(cell: list[Any]) -> dict[str, Any]:
    written, expires, (_, value) = cell
    return {
        "value": value,
        "removed": False,
        "timestampMicros": written,
        "ttl": None,
        "expires": expires,
    }
