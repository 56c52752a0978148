"""Statements to text: the form that DESCRIBE prints and the parser reads back as the same value."""

import re
from collections.abc import Sequence
from typing import Final

from headrace.connector.language.statements import (
    AlterSink,
    AlterSource,
    Changes,
    CreateSink,
    CreateSource,
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    DropSink,
    DropSource,
    PreviewSource,
    SetPosition,
    Show,
    SourceName,
    Statement,
    SteerSource,
    TableName,
    ValidateSink,
)
from headrace.plugins.cql_text import NUMBER, quote_name, quoted_name, quoted_string

_BARE_OPTION: Final = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*")


def format_statement(statement: Statement) -> str:
    """Return the text of *statement* on one line, with its semicolon."""
    return f"{_of_sink(statement) or _of_source(statement) or _of_running(statement)};"


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


def format_table(table: TableName) -> str:
    """Return `keyspace.table`, or the table alone where there is no keyspace."""
    name = quote_name(table.name)
    return name if table.keyspace is None else f"{quote_name(table.keyspace)}.{name}"


def _target(statement: SourceName) -> str:
    return f"{quote_name(statement.word)} ON TABLE {format_table(statement.table)}"


def _if_not_exists(statement: CreateSink | CreateSource) -> str:
    return "IF NOT EXISTS " if statement.if_not_exists else ""


def _if_exists(statement: AlterSink | AlterSource | DropSink | DropSource) -> str:
    return "IF EXISTS " if statement.if_exists else ""


def _as_config(statement: DescribeSink | DescribeSource) -> str:
    return " AS CONFIG" if statement.as_config else ""


def _options(options: Changes) -> str:
    return "".join(f" AND {_option(name, value)}" for name, value in options)


def _changes(first: Sequence[str], options: Changes) -> str:
    changes = [*first, *(_option(name, value) for name, value in options)]
    return f" WITH {' AND '.join(changes)}"


def _option(name: str, value: str | None) -> str:
    return f"{_option_name(name)} = {'null' if value is None else _value(value)}"


def _option_name(name: str) -> str:
    return name if _BARE_OPTION.fullmatch(name) else quoted_name(name)


def _value(value: str) -> str:
    return value if value in ("true", "false") or NUMBER.fullmatch(value) else quoted_string(value)
