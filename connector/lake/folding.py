"""Folds changes into rows of tables, by Cassandra's rules, in any order."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headrace.connector.history.images import state_of
from headrace.connector.history.rendering import Values
from headrace.connector.lake.rows import Row, TableShape
from headrace.connector.lake.staging import CommitsFile
from headrace.connector.rows.folding import partition_key, row_key
from headrace.plugins import Document

Change = tuple[TableShape, bytes, Document]
"""The shape of a change's table, the change in Avro, and the change as a document."""

_UNPACK: Final = msgspec.msgpack.Decoder()


def folded(
    file: CommitsFile, changes: Iterable[Change], shown: Mapping[str, TableShape], now_s: int
) -> dict[str, list[Row]]:
    """Fold changes into the states in *file*; return the new form of each row, by table.

    Call it in a transaction of the file. *shown* has the shapes of rows by table; rows are as of
    *now_s*.
    """
    return _Folding(file, shown, now_s).of(changes)


class _Folding:
    def __init__(self, file: CommitsFile, shown: Mapping[str, TableShape], now_s: int) -> None:
        self._file = file
        self._shown = shown
        self._now_s = now_s
        self._states: dict[bytes, bytes | None] = {}
        self._partitions: dict[bytes, bytes] = {}  # By the name of a changed row.

    def of(self, changes: Iterable[Change]) -> dict[str, list[Row]]:
        touched: dict[bytes, None] = {}
        for shape, content, document in changes:
            view = shape.view
            name = row_key(document, view)
            values = [document["payload"][each] for each in view.key]
            partition = partition_key(view.table, values)
            self._states[name] = shape.shape.folded(self._state(name), content)
            self._partitions[name] = partition
            rows = self._rows_of(partition) if name == partition else [name]
            touched.update(dict.fromkeys(rows))
        made: dict[str, list[Row]] = {}
        for name in touched:
            table, partition, clustering = _UNPACK.decode(name)
            row = self._row(self._shown[table], name, partition, clustering)
            made.setdefault(table, []).append(row)
        self._file.keep_states(
            (name, partition, self._states[name] or b"")
            for name, partition in self._partitions.items()
        )
        return made

    def _row(self, shape: TableShape, name: bytes, partition: Values, clustering: Values) -> Row:
        whole = state_of(self._state(partition_key(shape.view.table, partition)))
        state = state_of(self._state(name))
        found = shape.shape.row((partition, clustering), state, whole, self._now_s)
        if found is not None:
            found = {**(shape.shape.static(partition, whole, self._now_s) or {}), **found}
        return shape.row(found, shape.shape.key(partition, clustering))

    def _state(self, name: bytes) -> bytes | None:
        if name not in self._states:
            self._states[name] = self._file.state(name)
        return self._states[name]

    def _rows_of(self, partition: bytes) -> list[bytes]:
        new = [name for name, each in self._partitions.items() if each == partition]
        found = dict.fromkeys([*self._file.rows_of(partition), *new])
        return [name for name in found if name != partition]
