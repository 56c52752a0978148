"""Statements to text: the form that DESCRIBE prints and the parser reads back as the same value."""

import re
from typing import Final

from headrace.connector.shell.lexer import NUMBER
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

# CQL's reserved words: as names they need double quotes.
RESERVED_WORDS: Final = frozenset({
    "add", "allow", "alter", "and", "apply", "asc", "authorize", "batch", "begin", "by",
    "columnfamily", "create", "default", "delete", "desc", "describe", "drop", "entries",
    "execute", "from", "full", "grant", "if", "in", "index", "infinity", "insert", "into", "is",
    "keyspace", "limit", "materialized", "mbean", "mbeans", "modify", "nan", "norecursive",
    "not", "null", "of", "on", "or", "order", "primary", "rename", "replace", "revoke",
    "schema", "select", "set", "table", "to", "token", "truncate", "unlogged", "unset",
    "update", "use", "using", "view", "where", "with",
})  # fmt: skip
_BARE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_BARE_OPTION: Final = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*")


def format_statement(statement: Statement) -> str:
    """Return the text of *statement* on one line, with its semicolon."""
    match statement:
        case CreateSink():
            head = f"CREATE DATA_SINK {'IF NOT EXISTS ' if statement.if_not_exists else ''}"
            made = f"{format_name(statement.name)} WITH {_quoted(statement.uri)}"
            text = f"{head}{made}{_options(statement.options)}"
        case CreateSource():
            head = f"CREATE DATA_SOURCE {'IF NOT EXISTS ' if statement.if_not_exists else ''}"
            made = f"{_target(statement)} WITH {format_name(statement.sink)}"
            text = f"{head}{made}{_options(statement.options)}"
        case DropSink():
            if_exists = "IF EXISTS " if statement.if_exists else ""
            text = f"DROP DATA_SINK {if_exists}{format_name(statement.name)}"
        case DropSource():
            if_exists = "IF EXISTS " if statement.if_exists else ""
            text = f"DROP DATA_SOURCE {if_exists}{_target(statement)}"
        case DescribeSinks():
            text = "DESCRIBE DATA_SINKS"
        case DescribeSources():
            text = "DESCRIBE DATA_SOURCES"
        case DescribeSink():
            text = f"DESCRIBE DATA_SINK {format_name(statement.name)}{_as_config(statement)}"
        case DescribeSource():
            text = f"DESCRIBE DATA_SOURCE {_target(statement)}{_as_config(statement)}"
    return f"{text};"


def format_name(name: str) -> str:
    """Return *name* as CQL writes it: in double quotes only where it needs them."""
    if _BARE_NAME.fullmatch(name) and name not in RESERVED_WORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def format_table(table: TableName) -> str:
    """Return `keyspace.table`, or the table alone where there is no keyspace."""
    name = format_name(table.name)
    return name if table.keyspace is None else f"{format_name(table.keyspace)}.{name}"


def _target(statement: CreateSource | DropSource | DescribeSource) -> str:
    return f"{format_name(statement.word)} ON TABLE {format_table(statement.table)}"


def _as_config(statement: DescribeSink | DescribeSource) -> str:
    return " AS CONFIG" if statement.as_config else ""


def _options(options: Options) -> str:
    return "".join(f" AND {_option_name(name)} = {_value(value)}" for name, value in options)


def _option_name(name: str) -> str:
    return name if _BARE_OPTION.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _value(value: str) -> str:
    return value if value in ("true", "false") or NUMBER.fullmatch(value) else _quoted(value)


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
