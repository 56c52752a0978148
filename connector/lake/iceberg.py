"""Tables of Iceberg in a catalog; the snapshots of a commit have the number of their writer."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import RESTError, ValidationError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, In
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from headrace.connector.lake.errors import LakeBusyError, LakeUnreachableError

_PROPERTY: Final = "headrace."  # The prefix of a writer's name.
_PLAIN: Final = {
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


class IcebergTables:
    """See `writer.Lake`."""

    def __init__(self, catalog: str, namespace: str) -> None:
        """Open the catalog of this name. Raises LakeUnreachableError."""
        self.place = f"{catalog}/{namespace}"
        self._namespace = namespace
        try:
            self._catalog = load_catalog(catalog)
        except Exception as error:
            hint = "is it in ~/.pyiceberg.yaml, or in variables PYICEBERG_CATALOG__…?"
            said = f"{type(error).__name__}: {error}"
            raise LakeUnreachableError(said, place=f"catalog {catalog}", hint=hint) from error

    def close(self) -> None:
        """See `Lake.close`; a catalog in a database keeps connections."""
        self._catalog.close()

    def schema(self, table: str) -> pa.Schema | None:
        """See `Lake.schema`."""
        found = self._table(table)
        if found is None:
            return None
        return self._columns(found)

    def widen(self, table: str, schema: pa.Schema) -> None:
        """See `Lake.widen`."""
        there = self.schema(table)
        with self._named(table):
            if there is None:
                self._catalog.create_namespace_if_not_exists(self._namespace)
                self._catalog.create_table_if_not_exists(self._identifier(table), schema)
            elif any(
                each.name not in there.names or there.field(each.name).type != each.type
                for each in schema
            ):
                with self._catalog.load_table(self._identifier(table)).update_schema() as update:
                    update.union_by_name(schema)

    def committed(self, table: str, writer: str) -> int:
        """See `Lake.committed`."""
        found = self._table(table)
        for snapshot in reversed(found.metadata.snapshots if found is not None else ()):
            if snapshot.summary is not None:
                number = snapshot.summary.additional_properties.get(_PROPERTY + writer)
                if number is not None:
                    return int(number)
        return 0

    def append(self, table: str, rows: pa.Table, writer: str, number: int) -> None:
        """See `Lake.append`."""
        with self._named(table):
            found = self._catalog.load_table(self._identifier(table))
            found.append(rows, snapshot_properties=_identity(writer, number))

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
        identity = _identity(writer, number)
        with self._named(table):
            found = self._catalog.load_table(self._identifier(table))
            files, kept = _replaced(found, pa.concat_tables([rows.select(list(keys)), gone]))
            columns = self._columns(found)
            added = pa.concat_tables(
                [*(each.cast(columns) for each in kept), rows], promote_options="default"
            )
            with found.transaction() as transaction:
                if files:
                    update = transaction.update_snapshot(snapshot_properties=identity)
                    with update.overwrite() as snapshot:
                        for each in files:
                            snapshot.delete_data_file(each)
                if added.num_rows:
                    transaction.append(added, snapshot_properties=identity)

    def _identifier(self, table: str) -> tuple[str, str]:
        return self._namespace, table.replace(".", "__")

    def _columns(self, table: Table) -> pa.Schema:
        return pa.schema([(each.name, _plain(each.type)) for each in table.schema().as_arrow()])

    def _table(self, table: str) -> Table | None:
        with self._named(table):
            identifier = self._identifier(table)
            if not self._catalog.table_exists(identifier):
                return None
            return self._catalog.load_table(identifier)

    @contextlib.contextmanager
    def _named(self, table: str) -> Iterator[None]:
        """Convert the library's errors to named ones: most failed commits succeed at a retry."""
        try:
            yield
        except (OSError, RESTError, SQLAlchemyError, ValidationError) as error:
            said = f"{type(error).__name__}: {error}"
            raise LakeBusyError(said, place=f"{self.place}, table {table}") from error


def _replaced(table: Table, keys: pa.Table) -> tuple[Sequence[DataFile], Sequence[pa.Table]]:
    """Return the files of a table that contain *keys*, and the other rows in these files.

    A filter of many keys would be an expression too deep for pyarrow, so rows are compared here.
    """
    wanted, name = set(_tuples(keys)), keys.column_names[0]
    first = keys.column(0)
    pruned: BooleanExpression = AlwaysTrue()
    if not pa.types.is_nested(first.type):
        # mypy does not see its constructor, which pydantic makes.
        pruned = In(name, set(first.to_pylist()))  # type: ignore[call-arg,arg-type]
    files, kept = [], []
    for task in table.scan(row_filter=pruned).plan_files():
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        rows = scan.to_table([task])
        stays = [each not in wanted for each in _tuples(rows.select(keys.column_names))]
        if not all(stays):
            files.append(task.file)
            kept.append(rows.filter(pa.array(stays, pa.bool_())))
    return files, kept


def _tuples(keys: pa.Table) -> Iterator[tuple[Any, ...]]:  # Any: values of a key.
    """Yield the keys in a form that can be hashed."""
    columns = [column.to_pylist() for column in keys.columns]
    if any(pa.types.is_nested(column.type) for column in keys.columns):
        columns = [[repr(each) for each in column] for column in columns]
    return zip(*columns, strict=True)


def _identity(writer: str, number: int) -> dict[str, str]:
    return {_PROPERTY + writer: str(number)}


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type in rows for a type of a table."""
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _plain(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    return _PLAIN.get(kind, kind)
