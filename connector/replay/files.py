"""What the files of a run are called: a folder for each table, a file for each shard."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4


def files_of(folder: Path, run: str, shard: int) -> Sequence[Path]:
    """Return the files that a shard of a run has left."""
    return sorted(folder.glob(f"*/{file_name(run, shard)}.parquet"))


def file_name(run: str, shard: int) -> str:
    """Return what the files of a shard are called, without their ending."""
    return f"{run}-{shard:05d}"


def attempt_name(run: str, shard: int, attempt: int) -> str:
    """Return what the files of one attempt are called, where each attempt has files of its own."""
    return f"{file_name(run, shard)}-{attempt:03d}"


def begun_name(name: str) -> str:
    """Return how a file is called while it is written. Two attempts may overlap."""
    return f".{name}-{uuid4().hex[:8]}.part"


def forget_begun(folder: Path, run: str) -> None:
    """Remove what attempts of *run* that were killed had begun to write. No other is running."""
    for path in folder.glob(f"*/.{run}-*.part"):
        path.unlink(missing_ok=True)


def folder_name(table: str) -> str:
    """Return the name of a table's folder."""
    return quote(table, safe="")
