"""Finds the facts of a change in each envelope: operation, time, columns, name."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from headrace.connector.serde.avro_types import field_of
from headrace.connector.serde.decoding import UndecodableError
from headrace.connector.serde.image_fields import POST, PRE
from headrace.plugins import Document, Operation

OWN: Final = "cep44"
_DEBEZIUM: Final[Mapping[str, Operation]] = {
    "i": Operation.INSERT,
    "u": Operation.UPDATE,
    "d": Operation.DELETE,
    "r": Operation.DELETE_RANGE,
}
_EMPTY: Final[Document] = {"type": "record", "name": "Row", "fields": ()}
Facts = tuple[Operation, int, Mapping[str, Any], Iterable[str]]
"""The operation of a change, its write time, its columns by name, and which were written."""

Name = tuple[bytes | None, int | None]
"""The mutation of a change, and its index there."""

Images = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""The columns of a row before and after a change, by name."""


def _image(found: Document | None) -> Mapping[str, Any] | None:
    payload: Mapping[str, Any] | None = None if found is None else found["payload"]
    return payload


class Envelope(Protocol):
    """Finds the facts of changes in an envelope; `row` is the record of its columns."""

    row: Document

    def of(self, document: Document) -> Facts:
        """Return the facts of a change."""

    def images(self, document: Document) -> Images:
        """Return the row before and after a change."""

    def table_of(self, document: Document) -> str:
        """Return its table; empty if the envelope does not have it."""

    def name_of(self, document: Document) -> Name:
        """Return its name; empty if the envelope does not have it."""


class _Own:
    """The envelope `cep44`."""

    def __init__(self, whole: Document) -> None:
        found = field_of(whole, "payload")
        self.row: Document = (found or {"type": _EMPTY})["type"]

    def of(self, document: Document) -> Facts:
        """Return the facts of a change."""
        operation = Operation(document["operationType"])
        return operation, document["timestampMicros"], document["payload"], document["updateFields"]

    def images(self, document: Document) -> Images:
        """Return the row before and after a change."""
        return _image(document.get(PRE)), _image(document.get(POST))

    def table_of(self, document: Document) -> str:
        """Return its table."""
        return f"{document['sourceKeyspace']}.{document['sourceTable']}"

    def name_of(self, document: Document) -> Name:
        """Return its name."""
        return document.get("mutation"), document.get("index")


class _Flat:
    """The envelope `flat`: its own fields end in `_` if a column has the same name."""

    def __init__(self, whole: Document) -> None:
        names = [each["name"] for each in whole["fields"]]
        found = [index for index, name in enumerate(names) if re.fullmatch("__op_*", name)]
        if not found:
            raise UndecodableError("the schema has no field __op", hint="a transform removes it")
        first = found[-1]
        # They follow the columns.
        self._names = {re.sub("_+$", "", name): name for name in names[first:]}
        self.row: Document = {"type": "record", "name": "Row", "fields": whole["fields"][:first]}

    def of(self, document: Document) -> Facts:
        """Return the facts of a change."""
        names = self._names
        operation = Operation(document[names["__op"]])
        written = document[names["__written"]]
        return operation, document[names["__timestamp"]], document, written

    def images(self, document: Document) -> Images:
        """Return the row before and after a change."""
        names = (self._names.get(f"__{name}", "") for name in (PRE, POST))
        before, after = (_image(document.get(name)) for name in names)
        return before, after

    def table_of(self, document: Document) -> str:
        """Return an empty string: the envelope does not have the table."""
        del document
        return ""

    def name_of(self, document: Document) -> Name:
        """Return its name."""
        mutation, index = (document.get(self._names.get(n, "")) for n in ("__mutation", "__index"))
        return mutation, index


class _Debezium:
    """The envelope `debezium`."""

    def __init__(self, whole: Document) -> None:
        after = field_of(whole, "after")
        assert after is not None  # noqa: S101 (this envelope has it)
        cells = [
            (each, value)
            for each in after["type"][1]["fields"]
            if (value := field_of(each["type"][1], "value"))
        ]
        self._names = [each["name"] for each, _ in cells]
        fields = [{**each, "type": value["type"]} for each, value in cells]
        self.row: Document = {"type": "record", "name": "Value", "fields": fields}

    def of(self, document: Document) -> Facts:
        """Return the facts of a change."""
        row, source = self._row(document["after"]) or {}, document["source"]
        is_read = source.get("snapshot") == "true"  # A deleted range has the same `op`.
        operation = Operation.INSERT if is_read else _DEBEZIUM[document["op"]]
        return operation, source["ts_us"], row, row

    def images(self, document: Document) -> Images:
        """Return the row before and after a change."""
        return self._row(document.get("before")), self._row(document["after"])

    def _row(self, cells: Document | None) -> Mapping[str, Any] | None:
        """Return the columns present in `before` or `after`."""
        if cells is None:
            return None
        found = ((name, cells.get(name)) for name in self._names)
        return {name: cell["value"] for name, cell in found if cell is not None}

    def table_of(self, document: Document) -> str:
        """Return its table."""
        source = document["source"]
        names = [source.get(name) for name in ("keyspace", "table")]
        return ".".join(names) if all(names) else ""

    def name_of(self, document: Document) -> Name:
        """Return an empty name: the envelope does not have these fields."""
        del document
        return None, None


ENVELOPES: Final[Mapping[str, Callable[[Document], Envelope]]] = {
    OWN: _Own,
    "debezium": _Debezium,
    "flat": _Flat,
}
