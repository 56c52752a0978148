"""`headrace inspect`: prints the content of commit log segments as JSON lines, without a server.

Main function, options and printing; `segment_files`, `selection`, `change_json` and `mutation_json`
find files, select entries and format them.
"""

import argparse
import contextlib
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

from headrace.plugins import ConfigError, Problem
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.config.command_line import add_options, config_of, flag_of
from headrace.plugins.errors import HeadraceError, MissingRequirementError, error_text
from headrace.sources.cassandra.commitlog.segment import Index
from headrace.sources.cassandra.errors import (
    END_OFFSET,
    BadIndexError,
    CorruptSegmentError,
    NotAFileError,
)
from headrace.sources.cassandra.inspect.segment_files import (
    SCHEMA_FILE,
    NoSchemaError,
    SegmentFile,
    schema_for,
    segment_files,
)
from headrace.sources.cassandra.inspect.selection import (
    END,
    START,
    Selection,
    SelectionError,
    place,
    table_names,
    token_range,
)
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.log import NOTHING, WHOLE, BinaryStream, LogHandler, Span, read_log
from headrace.sources.cassandra.logs.regular import open_regular
from headrace.sources.cassandra.mutation.change_json import change_document, provenance_document
from headrace.sources.cassandra.mutation.changes import Mutation
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.mutation.mutation_json import mutation_document
from headrace.sources.cassandra.mutation.values import BadValueError, Value
from headrace.sources.cassandra.schema.system_table_ids import is_system_table, system_table
from headrace.sources.cassandra.schema.tables import Schema
from headrace.sources.cassandra.schema_versions.epochs import Epochs
from headrace.sources.cassandra.schema_versions.log_schema import LogSchema

STDIN: Final = "-"
_UNKNOWN, _COUNTER, _VIEW = "unknown", "counter", "view"
_REASONS_TOLD: Final = {
    _UNKNOWN: "mutations of tables that are neither in the schema nor in the log",
    _VIEW: "mutations of materialized views: those of their tables say the same",
    _COUNTER: "changes of counter tables: a log holds totals of one node, not counts",
}
_EPILOG: Final = """\
what is read:
  A segment is read to the end of its valid data, unless --durable is given. Where that is before
  the offset in its index file, the rest is lost, which is an error. Several nodes are read one
  after the other, each by segment id. Standard input is one segment. An entry holds no types. They
  come from what the log itself says of its tables, in each place as it was there; and, for what it
  does not say, from DDL with table ids, as DESCRIBE SCHEMA WITH INTERNALS prints it.

what is passed over:
  System tables, unless --system is given and the schema has them; the batch log (what is in it
  comes again as mutations); Paxos (what was committed comes as a mutation); tables that are
  neither in the schema nor in the log; views that are not in the schema; counters, in the form
  of changes. --stats counts each by reason and name.

exit status:
  0  all was read             2  a mistake in an option or in the schema
  1  a segment or an entry    3  a file or folder is missing, or may not be read
     could not be read; what
     could be, was printed

examples:
  headrace inspect /var/lib/cassandra/cdc_raw --schema schema.cql --tables shop.orders
  headrace inspect node1 node2 node3 --token-range -3074457345618258603:3074457345618258602
  headrace inspect cdc_raw --from 1795238293015:102956 --to 1795238293017
  headrace inspect cdc_raw --form mutations | jq .position
  headrace inspect - --schema schema.cql --count < CommitLog-7-1795238293015.log
"""


def main(arguments: Sequence[str]) -> int:
    """Print what is in commit log segments.

    Example: headrace inspect cdc_raw --schema schema.cql

    Errors go to standard error, and the first one's status is returned.
    """
    options = _parser().parse_args(_joined(arguments))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # JSON is UTF-8 in every locale.
    try:
        files = list(segment_files([Path(p) for p in options.paths if p != STDIN]))
        schema = schema_for(options.schema, files)
        keys = keys_of(options)
        selected = selection_of(options, schema)
        inspector = Inspector(schema, selected, options, sys.stdout, keys=keys)
        if STDIN in options.paths:
            if options.durable:
                raise SelectionError(
                    "standard input has no index file that tells what is durable",
                    place="--durable",
                    hint="name the segment's file, or leave it out",
                )
            inspector.read_standard_input()
        for file in files:
            inspector.read_file(file)
        inspector.finish()
    except OutputError as error:
        _report(error)
        _leave_output()
        return error.exit_status
    except HeadraceError as error:
        _report(error)
        return error.exit_status
    except BrokenPipeError:  # The reader of our output has stopped.
        _leave_output()
        return 0
    return inspector.exit_status


class OutputError(MissingRequirementError):
    """The output cannot be written."""

    code = "output"


def _leave_output() -> None:
    """Discard all further output, including that at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _joined(arguments: Sequence[str]) -> list[str]:
    """Join `--token-range` and its value: a negative token would be parsed as an option."""
    joined = list(arguments)
    for i in range(len(joined) - 2, -1, -1):
        if joined[i] == "--token-range":
            joined[i : i + 2] = [f"{joined[i]}={joined[i + 1]}"]
    return joined


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="headrace inspect",
        description="Print what is in commit log segments, one JSON object a line.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a segment, a directory of segments, a directory of such directories (one per node), "
        "or - for standard input",
    )
    parser.add_argument(
        "--schema",
        type=Path,
        metavar="FILE",
        help=f"DDL with table IDs; without it, the {SCHEMA_FILE} beside or above the segments",
    )
    _add_selection(parser.add_argument_group("what is shown"))
    _add_output(parser.add_argument_group("how it is shown"))
    add_options(parser.add_argument_group("encrypted segments"), KeyOptions)
    return parser


def _add_selection(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tables",
        action="append",
        default=[],
        metavar="NAMES",
        help="only these: keyspace.table, keyspace.* or keyspace, separated by commas. In the "
        "form of mutations, those that touch one of them, whole. May be given again",
    )
    group.add_argument(
        "--token-range",
        action="append",
        default=[],
        metavar="START:END",
        help="only partitions with a token after START up to and with END, over the end of the "
        "ring if END is not larger. May be given again",
    )
    group.add_argument(
        "--from",
        dest="first",
        metavar="SEGMENT[:POSITION]",
        help="only entries that end after this place, in each node's log",
    )
    group.add_argument(
        "--to",
        dest="last",
        metavar="SEGMENT[:POSITION]",
        help="only entries that end at this place or before; without a position, the whole segment",
    )
    group.add_argument(
        "--durable",
        action="store_true",
        help="stop at the offset in the segment's index file; without one, print nothing of it",
    )
    group.add_argument(
        "--system",
        action="store_true",
        help="system tables too: the schema's own, and those the DDL has",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--form",
        choices=("changes", "mutations"),
        default="changes",
        help="row-level changes with readable values, or mutations with raw bytes (%(default)s)",
    )
    only = group.add_mutually_exclusive_group()
    only.add_argument("--count", action="store_true", help="print only how many lines it would be")
    only.add_argument("--stats", action="store_true", help="print only counts, as one object")


def selection_of(options: argparse.Namespace, schema: Schema | None) -> Selection:
    """Return the selection of the options.

    Raises:
        SelectionError: an option is malformed, or a table is not in *schema*.

    """
    return Selection(
        tables=table_names(options.tables, schema),
        ranges=tuple(token_range(text) for text in options.token_range),
        first=place("--from", options.first, 0) if options.first else START,
        last=place("--to", options.last, END_OFFSET) if options.last else END,
    )


class Inspector(LogHandler):
    """Reads segments and prints the selected entries; `exit_status` is 1 after an error."""

    def __init__(
        self,
        schema: Schema | None,
        selection: Selection,
        options: argparse.Namespace,
        output: TextIO,
        *,
        keys: Keys,
    ) -> None:
        """Print to *output*; *options* are those of the command, *keys* of encrypted segments.

        Without a schema, the tables are those that the logs describe.
        """
        self.exit_status = 0
        self._has_schema = schema is not None
        self._schema = schema or Schema({}, {})
        self._epochs = Epochs()
        self._logs: dict[Path | None, LogSchema] = {}
        self._selection = selection
        self._options = options
        self._keys = keys
        self._silent = options.stats or options.count
        self._output = output
        self._node: str | None = None
        self._place = ""
        self._counts: Counter[str] = Counter()
        self._tables: dict[str, Counter[str]] = {}
        self._skipped: dict[str, Counter[str]] = {}

    def read_standard_input(self) -> None:
        """Print the segment in standard input, which belongs to no node."""
        self._read_guarded(sys.stdin.buffer, "standard input", None, WHOLE)

    def read_file(self, file: SegmentFile) -> None:
        """Print one segment file; an error in it is reported, and the others are still read."""
        # A file with another name has no id: then each entry is checked.
        span = self._selection.span(file.segment_id) if file.segment_id else WHOLE
        if span is None:
            if file.segment_id > self._selection.last.segment_id:
                return
            span = NOTHING  # Its schema changes count for later segments.
        try:
            index = self._index(file)  # Read before the segment, which may grow meanwhile.
            descriptor = open_regular(file.path, follow_symlinks=True)
        except NotAFileError as error:
            sys.stderr.write(f"warning: {error.code}: {error}\n")
            return
        except OSError as error:
            self._unreadable(error, str(file.path))
            return
        except BadIndexError as error:
            self._failed(error)
            return
        is_cut = self._options.durable and (index is None or not index.completed)
        if is_cut and span is not NOTHING:
            span = span._replace(until=min(span.until, index.offset if index else 0))
        with open(descriptor, "rb") as stream:  # noqa: PTH123 (a descriptor)
            indexed = index.indexed(os.fstat(descriptor).st_size) if index else 0
            self._node = file.node
            self._read_guarded(stream, str(file.path), file, span, indexed)

    def _index(self, file: SegmentFile) -> Index | None:
        try:
            return file.index()
        except NotAFileError as error:
            sys.stderr.write(f"warning: {error.code}: {error}\n")
            return None
        except BadIndexError:
            if self._options.durable:
                raise
            return None

    def _read_guarded(
        self,
        stream: BinaryStream,
        where: str,
        file: SegmentFile | None,
        span: Span,
        indexed: int = 0,
    ) -> None:
        self._place = where
        self._counts["segments"] += span is not NOTHING
        log = file.path.parent if file else None
        tables = self._logs.setdefault(log, LogSchema(self._schema, self._epochs))
        try:
            read_log(
                stream,
                tables,
                self,
                place=where,
                segment_id=file.segment_id or None if file else None,
                indexed=indexed,
                span=span,
                keys=self._keys,
            )
        except OutputError:
            raise
        except HeadraceError as error:
            if span is not NOTHING:  # It was not selected.
                self._failed(error)
        except BrokenPipeError:  # Of our output.
            raise
        except OSError as error:
            self._unreadable(error, where)

    def on_mutation(self, mutation: Mutation) -> None:
        """Print one mutation in the selected form."""
        first = mutation.updates[0].table
        if is_system_table(first.table_id.bytes) and not self._options.system:
            self._skip(*system_table(first.table_id.bytes))
            return
        if first.is_view and first.table_id not in self._schema.tables:
            self._skip(first.qualified, _VIEW)
            return
        # A mutation that was cut short is not the logged one, but its changes are complete.
        as_mutation = self._options.form == "mutations"
        if (as_mutation and mutation.is_cut_short) or not self._selection.has(mutation):
            return
        self._counts["mutations"] += 1
        self._counts["bytes"] += mutation.size_bytes
        if as_mutation and not self._options.stats:
            self._print(mutation_document(mutation, cdc=self._cdc(mutation)))
            return
        try:
            self._changes(mutation)
        except (BadMutationError, BadValueError) as error:
            error.place = f"{self._place}: entry that ends at {mutation.position}"
            self._failed(error)

    def on_schema_change(self, mutation: Mutation) -> None:
        """Print it like any other mutation of a system table."""
        self.on_mutation(mutation)

    def on_unknown_table(self, error: UnknownTableError) -> None:
        """Count a mutation of an unknown table."""
        if is_system_table(error.table_id):
            self._skip(*system_table(error.table_id))
        else:
            self._skip(error.table_id.hex(), _UNKNOWN)

    def on_bad_mutation(self, error: BadMutationError) -> None:
        """Report an entry that does not fit the schema, and continue."""
        self._failed(error)

    def on_damage(self, error: CorruptSegmentError) -> None:
        """Report damage, and continue after it."""
        self._failed(error)

    def finish(self) -> None:
        """Print the counts if requested, and flush the output.

        Raises:
            NoSchemaError: there was no schema, and the logs describe none of the tables in their
                entries.

        """
        if not self._has_schema and self._skipped.get(_UNKNOWN) and not self._counts["mutations"]:
            raise NoSchemaError(
                "the log tells nothing of its tables, and there is no schema",
                hint=f"give --schema FILE, or put {SCHEMA_FILE} beside the segments",
            )
        if self._options.stats:
            self._write(self._stats())
        elif self._options.count:
            self._write(self._counts["printed"])
        with _writing():
            self._output.flush()
        if not self._options.stats:
            self._tell_skipped()

    def _cdc(self, mutation: Mutation) -> bool:
        """Return whether a table has CDC: by the given schema, otherwise as of that place."""
        known = self._schema.tables
        tables = [update.table for update in mutation.updates]
        return any(known.get(table.table_id, table).cdc for table in tables)

    def _changes(self, mutation: Mutation) -> None:
        changes = mutation.changes()
        # All are made before the first is printed: a bad value must not leave half a mutation.
        documents = [change_document(change) for change in changes]
        for index, (change, document) in enumerate(zip(changes, documents, strict=True)):
            name = change.table.qualified
            if not self._selection.has_table(name):
                continue
            if change.table.is_counter:
                self._skip(name, _COUNTER)
                continue
            self._tables.setdefault(name, Counter())[change.operation.value] += 1
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
        names = ("segments", "mutations", "bytes", "errors")
        return {
            **{name: self._counts[name] for name in names},
            "changes": _sorted(self._tables),
            "skipped": _sorted(self._skipped),
        }

    def _skip(self, name: str, reason: str) -> None:
        self._skipped.setdefault(reason, Counter())[name] += 1

    def _tell_skipped(self) -> None:
        for reason, what in _REASONS_TOLD.items():
            if names := self._skipped.get(reason):
                listed = ", ".join(sorted(names))
                sys.stderr.write(f"note: passed over {names.total()} {what} ({listed})\n")

    def _print(self, document: dict[str, Value]) -> None:
        self._counts["printed"] += 1
        if not self._silent:
            self._write(document)

    def _write(self, value: Value) -> None:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False)
        with _writing():
            self._output.write(f"{line}\n")

    def _unreadable(self, error: OSError, where: str) -> None:
        self._failed(MissingRequirementError(f"cannot read it: {error.strerror}", place=where))

    def _failed(self, error: HeadraceError) -> None:
        self._counts["errors"] += 1
        self.exit_status = self.exit_status or error.exit_status
        _report(error)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Raise an error in the block as one of the output, not of the input."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        said = f"cannot be written: {error.strerror}"
        raise OutputError(said, place="standard output", hint="is the disk full?") from error


def _sorted(counts: dict[str, Counter[str]]) -> dict[str, Value]:
    return {name: dict(sorted(counted.items())) for name, counted in sorted(counts.items())}


def _report(error: HeadraceError) -> None:
    sys.stderr.write(error_text(error))


def keys_of(options: argparse.Namespace) -> Keys:
    """Return the keys of the options. Reads files.

    Raises:
        ConfigError: an option is missing, has no effect, or has a secret where a reference belongs.
        SecretUnavailableError: a reference cannot be resolved.
        SegmentKeyError: the key store cannot be read.

    """
    found = config_of(KeyOptions, options)
    problems = [Problem(flag_of(p.key), p.message, p.hint) for p in found.key_problems()]
    if problems:
        raise ConfigError(problems)
    return Keys(found)
