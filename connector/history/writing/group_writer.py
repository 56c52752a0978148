"""Writes one split to a history of several files: a transaction decides, files follow.

The head receives a commit's changes, by part, and the position after them. That decides them: the
next writer copies to each part what it does not have, even if the deciding process died. A part
stores the number of the commit together with its changes, so it takes each once.
"""

from collections.abc import Mapping, Sequence
from zlib import crc32

from headrace import plugins
from headrace.connector.history.config import HistoryConfig
from headrace.connector.history.errors import HistoryBusyError
from headrace.connector.history.store.group import Decided, HistoryGroup
from headrace.connector.history.writing.dividing import content_of, divided, records_of, schemas_of
from headrace.connector.history.writing.writer import HistoryWriter

Records = Sequence[plugins.EncodedRecords]


class GroupWriter(HistoryWriter):
    """Writes a split to several files, as described for `HistoryWriter`."""

    def __init__(
        self, file: HistoryGroup, split: str, config: HistoryConfig, clock: plugins.Clock
    ) -> None:
        """Write to *file*; the writer closes it."""
        super().__init__(file, split, config, clock)
        self._group = file
        self._left: list[tuple[Decided, Records]] = []  # Decisions not yet taken by parts.

    def begin(self, deadline_ms: int) -> Mapping[str, bytes] | None:
        """Begin after all decisions, of any split; see `TransactionalWriter.begin`."""
        entries = super().begin(deadline_ms)
        if entries is None:
            return None
        try:
            undone = [(each, self._group.content(each)) for each in self._group.undone()]
            # If the content is removed, the part has it, and does not take it again.
            self._left = [
                (each, list(records_of(content, self._group.table)) if content else [])
                for each, content in undone
            ]
            self._apply()
            self._group.forget_done()
        except HistoryBusyError:
            return None
        return entries

    def commit(self, entries: Mapping[str, bytes | None], deadline_ms: int) -> bool:
        """Commit; False if a file is locked after deciding. See `TransactionalWriter.commit`."""
        return self._applied() if self._left else super().commit(entries, deadline_ms)

    def _commit(self, entries: Mapping[str, bytes | None]) -> bool:
        of_parts: dict[int, list[plugins.EncodedRecords]] = {}
        for each in self._submitted:
            for part, records in enumerate(divided(each, self._group)):
                if len(records):
                    of_parts.setdefault(part, []).append(records)
        contents = {part: content_of(records) for part, records in of_parts.items()}
        with self._group.writing(self._split):
            self._check()
            for each in self._submitted:
                self._keep_schemas(each)
            self._group.keep_entries(self._split, entries)
            decided = self._group.decide(self._split, contents)
        # Workers that commit at the same time begin with different files.
        decided.sort(
            key=lambda each: (each.part + crc32(self._split.encode())) % len(self._group.files)
        )
        self._left = [(each, of_parts[each.part]) for each in decided]
        return self._applied()

    def _keep_schemas(self, encoded: plugins.EncodedRecords) -> None:
        """Make the head assign numbers to new schemas. Within `writing`."""
        for schema_id in schemas_of(encoded):
            if schema := self._schemas.get(schema_id):
                self._group.schema_number(schema)

    def _applied(self) -> bool:
        try:
            self._apply()
        except HistoryBusyError:
            return False
        return True

    def _apply(self) -> None:
        """Make each part take what is left. Raises as `HistoryStore.writing`."""
        while self._left:
            decided, records = self._left[0]
            appender, part = self._appenders[decided.part], self._group.files[decided.part]
            try:
                with part.writing(decided.split):
                    if not part.has_taken(decided):
                        appender.append(records, self._schemas, self._clock.wall_ms())
                        part.take(decided)
            except BaseException:
                appender.forget()
                raise
            self._left.pop(0)
