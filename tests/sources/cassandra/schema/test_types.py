"""CQL types are read from the text that DDL and system tables use."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.schema.cursor import SchemaTextError
from headrace.sources.cassandra.schema.types import (
    NATIVE_NAMES,
    TYPE_DEPTH_MAX,
    CqlType,
    parse_class_name,
    parse_type,
)

PACKAGE = "org.apache.cassandra.db.marshal."
ADDRESS = CqlType("address", keyspace="shop", fields=(("no", CqlType("int")),))


def lookup(keyspace: str, name: str) -> CqlType | None:
    """Know two types of `shop` by name."""
    known = {"address": ADDRESS, "My Type": CqlType("My Type", keyspace="shop")}
    return known.get(name) if keyspace == "shop" else None


SPELLINGS = {
    "native": ("int", "int"),
    "case and space": (" InT ", "int"),
    "varchar is text": ("varchar", "text"),
    "list": ("list<int>", "list<int>"),
    "frozen list": ("frozen<list<int>>", "frozen<list<int>>"),
    "tuples are always frozen": ("tuple<int, text>", "frozen<tuple<int, text>>"),
    "frozen tuple": ("frozen<tuple<int,text>>", "frozen<tuple<int, text>>"),
    "inside frozen all is frozen": (
        "frozen<map<int,set<text>>>",
        "frozen<map<int, frozen<set<text>>>>",
    ),
    "elements are frozen": ("list<list<int>>", "list<frozen<list<int>>>"),
    "vector": ("vector<float,3>", "vector<float, 3>"),
    "vector of lists": ("vector<list<int>, 2>", "vector<frozen<list<int>>, 2>"),
    "type of its own": ("address", "address"),
    "with keyspace": ("shop.address", "address"),
    "frozen type of its own": ("frozen<address>", "frozen<address>"),
    "quoted type": ('"My Type"', '"My Type"'),
    "in a tuple": ("tuple<address>", "frozen<tuple<frozen<address>>>"),
    "class name": (f"'{PACKAGE}Int32Type'", "int"),
    "reversed": (f"'{PACKAGE}ReversedType({PACKAGE}UTF8Type)'", "text"),
    "unknown class": ("'com.example.Odd'", "'com.example.Odd'"),
    "unknown argument": (
        f"'{PACKAGE}ListType(com.example.Odd)'",
        f"'{PACKAGE}ListType(com.example.Odd)'",
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_types_have_one_spelling(name: str) -> None:
    """A type prints as `system_schema.columns` has it, however it was spelt."""
    text, expected = SPELLINGS[name]
    assert expected == str(parse_type(text, "shop", lookup))


FIXED = {
    "boolean": 1,
    "int": 4,
    "timestamp": 8,
    "uuid": 16,
    "smallint": None,
    "date": None,
    "counter": None,
    "frozen<list<int>>": None,
    "vector<float, 3>": 12,
    "vector<vector<float, 2>, 3>": 24,
    "vector<smallint, 2>": None,
    "vector<text, 2>": None,
    "address": None,
    "'com.example.Odd'": None,
    f"'{PACKAGE}LexicalUUIDType'": 16,
    f"'{PACKAGE}DateType'": 8,
    f"'{PACKAGE}EmptyType'": 0,
}


@pytest.mark.parametrize("text", FIXED)
def test_only_some_types_are_written_without_length(text: str) -> None:
    """The fixed length is the format's, where a short integer has none."""
    assert FIXED[text] == parse_type(text, "shop", lookup).fixed_length


COMPLEX = {
    "list<int>": True,
    "set<int>": True,
    "map<int, int>": True,
    "address": True,
    "frozen<address>": False,
    "frozen<list<int>>": False,
    "tuple<int>": False,
    "vector<int, 2>": False,
    "int": False,
}


@pytest.mark.parametrize("text", COMPLEX)
def test_unfrozen_collections_and_udts_are_complex(text: str) -> None:
    """Exactly the unfrozen collections and UDTs are written cell by cell."""
    assert COMPLEX[text] is parse_type(text, "shop", lookup).is_complex


CELL_TYPES = {
    "simple column": ("list<int>", None, "list<int>"),
    "list": ("list<int>", b"p", "int"),
    "set": ("set<int>", b"p", "empty"),
    "map": ("map<int, text>", b"p", "text"),
    "field": ("address", b"\0\0", "int"),
    "field added later": ("address", b"\0\1", "blob"),
}


@pytest.mark.parametrize("name", CELL_TYPES)
def test_cells_have_the_type_of_their_part(name: str) -> None:
    """A cell of a complex column has the type of the element, value or field."""
    text, path, expected = CELL_TYPES[name]
    assert expected == str(parse_type(text, "shop", lookup).cell_type(path))


PATH_TYPES = {
    "list<int>": "timeuuid",
    "set<text>": "text",
    "map<frozen<list<int>>, text>": "frozen<list<int>>",
    "address": "smallint",
}


@pytest.mark.parametrize("text", PATH_TYPES)
def test_paths_have_a_type(text: str) -> None:
    """A cell's path is an element's id, the element, the key or a field's position."""
    assert PATH_TYPES[text] == str(parse_type(text, "shop", lookup).path_type)


CLASSES = {
    "FrozenType(ListType(Int32Type))": "frozen<list<int>>",
    "MapType(UTF8Type,ListType(Int32Type))": "map<text, frozen<list<int>>>",
    "TupleType(Int32Type,UTF8Type)": "frozen<tuple<int, text>>",
    "VectorType(FloatType , 3)": "vector<float, 3>",
    "IntegerType": "varint",
}


@pytest.mark.parametrize("text", CLASSES)
def test_class_names_are_types(text: str) -> None:
    """A class name of Cassandra's means the CQL type with the same bytes."""
    assert CLASSES[text] == str(parse_class_name(text))


NO_CLASSES = [
    "Odd",
    "ListType(Int32Type",
    "ListType(Int32Type,Int32Type)",
    "VectorType(FloatType)",
    "ListType(VectorType,3)",
    "VectorType(DoubleType,999999999999)",
    "ReversedType()",
    "ListType(" * 100 + ")" * 100,
]


@pytest.mark.parametrize("text", NO_CLASSES)
def test_other_class_names_are_opaque(text: str) -> None:
    """A class name that is not understood is none of our types."""
    assert parse_class_name(text) is None


BAD = {
    "nothing": ("", "line 1, column 1: expected a type, found the end"),
    "unknown": ("adress", "unknown type shop.adress"),
    "open": ("list<int", "expected '>'"),
    "two": ("list<int, int>", "list takes 1 type(s), not 2"),
    "not generic": ("int<text>", "int takes no types"),
    "rest": ("int int", "expected the end of the type, found 'int'"),
    "no dimension": ("vector<int, 0>", "expected the vector's dimension, found '0'"),
    "huge dimension": ("vector<int, 536870912>", "expected the vector's dimension"),
    "endless dimension": ("vector<int, " + "9" * 5000 + ">", "expected the vector's dimension"),
    "dimension": ("vector<int, x>", "expected the vector's dimension"),
    "odd character": ("int$", "expected the end of the type, found '$'"),
    "deep": ("frozen<list<" * 50 + "int" + ">>" * 50, f"deeper than {TYPE_DEPTH_MAX}"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_type_is_refused_with_its_place(name: str) -> None:
    """Text that is not a type gives a named error that says where and what was expected."""
    text, message = BAD[name]
    with pytest.raises(SchemaTextError) as caught:
        parse_type(text, "shop", lookup)
    assert message in str(caught.value)


@st.composite
def types(draw: st.DrawFn) -> str:
    """Make the text of a type, nested a few times."""
    natives = st.sampled_from(sorted(NATIVE_NAMES))
    inner = st.recursive(
        natives,
        lambda t: st.one_of(
            t.map("list<{}>".format),
            t.map("frozen<set<{}>>".format),
            st.tuples(t, t).map(lambda p: f"map<{p[0]}, {p[1]}>"),
            st.lists(t, min_size=1, max_size=3).map(lambda p: f"tuple<{', '.join(p)}>"),
            t.map("vector<{}, 3>".format),
        ),
        max_leaves=6,
    )
    return draw(inner)


@given(types())
def test_printed_types_read_back(text: str) -> None:
    """A printed type reads back as the same type."""
    parsed = parse_type(text)
    assert parsed == parse_type(str(parsed))


@given(st.text(alphabet="<>,'\" (int)frozenlst.1\n-/*", max_size=30))
def test_any_text_is_a_type_or_a_named_error(text: str) -> None:
    """No text makes the parser raise anything but its own error."""
    with suppress(SchemaTextError):
        parsed = parse_type(text)
        assert parsed == parse_type(str(parsed))
