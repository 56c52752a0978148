"""Reads a schema from DDL text, taken as a history: statements apply in their order.

It parses CREATE, ALTER and DROP of keyspaces, types, tables and materialized views, and USE. It
skips indexes, functions, aggregates, triggers, roles and grants, since no log entry depends on
them. The effects of statements are in `ddl_history`.
"""

import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from headrace.plugins.cql_text import Token, TokenKind
from headrace.sources.cassandra.schema.cursor import Cursor, SchemaTextError
from headrace.sources.cassandra.schema.ddl_history import ColumnDraft, History, Options, TableDraft
from headrace.sources.cassandra.schema.tables import ColumnKind, KeyspaceSchema, Schema
from headrace.sources.cassandra.schema.types import CqlType, TypeReader

_NO_ID: Final = UUID(int=0)  # Until the options are read.
_ID_HINT: Final = "write the schema with DESCRIBE … WITH INTERNALS, which adds WITH ID = …"
_KINDS: Final = {
    "keyspace": "keyspace",
    "type": "type",
    "table": "table",
    "columnfamily": "table",
}
_SKIPPED_KINDS: Final = frozenset(
    {"aggregate", "custom", "function", "identity", "index", "or", "role", "trigger", "user"}
)
# DESCRIBE puts each table with COMPACT STORAGE into a comment with this beginning.
_COMPACT: Final = re.compile(
    r"/\*\s*Warning: Table [^\n]* omitted because it has constructs not compatible with CQL"
    r"(?:(?!\*/|CREATE TABLE).)*(?P<text>CREATE TABLE(?:(?!\*/).)*)\*/",
    re.DOTALL,
)
_SKIPPED_STATEMENTS: Final = frozenset({"comment", "grant", "revoke", "security"})


def parse_schema(text: str, *, place: str = "") -> Schema:
    """Apply the DDL in *text* from the first statement to the last; errors name *place*.

    Raises:
        SchemaTextError: *text* is not such DDL, contradicts an earlier statement, or has a table
            without an ID.

    """
    found = [match.span("text") for match in _COMPACT.finditer(text)]
    shown = _COMPACT.sub(_uncovered, text) if found else text
    return _Parser(Cursor(shown, place), found).parse()


def _uncovered(match: re.Match[str]) -> str:
    """Return the DDL in a comment with all other characters blank, so positions stay the same."""
    begin, end = (at - match.start() for at in match.span("text"))
    blank = re.sub(r"[^\n]", " ", match[0])
    return blank[:begin] + match["text"] + blank[end:]


class _Parser:
    """One pass over one text. Each method starts at the token after the words that selected it."""

    def __init__(self, cursor: Cursor, compact: Sequence[tuple[int, int]]) -> None:
        """*compact* are the positions of statements in comments, ascending."""
        self._cursor = cursor
        self._compact = compact
        self._history = History()
        self._types = TypeReader(cursor, self._history.udt)
        self._used_keyspace = ""
        self._actions = {
            ("create", "keyspace"): self._create_keyspace,
            ("alter", "keyspace"): self._alter_keyspace,
            ("drop", "keyspace"): self._drop_keyspace,
            ("create", "type"): self._create_type,
            ("alter", "type"): self._alter_type,
            ("drop", "type"): self._drop_type,
            ("create", "table"): self._create_table,
            ("alter", "table"): self._alter_table,
            ("drop", "table"): self._drop_table,
            ("create", "view"): self._create_view,
            ("alter", "view"): self._alter_view,
            ("drop", "view"): self._drop_table,
        }

    def parse(self) -> Schema:
        while self._cursor.at_statement():
            self._guarded()
        return self._history.schema()

    def _guarded(self) -> None:
        """Read a statement; skip one from a comment that is not such DDL."""
        cursor = self._cursor
        at = cursor.token.start
        end = next((end for begin, end in self._compact if begin <= at < end), None)
        try:
            self._statement()
            cursor.end_statement()
        except SchemaTextError:
            if end is None:
                raise
            while cursor.token.start < end and not cursor.at_end:
                cursor.advance()

    def _statement(self) -> None:
        cursor = self._cursor
        token = cursor.token
        verb = cursor.advance().folded if token.kind is TokenKind.WORD else ""
        if verb == "use":
            self._used_keyspace = cursor.name("a keyspace")
            return
        kind = cursor.token.keyword
        if verb in _SKIPPED_STATEMENTS or (
            verb in ("create", "alter", "drop") and kind in _SKIPPED_KINDS
        ):
            self._skip_statement()
            return
        if kind in _KINDS:
            cursor.advance()
            kind = _KINDS[kind]
        elif cursor.accept("materialized", "view"):
            kind = "view"
        action = self._actions.get((verb, kind))
        if action is None:
            cursor.fail("expected a CREATE, ALTER or DROP of a schema", at=token)
        action()

    def _skip_statement(self) -> None:
        while not self._cursor.at_end and self._cursor.token.keyword != ";":
            self._cursor.advance()

    # --- keyspaces

    def _create_keyspace(self) -> None:
        exists_allowed = self._may("not", "exists")
        token = self._cursor.token
        name = self._cursor.name("a keyspace")
        made = self._keyspace(KeyspaceSchema(name, {}))
        if name in self._history.keyspaces:
            if exists_allowed:
                return
            self._cursor.fail("this keyspace exists already", at=token)
        self._history.keyspaces[name] = made

    def _alter_keyspace(self) -> None:
        missing_allowed = self._may("exists")
        token = self._cursor.token
        name = self._cursor.name("a keyspace")
        before = self._history.keyspaces.get(name)
        altered = self._keyspace(before or KeyspaceSchema(name, {}))
        if before is None:
            if missing_allowed:
                return
            self._cursor.fail("unknown keyspace", at=token)
        self._history.keyspaces[name] = altered

    def _drop_keyspace(self) -> None:
        missing_allowed = self._may("exists")
        token = self._cursor.token
        if not self._history.drop_keyspace(self._cursor.name("a keyspace")) and not missing_allowed:
            self._cursor.fail("unknown keyspace", at=token)

    def _keyspace(self, before: KeyspaceSchema) -> KeyspaceSchema:
        """Return the keyspace *before* with the options at the cursor."""
        values = self._options().values
        replication = values.get("replication", {})
        if not isinstance(replication, dict):
            self._cursor.fail("expected a map as replication before this")
        strategy = replication.get("class", "")
        given = {**replication, "class": strategy.rpartition(".")[2]} if replication else {}
        durable = str(values.get("durable_writes", before.durable_writes)).lower() == "true"
        tracked = str(values.get("replication_type", "")).lower()
        return KeyspaceSchema(
            before.name,
            given or before.replication,
            durable_writes=durable,
            is_tracked=tracked == "tracked" if tracked else before.is_tracked,
        )

    # --- types

    def _create_type(self) -> None:
        cursor = self._cursor
        exists_allowed = self._may("not", "exists")
        token = cursor.token
        keyspace, name = self._qualified("a type")
        cursor.expect("(")
        fields = [self._field(keyspace)]
        while cursor.accept(","):
            fields.append(self._field(keyspace))
        cursor.expect(")")
        if (keyspace, name) not in self._history.types:
            self._history.types[keyspace, name] = fields
        elif not exists_allowed:
            cursor.fail("this type exists already", at=token)

    def _field(self, keyspace: str) -> tuple[str, CqlType]:
        return self._cursor.name("a field"), self._types.read(keyspace)

    def _alter_type(self) -> None:
        cursor = self._cursor
        missing_allowed = self._may("exists")
        token = cursor.token
        keyspace, name = self._qualified("a type")
        fields = self._history.types.get((keyspace, name))
        if fields is None:
            if missing_allowed:
                self._skip_statement()
                return
            cursor.fail("unknown type", at=token)
        if cursor.accept("add"):
            exists_allowed = self._may("not", "exists")
            added = self._field(keyspace)
            if added[0] not in dict(fields):
                fields.append(added)
            elif not exists_allowed:
                cursor.fail(f"the type has a field {added[0]} already, before this")
        else:
            cursor.expect("rename")
            for old, new in self._renames():
                names = [field for field, _type in fields]
                if old not in names or new in names:
                    cursor.fail(f"cannot rename field {old} to {new} before this")
                fields[names.index(old)] = (new, fields[names.index(old)][1])

    def _drop_type(self) -> None:
        missing_allowed = self._may("exists")
        token = self._cursor.token
        found = self._history.types.pop(self._qualified("a type"), None)
        if found is None and not missing_allowed:
            self._cursor.fail("unknown type", at=token)

    # --- tables

    def _create_table(self) -> None:
        cursor = self._cursor
        exists_allowed = self._may("not", "exists")
        token = cursor.token
        keyspace, name = self._qualified("a table")
        table = TableDraft(keyspace, name, _NO_ID)
        cursor.expect("(")
        while True:
            if self._is_primary_key():
                self._primary_key(table)
            else:
                self._column(table)
            if not cursor.accept(","):
                break
        cursor.expect(")")
        if not table.partition_key:
            cursor.fail("the table has no PRIMARY KEY", at=token)
        self._add_table(table, self._options(), token, exists_allowed=exists_allowed)

    def _column(self, table: TableDraft) -> None:
        cursor = self._cursor
        token = cursor.token
        name = cursor.name("a column")
        if name in table.columns:
            cursor.fail("the column is there twice", at=token)
        table.columns[name] = self._column_rest(table.keyspace)
        if self._is_primary_key():
            table.partition_key.append(name)

    def _column_rest(self, keyspace: str) -> ColumnDraft:
        """Read a column's type and STATIC; a mask or a check changes no bytes and is dropped."""
        cursor = self._cursor
        cql_type = self._types.read(keyspace)
        kind = ColumnKind.REGULAR
        if cursor.token.keyword == "static":
            cursor.advance()
            kind = ColumnKind.STATIC
        if cursor.token.keyword in ("masked", "check"):
            depth = 0
            while depth or cursor.token.keyword not in (",", ")", ";"):
                if cursor.at_end:
                    break
                token = cursor.advance()
                depth += (token.keyword == "(") - (token.keyword == ")")
        return ColumnDraft(cql_type, kind)

    def _primary_key(self, table: TableDraft) -> None:
        cursor = self._cursor
        if table.partition_key:
            cursor.fail("a second PRIMARY KEY")
        cursor.expect("(")
        if cursor.accept("("):
            table.partition_key.extend(self._cursor.names("a column"))
            cursor.expect(")")
        else:
            table.partition_key.append(cursor.name("a column"))
        if cursor.accept(","):
            table.clustering.extend(self._cursor.names("a column"))
        cursor.expect(")")

    def _add_table(
        self, table: TableDraft, options: Options, token: Token, *, exists_allowed: bool
    ) -> None:
        cursor = self._cursor
        keys = [*table.partition_key, *table.clustering]
        if (table.keyspace, table.name) in self._history.tables:
            if exists_allowed:
                return
            cursor.fail("this table exists already", at=token)
        missing = [key for key in keys if key not in table.columns]
        if missing or len(set(keys)) != len(keys):
            cursor.fail(f"PRIMARY KEY names {', '.join(missing) or 'a column twice'}", at=token)
        if not set(options.descending) <= set(table.clustering):
            cursor.fail("CLUSTERING ORDER BY names no clustering column", at=token)
        table_id = options.values.get("id")
        if table_id is None:
            cursor.fail("the table has no ID", at=token, hint=_ID_HINT)
        try:
            table.table_id = UUID(str(table_id))
        except ValueError:
            cursor.fail(f"{table_id!r} is not a table ID", at=token)
        table.descending = options.descending
        table.compact = options.compact
        table.apply(options)
        if not self._history.add_table(table):
            cursor.fail("another table has this ID", at=token)

    def _alter_table(self) -> None:
        cursor = self._cursor
        missing_allowed = self._may("exists")
        token = cursor.token
        table = self._history.tables.get(self._qualified("a table"))
        if table is None:
            if missing_allowed:
                self._skip_statement()
                return
            cursor.fail("unknown table", at=token)
        if cursor.accept("add"):
            self._add_columns(table)
        elif cursor.accept("drop", "compact", "storage"):
            table.drop_compact_storage()
        elif cursor.accept("drop"):
            self._drop_columns(table)
        elif cursor.accept("rename"):
            for old, new in self._renames():
                if not self._history.rename(table, old, new):
                    cursor.fail(f"cannot rename {old} to {new} before this")
        elif cursor.accept("alter"):
            self._skip_statement()  # Masks and checks: column types never change.
        else:
            table.apply(self._options(required=True))

    def _add_columns(self, table: TableDraft) -> None:
        cursor = self._cursor
        exists_allowed = self._may("not", "exists")
        in_brackets = cursor.accept("(")
        while True:
            token = cursor.token
            name = cursor.name("a column")
            column = self._column_rest(table.keyspace)
            if name not in table.columns:
                self._history.add_column(table, name, column)
            elif not exists_allowed:
                cursor.fail("the column exists already", at=token)
            if not cursor.accept(","):
                break
        if in_brackets:
            cursor.expect(")")

    def _drop_columns(self, table: TableDraft) -> None:
        cursor = self._cursor
        missing_allowed = self._may("exists")
        in_brackets = cursor.accept("(")
        token = cursor.token
        names = self._cursor.names("a column")
        if in_brackets:
            cursor.expect(")")
        dropped_us = None
        if cursor.accept("using", "timestamp"):
            if cursor.token.kind is not TokenKind.NUMBER:
                cursor.fail("expected a timestamp in µs")
            dropped_us = self._integer()
        for name in names:
            if not table.drop_column(name, dropped_us) and not missing_allowed:
                cursor.fail(f"cannot drop {name}", at=token)

    def _integer(self) -> int:
        token = self._cursor.advance()
        try:
            return int(token.value)
        except ValueError:
            self._cursor.fail("expected an integer", at=token)

    def _drop_table(self) -> None:
        missing_allowed = self._may("exists")
        token = self._cursor.token
        if not self._history.drop_table(self._qualified("a table")) and not missing_allowed:
            self._cursor.fail("unknown table", at=token)

    # --- views

    def _create_view(self) -> None:
        cursor = self._cursor
        exists_allowed = self._may("not", "exists")
        token = cursor.token
        keyspace, name = self._qualified("a view")
        cursor.expect("as", "select")
        selected = [] if cursor.accept("*") else self._cursor.names("a column")
        cursor.expect("from")
        base_token = cursor.token
        base = self._history.tables.get(self._qualified("a table"))
        if base is None:
            cursor.fail("unknown table", at=base_token)
        while not cursor.at("primary", "key"):
            if cursor.at_end or cursor.token.keyword == ";":
                cursor.fail("expected PRIMARY KEY")
            cursor.advance()
        cursor.expect("primary", "key")
        view = TableDraft(keyspace, name, _NO_ID, base=base, selects_all=not selected)
        for column_name, column in base.columns.items():
            if column.kind is not ColumnKind.STATIC and column_name in (selected or base.columns):
                view.columns[column_name] = ColumnDraft(column.type)
        self._primary_key(view)
        self._add_table(view, self._options(), token, exists_allowed=exists_allowed)

    def _alter_view(self) -> None:
        missing_allowed = self._may("exists")
        token = self._cursor.token
        view = self._history.tables.get(self._qualified("a view"))
        options = self._options(required=True)
        if view is not None:
            view.apply(options)
        elif not missing_allowed:
            self._cursor.fail("unknown view", at=token)

    # --- parts of statements

    def _may(self, *words: str) -> bool:
        """Skip IF and these words, if they are at the cursor."""
        return self._cursor.token.keyword == "if" and self._cursor.accept("if", *words)

    def _is_primary_key(self) -> bool:
        """Skip PRIMARY KEY, if it is at the cursor."""
        return self._cursor.token.keyword == "primary" and self._cursor.accept("primary", "key")

    def _qualified(self, what: str) -> tuple[str, str]:
        token = self._cursor.token
        keyspace, name = self._cursor.qualified(what)
        if not keyspace and not self._used_keyspace:
            self._cursor.fail(f"expected {what} with its keyspace", at=token)
        return keyspace or self._used_keyspace, name

    def _renames(self) -> list[tuple[str, str]]:
        cursor = self._cursor
        self._may("exists")
        renames = []
        while True:
            old = cursor.name("the old name")
            cursor.expect("to")
            renames.append((old, cursor.name("the new name")))
            if not cursor.accept("and"):
                return renames

    def _options(self, *, required: bool = False) -> Options:
        cursor = self._cursor
        options = Options()
        if cursor.token.keyword != "with" and not required:
            return options
        cursor.expect("with")
        while True:
            word = cursor.token.keyword
            if word == "compact" and cursor.accept("compact", "storage"):
                options.compact = True
            elif word == "clustering" and cursor.accept("clustering", "order", "by"):
                self._clustering_order(options)
            else:
                name, value = cursor.assignment("an option")
                options.values[name] = value
            if cursor.token.keyword != "and":
                return options
            cursor.advance()

    def _clustering_order(self, options: Options) -> None:
        cursor = self._cursor
        cursor.expect("(")
        while True:
            name = cursor.name("a clustering column")
            if cursor.accept("desc"):
                options.descending.append(name)
            else:
                cursor.accept("asc")
            if not cursor.accept(","):
                break
        cursor.expect(")")
