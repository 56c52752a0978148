"""Reads a sink back and counts which changes it has, to compare them with the books.

A change counts once even if it was sent several times, because delivery may repeat it. The names of
changes are kept in temporary files, so memory does not grow with the sink's content. Several
processes can read it, each its own parts.
"""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from headrace.connector.serde.change_names import NAME_BYTES, ChangeNames
from headrace.connector.serde.large import whole_messages
from headrace.connector.stores import Counters
from headrace.connector.stores.table_content import TableContent
from headrace.plugins import BadRecordError, MissingRequirementError, Sink
from headrace.plugins.records.codecs import CONTROL_TABLE

_FILES: Final = 256  # One for each first byte of a name, which is a hash.
_BUFFER_BYTES: Final = 1 << 16
_NUMBER_BYTES: Final = 2  # The size of a table's number before the name of a change.
_ENTRY_BYTES: Final = _NUMBER_BYTES + NAME_BYTES


@dataclass(frozen=True, slots=True)
class SinkContent:
    """The content of a sink, by table. `unreadable` counts messages that are not from this job.

    `reason` says why the first of them is not.
    """

    tables: Mapping[str, TableContent]
    unreadable: int = 0
    reason: str = ""

    def differences(self, *, is_moving: bool) -> Sequence[str]:
        """Return the differences from the books, in words.

        While the job *is_moving*, changes that the books do not have are ignored: they were
        delivered after the books were read.
        """
        lines = []
        for table, content in self.tables.items():
            if content.missing:
                lines.append(
                    f"sink: {content.missing} of {content.delivered} delivered changes of {table} "
                    "are missing"
                )
            if content.unknown and not is_moving:
                lines.append(
                    f"sink: {content.unknown} changes of {table} are not in the books: they were "
                    "sent and not committed, or others write there"
                )
        return lines

    def json(self) -> Mapping[str, object]:
        """Return the content as a JSON object."""
        tables = {
            table: {
                "delivered": content.delivered,
                "found": content.found,
                "missing": content.missing,
                "unknown": content.unknown,
                "repeated": content.repeated,
            }
            for table, content in self.tables.items()
        }
        return {"tables": tables, "unreadable": self.unreadable}

    def text(self) -> str:
        """Return a line for each table, and one about unreadable messages."""
        lines = [
            f"sink: {table}: {content.found} of {content.delivered} delivered changes"
            + (f", {content.repeated} messages repeat one of them" if content.repeated else "")
            for table, content in self.tables.items()
        ]
        if self.unreadable:
            lines.append(f"sink: {self.unreadable} messages are not of this job: {self.reason}")
        return "".join(f"{line}\n" for line in lines)


Opened = Callable[[], tuple[Sink, ChangeNames]]
"""Opens a sink and the reader of its changes' names. It can be pickled for other processes."""


def content_of(opened: Opened, counters: Counters, *, processes: int = 1) -> SinkContent:
    """Read the sink's content of the tables in *counters*, which the job delivered. Blocks.

    At most *processes* processes share its parts; each opens the sink.

    Raises:
        ConfigError: this sink cannot be read back.
        MissingRequirementError: the temporary files cannot be written, or a process was killed.
        HeadraceError: the sink cannot be read.

    """
    tables = [table for table, c in sorted(counters.items()) if c.delivered]
    tables = [table for table in tables if table != CONTROL_TABLE]
    numbers = {table: number for number, table in enumerate(tables)}
    sink, _ = opened()
    parts = sink.parts(tables) if tables else ()
    shares = [parts[first::processes] for first in range(min(processes, len(parts)))]
    sent: Counter[str] = Counter()
    found: Counter[int] = Counter()
    with _folder() as folder, _mapped(len(shares)) as mapped:
        reading = partial(_read, opened, numbers, folder)
        reports = mapped(reading, range(len(shares)), shares)
        for counted in mapped(partial(_counted, folder), range(_FILES)):
            found.update(counted)
    for share, _, _ in reports:
        sent.update(share)
    content = {}
    for table, number in numbers.items():
        c = counters[table]
        kept = c.dead_lettered + c.quarantined
        repeated = sent[table] - found[number]
        content[table] = TableContent(c.delivered, kept, found[number], repeated)
    reasons = (reason for _, _, reason in reports if reason)
    return SinkContent(content, sum(count for _, count, _ in reports), next(reasons, ""))


@contextlib.contextmanager
def _mapped(processes: int) -> Iterator[Callable[..., Sequence[Any]]]:
    """Yield a `map` over *processes* processes; over this one alone if it is 1."""
    if processes <= 1:
        yield lambda function, *given: list(map(function, *given))
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        try:
            yield lambda function, *given: list(pool.map(function, *given))
        except BrokenProcessPool as error:
            raise MissingRequirementError(
                "a process that read the sink was killed",
                place="verify --sink",
                hint="was there too little memory? `--processes 1` reads it in one process",
            ) from error


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a temporary folder for the names of changes; raise named errors for its files."""
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-verify-") as folder:
            yield Path(folder)
    except OSError as error:
        raise MissingRequirementError(
            f"the names of the sink's changes cannot be kept: {error.strerror}",
            place=tempfile.gettempdir(),
            hint="22 bytes for each message are needed; TMPDIR names another folder",
        ) from error


def _read(
    opened: Opened, numbers: Mapping[str, int], folder: Path, share: int, parts: Sequence[str]
) -> tuple[Counter[str], int, str]:
    """Write the names of the changes in *parts* into files by their first bytes.

    Returns the count of changes by table, the count of messages that are not from the job, and why
    the first of those is not.
    """
    sent: Counter[str] = Counter()
    unreadable, reason = 0, ""
    sink, names = opened()
    prefixes = {table: number.to_bytes(_NUMBER_BYTES, "big") for table, number in numbers.items()}
    with contextlib.ExitStack() as stack:
        writes = [
            stack.enter_context(Path(folder, f"{share}-{byte}").open("wb", _BUFFER_BYTES)).write
            for byte in range(_FILES)
        ]
        for part in parts:
            for messages in whole_messages(sink.read_back(part)):
                for stored in messages:
                    try:
                        change = names.of(stored)
                    except BadRecordError as error:
                        unreadable, reason = unreadable + 1, reason or str(error)
                        continue
                    if change is not None and change[0] in prefixes:
                        table, name = change
                        writes[name[0]](prefixes[table] + name)
                        sent[table] += 1
    return sent, unreadable, reason


def _counted(folder: Path, byte: int) -> Counter[int]:
    """Return how many distinct names with this first byte each table has."""
    names: set[bytes] = set()
    for path in folder.glob(f"*-{byte}"):
        entries = path.read_bytes()
        names.update(entries[at : at + _ENTRY_BYTES] for at in range(0, len(entries), _ENTRY_BYTES))
    numbers = Counter(name[:_NUMBER_BYTES] for name in names)
    return Counter({int.from_bytes(number, "big"): n for number, n in numbers.items()})
