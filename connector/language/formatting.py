"""Formats statements, in the form that DESCRIBE prints and that parses to an equal value."""

import re
from collections.abc import Sequence
from typing import Final

from headrace.connector.language.statements import (
    NO_TABLE,
    POLICIES,
    AcceptGap,
    AlterCdc,
    AlterSink,
    AlterSource,
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
    TableName,
    TailCdc,
    ValidateSink,
)
from headrace.plugins.cql_text import NUMBER, quote_name, quoted_name, quoted_string

_BARE_OPTION: Final = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*")


def format_statement(statement: Statement) -> str:
    """Return the text of *statement* on one line, with its semicolon."""
    of_source = _of_source(statement) or _of_running(statement) or _of_job(statement)
    of_run = _of_run(statement)
    return f"{_of_sink(statement) or of_source or of_run or _of_history(statement)};"


def _of_sink(statement: Statement) -> str:
    text = ""
    match statement:
        case CreateSink():
            head = f"CREATE DATA_SINK {_if_not_exists(statement)}{quote_name(statement.name)}"
            text = f"{head} WITH {quoted_string(statement.uri)}{_options(statement.options)}"
        case AlterSink():
            uri = [] if statement.uri is None else [quoted_string(statement.uri)]
            head = f"ALTER DATA_SINK {_if_exists(statement)}{quote_name(statement.name)}"
            text = f"{head}{_changes(uri, statement.options)}"
        case DropSink():
            text = f"DROP DATA_SINK {_if_exists(statement)}{quote_name(statement.name)}"
        case ValidateSink():
            text = f"VALIDATE DATA_SINK {quote_name(statement.name)}"
        case DescribeSinks():
            text = "DESCRIBE DATA_SINKS"
        case DescribeSink():
            text = f"DESCRIBE DATA_SINK {quote_name(statement.name)}{_as_config(statement)}"
    return text


def _of_source(statement: Statement) -> str:
    text = ""
    match statement:
        case CreateSource():
            head = f"CREATE DATA_SOURCE {_if_not_exists(statement)}{_target(statement)}"
            text = f"{head} WITH {quote_name(statement.sink)}{_options(statement.options)}"
        case AlterSource():
            sink = [] if statement.sink is None else [quote_name(statement.sink)]
            head = f"ALTER DATA_SOURCE {_if_exists(statement)}{_target(statement)}"
            text = f"{head}{_changes(sink, statement.options)}"
        case DropSource():
            text = f"DROP DATA_SOURCE {_if_exists(statement)}{_target(statement)}"
        case DescribeSources():
            text = "DESCRIBE DATA_SOURCES"
        case DescribeSource():
            text = f"DESCRIBE DATA_SOURCE {_target(statement)}{_as_config(statement)}"
    return text


def _of_running(statement: Statement) -> str:
    text = ""
    match statement:
        case SetPosition():
            split = (
                "" if statement.split is None else f" FOR SPLIT {quoted_string(statement.split)}"
            )
            dry_run = " DRY RUN" if statement.dry_run else ""
            moved = f"SET POSITION = {quoted_string(statement.position)}{split}{dry_run}"
            text = f"ALTER DATA_SOURCE {_target(statement)} {moved}"
        case SetMode():
            node = f" FOR NODE {quoted_string(statement.node)}" if statement.node else ""
            wait = f" WAIT {quoted_string(statement.wait)}" if statement.wait else ""
            asked = f"SET MODE = {quoted_string(statement.mode)}{node}{wait}"
            text = f"ALTER DATA_SOURCE {_target(statement)} {asked}"
        case SteerSource():
            text = f"{statement.verb} DATA_SOURCE {_target(statement)}"
        case PreviewSource():
            limit = "" if statement.limit is None else f" LIMIT {statement.limit}"
            text = f"PREVIEW DATA_SOURCE {_target(statement)}{limit}"
        case Show(source=None):
            text = f"SHOW {statement.subject}"
        case Show(source=SourceName() as source):
            text = f"SHOW {statement.subject} FOR DATA_SOURCE {_target(source)}"
    return text


def _of_run(statement: Statement) -> str:
    text = ""
    match statement:
        case SnapshotSource():
            where = " AND ".join(map(_condition, statement.where))
            head = f"SNAPSHOT DATA_SOURCE {_target(statement)}{' WHERE ' if where else ''}{where}"
            text = f"{head}{_with(statement.options)}"
        case BulkSource():
            since = "" if statement.since is None else f" FROM {_literal(statement.since)}"
            before = "" if statement.before is None else f" TO {_literal(statement.before)}"
            head = f"{statement.verb} DATA_SOURCE {_target(statement)}{since}{before}"
            text = f"{head}{_with(statement.options)}"
        case SteerRun():
            text = f"{statement.verb} RUN {quoted_string(statement.name)}"
        case DropRun():
            text = f"DROP RUN {quoted_string(statement.name)}"
    return text


def _of_job(statement: Statement) -> str:
    text = ""
    match statement:
        case AcceptGap():
            policy = "" if statement.policy == POLICIES[0] else f" {statement.policy}"
            text = f"ACCEPT GAP {quoted_string(statement.gap)}{_for_job(statement)}{policy}"
        case RedriveLetters(number=None):
            text = f"REDRIVE DEAD_LETTERS{_for_job(statement)}"
        case RedriveLetters():
            text = f"REDRIVE DEAD_LETTER {statement.number}{_for_job(statement)}"
    return text


def _for_job(statement: AcceptGap | RedriveLetters) -> str:
    return f" FOR JOB {quoted_string(statement.job)}"


def _of_history(statement: Statement) -> str:
    text = ""
    match statement:
        case CreateCdc():
            head = f"CREATE CDC {_if_not_exists(statement)}{quote_name(statement.name)}"
            on = f"{head} ON {format_table(statement.table)}{_include(statement.include)}"
            text = f"{on}{_with(statement.options)}"
        case AlterCdc():
            head = f"ALTER CDC {_if_exists(statement)}{quote_name(statement.name)}"
            text = f"{head}{_include(statement.include)}{_with(statement.options)}"
        case DropCdc():
            purge = " PURGE" if statement.purge else ""
            text = f"DROP CDC {_if_exists(statement)}{quote_name(statement.name)}{purge}"
        case DescribeCdc(name=None):
            text = "DESCRIBE CDC"
        case DescribeCdc(name=str() as name):
            text = f"DESCRIBE CDC {quote_name(name)}"
        case SelectCdc():
            text = _select(statement)
        case TailCdc() | PollCdc():
            text = _followed(statement)
    return text


def _include(scopes: Sequence[str]) -> str:
    return f" INCLUDE ({', '.join(scopes).upper()})" if scopes else ""


def _select(statement: SelectCdc) -> str:
    hint = ""
    if statement.scopes is not None:
        hint = f" /*+ CDC_INCLUDE({', '.join(statement.scopes).upper()}) */"
    columns = ", ".join(map(quote_name, statement.columns)) or "*"
    head = f"SELECT{hint} {'JSON' if statement.as_json else columns}"
    where = " AND ".join(map(_condition, statement.where))
    parts = [
        f"{head} FROM {quote_name(statement.name)}",
        f"WHERE {where}" if where else "",
        "ORDER BY CDC_TIME() DESC" if statement.descending else "",
        f"LIMIT {statement.limit}" if statement.limit is not None else "",
        f"AFTER {quoted_string(statement.after)}" if statement.after else "",
        f"LATEST FROM SOURCE CONSISTENCY {statement.source_level}"
        if statement.source_level
        else "",
    ]
    return " ".join(part for part in parts if part)


def _followed(statement: TailCdc | PollCdc) -> str:
    since = "" if statement.since is None else f"FROM {_literal(statement.since)}"
    json = "JSON" if statement.as_json else ""
    name = quote_name(statement.name)
    if isinstance(statement, PollCdc):
        pace = f"EVERY {quoted_string(statement.every)} SAFETY {quoted_string(statement.safety)}"
        parts = ["POLL", name, json, pace, since]
    else:
        after = f"AFTER {quoted_string(statement.after)}" if statement.after else ""
        limit = "" if statement.limit is None else f"LIMIT {statement.limit}"
        wait = f"WAIT {quoted_string(statement.wait)}" if statement.wait else ""
        parts = ["TAIL", name, json, since, after, limit, wait]
    return " ".join(part for part in parts if part)


def _condition(condition: Condition) -> str:
    column = condition.column
    name = column.upper() if column.endswith("()") else quote_name(column)
    values = ", ".join(map(_literal, condition.values))
    if condition.comparison is Comparison.IN:
        return f"{name} IN ({values})"
    return f"{name} {condition.comparison} {values}"


def _literal(value: Literal) -> str:
    match value:
        case Moment(given=None, ago=ago):
            return f"NOW() - {quoted_string(ago)}" if ago else "NOW()"
        case Moment(given=given):
            return f"TO_DATE({quoted_string(str(given))})"
        case str():
            return quoted_string(value)
        case bool():
            return str(value).lower()
    return str(value)


def format_table(table: TableName) -> str:
    """Return `keyspace.table`, or the table alone if it has no keyspace."""
    name = quote_name(table.name)
    return name if table.keyspace is None else f"{quote_name(table.keyspace)}.{name}"


def format_source(word: str, table: TableName) -> str:
    """Return the name of a source in statements: `cdc ON TABLE shop.orders`."""
    on_table = "" if table == NO_TABLE else f" ON TABLE {format_table(table)}"
    return f"{quote_name(word)}{on_table}"


def _target(statement: SourceName) -> str:
    return format_source(statement.word, statement.table)


def _if_not_exists(statement: CreateSink | CreateSource | CreateCdc) -> str:
    return "IF NOT EXISTS " if statement.if_not_exists else ""


def _if_exists(
    statement: AlterSink | AlterSource | DropSink | DropSource | AlterCdc | DropCdc,
) -> str:
    return "IF EXISTS " if statement.if_exists else ""


def _as_config(statement: DescribeSink | DescribeSource) -> str:
    return " AS CONFIG" if statement.as_config else ""


def _options(options: Changes) -> str:
    return "".join(f" AND {_option(name, value)}" for name, value in options)


def _with(options: Changes) -> str:
    return _changes([], options) if options else ""


def _changes(first: Sequence[str], options: Changes) -> str:
    changes = [*first, *(_option(name, value) for name, value in options)]
    return f" WITH {' AND '.join(changes)}"


def _option(name: str, value: str | None) -> str:
    return f"{_option_name(name)} = {'null' if value is None else _value(value)}"


def _option_name(name: str) -> str:
    return name if _BARE_OPTION.fullmatch(name) else quoted_name(name)


def _value(value: str) -> str:
    return value if value in ("true", "false") or NUMBER.fullmatch(value) else quoted_string(value)
