"""Whole lines of a growing file, and their records. Knows nothing of splits."""

import json
import os
from pathlib import Path
from typing import Final

from headrace.plugins import (
    BadRecordError,
    Demand,
    Document,
    FatalError,
    Operation,
    Record,
    RecordSchema,
)

LINE_BYTES_MAX: Final = 16 * 1024 * 1024  # Limits the memory for one line.
LINE_SCHEMA: Final = RecordSchema.of(
    "lines",
    "one JSON object per line",
    key={"type": "record", "name": "line_key", "fields": []},
    value={"type": "record", "name": "line", "fields": [{"name": "line", "type": "bytes"}]},
)


class BadLineError(BadRecordError):
    """A line is not a JSON object."""

    code = "bad_line"


class UnreadableFileError(FatalError):
    """A file cannot be followed: gone, shorter than the part read, or without line feeds."""

    code = "unreadable_file"


class Line(Record):
    """One line; its document is the JSON in it."""

    __slots__ = ("end_bytes", "path")

    def __init__(self, line: bytes, *, path: str, end_bytes: int) -> None:
        """Keep *line*, which is parsed only when its document is needed.

        *end_bytes* is the end of its line feed in the file.
        """
        super().__init__(
            key=None,
            value={"line": line},
            operation=Operation.INSERT,
            timestamp_us=0,
            schema=LINE_SCHEMA,
        )
        self.path = path
        self.end_bytes = end_bytes

    def kept(self) -> tuple[bytes, Document]:
        """Return the line as in the file."""
        return self.value["line"], {"table": self.schema.table}

    def document(self) -> Document:
        """Parse the line.

        Raises:
            BadLineError: it is not a JSON object.

        """
        line = self.value["line"]
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            return document
        place = f"{self.path}, byte {self.end_bytes - len(line)}"
        raise BadLineError("the line is not a JSON object", place=place)


def read_lines(path: str, start_bytes: int, demand: Demand) -> list[Line]:
    """Return the complete lines from *start_bytes* on, within *demand*.

    Raises:
        UnreadableFileError: it says where.

    """
    lines: list[Line] = []
    end_bytes = start_bytes
    try:
        with Path(path).open("rb") as file:
            if file.seek(0, os.SEEK_END) < start_bytes:
                raise UnreadableFileError(
                    "the file is shorter than what was read of it",
                    place=f"{path}, byte {start_bytes}",
                    hint="lines may be appended, nothing else",
                )
            file.seek(start_bytes)
            while len(lines) < demand.records_max and end_bytes - start_bytes < demand.bytes_max:
                line = file.readline(LINE_BYTES_MAX)
                if not line.endswith(b"\n"):
                    break  # Its end is not written yet.
                end_bytes += len(line)
                lines.append(Line(line, path=path, end_bytes=end_bytes))
    except OSError as error:
        raise UnreadableFileError(str(error), place=path) from error
    if not lines and len(line) == LINE_BYTES_MAX:
        raise UnreadableFileError(
            f"no line feed within {LINE_BYTES_MAX} bytes", place=f"{path}, byte {start_bytes}"
        )
    return lines


def file_bytes(path: str) -> int:
    """Return the size of a file. Raises UnreadableFileError."""
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise UnreadableFileError(str(error), place=path) from error
