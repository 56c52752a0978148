"""A recorded cluster: its logs, its schema, and what Cassandra itself read in the logs."""

import lzma
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Final

from headrace.plugins import MissingRequirementError

SHIPPED: Final = Path(__file__).with_name("5.0-ring.tar.xz")  # In the wheel, too.
_HINT: Final = (
    "--recording names a recording of a ring: a folder with segments/, or a .tar.xz of it"
)


class RecordingError(MissingRequirementError):
    """The recording does not exist, or a part is missing."""

    code = "demo_recording"


@dataclass(frozen=True, slots=True)
class Recording:
    """The folder of a recording."""

    folder: Path

    def __post_init__(self) -> None:
        """Check that every part is there."""
        for part in (self.schema, self.tables, self.oracle, self.folder / "segments"):
            if not part.exists():
                raise RecordingError(f"{part.name} is missing", place=str(self.folder), hint=_HINT)
        if not self.nodes or not all(path.is_dir() for path in self.nodes.values()):
            raise RecordingError(
                "expected a folder for each node, and nothing else",
                place=str(self.folder / "segments"),
                hint=_HINT,
            )

    @property
    def schema(self) -> Path:
        """The file of CREATE statements with table ids."""
        return self.folder / "schema.cql"

    @property
    def tables(self) -> Path:
        """The tables and their columns, as JSON."""
        return self.folder / "tables.json"

    @property
    def oracle(self) -> Path:
        """The output of Cassandra's own reader of the logs, one mutation a line."""
        return self.folder / "oracle.jsonl"

    @property
    def nodes(self) -> dict[str, Path]:
        """The `cdc_raw` folder of each node."""
        return {path.name: path for path in sorted((self.folder / "segments").iterdir())}


def opened(place: Path, folder: Path) -> Recording:
    """Copy the recording at *place*, a folder or a .tar.xz that holds one, into *folder*.

    Copied, because a worker leaves notes beside the segments that it reads.

    Raises:
        RecordingError: it does not exist, or is not a recording.

    """
    if place.is_dir():
        checked = Recording(place)
        return Recording(copytree(checked.folder, folder / place.resolve().name))
    with TemporaryDirectory(prefix="unpacked-", dir=folder) as unpacked:  # Atomic.
        _unpack(place, Path(unpacked))
        inside = _only_folder(Path(unpacked), place)
        Recording(inside)
        return Recording(inside.rename(folder / inside.name))


def _unpack(place: Path, folder: Path) -> None:
    try:
        with tarfile.open(place) as archive:
            if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later.
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(folder)  # noqa: S202 (the caller's own archive)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError) as error:
        raise RecordingError(f"cannot be read: {error}", place=str(place), hint=_HINT) from error


def _only_folder(folder: Path, place: Path) -> Path:
    inside = list(folder.iterdir())
    if len(inside) != 1 or not inside[0].is_dir():
        raise RecordingError("holds more or less than one folder", place=str(place), hint=_HINT)
    return inside[0]
