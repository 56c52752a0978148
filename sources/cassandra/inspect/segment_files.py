"""Finds the input of `inspect`: segments in files and folders, and the DDL beside them.

Separate because it handles only names and folders; it reads only the schema's text.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.plugins.errors import HeadraceError
from headrace.sources.cassandra.commitlog.segment import Index, index_name, parse_index, parse_name
from headrace.sources.cassandra.errors import NotCdcDirectoryError
from headrace.sources.cassandra.logs.index_files import INDEX_BYTES_MAX, bad_index
from headrace.sources.cassandra.logs.regular import flaw_of, read_regular
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import Schema

SCHEMA_FILE: Final = "schema.cql"
_PARENTS_SEARCHED_MAX: Final = 3
_PLAIN_FOLDERS: Final = ("cdc_raw", "segments")  # Their parent directory has the node's name.


class NoSchemaError(HeadraceError):
    """The tables are unknown: neither the log nor a file describes them."""

    code = "no_schema"
    exit_status = 2


class SegmentFile(msgspec.Struct, frozen=True):
    """A segment to read: its path, and the name of its node."""

    path: Path
    node: str

    @property
    def segment_id(self) -> int:
        """The id in the file's name; 0 if it is not the name of a segment."""
        parsed = parse_name(self.path.name)
        return parsed[1] if parsed else 0

    def index(self) -> Index | None:
        """Return the content of its index file; None if that is missing or empty.

        An empty index file is just being written.

        Raises:
            BadIndexError: its content is malformed.
            NotAFileError: it is not a file.

        """
        path = self.path.parent / index_name(self.path.name)
        try:
            content = read_regular(path, INDEX_BYTES_MAX, follow_symlinks=True)
        except FileNotFoundError:
            return None
        index = parse_index(content)
        if content and index is None:
            raise bad_index(content, place=str(path))
        return index


def segment_files(paths: Sequence[Path]) -> Iterator[SegmentFile]:
    """Yield the segments in *paths*, folder by folder, and by id in a folder, without duplicates.

    Raises:
        NotCdcDirectoryError: a path does not exist, or a directory has no segments.

    """
    folders: dict[Path, set[Path]] = {}
    for path in paths:
        if path.is_file():
            folders.setdefault(path.parent, set()).add(path)
            continue
        if not path.is_dir():
            raise NotCdcDirectoryError(_what(path), place=str(path))
        found = False
        for folder in _folders(path):
            logs = {log for log in folder.iterdir() if parse_name(log.name)}
            folders.setdefault(folder, set()).update(logs)
            found = found or bool(logs)
        if not found:
            raise NotCdcDirectoryError(
                "found no segment, expected CommitLog-<version>-<id>.log",
                place=str(path),
                hint="give a node's cdc_raw directory, or the directory that holds the nodes'",
            )
    for folder, logs in folders.items():
        node = folder.resolve()
        while node.name in _PLAIN_FOLDERS:
            node = node.parent
        files = [SegmentFile(log, node.name) for log in logs]
        yield from sorted(files, key=lambda file: (file.segment_id, file.path))


def _what(path: Path) -> str:
    """Return a description of a path that is neither a file nor a directory."""
    with contextlib.suppress(OSError):
        flaw = flaw_of(path)
        return flaw.message if flaw else "cannot be read"
    return "no such file or directory"


def _folders(path: Path) -> list[Path]:
    """Return the folders with the segments of *path*, and of the nodes in it."""
    home = _home(path)
    return [home, *(_home(child) for child in sorted(home.iterdir()) if child.is_dir())]


def _home(node: Path) -> Path:
    """Return the folder of CDC segments in a node's directory, or the directory itself."""
    return next((node / name for name in _PLAIN_FOLDERS if (node / name).is_dir()), node)


def schema_for(given: Path | None, files: Sequence[SegmentFile]) -> Schema | None:
    """Return the schema in *given*, or in the DDL beside or above *files*; None without DDL.

    Raises:
        NoSchemaError: the file cannot be read.
        SchemaTextError: it is not DDL.

    """
    path = given or _schema_beside(files)
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NoSchemaError(f"cannot read the schema: {error}", place=str(path)) from error
    return parse_schema(text, place=str(path))


def _schema_beside(files: Sequence[SegmentFile]) -> Path | None:
    for file in files:
        for folder in list(file.path.resolve().parents)[: _PARENTS_SEARCHED_MAX + 1]:
            if (folder / SCHEMA_FILE).is_file():
                return folder / SCHEMA_FILE
    return None
