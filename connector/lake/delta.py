"""Tables of Delta Lake, each in a folder; a commit has the number of its writer's transaction."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from headrace.connector.lake.errors import LakeBusyError
from headrace.connector.lake.rows import GONE
from headrace.connector.replay.parquet import folder_name

_OLD, _NEW = "t", "s"  # Aliases of the table and of the rows that are merged into it.


class DeltaTables:
    """See `writer.Lake`."""

    def __init__(self, folder: Path) -> None:
        """Use the tables in *folder*, which need not exist."""
        self.place = str(folder)
        self._folder = folder

    def close(self) -> None:
        """See `Lake.close`; each call opens its table."""

    def schema(self, table: str) -> pa.Schema | None:
        """See `Lake.schema`."""
        found = self._table(table)
        return None if found is None else pa.schema(found.schema())

    def widen(self, table: str, schema: pa.Schema) -> None:
        """See `Lake.widen`."""
        with self._named(table):
            there = self.schema(table)
            if there is None:
                DeltaTable.create(self._path(table), schema, mode="ignore")
            elif any(each not in there for each in schema):
                empty = schema.empty_table()
                write_deltalake(self._path(table), empty, mode="append", schema_mode="merge")

    def committed(self, table: str, writer: str) -> int:
        """See `Lake.committed`."""
        found = self._table(table)
        return (found and found.transaction_version(writer)) or 0

    def append(self, table: str, rows: pa.Table, writer: str, number: int) -> None:
        """See `Lake.append`."""
        with self._named(table):
            write_deltalake(
                self._path(table),
                rows,
                mode="append",
                schema_mode="merge",
                commit_properties=_identity(writer, number),
            )

    def upsert(  # noqa: PLR0913 (what is written, and as what)
        self,
        table: str,
        rows: pa.Table,
        gone: pa.Table,
        *,
        keys: Sequence[str],
        writer: str,
        number: int,
    ) -> None:
        """See `Lake.upsert`."""
        marked = [
            each.append_column(GONE, pa.array([is_gone] * each.num_rows, pa.bool_()))
            for each, is_gone in ((rows, False), (gone, True))
        ]
        source = pa.concat_tables(marked, promote_options="default")
        same = " AND ".join(f"{_OLD}.{_quoted(key)} = {_NEW}.{_quoted(key)}" for key in keys)
        columns = {_quoted(name): f"{_NEW}.{_quoted(name)}" for name in rows.column_names}
        is_gone = f"{_NEW}.{GONE}"
        with self._named(table):
            merging = DeltaTable(self._path(table)).merge(
                source,
                same,
                source_alias=_NEW,
                target_alias=_OLD,
                commit_properties=_identity(writer, number),
            )
            merging = merging.when_matched_delete(is_gone)
            merging = merging.when_matched_update(columns, f"NOT {is_gone}")
            merging.when_not_matched_insert(columns, f"NOT {is_gone}").execute()

    def _path(self, table: str) -> Path:
        return self._folder / folder_name(table)

    def _table(self, table: str) -> DeltaTable | None:
        path = self._path(table)
        with self._named(table):
            return DeltaTable(path) if DeltaTable.is_deltatable(str(path)) else None

    @contextlib.contextmanager
    def _named(self, table: str) -> Iterator[None]:
        """Convert the library's errors to named ones: most failed commits succeed at a retry."""
        try:
            yield
        except (DeltaError, OSError) as error:
            said = f"{type(error).__name__}: {error}"
            raise LakeBusyError(said, place=str(self._path(table))) from error


def _identity(writer: str, number: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(writer, number)])


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
