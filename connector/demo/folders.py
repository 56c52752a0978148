"""The working folders of the demo and the quickstart."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.plugins import MissingRequirementError


class FolderError(MissingRequirementError):
    """The folder for the demo's results cannot be used."""

    code = "demo_folder"


@contextlib.contextmanager
def folder_for(kept: Path | None, prefix: str) -> Iterator[Path]:
    """Make the folder *kept*; without one, a folder that is removed at the end.

    If *kept* is empty at the end, it is removed, too.

    Raises:
        FolderError: *kept* exists, or cannot be made.

    """
    if kept is not None:
        try:
            kept.mkdir(parents=True)
        except OSError as error:
            raise FolderError(
                f"cannot be made: {error.strerror}",
                place=str(kept),
                hint="--keep names a folder that does not exist yet",
            ) from error
        try:
            yield kept.absolute()
        finally:
            with contextlib.suppress(OSError):  # It has content, which stays.
                kept.rmdir()
        return
    with TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)
