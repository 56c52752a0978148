"""The schema that a job is given: a DDL file, the driver's metadata, or both.

Read at the start, and again when a log does not describe a table that a job needs. Blocking I/O.
"""

from functools import cached_property
from hashlib import md5
from pathlib import Path
from typing import Final

from headrace.plugins import ConfigError, Context, HeadraceError, Problem
from headrace.sources.cassandra.schema.contact import Contact, NodeSettings
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import Schema
from headrace.sources.cassandra.schema_versions.schema_rows import SchemaRows

_SCHEMA_HINT: Final = "write it with cqlsh -e 'DESCRIBE SCHEMA WITH INTERNALS'"


class GivenSchema:
    """The given schema of one job."""

    def __init__(self, file: Path | None, contact: Contact, context: Context) -> None:
        """Read nothing yet. If both have a table, that of the contact points wins."""
        self._file = file
        self._contact = contact
        self._settings = NodeSettings()
        self._log = context.log

    @cached_property
    def schema(self) -> Schema:
        """The schema at the start.

        Raises:
            ConfigError: the file is missing, or not text.
            SchemaTextError: the file is not DDL.
            ClusterUnreachableError: no contact point answers.

        """
        return self._read()

    @property
    def settings(self) -> NodeSettings:
        """The settings of a contact point, as far as they are known. Raises as `schema`."""
        _ = self.schema
        return self._settings

    @cached_property
    def rows(self) -> SchemaRows:
        """The schema as rows, with a digest of the file, which shows when a user changed it."""
        mark = b""
        if self._file is not None:
            mark = md5(_text_of(self._file).encode(), usedforsecurity=False).digest()
        return SchemaRows().with_given(self.schema, mark)

    def again(self) -> Schema | None:
        """Read the schema again. Return None, after a warning, if it cannot be read."""
        try:
            return self._read()
        except HeadraceError as error:
            self._log.warning("schema_not_refreshed", error_code=error.code, error=str(error))
            return None

    def after_gap(self) -> Schema | None:
        """Read it again if there are contact points: a file does not update itself."""
        return self.again() if self._contact.points else None

    def _read(self) -> Schema:
        schema = Schema({}, {})
        if self._file is not None:
            schema = parse_schema(_text_of(self._file), place=str(self._file))
        if self._contact.points:
            # Only here: the driver's imports would delay every start by a tenth of a second.
            from headrace.sources.cassandra.schema.live import read_live  # noqa: PLC0415

            live, self._settings = read_live(self._contact)
            schema = Schema(
                {**schema.keyspaces, **live.keyspaces}, {**schema.tables, **live.tables}
            )
        return schema


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem("schema", f"{path}: {error.strerror}", _SCHEMA_HINT)]) from error
    except UnicodeDecodeError as error:
        found = f"{path}: byte {error.start} is not UTF-8"
        raise ConfigError([Problem("schema", found, _SCHEMA_HINT)]) from error
