"""Text becomes tokens by CQL's rules, except that a URI is not a comment."""

import pytest
from cassandra.metadata import cql_keywords_reserved
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins import cql_text
from headrace.plugins.cql_text import (
    RESERVED_WORDS,
    Cursor,
    Token,
    TokenKind,
    pieces,
    quote_name,
    tokens,
)


def lexed(text: str) -> list[tuple[str, str]]:
    """Return kind and value of every token before the end."""
    return [(token.kind.name, token.value) for token in [*tokens(text)][:-1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Drop a_1", [("WORD", "Drop"), ("WORD", "a_1")]),
        ('"a ""b"""', [("NAME", 'a "b"')]),
        ("'it''s'''", [("STRING", "it's'")]),
        ("'a\nb'", [("STRING", "a\nb")]),
        ("1 -2 3.5 4. 5e-3", [("NUMBER", n) for n in ("1", "-2", "3.5", "4.", "5e-3")]),
        ("a.b=c;", [("WORD", "a"), ("SYMBOL", "."), ("WORD", "b"), ("SYMBOL", "="),
                    ("WORD", "c"), ("SYMBOL", ";")]),
        ("kafka://h1:1,h2:2?a=b&c=d;x", [("URI", "kafka://h1:1,h2:2?a=b&c=d"), ("SYMBOL", ";"),
                                         ("WORD", "x")]),
        ("kafka://h--x/*y -- z", [("URI", "kafka://h--x/*y")]),
        ("a // kafka://h\nb", [("WORD", "a"), ("WORD", "b")]),
        ("a//b:c\nd", [("WORD", "a"), ("WORD", "d")]),
        ("a -- 'b\nc", [("WORD", "a"), ("WORD", "c")]),
        ("a /* 'b\n; */ c", [("WORD", "a"), ("WORD", "c")]),
        ("a /* /* */ c", [("WORD", "a"), ("WORD", "c")]),
        ("'-- no // comment /* here'", [("STRING", "-- no // comment /* here")]),
    ],
)  # fmt: skip
def test_tokens(text: str, expected: list[tuple[str, str]]) -> None:
    """Each form of token is recognised, and comments leave nothing."""
    assert expected == lexed(text)


def test_forms_of_ddl() -> None:
    """A UUID, a blob, a duration and a text in dollars are one token each."""
    uuid = "0a1b2c3d-0000-1000-8000-00000000000a"

    assert [
        ("UUID", uuid), ("NUMBER", "0xcafe"), ("NUMBER", "1y2mo"), ("STRING", "it's;"),
        ("SYMBOL", "{"), ("SYMBOL", "é"),
    ] == lexed(f"{uuid} 0xcafe 1y2mo $$it's;$$ {{é")  # fmt: skip


def test_end() -> None:
    """The end is where the last token ended."""
    word, end = tokens("A  -- b")

    assert Token(TokenKind.WORD, "A", 0, 1, folded="a", keyword="a") == word
    assert Token(TokenKind.END, "", 1, 1, folded="", keyword="") == end


@pytest.mark.parametrize("opened", ["'it''s", '"a""b', "/* a * /", "$$ a $"])
def test_what_is_never_closed_is_one_token(opened: str) -> None:
    """It continues to the end of the text, also over what would be tokens."""
    assert [("WORD", "a"), ("OPEN", f"{opened} ;\nb")] == lexed(f"a {opened} ;\nb")


@given(st.text("ab'\"$/*-; \n1.é"))
def test_pieces_are_all_of_the_text(text: str) -> None:
    """The pieces of any text, put together, are the text; no text raises."""
    assert text == "".join(text[piece.start : piece.end] for piece in pieces(text))


def test_keywords() -> None:
    """Words are matched in any case, and all or none of a row of them is stepped over."""
    cursor = Cursor('DROP Compact "storage" storage')

    assert (True, False) == (cursor.accept("drop"), cursor.accept("compact", "storage"))
    assert (True, False) == (cursor.accept("COMPACT"), cursor.accept("storage"))
    assert ["storage", "storage", "", ""] == [cursor.advance().folded for _ in range(4)]


def test_reserved_words() -> None:
    """Every word we quote is one that Cassandra's own client quotes."""
    assert frozenset() == RESERVED_WORDS - cql_keywords_reserved


QUOTED = {
    "plain": "plain",
    "snake_1": "snake_1",
    "Upper": '"Upper"',
    "with space": '"with space"',
    'quo"te': '"quo""te"',
    "select": '"select"',
    "1st": '"1st"',
    "": '""',
}


@pytest.mark.parametrize("name", QUOTED)
def test_names_are_quoted_where_cql_demands_it(name: str) -> None:
    """Only what is not a plain lower-case word, or is reserved, gets quotes."""
    assert QUOTED[name] == quote_name(name)


def test_a_text_is_taken_apart_as_far_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands behind a mistake costs nothing."""
    text = "a b c d"
    coming = tokens(text)
    monkeypatch.setattr(cql_text, "tokens", lambda _text: coming)
    cursor = Cursor(text)

    assert cursor.at("A", "b")
    assert "a" == cursor.advance().value
    assert ["c", "d", ""] == [token.value for token in coming]


def test_what_must_be_next_is_stepped_over() -> None:
    """Words, names and constants; what is found instead is an error."""
    cursor = Cursor("WITH Speed = {'a': 1, 'b': 'c'} AND \"X\", y AND z =")

    cursor.expect("with")
    assert ("speed", {"a": "1", "b": "c"}) == cursor.assignment("an option")
    with pytest.raises(ValueError, match="expected 'OR', found 'AND'"):
        cursor.expect("or")
    cursor.expect("and")
    assert ["X", "y"] == cursor.names("a name")
    cursor.expect("and")
    with pytest.raises(ValueError, match="expected a value, found ''"):
        cursor.assignment("an option")


def test_a_name_has_a_keyspace_or_none() -> None:
    """Both are returned; without a dot the keyspace is empty."""
    cursor = Cursor('Shop."Orders" x')

    assert ("shop", "Orders") == cursor.qualified("a table")
    assert ("", "x") == cursor.qualified("a table")


def test_statements_end_with_semicolons() -> None:
    """Empty statements are stepped over, the last one needs none, any other does."""
    cursor = Cursor(";; a; b c")

    for name in "ab":
        assert cursor.at_statement()
        assert name == cursor.name("a name")
        if name == "a":
            cursor.end_statement()
    with pytest.raises(ValueError, match="expected ';', found 'c'"):
        cursor.end_statement()
    assert "c" == cursor.name("a name")
    cursor.end_statement()
    assert not cursor.at_statement()
