"""The reference sink, made to be copied: appends one JSON document per line to a file.

A delivery is on disk before it is settled, so there is nothing to drain and nothing to close.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from headrace import plugins
from headrace.sinks.files.lines import append_lines, unreadable, unwritable, why_unwritable

_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkConfig(plugins.SinkOptions):
    """Options of the file sink."""

    path: str = plugins.option("The file to append to; created if it does not exist.", writes=True)

    def __post_init__(self) -> None:
        """Raise ConfigError if *path* names no file, or for a common option."""
        plugins.SinkOptions.__post_init__(self)
        if not self.path.strip("/") or self.path.endswith("/"):
            raise plugins.ConfigError([plugins.Problem("path", f"{self.path!r} names no file")])


def options_of_uri(host: str, path: str) -> dict[str, str]:
    """Return the options of `file://` followed by *host* and *path*. Raises ConfigError."""
    if host and path:
        hint = f"write file:///{host}{path}, or file:// and AND path = '{host}{path}'"
        raise plugins.ConfigError([plugins.Problem("uri", f"{host!r} is not a folder", hint)])
    return {"path": host or path} if host or path else {}


class FileSink(plugins.Sink):
    """Writes to one file; sinks in other processes may write to the same one."""

    schemes = ("file",)
    config_class = FileSinkConfig
    config: FileSinkConfig
    keeps_keys: ClassVar[bool] = False

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> dict[str, str]:
        """Convert the URI: three slashes start at the root, two in the working folder."""
        return options_of_uri(host, path)

    def check(self) -> list[plugins.Finding]:
        """Return the result that `open` would have, without creating the file."""
        path = Path(self.config.path).absolute()
        wrong = why_unwritable(path)
        if wrong:
            message = f"{path} cannot be written: {wrong}"
            return [plugins.Finding("file", plugins.CheckResult.FAILED, message)]
        return [plugins.Finding("file", plugins.CheckResult.PASSED, f"{path} can be written")]

    def parts(self, tables: Sequence[str], suffix: str = "") -> Sequence[str]:
        """Return the file, which has the records of all tables."""
        del tables, suffix
        return [self.config.path]

    def read_back(self, part: str) -> Iterator[Sequence[plugins.Stored]]:
        """Yield the lines of the file, from its beginning to its end."""
        number = 0
        path = Path(part)
        with unreadable(path, plugins.MissingRequirementError), path.open("rb") as file:
            while lines := file.readlines(_READ_BYTES):
                stored = [
                    plugins.Stored(place, None, line.rstrip(b"\n"), ())
                    for place, line in enumerate(lines, number)
                ]
                number += len(lines)
                yield stored

    def open(self) -> plugins.Writer:
        """Check that the file can be written, and ends with a complete line."""
        path = Path(self.config.path)
        with unwritable(path, plugins.MissingRequirementError), suppress(BlockingIOError):
            append_lines(path, b"", cuts=self.context.resumes)
        return FileWriter(path)


class FileWriter(plugins.Writer):
    """Settles each delivery before `submit` returns."""

    def __init__(self, path: Path) -> None:
        """Set the path."""
        self._path = path

    def submit(self, delivery: plugins.Delivery, settle: plugins.Settle) -> None:
        """Append all of *delivery*, or nothing."""
        lines = b"\n".join([*delivery.encoded.values, b""])
        with unwritable(self._path, plugins.RetriableError):
            append_lines(self._path, lines)
        settle(range(len(delivery.encoded)))

    def drain(self, deadline_ms: int) -> bool:  # noqa: ARG002 (everything is settled)
        """Return at once."""
        return True
