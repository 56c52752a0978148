"""Keeps what retention last saw of a node's directory, and the breaks, in a file in the hold.

A node that frees space removes its oldest segments first. So while the newest segment seen is still
in `cdc_raw`, no later one was removed unseen. If it is gone, later segments may have gone too, up
to the oldest that exists now: to a reader that is a gap (I10). The hold does not show it, because
it keeps segments longer than the node. Blocking file I/O.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.sources.cassandra.errors import LogUnreadableError

_NAME: Final = ".watched.json"


class Watched(msgspec.Struct, frozen=True):
    """The id of the newest segment with CDC data that was seen, and the segments after a break.

    Segments right before one of the `breaks` may have been removed while no process watched.
    """

    witness: int | None = None
    breaks: tuple[int, ...] = ()

    def after(self, here: Sequence[int], kept: Collection[int]) -> "Watched":
        """Return the updated value after a look: *here* are the segments in `cdc_raw`, ascending.

        Breaks before segments that are no longer *kept* are forgotten.
        """
        breaks = tuple(each for each in self.breaks if each in kept)
        if not here:
            return Watched(self.witness, breaks)
        if self.witness is not None and self.witness not in here:
            breaks = (*breaks, here[0])
        return Watched(here[-1], breaks)


def load(hold: Path) -> Watched:
    """Return the value stored in *hold*, or an empty one before the first look.

    Raises:
        LogUnreadableError: the file exists and cannot be read.

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
    """Replace the value stored in *hold* atomically. Raises OSError."""
    temporary = hold / f"{_NAME}.new"
    temporary.write_bytes(msgspec.json.encode(watched))
    temporary.replace(hold / _NAME)
