"""The rows of a state file, read and changed without the store."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from headrace.connector.stores import LeaseRow
from headrace.connector.stores.keyed.rows import Head, pack, unpack
from headrace.connector.stores.sqlite.file import connect
from headrace.connector.stores.sqlite.store import SqliteValues
from headrace.plugins.stores.key_values import Entry, Key, Partition, new_stamp

T = TypeVar("T")


class Of(NamedTuple):
    """The owner of a row."""

    job: str
    split: str


def heads(path: Path) -> dict[Of, Head]:
    """Return the heads of all jobs."""
    return {_of(key): head for key, head in _documents(path, "head", Head)}


def leases(path: Path) -> dict[Of, LeaseRow]:
    """Return the leases of all jobs."""
    return {_of(key): lease for key, lease in _documents(path, "leases", LeaseRow)}


def replace_heads(path: Path, fields: Callable[[Of], Mapping[str, Any]]) -> None:  # Any: of a head.
    """Replace fields of all heads."""
    _replace(path, "head", Head, fields)


def replace_leases(path: Path, fields: Callable[[Of], Mapping[str, Any]]) -> None:  # Any: likewise.
    """Replace fields of all leases."""
    _replace(path, "leases", LeaseRow, fields)


def _replace(
    path: Path,
    kind: str,
    document: type[Any],  # Any: each has its own fields.
    fields: Callable[[Of], Mapping[str, Any]],
) -> None:
    found = list(_documents(path, kind, document))
    with closing(sqlite3.connect(path)) as raw, raw:
        for key, each in found:
            made = msgspec.structs.replace(each, **fields(_of(key)))
            raw.execute(
                "UPDATE rows SET stamp = ?, value = ? WHERE partition = ? AND name = ?",
                (new_stamp(), pack(made), key.partition.text, key.name),
            )


def _documents(path: Path, kind: str, document: type[T]) -> Iterator[tuple[Key, T]]:
    with _values(path) as (connection, values):
        rows = connection.execute("SELECT partition, name, stamp, value FROM rows").fetchall()
        for text, name, stamp, value in rows:
            if json.loads(text)[0] == kind:
                key = Key(Partition(text), name)
                yield key, unpack(document, key, Entry(stamp, value), values)


@contextmanager
def _values(path: Path) -> Iterator[tuple[sqlite3.Connection, SqliteValues]]:
    with closing(connect(path, create=False)) as connection:
        yield connection, SqliteValues(connection)


def _of(key: Key) -> Of:
    kind, job, split = json.loads(key.partition.text)
    return Of(job, key.name if kind == "leases" else split)
