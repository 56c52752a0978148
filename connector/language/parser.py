"""Recursive descent over the tokens: the grammar in docs/statements.md, one method per rule.

It is never recursive, because nothing in the grammar nests.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.connector.language.cursor import Cursor
from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.places import Place, place_of
from headrace.connector.language.statements import (
    NO_TABLE,
    POLICIES,
    TIME_HINT,
    TOKEN_COLUMN,
    AcceptGap,
    AlterCdc,
    AlterSink,
    AlterSource,
    Bulk,
    BulkSource,
    Changes,
    Comparison,
    Condition,
    CreateCdc,
    CreateSink,
    CreateSource,
    DescribeCdc,
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    DropCdc,
    DropRun,
    DropSink,
    DropSource,
    Literal,
    Moment,
    Options,
    PollCdc,
    PreviewSource,
    RedriveLetters,
    SelectCdc,
    SetMode,
    SetPosition,
    Show,
    SnapshotSource,
    SourceName,
    Statement,
    SteerRun,
    SteerSource,
    Subject,
    TableName,
    TailCdc,
    ValidateSink,
    Verb,
)
from headrace.plugins.config.realtime_options import LOG, REALTIME
from headrace.plugins.cql_text import NUMBER, RESERVED_WORDS, Token, TokenKind

OPTIONS_MAX: Final = 256
MODES: Final = (REALTIME, LOG)
PREVIEW_MAX: Final = 1000
SELECT_MAX: Final = 10_000

# The names of the functions of a SELECT, Phoenix's included.
CDC_TIME: Final = "cdc_time()"
PARTITION_ID: Final = "partition_id()"
WRITE_TIME: Final = "write_time()"
_FUNCTIONS: Final = {
    "cdc_time": CDC_TIME,
    "phoenix_row_timestamp": CDC_TIME,
    "partition_id": PARTITION_ID,
    "write_time": WRITE_TIME,
}
LEVELS: Final = ("LOCAL_QUORUM", "QUORUM", "ALL", "LOCAL_ONE", "ONE")
"""The consistency levels of a read of the source; the first is the default."""
_SCOPES: Final = ("CHANGE", "PRE", "POST", "LATEST", "ALL")
_HINT: Final = re.compile(r"\s*/\*\+\s*CDC_INCLUDE\s*\(([A-Za-z_,\s]*)\)\s*\*/", re.IGNORECASE)
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_WHOLE: Final = re.compile(r"-?[0-9]{1,40}")

_URI_HINT: Final = "write the URI in single quotes: 'kafka://host:9092?topic=name'"
_MODE_HINT: Final = "in single quotes: 'realtime' or 'log'"
_RUN_HINT: Final = "in single quotes, as SHOW RUNS shows it"
_BOUNDS: Final = (Comparison.AT_LEAST, Comparison.AFTER, Comparison.AT_MOST, Comparison.BEFORE)
_POSITION_HINT: Final = "in single quotes: 'earliest', 'latest', a time, or what SHOW OFFSETS shows"


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement and its place; `spans` bounds its parts by the keys that errors name.

    The keys are `sink`, `uri`, `source`, `table`, `position`, `split`, `mode`, `node`, `wait`,
    `limit`, `run`, `from`, `to`, `gap`, `job`, those of columns, and the names of the options.
    """

    statement: Statement
    text: str = field(repr=False)
    span: tuple[int, int]
    spans: Mapping[str, tuple[int, int]] = field(repr=False)

    def place(self, key: str = "") -> Place:
        """Return the place of the part named *key*; an option not named is in the URI.

        Without a key or a URI, it is the start of the statement.
        """
        otherwise = self.spans.get("uri", self.span) if key else self.span
        return place_of(self.text, *self.spans.get(key, otherwise))


def parse_script(text: str) -> Iterator[ParsedStatement]:
    """Yield the statements of *text*, which semicolons separate, each before the next is read.

    Raises:
        StatementSyntaxError: the rest of the text does not start with a statement.

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


@dataclass(frozen=True, slots=True)
class Outlook:
    """The continuations of an incomplete statement.

    `expected` is as in StatementSyntaxError, empty if the text cannot start a statement. `option`
    is the option whose value is expected; `spans` bounds the parts that were read.
    """

    expected: tuple[str, ...]
    option: str
    spans: Mapping[str, tuple[int, int]] = field(repr=False)


def outlook(text: str) -> Outlook:
    """Return the continuations of *text*, whose last statement is incomplete."""
    try:
        parser = _Parser(text)
    except StatementSyntaxError:
        return Outlook((), "", {})
    return parser.outlook()


class _Parser:
    def __init__(self, text: str) -> None:
        self._at = Cursor(text)
        self._option_read = ""

    def next_statement(self) -> ParsedStatement | None:
        """Return the next statement and step over its semicolon; None at the end."""
        at = self._at
        while at.accept(";"):
            pass
        if at.at_end:
            return None
        parsed = self._next()
        if not at.accept(";") and not at.at_end:
            raise at.unexpected()
        return parsed

    def outlook(self) -> Outlook:
        """Read all of the text; return the tokens expected at its end."""
        at = self._at
        try:
            while True:
                self._next()
                if not at.accept(";"):
                    break
        except StatementSyntaxError:
            pass
        expected = at.expected if at.at_end else ()
        return Outlook(expected, self._option_read, at.spans)

    # Rules.

    def _next(self) -> ParsedStatement:
        at = self._at
        at.forget()  # Drop the semicolon of an empty statement.
        first, at.spans, self._option_read = at.token, {}, ""
        return ParsedStatement(self._statement(), at.text, (first.start, first.end), at.spans)

    def _statement(self) -> Statement:
        for keyword, rule in _RULES:
            if self._at.accept(keyword):
                return rule(self)
        for verb in Verb:
            if self._at.accept(verb):
                return self._steer(verb)
        raise self._at.unexpected()

    def create(self) -> CreateSink | CreateSource | CreateCdc:
        at = self._at
        if at.accept("DATA_SINK"):
            if_not_exists = self._has("IF", "NOT", "EXISTS")
            name = at.name("sink")
            at.expect("WITH")
            uri = self._uri()
            return CreateSink(
                name=name, uri=uri, options=self._options(), if_not_exists=if_not_exists
            )
        if not at.accept("DATA_SOURCE"):
            at.expect("CDC")
            return self._create_cdc()
        if_not_exists = self._has("IF", "NOT", "EXISTS")
        word, table = self._target()
        at.expect("WITH")
        return CreateSource(
            word=word,
            table=table,
            sink=at.name("sink"),
            options=self._options(),
            if_not_exists=if_not_exists,
        )

    def alter(self) -> AlterSink | AlterSource | SetPosition | SetMode | AlterCdc:
        at = self._at
        if at.accept("DATA_SINK"):
            if_exists = self._has("IF", "EXISTS")
            name = at.name("sink")
            at.expect("WITH")
            uri = at.accept_kind("quoted URI", TokenKind.STRING, TokenKind.URI)
            if uri is not None:
                at.spans["uri"] = (uri.start, uri.end)
            first = None if uri else at.word_or_name("option name", reserved=frozenset())
            options = self._changes(first=first)
            return AlterSink(
                name=name, uri=uri.value if uri else None, options=options, if_exists=if_exists
            )
        if not at.accept("DATA_SOURCE"):
            at.expect("CDC")
            return self._alter_cdc()
        if_exists = self._has("IF", "EXISTS")
        word, table = self._target()
        if not if_exists and at.accept("SET"):
            if at.accept("MODE"):
                return self._set_mode(word, table)
            return self._set_position(word, table)
        at.expect("WITH")
        at.accept_kind("sink name")  # Any name passes: the next tokens decide.
        first = at.word_or_name("option name", reserved=frozenset())
        if at.token.kind is TokenKind.SYMBOL and at.token.value in ".=":
            sink, options = None, self._changes(first=first)
        else:
            sink, options = self._sink(first), self._changes()
        return AlterSource(word=word, table=table, sink=sink, options=options, if_exists=if_exists)

    def _sink(self, token: Token) -> str:
        span = (token.start, token.end)
        if token.kind is TokenKind.WORD and token.folded in RESERVED_WORDS:
            message = f'{token.value} is reserved; as a name it is written "{token.value}"'
            raise self._at.error(message, span)
        self._at.spans["sink"] = span
        return token.folded

    def _set_position(self, word: str, table: TableName) -> SetPosition:
        at = self._at
        at.expect("POSITION")
        at.expect("=")
        at.spans["position"] = (at.token.start, at.token.end)
        position = at.string("quoted position", hint=_POSITION_HINT)
        split = None
        if at.accept("FOR"):
            at.expect("SPLIT")
            at.spans["split"] = (at.token.start, at.token.end)
            split = at.string("quoted split", hint="in single quotes, as SHOW SPLITS shows it")
        dry_run = self._has("DRY", "RUN")
        return SetPosition(word=word, table=table, position=position, split=split, dry_run=dry_run)

    def _set_mode(self, word: str, table: TableName) -> SetMode:
        at = self._at
        at.expect("=")
        token = at.token
        at.spans["mode"] = (token.start, token.end)
        mode = at.string("quoted mode", hint=_MODE_HINT)
        if mode not in MODES:
            raise at.error(f"mode {mode[:16]!r} is unknown", at.spans["mode"], hint=_MODE_HINT)
        node = ""
        if at.accept("FOR"):
            at.expect("NODE")
            node = self._quoted("node", "in single quotes, as SHOW MODE shows it")
        wait = self._duration("wait") if at.accept("WAIT") else ""
        return SetMode(word=word, table=table, mode=mode, node=node, wait=wait)

    def drop(self) -> DropSink | DropSource | DropCdc | DropRun:
        at = self._at
        if at.accept("DATA_SINK"):
            if_exists = self._has("IF", "EXISTS")
            return DropSink(name=at.name("sink"), if_exists=if_exists)
        if not at.accept("DATA_SOURCE"):
            if at.accept("RUN"):
                return DropRun(name=self._quoted("run", _RUN_HINT))
            at.expect("CDC")
            return self._drop_cdc()
        if_exists = self._has("IF", "EXISTS")
        word, table = self._target()
        return DropSource(word=word, table=table, if_exists=if_exists)

    def describe(self) -> Statement:
        at = self._at
        if at.accept("DATA_SINKS"):
            return DescribeSinks()
        if at.accept("DATA_SOURCES"):
            return DescribeSources()
        if at.accept("CDC"):
            named = at.token.kind in (TokenKind.WORD, TokenKind.NAME)
            return DescribeCdc(name=at.name("cdc") if named else None)
        if at.accept("DATA_SINK"):
            return DescribeSink(name=at.name("sink"), as_config=self._has("AS", "CONFIG"))
        at.expect("DATA_SOURCE")
        word, table = self._target()
        return DescribeSource(word=word, table=table, as_config=self._has("AS", "CONFIG"))

    def show(self) -> Show:
        at = self._at
        for subject in Subject:
            if subject is not Subject.MODE_CHANGES and at.accept(subject):
                if subject is Subject.MODE and at.accept("CHANGES"):
                    subject = Subject.MODE_CHANGES  # noqa: PLW2901 (it has two words)
                if not at.accept("FOR"):
                    return Show(subject=subject)
                at.expect("DATA_SOURCE")
                return Show(subject=subject, source=SourceName(*self._target()))
        raise at.unexpected()

    def validate(self) -> ValidateSink:
        self._at.expect("DATA_SINK")
        return ValidateSink(name=self._at.name("sink"))

    def _steer(self, verb: Verb) -> SteerSource | SteerRun:
        at = self._at
        if verb is not Verb.RESTART and (at.accept("RUN") or at.accept("SNAPSHOT")):
            return SteerRun(verb=verb, name=self._quoted("run", _RUN_HINT))
        at.expect("DATA_SOURCE")
        word, table = self._target()
        return SteerSource(verb=verb, word=word, table=table)

    def snapshot(self) -> SnapshotSource:
        at = self._at
        at.expect("DATA_SOURCE")
        word, table = self._target()
        where = []
        if at.accept("WHERE"):
            where.append(self._part())
            while at.accept("AND"):
                where.append(self._part())
        options = self._with_options()
        return SnapshotSource(word=word, table=table, where=tuple(where), options=options)

    def replay(self) -> BulkSource:
        return self._bulk(Bulk.REPLAY)

    def reconcile(self) -> BulkSource:
        return self._bulk(Bulk.RECONCILE)

    def _bulk(self, verb: Bulk) -> BulkSource:
        at = self._at
        at.expect("DATA_SOURCE")
        word, table = self._target()
        since = self._since()
        before = None
        if at.accept("TO"):
            at.spans["to"] = (at.token.start, at.token.end)
            before = self._literal("quoted time")
        options = self._with_options()
        return BulkSource(
            verb=verb, word=word, table=table, since=since, before=before, options=options
        )

    def _with_options(self) -> Options:
        """Read `WITH option = value AND …` if it is next."""
        found: dict[str, str] = {}
        if self._at.accept("WITH"):
            name = self._option_name(found)
            found[name] = self._value()
            while self._at.accept("AND"):
                name = self._option_name(found)
                found[name] = self._value()
        return tuple(found.items())

    def _part(self) -> Condition:
        """Read a bound of the token, or the value of a column of the partition key."""
        at = self._at
        first = at.token
        if at.accept("TOKEN"):
            at.expect("(", ")")
            column = TOKEN_COLUMN
        else:
            column = at.word_or_name("column name", reserved=RESERVED_WORDS).folded
        at.spans.setdefault(column.removesuffix("()"), (first.start, first.end))
        for comparison in _BOUNDS if column == TOKEN_COLUMN else (Comparison.EQUAL,):
            if at.accept(*comparison):
                return Condition(column, comparison, (self._part_value(),))
        raise at.unexpected()

    def _part_value(self) -> Literal:
        """Read a value; a token and a `bigint` have more digits than a time."""
        token = self._at.token
        if token.kind is TokenKind.NUMBER and _WHOLE.fullmatch(token.value):
            return int(self._at.advance().value)
        return self._literal()

    def accept(self) -> AcceptGap:
        self._at.expect("GAP")
        gap = self._quoted("gap", "the console and `headrace gaps` show it")
        job = self._of_job()
        policy = next((each for each in POLICIES if self._at.accept(each)), POLICIES[0])
        return AcceptGap(gap=gap, job=job, policy=policy)

    def redrive(self) -> RedriveLetters:
        at = self._at
        if at.accept("DEAD_LETTERS"):
            return RedriveLetters(job=self._of_job())
        at.expect("DEAD_LETTER")
        token = at.accept_kind("number", TokenKind.NUMBER)
        if token is None:
            raise at.unexpected()
        if not _INTEGER.fullmatch(token.value):
            raise at.error(f"{token.value} is not a whole number", (token.start, token.end))
        return RedriveLetters(job=self._of_job(), number=int(token.value))

    def _of_job(self) -> str:
        self._at.expect("FOR", "JOB")
        return self._quoted("job", "in single quotes, as SHOW STATUS shows it")

    def _quoted(self, what: str, hint: str) -> str:
        at = self._at
        at.spans[what] = (at.token.start, at.token.end)
        found = at.string(f"quoted {what}", hint=hint)
        at.check_name(found, at.spans[what])
        return found

    def preview(self) -> PreviewSource:
        at = self._at
        at.expect("DATA_SOURCE")
        word, table = self._target()
        limit = self._limit(PREVIEW_MAX)
        return PreviewSource(word=word, table=table, limit=limit)

    def _limit(self, most: int) -> int | None:
        if not self._at.accept("LIMIT"):
            return None
        token = self._at.accept_kind("number", TokenKind.NUMBER)
        if token is None:
            raise self._at.unexpected()
        digits = token.value
        fits = digits.isdecimal() and len(digits) < len(str(most)) + 1
        if not fits or not 1 <= int(digits) <= most:
            message = f"LIMIT is a whole number from 1 to {most}"
            raise self._at.error(message, (token.start, token.end))
        return int(digits)

    # Histories.

    def _create_cdc(self) -> CreateCdc:
        at = self._at
        if_not_exists = self._has("IF", "NOT", "EXISTS")
        name = at.name("cdc")
        at.expect("ON")
        at.accept("TABLE")
        table = self._table()
        include = self._include()
        options = dict(self._with_options())
        if not options:
            self._phoenix_options(options)
        return CreateCdc(
            name=name,
            table=table,
            include=include,
            options=tuple(options.items()),
            if_not_exists=if_not_exists,
        )

    def _phoenix_options(self, options: dict[str, str]) -> None:
        """Read options in Phoenix's spelling: without WITH and AND, with optional commas."""
        at = self._at
        while True:
            if at.accept("SALT_BUCKETS"):
                at.expect("=")
                at.spans["buckets"] = (at.token.start, at.token.end)
                options["buckets"] = self._value()
            elif at.accept("INDEX"):  # Both mean the same here: the history has an index.
                at.expect("=")
                if not at.accept("GLOBAL") and not at.accept("LOCAL"):
                    raise at.unexpected()
            else:
                return
            at.accept(",")

    def _alter_cdc(self) -> AlterCdc:
        at = self._at
        if_exists = self._has("IF", "EXISTS")
        name = at.name("cdc")
        include = self._include()
        options: Changes = ()
        if include and not at.accept("WITH"):
            return AlterCdc(name=name, include=include, if_exists=if_exists)
        if not include:
            at.expect("WITH")
        first = at.word_or_name("option name", reserved=frozenset())
        options = self._changes(first=first)
        return AlterCdc(name=name, include=include, options=options, if_exists=if_exists)

    def _drop_cdc(self) -> DropCdc:
        at = self._at
        if_exists = self._has("IF", "EXISTS")
        name = at.name("cdc")
        if at.accept("ON"):  # Phoenix's form: the name is enough.
            self._table()
        return DropCdc(name=name, if_exists=if_exists, purge=at.accept("PURGE"))

    def _include(self) -> tuple[str, ...]:
        """Read `INCLUDE (…)` if it is next."""
        at = self._at
        if not at.accept("INCLUDE"):
            return ()
        at.expect("(")
        start = at.token.start
        found = [self._scope()]
        while at.accept(",") or at.accept("|"):
            found.append(self._scope())
        at.spans["include"] = (start, at.token.start)
        at.expect(")")
        return _scopes(found)

    def _scope(self) -> str:
        for scope in _SCOPES:
            if self._at.accept(scope):
                return scope.lower()
        raise self._at.unexpected()

    def select(self) -> SelectCdc:
        at = self._at
        scopes = self._scopes_of_hint()
        as_json = at.accept("JSON")
        columns = () if as_json or at.accept("*") else self._columns()
        at.expect("FROM")
        name = at.name("cdc")
        if at.token.keyword == ".":
            hint = "a SELECT of a table is CQL: give it to cqlsh, or to headrace shell HOST"
            raise at.error("a CDC has no keyspace", (at.token.start, at.token.end), hint=hint)
        where = self._where()
        descending = False
        if at.accept("ORDER"):
            at.expect("BY")
            self._order()
            descending = at.accept("DESC")
            if not descending:
                at.accept("ASC")
        limit = self._limit(SELECT_MAX)
        after = ""
        if at.accept("AFTER"):
            at.spans["after"] = (at.token.start, at.token.end)
            after = at.string("quoted token", hint="the `next_token` of the page before")
        level = ""
        if at.accept("LATEST"):
            at.expect("FROM", "SOURCE")
            level = self._level() if at.accept("CONSISTENCY") else LEVELS[0]
        return SelectCdc(
            name=name,
            columns=columns,
            as_json=as_json,
            scopes=scopes,
            where=where,
            descending=descending,
            limit=limit,
            after=after,
            source_level=level,
        )

    def _level(self) -> str:
        at = self._at
        at.spans["level"] = (at.token.start, at.token.end)
        for level in LEVELS:
            if at.accept(level):
                return level
        raise at.unexpected()

    def tail(self) -> TailCdc:
        at = self._at
        name = at.name("cdc")
        as_json = at.accept("JSON")
        since = self._since()
        after = ""
        if since is None and at.accept("AFTER"):
            at.spans["after"] = (at.token.start, at.token.end)
            after = at.string("quoted token", hint="the `next_token` of the answer before")
        limit = self._limit(SELECT_MAX)
        wait = self._duration("wait") if at.accept("WAIT") else ""
        return TailCdc(name=name, as_json=as_json, since=since, after=after, limit=limit, wait=wait)

    def poll(self) -> PollCdc:
        at = self._at
        name = at.name("cdc")
        as_json = at.accept("JSON")
        at.expect("EVERY")
        every = self._duration("every")
        at.expect("SAFETY")
        safety = self._duration("safety")
        return PollCdc(name=name, every=every, safety=safety, as_json=as_json, since=self._since())

    def _since(self) -> Literal | None:
        at = self._at
        if not at.accept("FROM"):
            return None
        at.spans["from"] = (at.token.start, at.token.end)
        return self._literal()

    def _duration(self, key: str) -> str:
        at = self._at
        at.spans[key] = (at.token.start, at.token.end)
        token = at.accept_kind("duration", TokenKind.STRING, TokenKind.NUMBER)
        if token is None:
            raise at.unexpected(hint="a number and ms, s, m, h or d: 500ms, 15m")
        return token.value

    def _scopes_of_hint(self) -> tuple[str, ...] | None:
        """Return the scopes in the hint after SELECT, which the lexer reads as a comment."""
        at = self._at
        found = _HINT.search(at.text, at.behind, at.token.start)
        if found is None:
            return None
        named = [word.strip().upper() for word in found[1].split(",")]
        unknown = [word for word in named if word not in _SCOPES]
        if unknown:
            message = f"CDC_INCLUDE has {', '.join(_SCOPES)}, found {unknown[0]!r}"
            raise at.error(message, found.span(1))
        return _scopes([word.lower() for word in named])

    def _columns(self) -> tuple[str, ...]:
        at = self._at
        found = []
        while True:
            first = at.token
            column = self._column()
            at.spans[column] = (first.start, first.end)
            found.append(column.removesuffix("()"))
            if not at.accept(","):
                return tuple(found)

    def _column(self) -> str:
        """Read the name of a column, or a function without arguments; return our name of it."""
        at = self._at
        token = at.word_or_name("column name", reserved=RESERVED_WORDS)
        if token.kind is TokenKind.WORD and at.accept("("):
            at.expect(")")
            if token.folded not in _FUNCTIONS:
                known = ", ".join(f"{name.upper()}()" for name in _FUNCTIONS)
                span = (token.start, token.end)
                raise at.error(f"{token.value}() is unknown, there are {known}", span)
            return _FUNCTIONS[token.folded]
        return token.folded

    def _order(self) -> None:
        at = self._at
        first = at.token
        if not at.accept("CDC_TIME") and not at.accept("PHOENIX_ROW_TIMESTAMP"):
            message = "expected CDC_TIME(): changes have no other order"
            raise at.error(message, (first.start, first.end))
        at.expect("(", ")")

    def _where(self) -> tuple[Condition, ...]:
        at = self._at
        if not at.accept("WHERE"):
            return ()
        found = [self._condition()]
        while at.accept("AND"):
            found.append(self._condition())
        return tuple(found)

    def _condition(self) -> Condition:
        at = self._at
        first = at.token
        column = self._column()
        at.spans.setdefault(column.removesuffix("()"), (first.start, first.end))
        kind = "quoted operation" if column == "op" else "string"
        if at.accept("IN"):
            at.expect("(")
            values = [self._literal(kind)]
            while at.accept(","):
                values.append(self._literal(kind))
            at.expect(")")
            return Condition(column, Comparison.IN, tuple(values))
        for comparison in list(Comparison)[:-1]:  # The operators but IN, which was tried.
            if at.accept(*comparison):
                return Condition(column, comparison, (self._literal(kind),))
        raise at.unexpected()

    def _literal(self, kind: str = "string") -> Literal:
        """Read a value: a string, a number, a boolean, `NOW() - '15m'` or `TO_DATE('…')`."""
        at = self._at
        if at.accept("NOW"):
            at.expect("(", ")")
            ago = ""
            if at.accept("-"):
                ago = self._duration("ago")
            return Moment(None, ago)
        if at.accept("TO_DATE"):
            at.expect("(")
            given = at.string("quoted time", hint=TIME_HINT)
            at.expect(")")
            return Moment(given)
        token = at.accept_kind(kind, TokenKind.STRING, TokenKind.UUID)
        if token is not None:
            return token.value
        token = at.accept_kind("number", TokenKind.NUMBER)
        if token is not None:
            if not NUMBER.fullmatch(token.value):  # A duration.
                message = f"{token.value} is not a value of a column"
                raise at.error(message, (token.start, token.end), hint="NOW() - 5m is a time")
            return int(token.value) if _INTEGER.fullmatch(token.value) else float(token.value)
        for word in ("TRUE", "FALSE"):
            if at.accept(word):
                return word == "TRUE"
        raise at.unexpected()

    def _target(self) -> tuple[str, TableName]:
        at = self._at
        word = at.name("source")
        if not at.accept("ON"):
            return word, NO_TABLE
        at.expect("TABLE")
        return word, self._table()

    def _table(self) -> TableName:
        at = self._at
        first = at.token
        keyspace, name = None, at.name("table")
        if at.accept("."):
            keyspace, last = name, at.token
            name = at.name("table")
            at.spans["table"] = (first.start, last.end)
        return TableName(keyspace, name)

    def _has(self, first: str, *rest: str) -> bool:
        """Step over *first* and the words that must follow, if it is next; return whether it is."""
        found = self._at.accept(first)
        if found:
            self._at.expect(*rest)
        return found

    def _options(self) -> Options:
        found: dict[str, str] = {}
        while self._at.accept("AND"):
            name = self._option_name(found)
            found[name] = self._value()
        return tuple(found.items())

    def _changes(self, *, first: Token | None = None) -> Changes:
        """Read options that may be null; *first* is the part of a name that was already read."""
        found: dict[str, str | None] = {}
        while first is not None or self._at.accept("AND"):
            name, first = self._option_name(found, first=first), None
            found[name] = None if self._at.accept("NULL") else self._value()
        return tuple(found.items())

    def _option_name(self, before: Mapping[str, object], *, first: Token | None = None) -> str:
        """Return an option's name and step over its `=`: words joined by dots, or a quoted name."""
        at = self._at
        token = first or at.word_or_name("option name", reserved=frozenset())
        name, span = token.folded, (token.start, token.end)
        while token.kind is TokenKind.WORD and at.accept("."):
            part = at.accept_kind("option name", TokenKind.WORD)
            if part is None:
                raise at.unexpected()
            name, span = f"{name}.{part.folded}", (token.start, part.end)
        at.spans[name] = span
        at.check_name(name, span)
        if name in before:
            raise at.error(f"option {name} is given twice", span)
        if len(before) == OPTIONS_MAX:
            raise at.error(f"more than {OPTIONS_MAX} options", span)
        at.expect("=")
        self._option_read = name
        return name

    def _value(self) -> str:
        at = self._at
        token = at.accept_kind("string", TokenKind.STRING) or at.accept_kind(
            "number", TokenKind.NUMBER
        )
        if token is not None:
            return token.value
        for word in ("TRUE", "FALSE"):
            if at.accept(word):
                return word.lower()
        raise at.unexpected(hint="write a text in single quotes")

    def _uri(self) -> str:
        at = self._at
        token = at.accept_kind("quoted URI", TokenKind.STRING, TokenKind.URI)
        if token is None:
            raise at.unexpected(hint=_URI_HINT)
        at.spans["uri"] = (token.start, token.end)
        return token.value


_RULES: Final[Sequence[tuple[str, Callable[[_Parser], Statement]]]] = (
    ("CREATE", _Parser.create),
    ("ALTER", _Parser.alter),
    ("DROP", _Parser.drop),
    ("DESCRIBE", _Parser.describe),
    ("DESC", _Parser.describe),
    ("SHOW", _Parser.show),
    ("VALIDATE", _Parser.validate),
    ("PREVIEW", _Parser.preview),
    ("SNAPSHOT", _Parser.snapshot),
    ("BACKFILL", _Parser.snapshot),
    ("REPLAY", _Parser.replay),
    ("RECONCILE", _Parser.reconcile),
    ("ACCEPT", _Parser.accept),
    ("REDRIVE", _Parser.redrive),
    ("SELECT", _Parser.select),
    ("TAIL", _Parser.tail),
    ("POLL", _Parser.poll),
)


def _scopes(named: Sequence[str]) -> tuple[str, ...]:
    """Return scopes in a fixed order, each once."""
    every = [scope.lower() for scope in _SCOPES[:-1]]
    return tuple(scope for scope in every if scope in named or "all" in named)
