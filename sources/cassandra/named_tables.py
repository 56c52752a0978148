"""Which tables a job delivers from the beginning, and which of those it names it cannot."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from headrace.plugins import ConfigError, Problem
from headrace.sources.cassandra.schema import SYSTEM_KEYSPACES, Schema, TableSchema
from headrace.sources.cassandra.unlogged import Announcer, unlogged

_CDC_HINT: Final = "ALTER TABLE … WITH cdc = true, then give the job the new schema"


def tables_with_cdc(schema: Schema, announcer: Announcer) -> Sequence[TableSchema]:
    """Return all tables with CDC, also dropped ones: their changes can still be in the logs.

    Whose keyspace went with them is passed over: nothing says any more how many copies it had. So
    are those of which no log has a write that can be delivered; *announcer* tells of them.

    Raises:
        ConfigError: there is none.

    """
    found = [
        table
        for table in schema.tables.values()
        if table.cdc
        and table.keyspace not in SYSTEM_KEYSPACES
        and not (table.is_dropped and table.keyspace not in schema.keyspaces)
    ]
    if not found:
        raise ConfigError([Problem("tables", "no table of the schema has CDC", _CDC_HINT)])
    problems = {table.table_id: problem for table in found if (problem := _flaw(schema, table))}
    if len(problems) == len(found):
        raise ConfigError(problems.values())
    for table in found:
        announcer.tell(table, schema.keyspaces.get(table.keyspace))
    return [table for table in found if table.table_id not in problems]


def tables_named(
    schema: Schema, names: Collection[str], announcer: Announcer, *, waits: bool
) -> tuple[Sequence[TableSchema], Mapping[str, Problem]]:
    """Return the tables of *names* that can be delivered, and what is wrong with the others.

    Raises:
        ConfigError: something is wrong with one, or, where the job *waits* for tables, with all.

    """
    named = {name: schema.table(name) for name in names}
    lacking = {n: problem for n, table in named.items() if (problem := _problem(schema, n))}
    if lacking and not (waits and len(lacking) < len(named)):
        raise ConfigError(lacking.values())
    found = [t for name, t in named.items() if t is not None and name not in lacking]
    for table in found:
        announcer.tell(table, schema.keyspaces.get(table.keyspace))
    return found, lacking


def _problem(schema: Schema, name: str) -> Problem | None:
    table = schema.table(name)
    if table is None:
        return Problem("tables", f"{name} is not in the schema", "keyspace.table, as in the schema")
    return _flaw(schema, table) or (
        None if table.cdc else Problem("tables", f"{name} has no CDC", _CDC_HINT)
    )


def _flaw(schema: Schema, table: TableSchema) -> Problem | None:
    """Return why nothing of a table can be delivered."""
    found = unlogged(table, schema.keyspaces.get(table.keyspace))
    if found is None or found.part:
        return None
    return found.problem(table.qualified)
