"""The index files of a live log, and what is wrong with a malformed one.

Cassandra truncates an index and rewrites it, so a reader may find it empty or half-written. Then
its previous content stays valid. An index that stays malformed is reported. For one thread; reads
no files.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from headrace.plugins import RetriableError
from headrace.sources.cassandra.commitlog.segment import Index, parse_index
from headrace.sources.cassandra.errors import BadIndexError, NotAFileError

INDEX_BYTES_MAX: Final = 64  # A longer file is not an index.
LOOKS: Final = 3  # Successive looks at the same malformed content before it is reported.
_FORM: Final = "<offset>, or <offset> and below it COMPLETED"
_HINT: Final = (
    "what it said before counts; Cassandra writes it again at its next sync. If it stays so, the "
    "rest of the segment is read when the node begins another one"
)


class _File(msgspec.Struct):
    """One index: its content, the last valid index, and the number of invalid looks since then."""

    content: bytes = b""
    index: Index | None = None
    looks: int = 0
    flaw: BadIndexError | None = None


class IndexFiles:
    """The index files of one log. Segments have their numbers in the log's `Manifest`."""

    def __init__(self) -> None:
        """Start without files."""
        self._files: dict[int, _File] = {}
        self.flaws: Sequence[BadIndexError] = ()
        """What stayed nonsense, of each file that did at the last look."""

    @property
    def unsettled(self) -> bool:
        """Whether a file is malformed now: the next look may report it."""
        return any(file.looks for file in self._files.values())

    def look(
        self, found: Mapping[int, tuple[str, bytes] | None], end: Callable[[int], int]
    ) -> Mapping[int, Index | None]:
        """Return the last valid index of each segment, None if there was none. Forget all others.

        *found* has the path and the content of each, or None for a missing index. *end* returns the
        end of a segment, to check a new offset.
        """
        self._files = {number: self._files.get(number, _File()) for number in found}
        said = {
            n: None if each is None else self.look_again(n, *each, end) for n, each in found.items()
        }
        self.flaws = [file.flaw for file in self._files.values() if file.flaw is not None]
        return said

    def look_again(
        self, number: int, place: str, content: bytes, end: Callable[[int], int]
    ) -> Index | None:
        """Return the last valid index of one segment of the last `look`, given its *content* now.

        The other segments and the flaws stay as they were.
        """
        file = self._files[number]
        if content == file.content and file.index is not None and not file.looks:
            return file.index
        said = parse_index(content)
        expected = _FORM if said is None else _expected(said, file.index, partial(end, number))
        if not expected:
            file.index, file.looks, file.flaw = said, 0, None
        else:
            file.looks = file.looks + 1 if content == file.content else 1
            reported = file.looks >= LOOKS
            file.flaw = bad_index(content, expected, place=place) if reported else None
        file.content = content
        return file.index


def bad_index(content: bytes, expected: str = _FORM, *, place: str) -> BadIndexError:
    """Return the error for an index file that holds *content*."""
    found = repr(content.decode("ascii", "backslashreplace")) if content else "an empty file"
    return BadIndexError(f"expected {expected}; found {found}", place=place, hint=_HINT)


def _expected(said: Index, before: Index | None, end: Callable[[], int]) -> str:
    """Return what is expected instead of *said*; an empty string if *said* is valid."""
    if said.completed:  # The offset of a completed one means nothing: a replay writes another.
        return ""
    if before is not None and before.completed:
        return "COMPLETED, as it said before"
    if before is not None and said.offset < before.offset:
        return f"an offset from {before.offset} on, as it said before"
    return f"an offset within the segment, up to {end()}" if said.offset > end() else ""


class Log(Protocol):
    """A logger that receives the flaws."""

    def warning(self, event: str, **about: str) -> object:
        """Log an event."""


class ReportedFlaws:
    """The flaws that were reported; each change is reported once."""

    def __init__(self) -> None:
        """Start with no reported flaws."""
        self._reported: Collection[str] = ()

    def new(self, flaws: Iterable[RetriableError]) -> Sequence[RetriableError]:
        """Return the flaws that are new since the last call."""
        found = {str(flaw): flaw for flaw in flaws}
        reported, self._reported = self._reported, found.keys()
        return [found[name] for name in sorted(found.keys() - reported)]

    def tell(self, flaws: Iterable[RetriableError], log: Log, **about: str) -> None:
        """Log a warning for each flaw that is new since the last call.

        *about* names their owner.
        """
        for flaw in self.new(flaws):
            log.warning(
                "file_skipped" if isinstance(flaw, NotAFileError) else "index_unusable",
                **about,
                place=flaw.place,
                error_code=flaw.code,
                error=flaw.message,
                hint=flaw.hint,
            )
