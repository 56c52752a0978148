"""Reads logs once for all shards: tasks own parts of logs first, then splits of what they had.

Without this each shard reads all logs, and passes what is not its own. Needs no Spark.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from headrace.connector.replay.errors import RunHaltedError
from headrace.connector.replay.shards import Shard, close_kept, opened, plugin_of
from headrace.plugins import HeadraceError, LogFraming

PART_BYTES: Final = 32 * 1024 * 1024  # Of a log, for one task.
SHARDS_MIN: Final = 8  # Fewer read the logs themselves for less CPU than blocks take.


@dataclass(frozen=True, slots=True)
class Framing:
    """What the shards of a plan read of the logs: `parts`, for these `splits`.

    `shard` stands for any of them: its source, and its bounds. With `sparing`, what it does not
    select may be left out.
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


def framing_of(shards: Sequence[Shard], *, sparing: bool = True) -> Framing | None:
    """Return how the logs are read once for *shards*; None if each must read them itself.

    It lists files and opens no segment. *sparing* leaves out, where the source can, what the shards
    do not select: their tasks may want no more.
    """
    alike = [replace(shard, number=0, split="") for shard in shards]
    if len(shards) < SHARDS_MIN or any(each != alike[0] for each in alike):
        return None  # They are few, or each reads another part of the logs.
    resume = shards[0].resume
    parts: Sequence[bytes] = ()
    with contextlib.suppress(HeadraceError):  # Each shard says why.
        if issubclass(plugin_of(shards[0].source.given), LogFraming):
            with opened(shards[0]) as source:
                position = None if resume is None else source.decode_position(resume)
                parts = LogFraming.of(source).log_parts(position, PART_BYTES)
    splits = list(dict.fromkeys(shard.split for shard in shards))
    return Framing(shards[0], splits, parts, sparing) if parts else None


@contextlib.contextmanager
def framed(
    shards: Sequence[Shard],
    *,
    sparing: bool = True,
    halted: Callable[[float], bool] = lambda _: False,
) -> Iterator[Sequence[Shard]]:
    """Yield *shards* that read the logs from a temporary folder, where they were read once.

    If that fails, each shard reads the logs itself. *sparing* as in `framing_of`.

    Raises:
        RunHaltedError: it was *halted* before all was read.

    """
    framing = framing_of(shards, sparing=sparing)
    if framing is None:
        yield shards
        return
    with tempfile.TemporaryDirectory(prefix="headrace-framed-") as folder:
        try:
            is_whole = _write_blocks(framing, Path(folder), halted)
        except (HeadraceError, OSError) as error:
            warn_of(str(error))
            yield shards
            return
        if not is_whole:
            raise RunHaltedError("the run was halted")
        try:
            yield [replace(shard, framed=str(Path(folder, shard.split))) for shard in shards]
        finally:
            close_kept()


def _write_blocks(framing: Framing, folder: Path, halted: Callable[[float], bool]) -> bool:
    """Read the logs into a file for each split; return whether it was not halted."""
    for split, block in framing.frame(framing.parts):
        with (folder / split).open("ab") as file:
            file.write(block)
        if halted(0):
            return False
    return True


def warn_of(error: str) -> None:
    """Warn that the logs could not be read once for all: each shard reads them all."""
    structlog.stdlib.get_logger().warning(
        "logs_not_framed",
        error=error,
        hint="each shard reads all logs itself; is the disk of TMPDIR full?",
    )
