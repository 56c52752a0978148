"""Finds the schema of a message by the id in its header, for consumers."""

from pathlib import Path

from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import BadRecordError, RecordSchema


class SchemaUnknownError(BadRecordError):
    """A message names a schema that the store does not have."""

    code = "schema_unknown"


class JobSchemas:
    """The schemas that a job's store has. For the thread that created it."""

    def __init__(self, path: str | Path) -> None:
        """Open the store at *path*, which a worker created. Raises as `open_notes`."""
        self._path = path
        self._notes = open_notes(Path(path), create=False)
        self._store = self._notes.store("")  # Schemas belong to no job.
        self._found: dict[bytes, RecordSchema] = {}

    def get(self, schema_id: bytes) -> RecordSchema:
        """Return the schema with that id.

        Raises:
            SchemaUnknownError: the store does not have it. A worker stores a schema before it sends
                the first message with it.

        """
        schema = self._found.get(schema_id) or self._store.schema(schema_id)
        if schema is None:
            raise SchemaUnknownError(
                f"no schema has the id {schema_id.hex()}",
                place=str(self._path),
                hint="give the state file of the job that wrote the message",
            )
        self._found[schema_id] = schema
        return schema

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self._notes.close()
