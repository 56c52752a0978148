"""The sinks `delta` and `iceberg`: tables of a lake, written exactly once."""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from headrace import plugins
from headrace.connector.control.runs.options import DELTA, ICEBERG
from headrace.connector.foundation.homes import file_home
from headrace.connector.lake.config import DeltaConfig, IcebergConfig, LakeConfig
from headrace.connector.replay.options import check_lake

if TYPE_CHECKING:
    from headrace.connector.lake.staging import CommitsFile
    from headrace.connector.lake.writer import Lake


class LakeSink(plugins.Sink):
    """The common part of both sinks."""

    kind: ClassVar[str]

    @abstractmethod
    def lake(self) -> "Lake":
        """Return the tables. Raises LakeUnreachableError."""

    def encoding(self) -> plugins.Encoding:
        """Return an encoding with the envelope from which rows can be folded."""
        return plugins.Encoding(codec="avro", envelope="cep44")

    def check(self) -> list[plugins.Finding]:
        """Check that the library is installed and the tables can be reached; writes nothing."""
        try:
            check_lake(self.kind)
            self.lake().close()
        except plugins.HeadraceError as error:
            return [plugins.Finding(self.kind, plugins.CheckResult.FAILED, str(error))]
        said = f"{self.kind} tables can be reached"
        return [plugins.Finding(self.kind, plugins.CheckResult.PASSED, said)]

    def open(self) -> plugins.Writer:
        """Return the writer of rows without a split.

        Raises:
            LakeMissingError: the library is not installed.
            LakeFileError, LakeUnreachableError: the file or the tables cannot be used.

        """
        check_lake(self.kind)
        from headrace.connector.lake.writer import LakeWriter  # noqa: PLC0415 (an extra)

        return LakeWriter(self.lake(), self._file(), self._mode, self.context)

    @property
    def is_transactional(self) -> bool:
        """Return True: the position of a split is committed with its rows."""
        return True

    def home(self) -> str:
        """Return the name of the file of positions, which processes of one machine share."""
        return file_home(self.config.commits_file)

    def open_split(self, split: str) -> plugins.TransactionalWriter:
        """Return the writer of one split. Raises as `open`."""
        check_lake(self.kind)
        from headrace.connector.lake.writer import LakeTransactions  # noqa: PLC0415 (an extra)

        return LakeTransactions(self.lake(), self._file(), split, self._mode, self.context)

    @property
    def _mode(self) -> str:
        config: LakeConfig = self.config
        return config.mode

    def _file(self) -> "CommitsFile":
        from headrace.connector.lake.staging import CommitsFile  # noqa: PLC0415 (seldom needed)

        return CommitsFile(self.config.commits_file)


class DeltaSink(LakeSink):
    """Delta Lake tables in a folder."""

    schemes = ("delta",)
    kind = DELTA
    config_class = DeltaConfig
    config: DeltaConfig

    def lake(self) -> "Lake":
        """See `LakeSink.lake`."""
        from headrace.connector.lake.delta import DeltaTables  # noqa: PLC0415 (an extra)

        return DeltaTables(self.config.folder)


class IcebergSink(LakeSink):
    """Iceberg tables in a namespace of a catalog."""

    schemes = ("iceberg",)
    kind = ICEBERG
    config_class = IcebergConfig
    config: IcebergConfig

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> dict[str, str]:
        """Take the catalog, and the namespace after it."""
        found = {"catalog": host, "namespace": path.strip("/").replace("/", ".")}
        return {name: text for name, text in found.items() if text}

    def lake(self) -> "Lake":
        """See `LakeSink.lake`."""
        from headrace.connector.lake.iceberg import IcebergTables  # noqa: PLC0415 (an extra)

        return IcebergTables(self.config.catalog, self.config.namespace)
