"""The tables of one node's log while a job reads it: by epoch, with stored versions.

The log has most of the schema. Where a segment is missing, the configured schema is used: for an
unknown table id, and after a gap. For one thread.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from headrace.plugins import Context
from headrace.sources.cassandra.commitlog.heads import partition_key
from headrace.sources.cassandra.mutation.errors import BadMutationError
from headrace.sources.cassandra.mutation.values import BadValueError
from headrace.sources.cassandra.reading.deliveries import Deliveries
from headrace.sources.cassandra.schema.tables import SYSTEM_KEYSPACES, Schema, TableSchema
from headrace.sources.cassandra.schema_versions.epochs import Epoch
from headrace.sources.cassandra.schema_versions.given_schema import GivenSchema
from headrace.sources.cassandra.schema_versions.log_schema import LogSchema, Version
from headrace.sources.cassandra.schema_versions.schema_rows import SchemaRows
from headrace.sources.cassandra.state.cdc_state import Marker, StoredVersion
from headrace.sources.cassandra.state.chunks import Chunk, damaged

_OWN_KEYSPACES: Final = frozenset(name.encode() for name in SYSTEM_KEYSPACES)
CHANGES_MAX: Final = 64  # Changes to one log's schema in one pass.


class LogTables:
    """The tables of a log, with the `routes` of the next entry's epoch."""

    def __init__(
        self, node: str, given: GivenSchema, deliveries: Deliveries, context: Context
    ) -> None:
        """Start with the configured schema."""
        self.changes = 0  # In the current pass.
        self._node = node
        self._given = given
        self._deliveries = deliveries
        self._log = context.log
        self._schema = LogSchema(given.rows, deliveries.epochs)
        self._stored: dict[Version, StoredVersion] = {}
        # The last result of `versions`, and its input: it is asked for at each position.
        self._asked: tuple[Sequence[Version], tuple[StoredVersion, ...]] = (), ()
        self.routes = deliveries.routes_of(self.epoch)

    @property
    def epoch(self) -> Epoch:
        """The epoch of the next entry."""
        return self._schema.epoch

    @property
    def left_out(self) -> tuple[Collection[bytes], Collection[bytes]]:
        """The ids of the tables that are not delivered now, and of the schema tables."""
        return self._deliveries.left_out(self.epoch)

    def epoch_at(self, marker: Marker) -> Epoch:
        """Return the epoch of the entry that ends at *marker*."""
        return self._schema.epoch_at((marker.segment_id, marker.offset))

    def change(self, raw: bytes, messaging: int, marker: Marker) -> None:
        """Apply an entry of `system_schema` that ends at *marker*.

        A node writes those of its own keyspaces at each start; they are ignored.
        """
        if is_of_cassandra(raw, messaging):
            return
        self.changes += 1
        try:
            mutation = self.epoch.decoder.decode(
                raw, messaging=messaging, segment_id=marker.segment_id, position=marker.offset
            )
            if self._schema.apply(mutation):
                self._moved()
        except (BadMutationError, BadValueError) as error:
            self._log.warning(
                "schema_change_unread",
                node=self._node,
                segment_id=marker.segment_id,
                position=marker.offset,
                error=error.message,
            )
            self._learn_all(self._given.after_gap(), marker)

    def ask(self, table_id: bytes, marker: Marker) -> bool:
        """Read the schema again for an unknown table; return whether it was found."""
        fresh = self._given.again()
        found = [t for i, t in fresh.tables.items() if i.bytes == table_id] if fresh else []
        self._learn(found, fresh, marker)
        return bool(found)

    def skipped_segments(self, marker: Marker) -> None:
        """Read the changes in missing segments, as if they had no changes to data."""
        self._learn_all(self._given.after_gap(), marker)

    def refreshed(self, fresh: Schema | None, marker: Marker) -> None:
        """Apply a schema that was read again because an entry did not fit."""
        self._learn_all(fresh, marker)

    def _learn_all(self, fresh: Schema | None, marker: Marker) -> None:
        known = self._schema.rows.schema.tables
        found = [
            table
            for table_id, table in (fresh.tables if fresh else {}).items()
            if not table.is_dropped and not _says_the_same(known.get(table_id), table)
        ]
        self._learn(found, fresh, marker)

    def _learn(self, found: Sequence[TableSchema], fresh: Schema | None, marker: Marker) -> None:
        place = marker.segment_id, marker.offset
        moved = [
            self._schema.learn(table, fresh.keyspaces.get(table.keyspace) if fresh else None, place)
            for table in found
        ]
        if any(moved):
            self._moved()

    def _moved(self) -> None:
        self.routes = self._deliveries.routes_of(self.epoch)
        self._deliveries.follow(self.epoch.given.keyspaces)

    # ---- stored versions ----

    def versions(self, needed: Marker) -> tuple[StoredVersion, ...]:
        """Return the versions of the entries after *needed*, the newest last."""
        place = needed.segment_id, needed.offset
        versions = self._schema.known
        first = max((i for i, v in enumerate(versions) if v.since <= place), default=0)
        if versions[first:] == self._asked[0]:
            return self._asked[1]
        self._stored = {v: self._stored[v] for v in versions if v in self._stored}
        for version in versions[first:]:
            if version not in self._stored:
                self._stored[version] = _stored(version)
        found = tuple(self._stored[version] for version in versions[first:])
        self._asked = versions[first:], found
        return found

    def restore(self, stored: Sequence[StoredVersion], marker: Marker) -> None:
        """Restore *stored* versions, because the log is read from *marker*.

        Without a version from before it, restore the configured schema.

        Raises:
            StateError: they are not valid versions.

        """
        made = tuple(self._version(each) for each in stored)
        unchanged = zip(made, stored, strict=True)
        self._stored = {v: s for v, s in unchanged if v.rows.given == self._given.rows.given}
        place = marker.segment_id, marker.offset
        versions = tuple(version for version in made if version.since <= place)
        if not versions:
            rows = self._given.rows
            versions = (Version((0, 0), rows, self._deliveries.epochs.of(rows.schema)),)
        self._schema.reset(versions, tuple(v for v in made if v.since > place))
        self._moved()

    def _version(self, stored: StoredVersion) -> Version:
        try:
            rows = SchemaRows.decode(stored.chunk.rows)
        except msgspec.MsgspecError as error:
            what = f"chunk {stored.chunk.name}"
            raise damaged(what, str(error), "the rows of a schema") from error
        given = self._given.rows
        if rows.given != given.given:  # The file has changed.
            rows = rows.with_given(given.schema, given.given)
        since = stored.since.segment_id, stored.since.offset
        return Version(since, rows, self._deliveries.epochs.of(rows.schema))


def is_of_cassandra(raw: bytes, messaging: int) -> bool:
    """Return whether a mutation of `system_schema` describes Cassandra's own tables."""
    return partition_key(raw, messaging) in _OWN_KEYSPACES


def _stored(version: Version) -> StoredVersion:
    return StoredVersion(Marker(*version.since), Chunk(version.rows.encode()))


def _says_the_same(known: TableSchema | None, fresh: TableSchema) -> bool:
    """Return whether a table is read the same way; DDL has no drop times of columns."""
    return known is not None and _without_times(known) == _without_times(fresh)


def _without_times(table: TableSchema) -> TableSchema:
    columns = tuple(msgspec.structs.replace(column, dropped_us=None) for column in table.columns)
    return msgspec.structs.replace(table, columns=columns)
