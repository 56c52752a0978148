"""Which tables a job delivers from the beginning, and which of those it names it cannot."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from headrace.plugins import ConfigError, Context, Problem
from headrace.sources.cassandra.schema import SYSTEM_KEYSPACES, Schema, TableSchema

_CDC_HINT: Final = "ALTER TABLE … WITH cdc = true, then give the job the new schema"
_COUNTER_HINT: Final = "a log holds the totals of one node, neither what was added nor the count"


def tables_with_cdc(schema: Schema, context: Context) -> Sequence[TableSchema]:
    """Return all tables with CDC, also dropped ones: their changes can still be in the logs.

    Whose keyspace went with them is passed over: nothing says any more how many copies it had.
    Counters are passed over as well, with a warning.

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
    if all(table.is_counter for table in found):
        raise ConfigError([Problem("tables", "no table of the schema has CDC", _CDC_HINT)])
    for table in filter(lambda table: table.is_counter, found):
        context.log.warning(
            "table_skipped", table=table.qualified, reason="counter", hint=_COUNTER_HINT
        )
    return [table for table in found if not table.is_counter]


def tables_named(
    schema: Schema, names: Collection[str], *, waits: bool
) -> tuple[Sequence[TableSchema], Mapping[str, Problem]]:
    """Return the tables of *names* that can be delivered, and what is wrong with the others.

    Raises:
        ConfigError: something is wrong with one, or, where the job *waits* for tables, with all.

    """
    named = {name: schema.table(name) for name in names}
    lacking = {n: problem for n, table in named.items() if (problem := _problem(n, table))}
    if lacking and not (waits and len(lacking) < len(named)):
        raise ConfigError(lacking.values())
    return [t for name, t in named.items() if t is not None and name not in lacking], lacking


def _problem(name: str, table: TableSchema | None) -> Problem | None:
    if table is None:
        return Problem("tables", f"{name} is not in the schema", "keyspace.table, as in the schema")
    if table.is_counter:
        return Problem("tables", f"{name} holds counters", _COUNTER_HINT)
    return None if table.cdc else Problem("tables", f"{name} has no CDC", _CDC_HINT)
