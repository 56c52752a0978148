"""Adds the files of a run to tables of Delta Lake and Iceberg. Each library is an extra.

Tasks write Parquet files; each attempt writes its own. The driver adds those of a shard to their
table in one commit, which also removes those of an earlier attempt. So the table has a shard once
or not at all.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connector.control.runs.options import DELTA, ICEBERG
from headrace.connector.replay.errors import LakeError
from headrace.connector.replay.options import check_lake
from headrace.connector.replay.parquet import attempt_name, file_name, folder_name

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile

COMMITS_MAX: Final = 10  # Attempts: others may commit to the same table at the same time.
CATALOG_FILE: Final = "catalog.db"
_NO_KEYSPACE: Final = "default"
_NS_PER_MS: Final = 1_000_000


class Lake(Protocol):
    """The tables in a folder. For one thread; blocking."""

    def tables(self) -> Sequence[str]:
        """Return the tables that exist, as `keyspace.table`."""

    def files(self, table: str) -> Sequence[Path]:
        """Return the current files of a table."""

    def replace(self, table: str, old: Sequence[Path], new: Sequence[Path]) -> None:
        """Replace *old* files of the table with *new* ones, in one commit."""

    def close(self) -> None:
        """Close the connections to its catalog, if it has one."""


def _schema_of(files: Sequence[Path]) -> pa.Schema:
    """Return the columns of the files of one run."""
    return pq.read_schema(files[0]).remove_metadata()


class DeltaLake:
    """A Delta table in each table's folder."""

    def __init__(self, folder: Path, catalog: str) -> None:
        """Use *folder*; Delta tables need no catalog."""
        del catalog
        self._folder = folder

    def tables(self) -> Sequence[str]:
        """See `Lake.tables`."""
        logs = sorted(self._folder.glob("*/_delta_log"))
        return [unquote(log.parent.name) for log in logs]

    def files(self, table: str) -> Sequence[Path]:
        """See `Lake.files`."""
        from deltalake import DeltaTable  # noqa: PLC0415 (an extra)

        path = self._folder / folder_name(table)
        if not DeltaTable.is_deltatable(path):
            return []
        return [_path(uri) for uri in DeltaTable(path).file_uris()]

    def replace(self, table: str, old: Sequence[Path], new: Sequence[Path]) -> None:
        """See `Lake.replace`."""
        from deltalake import DeltaTable, Schema  # noqa: PLC0415 (an extra)
        from deltalake.transaction import AddAction, RemoveAction  # noqa: PLC0415

        path = self._folder / folder_name(table)
        schema = Schema.from_arrow(_schema_of(new)) if new else DeltaTable(path).schema()
        found = DeltaTable.create(path, schema, mode="ignore")
        added = []
        for file in new:
            stat = file.stat()
            row_count = f'{{"numRecords": {pq.read_metadata(file).num_rows}}}'
            time_ms = stat.st_mtime_ns // _NS_PER_MS
            added.append(
                AddAction(file.name, stat.st_size, {}, time_ms, data_change=True, stats=row_count)
            )
        now_ms = time.time_ns() // _NS_PER_MS
        removed = [
            RemoveAction(file.name, data_change=True, deletion_timestamp=now_ms) for file in old
        ]
        found.create_write_transaction([*removed, *added], mode="append", schema=schema)

    def close(self) -> None:
        """See `Lake.close`."""


class IcebergLake:
    """Iceberg tables of a catalog that pyiceberg is configured with, or of one in the folder."""

    def __init__(self, folder: Path, catalog: str) -> None:
        """Open the catalog of this name; without a name, the one in *folder*."""
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 (an extra)

        self._folder = folder
        given = {} if catalog else _catalog_in(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._catalog: Catalog = load_catalog(catalog or "headrace", **given)

    def tables(self) -> Sequence[str]:
        """See `Lake.tables`."""
        folders = [each for each in sorted(self._folder.iterdir()) if each.is_dir()]
        names = [unquote(each.name) for each in folders]
        return [name for name in names if self._catalog.table_exists(_identifier(name))]

    def files(self, table: str) -> Sequence[Path]:
        """See `Lake.files`."""
        return list(self._data_files(table))

    def replace(self, table: str, old: Sequence[Path], new: Sequence[Path]) -> None:
        """See `Lake.replace`."""
        catalog = self._catalog
        identifier = _identifier(table)
        catalog.create_namespace_if_not_exists(identifier[0])
        place = (self._folder / folder_name(table)).as_uri()
        found = (
            catalog.create_table_if_not_exists(identifier, _schema_of(new), location=place)
            if new
            else catalog.load_table(identifier)
        )
        with found.transaction() as transaction:
            if old:
                belonging = self._data_files(table)
                with transaction.update_snapshot().overwrite() as snapshot:
                    for file in old:
                        snapshot.delete_data_file(belonging[file])
            if new:
                transaction.add_files([file.as_uri() for file in new])

    def close(self) -> None:
        """See `Lake.close`."""
        self._catalog.close()

    def _data_files(self, table: str) -> "Mapping[Path, DataFile]":
        identifier = _identifier(table)
        if not self._catalog.table_exists(identifier):
            return {}
        tasks = self._catalog.load_table(identifier).scan().plan_files()
        return {_path(task.file.file_path): task.file for task in tasks}


LAKES: Final[Mapping[str, Callable[[Path, str], Lake]]] = {
    DELTA: DeltaLake,
    ICEBERG: IcebergLake,
}


def lake_of(kind: str, folder: Path, catalog: str) -> Lake:
    """Open a lake of this kind, which the caller closes. Raises LakeMissingError."""
    check_lake(kind)
    return LAKES[kind](folder.absolute(), catalog)


def adopt(lake: Lake, folder: Path, run: str, shard: int, attempt: int) -> None:
    """Add the files of an attempt to their tables, and remove those of earlier attempts.

    Safe to repeat. Deletes files of earlier attempts that no table has.

    Raises:
        LakeError: a commit to a table failed.

    """
    name, mine = file_name(run, shard), attempt_name(run, shard, attempt)
    last: Exception | None = None
    for _ in range(COMMITS_MAX):
        try:
            _adopt(lake, folder.absolute(), name, mine)
        except Exception as error:  # noqa: BLE001 (the library's errors, as when another commit was first)
            last = error
        else:
            return
    hint = "check the tables and their catalog; then run it again"
    raise LakeError(f"{type(last).__name__}: {last}", place=str(folder), hint=hint) from last


def _adopt(lake: Lake, folder: Path, name: str, mine: str) -> None:
    new = {unquote(path.parent.name): path for path in folder.glob(f"*/{mine}.parquet")}
    tables = list(dict.fromkeys((*new, *lake.tables())))
    belonged = {path for table in tables for path in lake.files(table)}
    for table in tables:
        _swap(lake, table, name, new.get(table))
    for path in folder.glob(f"*/{name}-*.parquet"):
        if path.stem != mine and path not in belonged:  # Older versions of the table have these.
            path.unlink()


def _swap(lake: Lake, table: str, name: str, new: Path | None) -> None:
    belonging = [path for path in lake.files(table) if path.name.startswith(f"{name}-")]
    old = [path for path in belonging if path != new]
    added = [new] if new is not None and new not in belonging else []
    if old or added:
        lake.replace(table, old, added)


def shard_files(lake: Lake, run: str, shard: int) -> Iterator[Path]:
    """Yield the files of a shard that belong to tables."""
    for table in lake.tables():
        for path in lake.files(table):
            if path.name.startswith(f"{file_name(run, shard)}-"):
                yield path


def _identifier(table: str) -> tuple[str, str]:
    keyspace, dot, name = table.partition(".")
    return (keyspace, name) if dot else (_NO_KEYSPACE, table)


def _catalog_in(folder: Path) -> Mapping[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder / CATALOG_FILE}",
        "warehouse": folder.as_uri(),
    }


def _path(uri: str) -> Path:
    """Return the path of a file, which libraries give as a path or as a URI."""
    return Path(unquote(urlsplit(uri).path)) if uri.startswith("file:") else Path(uri)
