"""The reference sink, made to be copied: appends one JSON document per line to a file.

A delivery is on disk before it is settled, so there is nothing to drain and nothing to close.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from headrace import plugins
from headrace.sinks.files.lines import append_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkConfig(plugins.SinkOptions):
    """Options of the file sink."""

    path: str = plugins.option("The file to append to; it is made if it is not there.")

    def __post_init__(self) -> None:
        """Refuse what names no file."""
        if not self.path.strip("/") or self.path.endswith("/"):
            raise plugins.ConfigError([plugins.Problem("path", f"{self.path!r} names no file")])


class FileSink(plugins.Sink):
    """Writes to one file; sinks in other processes may write to the same one."""

    schemes = ("file",)
    config_class = FileSinkConfig
    config: FileSinkConfig

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> dict[str, str]:
        """Take three slashes from the root, and two for a name in the working folder."""
        if host and path:
            hint = f"write file:///{host}{path}, or file:// and AND path = '{host}{path}'"
            raise plugins.ConfigError([plugins.Problem("uri", f"{host!r} is no folder", hint)])
        return {"path": host or path} if host or path else {}

    def check(self) -> list[plugins.Finding]:
        """Look whether the file, or its folder, may be written."""
        path = Path(self.config.path).absolute()
        place = path if path.exists() else path.parent
        passed = os.access(place, os.W_OK) and (place.is_file() or place is not path)
        result = plugins.CheckResult.PASSED if passed else plugins.CheckResult.FAILED
        found = "can" if passed else "cannot"
        return [plugins.Finding("file", result, f"{path} {found} be written")]

    def open(self) -> plugins.Writer:
        """Make sure that the file can be written, and ends with a whole line."""
        path = Path(self.config.path)
        try:
            append_lines(path, b"", cuts=self.context.resumes)
        except OSError as error:
            hint = "name a new file in a folder that may be written, or one of whole lines"
            said = error.strerror or str(error)
            raise plugins.MissingRequirementError(said, place=str(path), hint=hint) from error
        return FileWriter(path)


class FileWriter(plugins.Writer):
    """Settles each delivery before `submit` returns."""

    def __init__(self, path: Path) -> None:
        """Write to *path*."""
        self._path = path

    def submit(self, delivery: plugins.Delivery, settle: plugins.Settle) -> None:
        """Append all of *delivery*, or nothing."""
        lines = b"".join(value + b"\n" for value in delivery.encoded.values)
        try:
            append_lines(self._path, lines)
        except OSError as error:
            said = error.strerror or str(error)
            raise plugins.RetriableError(said, place=str(self._path), hint="disk full?") from error
        settle(len(delivery.encoded))

    def drain(self, deadline_ms: int) -> bool:  # noqa: ARG002 (nothing is ever unsettled)
        """Return at once."""
        return True
