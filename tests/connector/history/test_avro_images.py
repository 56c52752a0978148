"""An image in Avro has what is left of a row."""

from typing import Any

import msgspec
import pytest

from headrace.connector.history.avro_images import ImagedSchema
from headrace.connector.history.reading import Coverage, Past, Row
from headrace.connector.history.rendering import Shape
from headrace.connector.rows.folding import NEVER, State
from headrace.connector.serde.avro_types import definitions, standalone
from headrace.connector.serde.codecs.records import reader_of
from headrace.plugins import RecordSchema
from headrace.sources.cassandra.encode.avro_schema import key_schema, value_schema
from headrace.sources.cassandra.schema.ddl import parse_schema

DDL = """
CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TYPE shop.money (amount int, unit text);
CREATE TABLE shop.t (id int, at int, s int static, v int, tags set<text>, price money,
  PRIMARY KEY (id, at)) WITH ID = 00000000-0000-1000-8000-000000000002 AND cdc = true;
"""
NOW_S = 100


@pytest.fixture
def schema() -> RecordSchema:
    """Return the schema of the table."""
    (table,) = parse_schema(DDL).tables.values()
    key, value = key_schema(table), value_schema(table)
    return RecordSchema.of(table.qualified, table.text, key=key, value=value)


def image(schema: RecordSchema, state: State | None, *, is_whole: bool = True) -> Any:  # noqa: ANN401
    """Return the image of the row (1, 2), decoded."""
    shape = Shape(schema)
    imaged = ImagedSchema(shape, ("pre",))
    row = Row(shape, [1], [2], b"row", is_derived=False)
    content = None if state is None else msgspec.msgpack.encode(state)
    past = Past(content, None, None, None, Coverage(NEVER if is_whole else 1 << 62))
    made = imaged.image(row, past, content, NOW_S)
    kind = imaged.schema.value["fields"][-1]["type"]
    return reader_of(standalone(kind, definitions(imaged.schema.value), set()))(made)


def state(deleted: int = NEVER, **columns: Any) -> State:  # noqa: ANN401 (of the fold)
    """Return the state of a row."""
    return {"deleted": deleted, "columns": columns}


def test_a_deletion_covers_elements_and_fields(schema: RecordSchema) -> None:
    """Elements of a set and fields of a UDT that are older than it are gone, each by itself."""
    tags = {b"a": [1, None, ["a", None]], b"b": [3, None, ["b", None]]}
    price = {b"1": [1, None, ["amount", 7]], b"2": [3, None, ["unit", "EUR"]]}
    cells = {"tags": {"deleted": NEVER, "cells": tags}, "price": {"deleted": NEVER, "cells": price}}
    found = image(schema, state(2, v=[1, None, [None, 7]], **cells))["payload"]

    assert ["b"] == [cell["key"] for cell in found["tags"]["cells"]]
    assert (None, "EUR") == (
        found["price"]["fields"]["amount"],
        found["price"]["fields"]["unit"]["value"],
    )
    assert found["v"] is None
    assert (1, 2) == (found["id"], found["at"])


def test_what_has_expired_is_gone_and_what_will_says_when(schema: RecordSchema) -> None:
    """`expires` has an entry for each known column."""
    found = image(schema, state(v=[1, NOW_S + 5, [None, 7]]))
    assert {"v": NOW_S + 5, "tags": None, "price": None} == dict(
        zip(found["knownFields"], found["expires"], strict=True)
    )
    assert image(schema, state(v=[1, NOW_S, [None, 7]])) is None


def test_a_row_without_values_is_there_by_its_insert(schema: RecordSchema) -> None:
    """So it has an image, of nulls; without the INSERT it has none."""
    live = state() | {"live": [1, False, 0]}
    assert {None} == {image(schema, live)["payload"][name] for name in ("v", "tags", "price", "s")}
    assert image(schema, state()) is None
    assert image(schema, None) is None


def test_without_its_past_only_what_was_seen_is_known(schema: RecordSchema) -> None:
    """There is an image even of nothing: whether the row exists is unknown."""
    found = image(schema, state(v=[1, None, None]), is_whole=False)
    assert (["v"], None) == (found["knownFields"], found["payload"]["v"])
    assert [] == image(schema, None, is_whole=False)["knownFields"]
