"""What retention saw last of a node's directory, and where it lost sight: a file in the hold.

A node that makes room removes its oldest segments first. So while the newest one that was seen is
still in `cdc_raw`, nothing behind it went unseen. When it is gone, others may be that were
never seen, up to the oldest that exists now: to a reader that is a gap (I10). What is held does
not show that, because a hold outlives what the node removes. Blocking file I/O.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.sources.cassandra.errors import LogUnreadableError

_NAME: Final = ".watched.json"


class Watched(msgspec.Struct, frozen=True):
    """The id of the newest segment with CDC data that was seen, and those behind a break.

    What came right before one of the `breaks` may have gone while no process looked.
    """

    witness: int | None = None
    breaks: tuple[int, ...] = ()

    def after(self, here: Sequence[int], kept: Collection[int]) -> "Watched":
        """Return what is known after a look: *here* are those in `cdc_raw`, ascending.

        Breaks before segments that are not *kept* any more are forgotten.
        """
        breaks = tuple(each for each in self.breaks if each in kept)
        if not here:
            return Watched(self.witness, breaks)
        if self.witness is not None and self.witness not in here:
            breaks = (*breaks, here[0])
        return Watched(here[-1], breaks)


def load(hold: Path) -> Watched:
    """Return what is known in *hold*: nothing, if no process looked yet.

    Raises:
        LogUnreadableError: it is there and cannot be read.

    """
    path = hold / _NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Watched)
    except FileNotFoundError:
        return Watched()
    except (OSError, msgspec.MsgspecError) as error:
        hint = "remove it: what the node removed unseen until now is then not reported"
        raise LogUnreadableError(str(error), place=str(path), hint=hint) from error


def save(hold: Path, watched: Watched) -> None:
    """Replace what is known in *hold* atomically. Raises OSError."""
    temporary = hold / f"{_NAME}.new"
    temporary.write_bytes(msgspec.json.encode(watched))
    temporary.replace(hold / _NAME)
