"""The sink `history`: appends changes to a history, with the configured images.

Each split is written exactly once: one commit of the store includes its changes and its position.
"""

from pathlib import Path

from headrace import plugins
from headrace.connector.foundation.homes import file_home
from headrace.connector.history.config import LATEST, HistoryConfig
from headrace.connector.history.errors import HistoryMissingError
from headrace.connector.history.seeding import RowWriter, seed_now
from headrace.connector.history.store.contract import HistoryStore
from headrace.connector.history.store.group import HistoryGroup
from headrace.connector.history.store.places import made, opened, table_parts
from headrace.connector.history.writing.group_writer import GroupWriter
from headrace.connector.history.writing.writer import HistoryWriter


class HistorySink(plugins.Sink):
    """Writes the changes of one table into one history."""

    schemes = ("history",)
    config_class = HistoryConfig
    config: HistoryConfig

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> dict[str, str]:
        """Accept three slashes before an absolute path, as `file://` does."""
        return {"path": host or path} if host or path else {}

    def encoding(self) -> plugins.Encoding:
        """Request changes in the envelope from which rows can be folded."""
        return plugins.Encoding(codec="avro", envelope="cep44")

    def check(self) -> list[plugins.Finding]:
        """Report whether a history exists or can be made, without making it."""
        place, said = self.config.place, "is a history"
        try:
            opened(place, self.context.clock).close()
        except HistoryMissingError:
            said = "will be made"
        except plugins.HeadraceError as error:
            return [plugins.Finding("file", plugins.CheckResult.FAILED, str(error))]
        return [plugins.Finding("file", plugins.CheckResult.PASSED, f"{place} {said}")]

    def open(self) -> plugins.Writer:
        """Make the history, and record what it stores from now on.

        The run that seeds it receives the writer of rows: its name is the name of the job here.
        """
        store = self._file()
        seed = seed_now(store)
        if seed is not None and seed.run == self.context.job:
            return RowWriter(store, seed.run, self.context.clock)
        try:
            origin = self.context.origin
            # The rows of a snapshot have the same fields.
            if origin not in (plugins.NO_ORIGIN, store.origin()) and not origin.debezium.snapshot:
                store.keep_origin(origin)
            store.keep_scopes(
                self.config.scopes,
                self.context.clock.wall_ms(),
                states=LATEST in self.config.scopes,
                is_empty=self.config.seed == "empty",
            )
        finally:
            store.close()
        return _NoWriter()

    @property
    def is_transactional(self) -> bool:
        """Return True: the position of a split is written with its changes."""
        return True

    def home(self) -> str:
        """Return the file, shared on one machine; empty for tables, which any machine can use."""
        place, name = table_parts(self.config.place)
        return "" if name else file_home(Path(place).absolute())

    def open_split(self, split: str) -> plugins.TransactionalWriter:
        """Return the writer of one split."""
        file = self._file()
        if isinstance(file, HistoryGroup):
            return GroupWriter(file, split, self.config, self.context.clock)
        return HistoryWriter(file, split, self.config, self.context.clock)

    def _file(self) -> HistoryStore:
        config = self.config
        return made(
            config.place,
            self.context.clock,
            table=config.table,
            buckets=config.buckets,
            files=config.files,
            retention_ms=config.retention_ms,
        )


class _NoWriter(plugins.Writer):
    """Refuses records without a split: a history has no place for them."""

    def submit(self, delivery: plugins.Delivery, settle: plugins.Settle) -> None:
        """Refuse the delivery."""
        del delivery, settle
        raise plugins.FatalError("a history takes the changes of splits only")

    def drain(self, deadline_ms: int) -> bool:  # noqa: ARG002 (nothing is ever unsettled)
        """Return True."""
        return True
