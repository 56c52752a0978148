"""The tables at each place of one node's log.

A log's own mutations of `system_schema` move it from one version of the schema to the next; an
entry is read with the version before it. For one thread, in log order. No I/O.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from headrace.sources.cassandra.mutation.changes import Mutation
from headrace.sources.cassandra.schema.tables import KeyspaceSchema, Schema, TableSchema
from headrace.sources.cassandra.schema_versions.epochs import Epoch, Epochs
from headrace.sources.cassandra.schema_versions.schema_rows import SchemaRows

VERSIONS_MAX: Final = 256  # Versions kept for entries that are read again.
Place = tuple[int, int]  # A segment's id and the logical end of an entry in it.
START: Final[Place] = (0, 0)


@dataclass(frozen=True, eq=False)
class Version:
    """A schema in force after the entry that ends at `since`."""

    since: Place
    rows: SchemaRows
    epoch: Epoch


class LogSchema:
    """The versions of one log's schema, the newest last."""

    def __init__(
        self, given: Schema | SchemaRows | None = None, epochs: Epochs | None = None
    ) -> None:
        """Start with the schema known before the log describes any; None means none.

        Logs with the same *epochs* number equal schemas alike.
        """
        self.epochs = epochs or Epochs()
        rows = given if isinstance(given, SchemaRows) else SchemaRows.of(given or Schema({}, {}))
        self.versions: tuple[Version, ...] = ()
        self._later: tuple[Version, ...] = ()  # After the current place.
        self._move(rows, START)

    @property
    def epoch(self) -> Epoch:
        """The epoch in force for the entry that is read next."""
        return self.versions[-1].epoch

    @property
    def rows(self) -> SchemaRows:
        """The rows of that epoch."""
        return self.versions[-1].rows

    @property
    def known(self) -> tuple[Version, ...]:
        """The versions, and later ones that were found when the log was read before."""
        last = self.versions[-1].since
        return (*self.versions, *(version for version in self._later if version.since > last))

    def epoch_at(self, place: Place) -> Epoch:
        """Return the epoch in force for the entry that ends at *place*."""
        known = self.known if self._later else self.versions
        index = bisect_right(known, place, key=lambda version: version.since)
        # The entry that changes the schema still belongs to the previous version.
        if index and known[index - 1].since == place:
            index -= 1
        return known[max(0, index - 1)].epoch

    def apply(self, mutation: Mutation) -> bool:
        """Move to the version after a mutation of `system_schema`. Return whether it differs."""
        return self._move(self.rows.apply(mutation), (mutation.segment_id, mutation.position))

    def learn(self, table: TableSchema, keyspace: KeyspaceSchema | None, place: Place) -> bool:
        """Add a table, from *place* on, that was read elsewhere: the log does not describe it."""
        return self._move(self.rows.with_table(table, keyspace), place)

    def reset(self, versions: tuple[Version, ...], later: tuple[Version, ...] = ()) -> None:
        """Go back to these versions when the log is read again from an older place.

        *later* ones are known versions after that place.
        """
        self.versions = versions
        self._later = later

    def _move(self, rows: SchemaRows, since: Place) -> bool:
        if self.versions and rows is self.rows:
            return False
        epoch = self.epochs.of(rows.schema)
        changed = not self.versions or epoch is not self.versions[-1].epoch
        self.versions = (*self.versions, Version(since, rows, epoch))[-VERSIONS_MAX:]
        return changed
