"""Finding the schema of a message by the id in its header, as consumers do."""

from pathlib import Path

from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import BadRecordError, RecordSchema


class SchemaUnknownError(BadRecordError):
    """A message names a schema that the store does not have."""

    code = "schema_unknown"


class JobSchemas:
    """The schemas that a job's store has. Belongs to the thread that made it."""

    def __init__(self, path: str | Path) -> None:
        """Open what *path* names (see `open_notes`), which a worker has made. Raises as that."""
        self._path = path
        self._notes = open_notes(Path(path), create=False)
        self._store = self._notes.store("")  # Schemas belong to no job.
        self._found: dict[bytes, RecordSchema] = {}

    def get(self, schema_id: bytes) -> RecordSchema:
        """Return the schema with that id.

        Raises:
            SchemaUnknownError: it is not there. A worker stores a schema before its first message.

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
        """Give back the connection. Safe to call twice."""
        self._notes.close()
