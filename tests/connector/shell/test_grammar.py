"""The parser accepts what the grammar on the page about statements describes, and nothing else."""

import functools
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark, UnexpectedInput

import headrace
from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.parser import parse_script
from headrace.connector.language.statements import Statement
from headrace.plugins.cql_text import RESERVED_WORDS
from helpers.jobs.statements import statements

PAGE = Path(headrace.__file__).parents[2].joinpath("docs", "statements.md").read_text("utf-8")

# The page describes characters in words; here they are expressions. A word that is a name is none
# of CQL's reserved words; one that is part of an option's name may be.
_RESERVED = "|".join(sorted(RESERVED_WORDS, key=len, reverse=True))
_TERMINALS = rf"""
NAME: /(?!(?:{_RESERVED})(?![a-z0-9_]))[a-z][a-z0-9_]*/i
WORD: /(?:{_RESERVED})(?![a-z0-9_])/i
QUOTED: /"(?:[^"]|"")+"/
STRING: /'(?:[^']|'')*'/
NUMBER: /-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(?![\w.])/
INTEGER: /(?:[1-9][0-9]{{0,3}}|10000)(?![\w.])/
TIME: /(?:[0-9]{{1,9}}(?:ms|s|m|h|d))+(?![\w.])/
UUID: /[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}(?!\w)/
BARE_URI: /[A-Za-z][A-Za-z0-9+.-]*:\/\/[^\s'";]*/
SPACE: /(?:\s|--[^\n]*|\/\/[^\n]*|\/\*(?:.|\n)*?\*\/)+/
%ignore SPACE
"""
_LEXICAL = {
    "name": "NAME | QUOTED",
    "word": "NAME | WORD",
    "quoted_name": "QUOTED",
    "string": "STRING",
    "number": "NUMBER",
    "time": "TIME",
    "integer": "INTEGER",
    "uuid": "UUID",
    "bare_uri": "BARE_URI",
}


def lark_grammar(page: str) -> str:
    """Return the grammar in *page*'s EBNF in lark's notation, with terminals of our own."""
    (block,) = re.findall(r"```ebnf\n(.*?)```", page, re.DOTALL)
    block = re.sub(r"\(\*.*?\*\)", "", block, flags=re.DOTALL)
    rules = dict(re.findall(r"^(\w+) += (.*?) ;\s*$", block, re.DOTALL | re.MULTILINE))
    lines = [f"{name}: {text}" for name, text in _LEXICAL.items()]
    # A keyword has precedence where a name may stand, too: so it has in the parser.
    words = {word for word in re.findall(r'"(\w+)"', block) if word.isupper()}
    lines += [f"{_terminal(word)}.1: /{word}(?![A-Za-z0-9_])/i" for word in sorted(words)]
    for name, right_side in rules.items():
        if name not in _LEXICAL and name not in ("letter", "digit"):
            lines.append(f"{name}: {_right_side(right_side)}")
    return "\n".join(lines) + _TERMINALS


def _right_side(text: str) -> str:
    pieces = re.findall(r'"[^"]*"|\w+|\S', text)
    brackets = {"[": "(", "]": ")?", "{": "(", "}": ")*"}
    return " ".join(_keyword(piece) if piece[0] == '"' else brackets.get(piece, piece)
                    for piece in pieces)  # fmt: skip


def _keyword(quoted: str) -> str:
    word = quoted[1:-1]
    return _terminal(word) if word.isidentifier() else quoted


def _terminal(word: str) -> str:
    return f"KEYWORD_{word}"


@functools.cache
def grammar() -> Lark:
    """Return a parser of the page's grammar; to make it takes seconds."""
    return Lark(lark_grammar(PAGE), start="script", parser="lalr")


def described(text: str) -> bool:
    """Say whether the page's grammar describes *text*."""
    try:
        grammar().parse(text)
    except UnexpectedInput:
        return False
    return True


def accepted(text: str) -> bool:
    """Say whether the parser takes *text*."""
    try:
        list(parse_script(text))
    except StatementSyntaxError:
        return False
    return True


@given(statements)
def test_what_is_written_is_described(statement: Statement) -> None:
    """The page describes every statement that we write."""
    assert described(format_statement(statement))


_PIECES = sorted({*re.findall(r'"([^"\w]|\w+)"', PAGE.partition("```ebnf")[2]), "cdc", "a.b"})
_PIECES += ["'x'", '"q r"', "1", "-2.5e3", "true", "kafka://h:1?x=1", "select", "-- c\n", "/* c */"]


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map(" ".join))
def test_any_words(text: str) -> None:
    """What the page describes is accepted, and what it does not is refused."""
    assert described(text) == accepted(text)


@settings(max_examples=300)
@given(statements, st.data())
def test_changed_words(statement: Statement, data: st.DataObject) -> None:
    """A statement with one word taken out, doubled or replaced is judged alike by both."""
    words = re.findall(r"/\*.*?\*/|[^ ]+", format_statement(statement))  # A hint is one word.
    at = data.draw(st.integers(0, len(words) - 1))
    words[at : at + 1] = data.draw(st.lists(st.sampled_from([*_PIECES, words[at]]), max_size=2))
    text = " ".join(words)

    assert described(text) == accepted(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DESC DATA_SINKS", True),
        ("DESCDATA_SINKS", False),
        ("CREATE DATA_SINK k WITH 'a://b'AND x=1", True),
        ("CREATE DATA_SINK k WITH a://b AND select.x = 1", True),
        ("DROP DATA_SINK select", False),
        ("ALTER DATA_SOURCE IF EXISTS cdc ON TABLE t SET POSITION = 'x'", False),
        ("ALTER DATA_SINK k WITH", False),
        ("", True),
    ],
)
def test_examples(text: str, *, expected: bool) -> None:
    """Both judge these as is known."""
    assert (expected, expected) == (described(text), accepted(text))
