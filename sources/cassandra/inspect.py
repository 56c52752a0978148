"""`headrace inspect`: what is in commit log segments, as JSON lines, without a server.

Main function, and the walk over files and directories; reading and showing are in `log`,
`change_json` and `mutation_json`.
"""

import argparse
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from headrace.plugins.errors import HeadraceError, MissingRequirementError
from headrace.sources.cassandra.change_json import change_document, provenance_document
from headrace.sources.cassandra.changes import Mutation
from headrace.sources.cassandra.ddl import parse_schema
from headrace.sources.cassandra.errors import (
    BadMutationError,
    NotCdcDirectoryError,
    UnknownTableError,
)
from headrace.sources.cassandra.log import BinaryStream, LogHandler, read_log
from headrace.sources.cassandra.mutation_json import mutation_document
from headrace.sources.cassandra.schema import Schema
from headrace.sources.cassandra.segment import index_name, parse_index, parse_name
from headrace.sources.cassandra.values import BadValueError, Value

STDIN: Final = "-"
SCHEMA_FILE: Final = "schema.cql"
_PARENTS_SEARCHED_MAX: Final = 3
_NAME_BASED: Final = 3  # The UUID version of system tables' ids.
_PLAIN_FOLDERS: Final = ("cdc_raw", "segments")  # A node is called after what holds these.


class NoSchemaError(HeadraceError):
    """Nothing says what the tables are."""

    code = "no_schema"
    exit_status = 2


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment to read: its path, and the node it is taken to be of."""

    path: Path
    node: str

    @property
    def segment_id(self) -> int:
        """The id in the file's name; 0 when the name is no segment's."""
        parsed = parse_name(self.path.name)
        return parsed[1] if parsed else 0


def main(arguments: Sequence[str]) -> int:
    """Run the command; errors go to standard error, and the first one's status is returned."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # JSON is UTF-8 whatever the locale.
    try:
        files = list(segment_files([Path(p) for p in options.paths if p != STDIN]))
        schema = _schema(options, files)
        inspector = Inspector(schema, options, sys.stdout)
        if STDIN in options.paths:
            inspector.read(sys.stdin.buffer, "standard input", None)
        for file in files:
            inspector.read_file(file)
        inspector.finish()
    except HeadraceError as error:
        _report(error)
        return error.exit_status
    except BrokenPipeError:  # Whoever read our output has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return inspector.exit_status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace inspect",
        description="Print what is in commit log segments, one JSON object a line.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a segment, a directory of segments, a directory of such directories (one per node), "
        "or - for standard input",
    )
    parser.add_argument(
        "--form",
        choices=("changes", "mutations"),
        default="changes",
        help="row-level changes with readable values, or mutations with raw bytes (%(default)s)",
    )
    parser.add_argument(
        "--schema",
        type=Path,
        metavar="FILE",
        help=f"DDL with table IDs; without it, the {SCHEMA_FILE} beside or above the segments",
    )
    parser.add_argument("--system", action="store_true", help="system tables of the schema too")
    parser.add_argument("--stats", action="store_true", help="print only counts, as one object")
    parser.add_argument(
        "--durable",
        action="store_true",
        help="stop at the offset in the segment's index file; without one, print nothing of it",
    )
    return parser


def segment_files(paths: Sequence[Path]) -> Iterator[SegmentFile]:
    """Yield the segments in *paths*, folder by folder, within a folder by id, none twice.

    Raises:
        NotCdcDirectoryError: a path that is not there, or a directory without segments.

    """
    folders: dict[Path, set[Path]] = {}
    for path in paths:
        if path.is_file():
            folders.setdefault(path.parent, set()).add(path)
            continue
        if not path.is_dir():
            raise NotCdcDirectoryError("no such file or directory", place=str(path))
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


def _folders(path: Path) -> list[Path]:
    """Return where the segments of *path* are, and those of the nodes in it."""
    home = _home(path)
    return [home, *(_home(child) for child in sorted(home.iterdir()) if child.is_dir())]


def _home(node: Path) -> Path:
    """Return the folder that a node's directory keeps its CDC segments in, or itself."""
    return next((node / name for name in _PLAIN_FOLDERS if (node / name).is_dir()), node)


def _schema(options: argparse.Namespace, files: Sequence[SegmentFile]) -> Schema:
    path = options.schema or _schema_beside(files)
    if path is None:
        raise NoSchemaError(
            "the log holds no types, and there is no schema",
            hint=f"give --schema FILE, or put {SCHEMA_FILE} beside the segments",
        )
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


class Inspector(LogHandler):
    """Reads segments and prints what the options ask for; `exit_status` is 1 after an error."""

    def __init__(self, schema: Schema, options: argparse.Namespace, output: TextIO) -> None:
        """Print to *output*; *options* are those of the command."""
        self.exit_status = 0
        self._schema = schema
        self._options = options
        self._output = output
        self._node: str | None = None
        self._counts: Counter[str] = Counter()
        self._tables: dict[str, Counter[str]] = {}
        self._unknown: Counter[str] = Counter()

    def read_file(self, file: SegmentFile) -> None:
        """Print one segment file; an error in it is reported and does not stop the others."""
        limit = -1
        if self._options.durable:
            limit = _durable_limit(file.path)
        try:
            with file.path.open("rb") as stream:
                self.read(stream, str(file.path), file.node, limit)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            text = f"cannot read it: {error.strerror}"
            self._failed(MissingRequirementError(text, place=str(file.path)))

    def read(self, stream: BinaryStream, place: str, node: str | None, limit: int = -1) -> None:
        """Print the segment in *stream*, up to the logical position *limit* unless it is -1."""
        self._node = node
        self._counts["segments"] += 1
        try:
            read_log(stream, self._schema, self, place=place, limit=limit)
        except HeadraceError as error:
            self._failed(error)

    def on_mutation(self, mutation: Mutation) -> None:
        """Print one mutation in the form asked for."""
        if mutation.updates[0].table.table_id.version == _NAME_BASED and not self._options.system:
            self._counts["system"] += 1
            return
        self._counts["mutations"] += 1
        self._counts["bytes"] += mutation.size_bytes
        if self._options.form == "mutations" and not self._options.stats:
            self._print(mutation_document(mutation))
            return
        try:
            self._changes(mutation)
        except (BadMutationError, BadValueError) as error:
            error.place = f"segment {mutation.segment_id}: entry that ends at {mutation.position}"
            self._failed(error)

    def on_unknown_table(self, error: UnknownTableError) -> None:
        """Count a mutation that the schema does not cover."""
        if error.table_id[6] >> 4 == _NAME_BASED:
            self._counts["system"] += 1
        else:
            self._unknown[error.table_id.hex()] += 1

    def on_bad_mutation(self, error: BadMutationError) -> None:
        """Report an entry that does not fit the schema, and go on."""
        self._failed(error)

    def finish(self) -> None:
        """Print the counts if they were asked for, and hand all output over."""
        if self._options.stats:
            self._print(self._stats())
        self._output.flush()

    def _changes(self, mutation: Mutation) -> None:
        changes = mutation.changes()
        documents = [change_document(change) for change in changes]
        for index, (change, document) in enumerate(zip(changes, documents, strict=True)):
            table = self._tables.setdefault(change.table.qualified, Counter())
            table[change.operation.value] += 1
            if self._options.stats:
                continue
            origin = provenance_document(
                mutation_id=mutation.mutation_id,
                index=index,
                of=len(changes),
                node=self._node,
                segment_id=mutation.segment_id,
                position=mutation.position,
            )
            self._print(document | origin)

    def _stats(self) -> dict[str, Value]:
        names = ("segments", "mutations", "bytes", "system", "errors")
        return {
            **{name: self._counts[name] for name in names},
            "unknown": self._unknown.total(),
            "unknown_tables": dict(sorted(self._unknown.items())),
            "changes": {name: dict(sorted(t.items())) for name, t in sorted(self._tables.items())},
        }

    def _print(self, document: dict[str, Value]) -> None:
        self._output.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")

    def _failed(self, error: HeadraceError) -> None:
        self._counts["errors"] += 1
        self.exit_status = self.exit_status or error.exit_status
        _report(error)


def _durable_limit(segment: Path) -> int:
    """Return the logical position up to which a segment is durable; -1 when all of it is."""
    try:
        index = parse_index((segment.parent / index_name(segment.name)).read_bytes())
    except FileNotFoundError:
        return 0
    if index is None:
        return 0
    return -1 if index.completed else index.offset


def _report(error: HeadraceError) -> None:
    sys.stderr.write(f"error: {error.code}: {error}\n")
