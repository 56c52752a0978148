"""Reads logs once for all shards: tasks first read parts of logs, then splits of their entries.

Without this each shard reads all logs, and skips entries of others. Needs no Spark.
"""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from headrace.connector.replay.errors import RunHaltedError
from headrace.connector.replay.shards import Shard, close_kept, opened, plugin_of
from headrace.plugins import HeadraceError, LogFraming, MissingRequirementError, Position, Source

PART_BYTES: Final = 32 * 1024 * 1024  # The part of a log for one task.
_COPY_BYTES: Final = 1024 * 1024
SHARDS_MIN: Final = 8  # Fewer shards cost less CPU without blocks.
SEVERAL: Final = 2
Begins = Callable[[Source], Sequence[Position | None]]
"""Returns the start positions of shards in the logs of a source."""


@dataclass(frozen=True, slots=True)
class Framing:
    """The reads of the shards of a plan: `parts` of logs, for these `splits`.

    `shard` represents all of them: their source, and their bounds. With `sparing`, entries that it
    does not select may be omitted.
    """

    shard: Shard
    splits: Sequence[str]
    parts: Sequence[bytes]
    sparing: bool

    def frame(self, parts: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
        """Read some of the parts; yield blocks, each with its split.

        Raises:
            HeadraceError: the source cannot be opened.

        """
        with opened(self.shard, sparing=self.sparing) as source:
            yield from LogFraming.of(source).frame(parts, self.splits)


class SplitFiles:
    """Blocks of splits: a file for each split, in a folder. For one thread; blocking file I/O."""

    def __init__(self, folder: Path) -> None:
        """Use *folder*, which is empty."""
        self._folder = folder
        self.splits: set[str] = set()
        """The splits with a file."""

    def put(self, split: str, block: bytes | memoryview) -> None:
        """Add a block of *split*.

        Raises:
            MissingRequirementError: it cannot be written, for example because the disk is full.

        """
        self.splits.add(split)
        try:
            self._append(split, block)
        except OSError as error:
            raise self._full(error) from error

    def join(self, split: str, pieces: Sequence[Path]) -> None:
        """Add the blocks of *split* in the files *pieces*, as far as these exist.

        Raises:
            MissingRequirementError: they cannot be written, for example because the disk is full.

        """
        try:
            for piece in pieces:
                with contextlib.suppress(FileNotFoundError), piece.open("rb") as come:
                    self.splits.add(split)
                    with (self._folder / split).open("ab") as file:
                        shutil.copyfileobj(come, file, _COPY_BYTES)
        except OSError as error:
            raise self._full(error) from error

    def _append(self, split: str, block: bytes | memoryview) -> None:
        with (self._folder / split).open("ab") as file:
            file.write(block)

    def _full(self, error: OSError) -> HeadraceError:
        said = f"what was read of logs cannot be written: {error.strerror}"
        hint = "is the disk of TMPDIR full? It needs about as much room as the logs"
        return MissingRequirementError(said, place=str(self._folder), hint=hint)

    def file_of(self, split: str) -> str:
        """Return the file of *split*; empty without one: its shard reads the logs itself."""
        return str(self._folder / split) if split in self.splits else ""


def framing_of(
    shards: Sequence[Shard],
    *,
    sparing: bool = True,
    begins: Begins | None = None,
    at_least: int = 0,
) -> Framing | None:
    """Return a framing of the logs for *shards*; None if each must read them itself.

    It lists files and opens no segment. *sparing* omits, if the source can, changes that the shards
    do not select: their tasks must not want more. *begins* returns the start positions of the
    shards, if these have none or different ones; the logs are read from the earliest on. Fewer
    shards than *at_least* also read the logs themselves.
    """
    alike = [replace(shard, number=0, split="") for shard in shards]
    if begins is not None:
        alike = [replace(shard, resume=None) for shard in alike]
    if len(shards) < (at_least or SHARDS_MIN) or any(each != alike[0] for each in alike):
        return None  # They are few, or each reads another part of the logs.
    resume = shards[0].resume
    parts: Sequence[bytes] = ()
    with contextlib.suppress(HeadraceError):  # Each shard reports the reason.
        if issubclass(plugin_of(shards[0].source.given), LogFraming):
            with opened(shards[0]) as source:
                if begins is not None:
                    positions = begins(source)
                else:
                    positions = [None if resume is None else source.decode_position(resume)]
                parts = LogFraming.of(source).log_parts(positions, PART_BYTES)
    splits = list(dict.fromkeys(shard.split for shard in shards))
    return Framing(shards[0], splits, parts, sparing) if parts else None


@contextlib.contextmanager
def framed(
    shards: Sequence[Shard],
    *,
    sparing: bool = True,
    begins: Begins | None = None,
    halted: Callable[[float], bool] = lambda _: False,
) -> Iterator[Sequence[Shard]]:
    """Yield *shards* that read the logs from a temporary folder, where they were read once.

    If that fails, each shard reads the logs itself. *sparing* and *begins* as in `framing_of`.

    Raises:
        RunHaltedError: it was *halted* before all was read.

    """
    framing = framing_of(shards, sparing=sparing, begins=begins)
    if framing is None:
        yield shards
        return
    with tempfile.TemporaryDirectory(prefix="headrace-framed-") as folder:
        files = SplitFiles(Path(folder))
        try:
            is_whole = _write_blocks(framing, files, halted)
        except HeadraceError as error:
            warn_of(str(error))
            yield shards
            return
        if not is_whole:
            raise RunHaltedError("the run was halted")
        try:
            yield [replace(shard, framed=files.file_of(shard.split)) for shard in shards]
        finally:
            close_kept()


def _write_blocks(framing: Framing, files: SplitFiles, halted: Callable[[float], bool]) -> bool:
    """Read the logs into a file for each split; return whether it was not halted."""
    for split, block in framing.frame(framing.parts):
        files.put(split, block)
        if halted(0):
            return False
    return True


def write_piece(framing: Framing, folder: Path, part: bytes) -> str:
    """Frame a part into a folder of this attempt; return its name, for the attempt that counts."""
    name = uuid.uuid4().hex
    (folder / name).mkdir()
    files = SplitFiles(folder / name)
    for split, block in framing.frame([part]):
        files.put(split, block)
    return name


def warn_of(error: str) -> None:
    """Warn that the logs could not be read once for all: each shard reads them all."""
    structlog.stdlib.get_logger().warning(
        "logs_not_framed",
        error=error,
        hint="each shard reads all logs itself; is the disk of TMPDIR full?",
    )
