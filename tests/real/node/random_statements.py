"""Random tables, and random statements that write to them again and again in the same places."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from headrace.sources.cassandra.schema.types import CqlType
from real.node.random_values import Types, Values

KEYSPACE: Final = "wild"
_TABLES: Final = 6
_BASE_US: Final = 1_700_000_000_000_000
_SPREAD_US: Final = 3_000  # Small: writes come out of order, and some at the same time.
_ODD_TIMES_US: Final = (-(1 << 63) + 1, -5, 0, 1, 1 << 60)
_TTLS_S: Final = (1, 1, 86_400 * 365, 86_400 * 3_000)
_VALUES_PER_KEY: Final = 3  # Few, so that statements meet.
_LATER_TTL_S: Final = 630_720_000  # Twenty years: beyond 2038, where that is allowed.


@dataclass(slots=True)
class Column:
    """A column, and for a key column the values that statements use."""

    name: str
    type: CqlType
    values: list[str] = field(default_factory=list)
    descending: bool = False


@dataclass(slots=True)
class Table:
    """A table; with `cdc` it is compared at the end."""

    name: str
    partition: list[Column]
    clustering: list[Column]
    statics: list[Column]
    regulars: list[Column]
    ttl_s: int = 0
    cdc: bool = True

    def ddl(self) -> str:
        """Return CREATE TABLE."""
        columns = [
            f"{c.name} {c.type}{' static' if c in self.statics else ''}"
            for c in (*self.partition, *self.clustering, *self.statics, *self.regulars)
        ]
        key = ", ".join(c.name for c in self.partition)
        rest = "".join(f", {c.name}" for c in self.clustering)
        order = ", ".join(f"{c.name} {'DESC' if c.descending else 'ASC'}" for c in self.clustering)
        options = [f"cdc = {str(self.cdc).lower()}", f"default_time_to_live = {self.ttl_s}"]
        if order:
            options.append(f"CLUSTERING ORDER BY ({order})")
        return (
            f"CREATE TABLE {KEYSPACE}.{self.name} ({', '.join(columns)},"
            f" PRIMARY KEY (({key}){rest})) WITH {' AND '.join(options)}"
        )


class Workload:
    """The DDL and statements of one seed, the same every time."""

    def __init__(self, seed: int, *, vectors: bool, late: bool) -> None:
        """4.x has no *vectors*; only log version 8 takes a TTL so *late* that it passes 2038."""
        self._random = Random(seed)  # noqa: S311 (to be repeated, not secret)
        self._types = Types(self._random, vectors=vectors)
        self._values = Values(self._random)
        self._ttls_s = (*_TTLS_S, _LATER_TTL_S) if late else _TTLS_S
        self._udts = [self._types.udt(KEYSPACE) for _ in range(3)]
        self.tables = [self._table(number) for number in range(_TABLES)]
        shared = [Column(c.name, c.type, c.values) for c in self.tables[0].partition]
        plain = Column("x", CqlType("int"))
        self.tables.append(Table("plain", shared, [], [], [plain], cdc=False))
        # Not of random types: the driver cannot read all of them in an answer.
        key = Column("k", CqlType("int"), ["1", "2", "3"])
        columns = [Column("v", CqlType("int")), Column("s", CqlType("set", (CqlType("text"),)))]
        self._ballots = Table("ballots", [key], [], [], columns)
        self.tables.append(self._ballots)

    def ddl(self) -> Iterator[str]:
        """Yield the statements that make types and tables."""
        yield (
            f"CREATE KEYSPACE {KEYSPACE} WITH replication ="
            " {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        for udt in self._udts:
            fields = ", ".join(f"{name} {cql_type}" for name, cql_type in udt.fields)
            yield f"CREATE TYPE {KEYSPACE}.{udt.name} ({fields})"
        for table in self.tables:
            yield table.ddl()
        yield f"CREATE TABLE {KEYSPACE}.counts (k int PRIMARY KEY, n counter) WITH cdc = true"

    def statements(self, count: int) -> Iterator[str]:
        """Yield *count* statements; Cassandra may refuse some, as an index beyond a list's end."""
        random = self._random
        for _ in range(count):
            roll = random.random()
            if roll < 0.02:
                counted = f"{KEYSPACE}.counts"
                yield f"UPDATE {counted} SET n = n + 1 WHERE k = {random.randint(0, 3)}"  # noqa: S608 (made here)
            elif roll < 0.05:
                yield self._conditional()
            elif roll < 0.2:
                yield self._batch()
            else:
                yield self._write(random.choice(self.tables))

    # --- schema

    def _table(self, number: int) -> Table:
        random = self._random

        def columns(prefix: str, count: int) -> list[Column]:
            return [Column(f"{prefix}{i}", self._types.column()) for i in range(count)]

        def keys(prefix: str, count: int) -> list[Column]:
            return [self._key(f"{prefix}{i}") for i in range(count)]

        clustering = keys("c", random.choice((0, 1, 2, 2, 3)))
        statics = columns("s", random.randint(0, 2)) if clustering else []
        return Table(
            f"t{number}",
            keys("p", random.randint(1, 2)),
            clustering,
            statics,
            columns("v", random.choice((1, 3, 6, 10, 70))),
            random.choice((0, 0, 86_400 * 100)),
        )

    def _key(self, name: str) -> Column:
        cql_type = self._types.key()
        column = Column(name, cql_type, descending=self._random.random() < 0.5)
        while len(column.values) < _VALUES_PER_KEY:
            value = self._values.of(cql_type)
            # An empty partition key is refused, and so is null in one.
            if value not in {"''", "0x"} and "NaN" not in value:
                column.values.append(value)
        return column

    # --- statements

    def _using(self, *, ttl: bool, timestamp: bool = True) -> str:
        random = self._random
        parts = []
        if timestamp:
            odd = random.random() < 0.01
            at_us = random.choice(_ODD_TIMES_US) if odd else _BASE_US + random.randrange(_SPREAD_US)
            parts.append(f"TIMESTAMP {at_us}")
        if ttl and random.random() < 0.3:
            parts.append(f"TTL {random.choice(self._ttls_s)}")
        return f" USING {' AND '.join(parts)}" if parts else ""

    def _where(self, columns: list[Column]) -> str:
        return " AND ".join(f"{c.name} = {self._random.choice(c.values)}" for c in columns)

    def _write(self, table: Table) -> str:
        random = self._random
        choices = [self._insert, self._update, self._update, self._delete_columns, self._delete]
        return random.choices(choices, weights=(4, 3, 3, 1, 2))[0](table)

    def _batch(self) -> str:
        random = self._random
        one = random.choice(self.tables)
        several = random.random() < 0.5
        writes = [
            self._write(random.choice(self.tables) if several else one)
            for _ in range(random.randint(2, 8))
        ]
        kind = random.choice(("", "UNLOGGED "))
        return f"BEGIN {kind}BATCH {'; '.join(writes)}; APPLY BATCH"

    def _conditional(self) -> str:
        key = self._where(self._ballots.partition)
        names, values = self._row(self._ballots)
        target = f"{KEYSPACE}.{self._ballots.name}"
        return self._random.choice(
            (
                f"{_inserted(self._ballots, names, values)} IF NOT EXISTS",
                f"UPDATE {target} SET v = {self._random.randint(0, 3)} WHERE {key} IF v = 1",  # noqa: S608 (made here)
                f"DELETE FROM {target} WHERE {key} IF EXISTS",  # noqa: S608 (made here)
            )
        )

    def _row(self, table: Table) -> tuple[list[str], list[str]]:
        keys = [*table.partition, *table.clustering]
        columns = [c for c in (*table.statics, *table.regulars) if self._random.random() < 0.6]
        names = [c.name for c in (*keys, *columns)]
        values = [self._random.choice(c.values) for c in keys]
        return names, values + [self._or_null(c) for c in columns]

    def _or_null(self, column: Column) -> str:
        return "null" if self._random.random() < 0.1 else self._values.of(column.type)

    def _insert(self, table: Table) -> str:
        names, values = self._row(table)
        return _inserted(table, names, values) + self._using(ttl=True)

    def _update(self, table: Table) -> str:
        random = self._random
        static = bool(table.statics) and random.random() < 0.2
        columns = table.statics if static else table.regulars
        chosen = random.sample(columns, random.randint(1, min(len(columns), 8)))
        where = self._where([*table.partition, *([] if static else table.clustering)])
        changes = ", ".join(map(self._assigned, chosen))
        target = f"{KEYSPACE}.{table.name}{self._using(ttl=True)}"
        return f"UPDATE {target} SET {changes} WHERE {where}"  # noqa: S608 (made here)

    def _assigned(self, column: Column) -> str:
        random, name, cql_type = self._random, column.name, column.type
        if not cql_type.is_complex or random.random() < 0.4:
            return f"{name} = {self._or_null(column)}"
        if cql_type.is_udt:
            field_name, inner = random.choice(cql_type.fields)
            return f"{name}.{field_name} = {self._values.of(inner)}"
        some = self._values.collection(cql_type, random.randint(1, 2))
        if cql_type.name == "list":
            element = self._values.of(cql_type.arguments[0])
            return random.choice(
                (
                    f"{name} = {name} + {some}",
                    f"{name} = {some} + {name}",
                    f"{name} = {name} - {some}",
                    f"{name}[0] = {element}",
                )
            )
        if cql_type.name == "set":
            return f"{name} = {name} {random.choice('+-')} {some}"
        key, value = self._values.element(cql_type), self._values.of(cql_type.arguments[1])
        keys = "{" + key + "}"
        return random.choice(
            (f"{name} = {name} + {some}", f"{name} = {name} - {keys}", f"{name}[{key}] = {value}")
        )

    def _delete_columns(self, table: Table) -> str:
        random = self._random
        chosen = random.sample(table.regulars, min(len(table.regulars), 2))
        names = ", ".join(map(self._deleted, chosen))
        where = self._where([*table.partition, *table.clustering])
        using = self._using(ttl=False)
        return f"DELETE {names} FROM {KEYSPACE}.{table.name}{using} WHERE {where}"

    def _deleted(self, column: Column) -> str:
        cql_type = column.type
        if cql_type.is_complex and not cql_type.is_udt and self._random.random() < 0.5:
            element = "0" if cql_type.name == "list" else self._values.element(cql_type)
            return f"{column.name}[{element}]"
        return column.name

    def _delete(self, table: Table) -> str:
        """Return the deletion of a row, of a range, or of a partition."""
        random = self._random
        conditions = [self._where(table.partition)]
        if table.clustering and random.random() < 0.85:
            length = random.randint(0, len(table.clustering))
            if length:
                conditions.append(self._where(table.clustering[:length]))
            if length < len(table.clustering):
                conditions += self._bounds(table.clustering[length])
        where = " AND ".join(conditions)
        target = f"{KEYSPACE}.{table.name}{self._using(ttl=False)}"
        return f"DELETE FROM {target} WHERE {where}"  # noqa: S608 (made here)

    def _bounds(self, column: Column) -> list[str]:
        random = self._random
        lower = f"{column.name} {random.choice(('>', '>='))} {random.choice(column.values)}"
        upper = f"{column.name} {random.choice(('<', '<='))} {random.choice(column.values)}"
        return random.choice(([lower], [upper], [lower, upper], []))


def _inserted(table: Table, names: list[str], values: list[str]) -> str:
    target = f"{KEYSPACE}.{table.name}"
    return f"INSERT INTO {target} ({', '.join(names)}) VALUES ({', '.join(values)})"  # noqa: S608 (made here)
