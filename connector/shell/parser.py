"""Recursive descent over the tokens: the grammar in docs/statements.md, one method per rule.

The parser remembers every keyword it looked for since it last moved on. That is the expected set
of an error, the source of "did you mean", and what a completer would offer. It never recurses
into itself: nothing in the grammar nests.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.connector.shell.errors import StatementSyntaxError
from headrace.connector.shell.formatting import RESERVED_WORDS
from headrace.connector.shell.lexer import Token, TokenKind, tokens
from headrace.connector.shell.places import Place, place_of
from headrace.connector.shell.statements import (
    CreateSink,
    CreateSource,
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    DropSink,
    DropSource,
    Options,
    Statement,
    TableName,
)

OPTIONS_MAX: Final = 256
NAME_CHARS_MAX: Final = 255

_CQL_VERBS: Final = frozenset({
    "ALTER", "APPLY", "BEGIN", "DELETE", "GRANT", "INSERT", "LIST", "REVOKE", "SELECT", "TRUNCATE",
    "UPDATE", "USE",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement and where it stood; `spans` bounds its parts by the key errors name them by.

    The keys are `sink`, `uri`, `source`, `table` and the names of the options.
    """

    statement: Statement
    text: str = field(repr=False)
    span: tuple[int, int]
    spans: Mapping[str, tuple[int, int]] = field(repr=False)

    def place(self, key: str = "") -> Place:
        """Return where the part named *key* stands; an option not named stands in the URI.

        Without a key, and where there is no URI, it is where the statement begins.
        """
        otherwise = self.spans.get("uri", self.span) if key else self.span
        return place_of(self.text, *self.spans.get(key, otherwise))


def parse_script(text: str) -> Iterator[ParsedStatement]:
    """Yield the statements of *text*, which semicolons separate, each before the next is read.

    Raises:
        StatementSyntaxError: the rest of the text does not begin with a statement.

    """
    parser = _Parser(text)
    while (parsed := parser.next_statement()) is not None:
        yield parsed


def parse_statement(text: str) -> Statement:
    """Return the only statement of *text*; the semicolon after it may be missing.

    Raises:
        StatementSyntaxError: the text is not one statement.

    """
    parser = _Parser(text)
    parsed = parser.next_statement()
    if parsed is None or parser.next_statement() is not None:
        raise StatementSyntaxError("expected one statement", text=text, span=(0, 0))
    return parsed.statement


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._token = next(self._tokens)
        self._expected: list[str] = []
        self._spans: dict[str, tuple[int, int]] = {}

    def next_statement(self) -> ParsedStatement | None:
        """Return the next statement and step over its semicolon; None at the end."""
        while self._accept_symbol(";"):
            pass
        if self._at_end():
            return None
        first, self._spans = self._token, {}
        statement = self._statement()
        if not self._accept_symbol(";") and not self._at_end():
            raise self._unexpected()
        return ParsedStatement(statement, self._text, (first.start, first.end), self._spans)

    # Rules.

    def _statement(self) -> Statement:
        self._expected.clear()  # Not the semicolon of an empty statement.
        if self._accept("CREATE"):
            return self._create()
        if self._accept("DROP"):
            return self._drop()
        if self._accept("DESCRIBE") or self._accept("DESC"):
            return self._describe()
        raise self._unexpected()

    def _create(self) -> CreateSink | CreateSource:
        if self._accept("DATA_SINK"):
            if_not_exists = self._if_not_exists()
            name = self._name("sink")
            self._expect("WITH")
            uri = self._uri()
            return CreateSink(
                name=name, uri=uri, options=self._options(), if_not_exists=if_not_exists
            )
        self._expect("DATA_SOURCE")
        if_not_exists = self._if_not_exists()
        word, table = self._target()
        self._expect("WITH")
        return CreateSource(
            word=word,
            table=table,
            sink=self._name("sink"),
            options=self._options(),
            if_not_exists=if_not_exists,
        )

    def _drop(self) -> DropSink | DropSource:
        if self._accept("DATA_SINK"):
            if_exists = self._if_exists()
            return DropSink(name=self._name("sink"), if_exists=if_exists)
        self._expect("DATA_SOURCE")
        if_exists = self._if_exists()
        word, table = self._target()
        return DropSource(word=word, table=table, if_exists=if_exists)

    def _describe(self) -> Statement:
        if self._accept("DATA_SINKS"):
            return DescribeSinks()
        if self._accept("DATA_SOURCES"):
            return DescribeSources()
        if self._accept("DATA_SINK"):
            return DescribeSink(name=self._name("sink"), as_config=self._as_config())
        self._expect("DATA_SOURCE")
        word, table = self._target()
        return DescribeSource(word=word, table=table, as_config=self._as_config())

    def _target(self) -> tuple[str, TableName]:
        word = self._name("source")
        self._expect("ON")
        self._expect("TABLE")
        first = self._token
        keyspace, name = None, self._name("table")
        if self._accept_symbol("."):
            keyspace, last = name, self._token
            name = self._name("table")
            self._spans["table"] = (first.start, last.end)
        return word, TableName(keyspace, name)

    def _if_not_exists(self) -> bool:
        if not self._accept("IF"):
            return False
        self._expect("NOT")
        self._expect("EXISTS")
        return True

    def _if_exists(self) -> bool:
        if not self._accept("IF"):
            return False
        self._expect("EXISTS")
        return True

    def _as_config(self) -> bool:
        if not self._accept("AS"):
            return False
        self._expect("CONFIG")
        return True

    def _options(self) -> Options:
        options: dict[str, str] = {}
        while self._accept("AND"):
            start = self._token.start
            name, end = self._option_name()
            self._spans[name] = (start, end)
            self._check_name(name, (start, end))
            if name in options:
                raise self._error(f"option {name} is given twice", (start, end))
            if len(options) == OPTIONS_MAX:
                raise self._error(f"more than {OPTIONS_MAX} options", (start, end))
            if not self._accept_symbol("="):
                raise self._unexpected()
            options[name] = self._value()
        return tuple(options.items())

    def _option_name(self) -> tuple[str, int]:
        """Return an option's name and where it ends: words joined by dots, or one quoted name."""
        token = self._word_or_name("option name", reserved=frozenset())
        name, end = self._name_value(token), token.end
        if token.kind is TokenKind.NAME:
            return name, end
        while self._accept_symbol("."):
            part = self._token
            if part.kind is not TokenKind.WORD:
                self._expected.append("option name")
                raise self._unexpected()
            self._advance()
            name, end = f"{name}.{part.value.lower()}", part.end
        return name, end

    def _value(self) -> str:
        token = self._token
        word = token.value.lower()
        if token.kind in (TokenKind.STRING, TokenKind.NUMBER):
            self._advance()
            return token.value
        if token.kind is TokenKind.WORD and word in ("true", "false"):
            self._advance()
            return word
        self._expected += ["string", "number", "true", "false"]
        raise self._unexpected(hint="write a text in single quotes")

    def _uri(self) -> str:
        token = self._token
        if token.kind not in (TokenKind.STRING, TokenKind.URI):
            self._expected.append("quoted URI")
            raise self._unexpected(
                hint="write the URI in single quotes: 'kafka://host:9092?topic=name'"
            )
        self._advance()
        self._spans["uri"] = (token.start, token.end)
        return token.value

    def _name(self, key: str) -> str:
        token = self._word_or_name(f"{key} name", reserved=RESERVED_WORDS)
        self._spans[key] = (token.start, token.end)
        return self._name_value(token)

    def _word_or_name(self, what: str, *, reserved: frozenset[str]) -> Token:
        token = self._token
        self._expected.append(what)
        if token.kind is TokenKind.WORD:
            if token.value.lower() in reserved:
                raise self._unexpected(
                    hint=f'{token.value} is reserved; as a name it is written "{token.value}"'
                )
        elif token.kind is not TokenKind.NAME:
            hint = "a name stands in no quotes, or in double quotes"
            raise self._unexpected(hint=hint if token.kind is TokenKind.STRING else "")
        self._check_name(token.value, (token.start, token.end))
        self._advance()
        return token

    def _check_name(self, name: str, span: tuple[int, int]) -> None:
        if not name:
            raise self._error("a name cannot be empty", span)
        if len(name) > NAME_CHARS_MAX:
            raise self._error(f"a name has at most {NAME_CHARS_MAX} characters", span)

    # Tokens.

    @staticmethod
    def _name_value(token: Token) -> str:
        return token.value.lower() if token.kind is TokenKind.WORD else token.value

    def _at_end(self) -> bool:
        return self._token.kind is TokenKind.END

    def _advance(self) -> None:
        self._token = next(self._tokens)
        self._expected.clear()

    def _accept(self, keyword: str) -> bool:
        self._expected.append(keyword)
        if self._token.kind is TokenKind.WORD and self._token.value.upper() == keyword:
            self._advance()
            return True
        return False

    def _accept_symbol(self, symbol: str) -> bool:
        self._expected.append(symbol)
        if self._token.kind is TokenKind.SYMBOL and self._token.value == symbol:
            self._advance()
            return True
        return False

    def _expect(self, keyword: str) -> None:
        if not self._accept(keyword):
            raise self._unexpected()

    # Errors.

    def _unexpected(self, *, hint: str = "") -> StatementSyntaxError:
        token = self._token
        expected = tuple(dict.fromkeys(self._expected))
        # A value may be a secret: never repeat it, not even where its quotes were forgotten.
        shown = token.kind in (TokenKind.WORD, TokenKind.SYMBOL) and "string" not in expected
        found = f"'{token.value[:40]}'" if shown else f"a {token.kind}"
        if self._at_end():
            found = "the end of the text"
        return self._error(
            f"found {found}, expected {_either(expected)}",
            (token.start, token.end),
            expected=expected,
            hint=_meant(token, expected) or hint,
        )

    def _error(
        self,
        message: str,
        span: tuple[int, int],
        *,
        expected: tuple[str, ...] = (),
        hint: str = "",
    ) -> StatementSyntaxError:
        return StatementSyntaxError(
            message, text=self._text, span=span, expected=expected, hint=hint
        )


def _either(expected: tuple[str, ...]) -> str:
    *first, last = expected
    return f"{', '.join(first)} or {last}" if first else last


def _meant(token: Token, expected: tuple[str, ...]) -> str:
    """Return the hint that a misspelt keyword or another program's statement deserves."""
    if token.kind is not TokenKind.WORD:
        return ""
    keywords = [word for word in expected if word.isupper()]
    near = difflib.get_close_matches(token.value[:40].upper(), keywords, n=1)
    if near:
        return f"did you mean {near[0]}?"
    if "CREATE" in keywords and token.value.upper() in _CQL_VERBS:
        return f"{token.value.upper()} is CQL: give it to cqlsh"
    return ""
