"""Images in JSON, written from bytes, are those that are made of decoded values."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.history.rendering import JsonShape, Shape, TextShape
from headrace.connector.rows.folding import State, deleted_until
from headrace.connector.rows.message_pack import BadStateError
from headrace.connector.serde.codecs.records import writer_of
from helpers.histories.row_states import SCHEMA, SECONDS, VIEW, states
from helpers.histories.whole_changes import whole
from helpers.recordings.written import Written, recorded_changes

pytestmark = pytest.mark.hot

PACK = msgspec.msgpack.Encoder()
OBJECTS, TEXT, DOCUMENTS = Shape(SCHEMA), TextShape(SCHEMA), JsonShape(SCHEMA)
ROW = [1], [5]
PARTITION = [1], None
NEWER = {"deleted": 6, "columns": {}, "ranges": []}


def dumped(document: Any) -> str:  # noqa: ANN401 (JSON)
    """Return a document as queries show it."""
    return json.dumps(document, ensure_ascii=False)


def images(
    state: State, *, is_row: bool, around: State | None, at_s: int, is_whole: bool
) -> list[str]:
    """Return what each way makes of a state, as text."""
    name, content = ROW if is_row else PARTITION, PACK.encode(state)
    after = state["deleted"]
    if is_row:
        after = deleted_until(VIEW, [5], state, around)
    made = []
    for shape in (OBJECTS, DOCUMENTS, TEXT):
        shape.reader.take(content)
        assert shape.reader.deleted == state["deleted"]
        made.append(shape.image(name, content, around, after, at_s, is_whole))
    return [dumped(made[0]), dumped(made[1]), made[2]]


@given(states(VIEW.regular), st.sampled_from((None, NEWER)), SECONDS, st.booleans())
def test_rows_of_all_types(state: State, around: State | None, at_s: int, is_whole: bool) -> None:  # noqa: FBT001
    """With values that expire, cells that were deleted, and names that need escapes."""
    made = images(state, is_row=True, around=around, at_s=at_s, is_whole=is_whole)
    assert made[0] == made[1] == made[2]


@given(states(VIEW.static), SECONDS, st.booleans())
def test_static_columns(state: State, at_s: int, is_whole: bool) -> None:  # noqa: FBT001
    """They are there as long as one of them is: an INSERT of the partition's row is none."""
    made = images(state, is_row=False, around=None, at_s=at_s, is_whole=is_whole)
    assert made[0] == made[1] == made[2]


@given(states(VIEW.regular))
def test_an_image_says_if_another_time_can_change_it(state: State) -> None:
    """If not, it is the same at any time."""
    DOCUMENTS.reader.take(PACK.encode(state))
    made = [DOCUMENTS.image(ROW, None, None, -4, at_s, is_whole=True) for at_s in (0, 55, 1 << 40)]
    assert DOCUMENTS.depends_on_time() or made[0] == made[1] == made[2]


def test_a_value_that_is_no_more_is_null() -> None:
    """Of a collection, too, whose text was kept for the version before."""
    cells = {"deleted": 5, "cells": {b"\x01": [6, None, [1, "a"]]}}
    for at, expected in ((5, {"1": "a"}), (6, None)):
        DOCUMENTS.reader.take(PACK.encode({"deleted": at, "columns": {"y": cells}}))
        image = DOCUMENTS.image(ROW, None, None, at, 0, is_whole=True)
        assert expected == image.get("y")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("e", (-719_163, -719_162, -306, -1, 0, 59, 60, 11_016, 2_932_896, 2_932_897)),
        ("n", (-62_135_596_800_001, -62_135_596_800_000, -1, 0, 951_782_400_000)),
        ("n", (253_402_300_799_999, 253_402_300_800_000, (1 << 63) - 1, -(1 << 63))),
    ],
)
def test_days_at_the_bounds(column: str, values: tuple[int, ...]) -> None:
    """Those of Python's dates, of months and of leap years; outside of them it is a number."""
    for value in values:
        content = {"deleted": -4, "columns": {column: [5, None, [None, value]]}}
        made = images(content, is_row=True, around=None, at_s=0, is_whole=False)
        assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_damaged_state_is_refused(cut: int) -> None:
    """It names the byte."""
    content = PACK.encode({"deleted": 5, "columns": {"l": [5, None, [None, "text"]]}})
    with pytest.raises(BadStateError, match="byte"):
        DOCUMENTS.reader.take(content[:cut])


@pytest.mark.parametrize("name", ["5.0-types", "4.1-ops"])
def test_what_changes_wrote(name: str) -> None:
    """Of each change of a recording: what it wrote, which row it is about, and when."""
    ways: dict[bytes, tuple[Shape, TextShape]] = {}
    for each in recorded_changes(name):
        schema = each.schema
        if schema.schema_id not in ways:
            ways[schema.schema_id] = Shape(schema), TextShape(schema)
        objects, text = ways[schema.schema_id]
        value = objects.read(each.content)
        text.fold.read(each.content)
        expected = objects.change(value)
        assert (None if expected is None else dumped(expected)) == text.written_image(each.content)
        assert newest_us(value) == text.reader.newest_us()
        assert repr(key_of(objects, value)) == repr(msgspec.msgpack.decode(text.reader.key()))


def test_the_newest_time_may_be_that_of_one_column() -> None:
    """A note has it, where it is not the time of the change."""
    note = {"field": "j", "timestampMicros": 9, "ttl": None, "expires": None, "isEmpty": False}
    payload = dict.fromkeys(VIEW.types) | {"id": 1, "at": 5}
    for cells, expected in (([note], 9), ([note | {"timestampMicros": None}], 5), ([], 5)):
        written = whole("UPDATE", 5, payload, {"j": 1, "k": 2}, cells=cells)
        DOCUMENTS.fold.read(writer_of(SCHEMA.value)(written))
        assert expected == DOCUMENTS.reader.newest_us()


def key_of(shape: Shape, value: Written) -> list[Any]:
    """Return the values of the key that a change has."""
    view = shape.view
    wide = ("DELETE_RANGE", "DELETE_PARTITION") if view.clustering else ("DELETE_RANGE",)
    is_row = not value["isStatic"] and value["operationType"] not in wide
    names = [*view.key, *(view.clustering if is_row else ())]
    return [value["payload"][name] for name in names]


def newest_us(value: Written) -> int:
    """Return the newest time at which a part of a change was written."""
    times: list[int] = [value["timestampMicros"]]
    times += [note["timestampMicros"] for note in value["cells"] if note["timestampMicros"]]
    for name in value["updateFields"]:
        given = value["payload"][name]
        if isinstance(given, dict) and "mode" in given:
            cells = given["cells"] if "cells" in given else given["fields"].values()
            times += [cell["timestampMicros"] for cell in cells if cell is not None]
            times += [given["deletedAt"]] if given["deletedAt"] is not None else []
    return max(times)
