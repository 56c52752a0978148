"""One change as a record."""

from collections.abc import Mapping
from typing import Final

from headrace.plugins import Document, Headers, Record, RecordSchema
from headrace.sources.cassandra.encode.avro_objects import Provenance, avro_key, avro_value
from headrace.sources.cassandra.encode.list_modes import HEADER, READ
from headrace.sources.cassandra.mutation.change_json import change_document, provenance_document
from headrace.sources.cassandra.mutation.changes import Change

FATE_HEADER: Final = "agreement"


class ChangeRecord(Record):
    """A record that keeps its change, so that its JSON document is made from the change."""

    __slots__ = ("_change", "_provenance")

    def __init__(self, change: Change, provenance: Provenance, schema: RecordSchema) -> None:
        """Make the Avro key and value."""
        super().__init__(
            key=avro_key(change),
            value=avro_value(change, provenance),
            operation=change.operation,
            timestamp_us=change.timestamp_us,
            schema=schema,
            headers=_own_headers(provenance),
            origin=_origin(provenance),
            checksum=provenance.checksum,
        )
        self._change = change
        self._provenance = provenance

    @property
    def change(self) -> Change:
        """The change."""
        return self._change

    def document(self) -> Document:
        """Return the change in its JSON form."""
        return _document(self._change, self._provenance)


def _own_headers(provenance: Provenance) -> Headers:
    """Return the headers of an unusual record."""
    fate = ((FATE_HEADER, provenance.fate.encode()),) if provenance.fate else ()
    return (*fate, (HEADER, READ.encode())) if provenance.is_read else fate


def _origin(provenance: Provenance) -> dict[str, str | int]:
    return {
        "node": provenance.node,
        "segment": provenance.segment_id,
        "position": provenance.position,
    }


def _document(change: Change, provenance: Provenance) -> Mapping[str, object]:
    origin = {name: content.decode() for name, content in _own_headers(provenance)}
    return {
        **change_document(change),
        **provenance_document(
            mutation_id=provenance.mutation_id,
            index=provenance.index,
            of=provenance.of,
            segment_id=provenance.segment_id,
            position=provenance.position,
            copies=provenance.copies,
            node=provenance.node,
        ),
        **origin,
    }
