"""Images in Avro, written from bytes, are those that fastavro writes of decoded values."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.history.avro_images import ImagedSchema
from headrace.connector.history.reading import Coverage, Past, Row
from headrace.connector.history.rendering import Shape
from headrace.connector.rows.folding import NEVER, State, in_order, is_live, lives
from headrace.connector.serde.avro_types import definitions, field_of, standalone
from headrace.connector.serde.codecs.records import writer_of
from helpers.histories.row_states import SCHEMA, SECONDS, VIEW, states

pytestmark = pytest.mark.hot

PACK = msgspec.msgpack.Encoder()
IMAGED = ImagedSchema(Shape(SCHEMA), ("pre",))
IMAGE = standalone(
    IMAGED.schema.value["fields"][-1]["type"], definitions(IMAGED.schema.value), set()
)
WRITE = writer_of(IMAGE)
ALL_SEEN, UNKNOWN = Coverage(NEVER), Coverage(1 << 41)
REPLACED = {"mode": "replace", "deletedAt": None}


@given(states([*VIEW.regular]), SECONDS, st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1))
def test_rows_of_all_types(state: State, at_s: int, is_whole: bool, at: int) -> None:  # noqa: FBT001
    """With values that expire or were deleted; with all columns, or only those that were seen."""
    row = Row(IMAGED_SHAPE, [1], [at], PACK.encode([at]), is_derived=False)
    found, twice = images(row, VIEW.regular, state, at_s, is_whole=is_whole)
    assert [found, found] == twice


@given(states([*VIEW.static]), SECONDS, st.booleans())
def test_static_columns(state: State, at_s: int, is_whole: bool) -> None:  # noqa: FBT001
    """Of a partition: without the columns of rows."""
    row = Row(IMAGED_SHAPE, [1], None, b"", is_derived=False)
    found, twice = images(row, VIEW.static, state, at_s, is_whole=is_whole)
    assert [found, found] == twice


IMAGED_SHAPE = Shape(SCHEMA)


def images(
    row: Row, names: list[str], state: State, at_s: int, *, is_whole: bool
) -> tuple[bytes, list[bytes]]:
    """Return the bytes of an image as fastavro makes them, and as they are made twice here."""
    content = PACK.encode(state)
    past = Past(content, None, None, None, ALL_SEEN if is_whole else UNKNOWN)
    found = WRITE(expected(row, names, state, at_s, is_whole=is_whole))
    return found, [IMAGED.image(row, past, content, at_s) for _ in range(2)]


def expected(row: Row, names: list[str], state: State, at_s: int, *, is_whole: bool) -> Any:  # noqa: ANN401
    """Return an image as fastavro takes it."""
    after, columns = state["deleted"], state["columns"]
    values, expires = {}, {}
    for name in names:
        column = columns.get(name)
        if isinstance(column, dict):
            since = max(after, column["deleted"])
            if cells := [c for c in column["cells"].values() if lives(c, since, at_s)]:
                values[name] = collection(name, cells)
        elif column is not None and lives(column, after, at_s):
            values[name], expires[name] = column[2][1], column[1]
    is_row = row.clustering is not None
    if is_whole and not values and not (is_row and is_live(state, after, at_s)):
        return None
    known = [name for name in names if is_whole or name in columns]
    of_key = zip(
        (*VIEW.key, *VIEW.clustering), (*row.partition, *(row.clustering or ())), strict=False
    )
    return {
        "payload": dict.fromkeys(VIEW.types) | dict(of_key) | values,
        "knownFields": known,
        "expires": [expires.get(name) for name in known],
    }


def collection(name: str, cells: list[list[Any]]) -> Any:  # noqa: ANN401
    """Return cells as a column that replaces what was there."""
    made = [[cell[2][0], written(cell)] for cell in cells]
    fields = field_of(VIEW.types[name], "fields")
    if fields is not None:
        by_name = dict(made)
        return REPLACED | {
            "fields": {f["name"]: by_name.get(f["name"]) for f in fields["type"]["fields"]}
        }
    return REPLACED | {"cells": [{"key": k, **c} for k, c in in_order(VIEW, name, made)]}


def written(cell: list[Any]) -> dict[str, Any]:
    """Return a cell of a collection."""
    at_us, expires, (_, value) = cell
    return {
        "value": value,
        "removed": False,
        "timestampMicros": at_us,
        "ttl": None,
        "expires": expires,
    }
