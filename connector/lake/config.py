"""The options of the sinks that write tables of lakes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace import plugins

APPEND, UPSERT = "append", "upsert"
_COMMITS: Final = "_headrace.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeConfig(plugins.SinkOptions):
    """Options of both kinds of lakes."""

    mode: str = plugins.option(
        "`append`: a row for each change. `upsert`: the newest state of each row, by write times.",
        default=APPEND,
        choices=(APPEND, UPSERT),
    )

    def __post_init__(self) -> None:
        """Raise for transforms: rows are made of untransformed changes."""
        plugins.SinkOptions.__post_init__(self)
        if self.transforms:
            what = "tables of a lake are made of changes as they are, without transforms"
            raise plugins.ConfigError([plugins.Problem("transforms", what)])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaConfig(LakeConfig):
    """Options of the sink `delta`."""

    path: str = plugins.option(
        "The folder of the tables, each in a folder of its own; created if it does not exist.",
        writes=True,
    )

    def __post_init__(self) -> None:
        """Raise unless a folder is named."""
        LakeConfig.__post_init__(self)
        if not self.path.strip("/"):
            raise plugins.ConfigError([plugins.Problem("path", f"{self.path!r} names no folder")])

    @property
    def folder(self) -> Path:
        """The folder of the tables."""
        return Path(self.path).absolute()

    @property
    def commits_file(self) -> Path:
        """The file of positions, in that folder."""
        return self.folder / _COMMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergConfig(LakeConfig):
    """Options of the sink `iceberg`."""

    catalog: str = plugins.option("The catalog, by its name in the configuration of pyiceberg.")
    namespace: str = plugins.option("The namespace of the tables; created if it does not exist.")
    commits: str = plugins.option(
        "A file on a local disk, for positions and for rows that are not yet in the tables.",
        default=_COMMITS,
        writes=True,
    )

    @property
    def commits_file(self) -> Path:
        """The file of positions."""
        return Path(self.commits).absolute()
