"""The reference source, made to be copied: follows files of JSON lines."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob

from headrace import plugins
from headrace.plugins import NumberPosition, Position, RecordBatch, Split
from headrace.sources.files.lines import LINE_SCHEMA, file_bytes, read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSourceConfig:
    """Options of the file source."""

    path: str = plugins.option(
        "The files to follow: a name, or a pattern such as in/*.jsonl.", reads=True
    )


class FileSource(plugins.Source, plugins.Relocation):
    """Follows every file that exists when the splits are planned."""

    word = "files"
    config_class = FileSourceConfig
    config: FileSourceConfig

    def plan(self) -> list[Split]:
        """Return a split for each file, named after it."""
        if names := sorted(glob(self.config.path)):  # noqa: PTH207 (a pattern may be absolute)
            for name in names:
                if not name.isprintable():
                    message = "expected the name of a file that can be printed"
                    raise plugins.MissingRequirementError(message, place=ascii(name))
            return [Split(name) for name in names]
        hint = "a path is relative to the folder of the job file"
        raise plugins.MissingRequirementError("does not exist", place=self.config.path, hint=hint)

    def gives_up(self, split_id: str) -> bool:
        """Return whether `path` excludes the file; an included one that is gone is missed."""
        parts, patterns = split_id.split("/"), self.config.path.split("/")
        return len(parts) != len(patterns) or not all(map(fnmatchcase, parts, patterns))

    def backlog(self, split: Split, position: Position | None) -> list[plugins.Backlog]:
        """Return the bytes after *position*."""
        read = position.number if isinstance(position, NumberPosition) else 0
        left = max(0, file_bytes(split.split_id) - read)
        return [plugins.Backlog(partition={}, size_bytes=left, files=1 if left else 0)]

    def locate(self, split: Split, position: Position | None, target: str) -> Position | None:
        """Return the end of the file for `latest`; other targets are numbers of bytes."""
        del position
        if target == "earliest":
            return None
        if target == "latest":
            return NumberPosition(file_bytes(split.split_id))
        if target.isdecimal() and target.isascii() and len(target) < 19:  # noqa: PLR2004 (2^63)
            return NumberPosition(int(target))
        said = f"this source knows no position {target[:48]!r}"
        hint = "earliest, latest, or a number of bytes"
        raise plugins.ConfigError([plugins.Problem("position", said, hint)])

    @classmethod
    def first_position(cls) -> Position:
        """Return the beginning of a file."""
        return NumberPosition(0)

    def open(self, split: Split, resume: Position | None) -> plugins.Reader:
        """Start after the bytes that *resume* counts."""
        offset_bytes = resume.number if isinstance(resume, NumberPosition) else 0
        return FileReader(split.split_id, offset_bytes)


class FileReader(plugins.Reader):
    """Reads one file, a record per line; keeps no file open between reads."""

    def __init__(self, path: str, offset_bytes: int) -> None:
        """Start at *offset_bytes*."""
        self._path = path
        self._offset_bytes = offset_bytes
        self._announce = [LINE_SCHEMA]

    def read(self, demand: plugins.Demand) -> RecordBatch | plugins.Idle:
        """Return the next whole lines."""
        lines = read_lines(self._path, self._offset_bytes, demand)
        if not lines:
            return plugins.Idle()
        size_bytes = lines[-1].end_bytes - self._offset_bytes
        self._offset_bytes = lines[-1].end_bytes
        more = len(lines) >= demand.records_max or size_bytes >= demand.bytes_max
        end = NumberPosition(self._offset_bytes)
        announced, self._announce = self._announce, []
        return RecordBatch(self._path, end, size_bytes, lines, announced, more)
