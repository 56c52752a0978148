"""Tables of Iceberg in a catalog; the snapshots of a commit have the number of their writer."""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import RESTError, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.upsert_util import create_match_filter
from sqlalchemy.exc import SQLAlchemyError

from headrace.connector.lake.errors import LakeBusyError, LakeUnreachableError

_PROPERTY: Final = "headrace."  # The name of a writer follows.
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

    def schema(self, table: str) -> pa.Schema | None:
        """See `Lake.schema`."""
        found = self._table(table)
        if found is None:
            return None
        return pa.schema([(each.name, _plain(each.type)) for each in found.schema().as_arrow()])

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
        replaced = pa.concat_tables([rows.select(list(keys)), gone])
        same = create_match_filter(replaced, list(keys))
        identity = _identity(writer, number)
        with self._named(table), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Where no row has one of the keys.
            found = self._catalog.load_table(self._identifier(table))
            if rows.num_rows:
                found.overwrite(rows, overwrite_filter=same, snapshot_properties=identity)
            else:
                found.delete(same, snapshot_properties=identity)

    def _identifier(self, table: str) -> tuple[str, str]:
        return self._namespace, table.replace(".", "__")

    def _table(self, table: str) -> Table | None:
        with self._named(table):
            identifier = self._identifier(table)
            if not self._catalog.table_exists(identifier):
                return None
            return self._catalog.load_table(identifier)

    @contextlib.contextmanager
    def _named(self, table: str) -> Iterator[None]:
        """Name the errors of the library: of its commits most pass when they are tried again."""
        try:
            yield
        except (OSError, RESTError, SQLAlchemyError, ValidationError) as error:
            said = f"{type(error).__name__}: {error}"
            raise LakeBusyError(said, place=f"{self.place}, table {table}") from error


def _identity(writer: str, number: int) -> dict[str, str]:
    return {_PROPERTY + writer: str(number)}


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return a type as rows have it."""
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _plain(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    return _PLAIN.get(kind, kind)
