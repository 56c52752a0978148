"""Which schema may follow which."""

from typing import Any

import fastavro
import pytest

from headrace.connector.registry.compatibility import incompatibilities

Schema = Any


def record(*fields: dict[str, object], name: str = "R", **rest: object) -> Schema:
    """Return a parsed record."""
    return fastavro.parse_schema({"type": "record", "name": name, "fields": list(fields), **rest})


ID: dict[str, object] = {"name": "id", "type": "long"}
NOTE: dict[str, object] = {"name": "note", "type": ["null", "string"], "default": None}
MUST: dict[str, object] = {"name": "must", "type": "string"}
SELF: dict[str, object] = {"name": "next", "type": ["null", "R"], "default": None}


def enum(*symbols: str, **rest: object) -> Schema:
    """Return a parsed enum."""
    return fastavro.parse_schema({"type": "enum", "name": "E", "symbols": list(symbols), **rest})


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        pytest.param(record(ID, NOTE), record(ID), True, id="a field with default more"),
        pytest.param(record(ID, MUST), record(ID), False, id="a field without default more"),
        pytest.param(record(ID), record(ID, MUST), True, id="a field less"),
        pytest.param("long", "int", True, id="promotion"),
        pytest.param("int", "long", False, id="no promotion"),
        pytest.param("bytes", "string", True, id="text as bytes"),
        pytest.param("double", "string", False, id="text as number"),
        pytest.param(["null", "long"], "int", True, id="into a union"),
        pytest.param("long", ["null", "long"], False, id="out of a union"),
        pytest.param("long", ["int", "long"], True, id="out of a union that fits"),
        pytest.param(enum("A", "B"), enum("A"), True, id="a symbol more"),
        pytest.param(enum("A"), enum("A", "B"), False, id="a symbol less"),
        pytest.param(enum("A", default="A"), enum("A", "B"), True, id="a default symbol"),
        pytest.param(record(ID, name="S"), record(ID), False, id="another name"),
        pytest.param(
            record(ID, name="S", aliases=["R"]), record(ID), True, id="another name, an alias"
        ),
        pytest.param(
            record({"name": "ident", "type": "long", "aliases": ["id"]}),
            record(ID),
            True,
            id="a field's alias",
        ),
        pytest.param(record(ID, SELF), record(ID, SELF), True, id="a type that contains itself"),
        pytest.param(
            {"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True, id="items"
        ),
        pytest.param(
            {"type": "map", "values": "int"}, {"type": "map", "values": "long"}, False, id="values"
        ),
        pytest.param(
            {"type": "fixed", "name": "F", "size": 4},
            {"type": "fixed", "name": "F", "size": 5},
            False,
            id="size",
        ),
    ],
)
def test_a_reader_reads_a_writer(reader: Schema, writer: Schema, *, expected: bool) -> None:
    """As Avro's resolution has it; the other way round it is the level FORWARD."""
    assert expected == (not incompatibilities("BACKWARD", reader, [writer]))
    assert expected == (not incompatibilities("FORWARD", writer, [reader]))


def test_levels_say_which_way_and_how_far() -> None:
    """FULL is both ways; only the transitive ones look behind the last."""
    bare, wide, must = record(ID), record(ID, NOTE), record(ID, MUST)

    assert not incompatibilities("FULL", wide, [bare])
    assert incompatibilities("FULL", bare, [must])
    assert not incompatibilities("BACKWARD", must, [must])
    assert not incompatibilities("BACKWARD", wide, [must, bare])
    assert incompatibilities("BACKWARD_TRANSITIVE", must, [bare, must])
    assert not incompatibilities("NONE", must, [bare])
    assert not incompatibilities("FULL_TRANSITIVE", must, [])


def test_a_reason_says_where() -> None:
    """The path to the field, and what is wrong with it."""
    inner: dict[str, object] = {
        "name": "in",
        "type": {"type": "record", "name": "I", "fields": [MUST]},
    }
    empty: dict[str, object] = {"name": "in", "type": {"type": "record", "name": "I", "fields": []}}

    (reason,) = incompatibilities("BACKWARD", record(inner), [record(empty)])

    assert "/in/must: the writer does not have this field, and it has no default" == reason
