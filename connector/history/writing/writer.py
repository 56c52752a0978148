"""Writes one split to a history: its changes and its position at once."""

from collections.abc import Mapping
from typing import Final

from headrace import plugins
from headrace.connector.history.config import TTL_EVENTS, HistoryConfig
from headrace.connector.history.errors import HistoryBusyError, HistoryTableError
from headrace.connector.history.store.contract import HistoryStore
from headrace.connector.history.writing.appending import Appender

_WINDOW_MS: Final = 86_400_000 * 365  # Records are never dropped because of their age.


class HistoryWriter(plugins.TransactionalWriter):
    """Writes one split. Submitted records are in memory until they are committed."""

    window_ms = _WINDOW_MS
    renewal = "DROP CDC … PURGE, and CREATE CDC again"

    def __init__(
        self,
        file: HistoryStore,
        split: str,
        config: HistoryConfig,
        clock: plugins.Clock,
    ) -> None:
        """Write to *file*; the writer closes it."""
        self.place = file.place
        self._file = file
        self._split = split
        self._clock = clock
        self._scopes = config.scopes
        self._appenders = [
            Appender(part, retention_ms=config.retention_ms, expands=config.expand_deletes)
            for part in file.parts
        ]
        self._epoch = 0
        self._submitted: list[plugins.EncodedRecords] = []
        self._schemas: Mapping[bytes, plugins.RecordSchema] = {}

    def begin(self, deadline_ms: int) -> Mapping[str, bytes] | None:
        """Begin, as described for `TransactionalWriter.begin`."""
        del deadline_ms  # The store has its own limit.
        self._submitted = []
        try:
            with self._file.writing(self._split, begins=True):
                epoch = self._file.writer(self._split)
                if epoch > self._epoch > 0:
                    raise self._fenced()
                self._epoch = epoch + 1
                self._file.set_writer(self._split, self._epoch)
                return self._file.entries(self._split)
        except HistoryBusyError:
            return None

    def submit(self, delivery: plugins.Delivery, settle: plugins.Settle) -> None:
        """Keep *delivery* until `commit`.

        Raises:
            HistoryTableError: a record is of another table, or does not name a schema.

        """
        encoded = delivery.encoded
        self._schemas = delivery.schemas
        other = {table for table in encoded.tables if table != self._file.table}
        if other:
            raise HistoryTableError(
                f"got a change of {min(other)}, expected {self._file.table}",
                place=self.place,
                hint="a history has one table: CREATE CDC makes one for the other",
            )
        if len(encoded):
            self._submitted.append(encoded)
        settle(range(len(encoded)))

    def drain(self, deadline_ms: int) -> bool:  # noqa: ARG002 (nothing is ever unsettled)
        """Return True."""
        return True

    def commit(self, entries: Mapping[str, bytes | None], deadline_ms: int) -> bool:
        """Commit, as described for `TransactionalWriter.commit`."""
        try:
            if TTL_EVENTS in self._scopes:
                for each in self._appenders:
                    if not each.append_due(self._split, self._clock, deadline_ms):
                        return False
            is_whole = self._commit(entries)
        except plugins.HeadraceError as error:
            self._submitted = []
            for each in self._appenders:
                each.forget()
            if not isinstance(error, HistoryBusyError):
                raise
            raise plugins.AbortedError(error.message, place=error.place, hint=error.hint) from error
        self._submitted = []
        return is_whole

    def _commit(self, entries: Mapping[str, bytes | None]) -> bool:
        """Write all at once; return True, or False if it is decided and some is not written."""
        (appender,) = self._appenders
        with self._file.writing(self._split):
            self._check()
            appender.append(self._submitted, self._schemas, self._clock.wall_ms())
            self._file.keep_entries(self._split, entries)
        return True

    def _check(self) -> None:
        """Refuse to write, within `writing`, if there is a later writer or other scopes."""
        if self._file.writer(self._split) != self._epoch:
            raise self._fenced()
        if self._file.epochs()[-1].scopes != self._scopes:
            what = "another worker keeps other images: this one has not seen ALTER CDC yet"
            raise HistoryBusyError(what, place=self.place)

    def close(self) -> None:
        """Close the file; uncommitted records are lost."""
        self._submitted = []
        self._file.close()

    def _fenced(self) -> plugins.FencedError:
        return plugins.FencedError(
            f"split {self._split} has a later writer", place=self.place, hint="claim it again"
        )
