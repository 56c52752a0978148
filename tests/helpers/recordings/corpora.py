"""Recorded segments of real nodes, unpacked once per test session.

`setup.cfg` puts `tests/` on pytest's path (`pythonpath`) and on mypy's (`mypy_path`), so a test
writes `from helpers.recordings.corpora import recording`.
"""

import atexit
import shutil
import tarfile
import tempfile
from functools import lru_cache
from pathlib import Path

from headrace.connector.demo.recording import SHIPPED
from helpers.settings.seeds import soaked

CORPORA = Path(__file__).parents[2] / "corpora"
# Those of single nodes that are encoded in every form.
RECORDINGS = (
    "4.0-ops",
    "5.0-compact",
    "5.0-types",
    "5.0-v8-random",
    "6.0-v9-random",
    "6.0-v9-types",
    *soaked("4.0-random", "4.0-types", "4.1-ops", "4.1-random"),
    *soaked("5.0-ops", "5.0-random", "5.0-v8-ops", "6.0-v9-ops"),
)
# Their mutations are large: fastavro alone takes long.
LARGE = ("5.0-v8-sizes", *soaked("5.0-sizes"))
# What the interpreter encodes: all types, and rows that are written in every way.
FEW = ("4.1-random", "6.0-v9-types")


def recording(name: str) -> Path:
    """Return the folder of recording *name*; it is shared, so copy what a test changes.

    Notes that jobs left beside the segments are removed, so that it is new to the next job.

    `tests/corpora/<name>.tar.xz` holds one folder of that name: `segments/`, `schema.cql`,
    `oracle.jsonl` (what Cassandra's own reader found in it), `truth.jsonl` (the executed
    statements). Of the recording that the demo plays, the demo's archive has what it needs.
    """
    folder = _unpacked(name)
    for notes in folder.rglob(".headrace"):
        shutil.rmtree(notes, ignore_errors=True)
    return folder


@lru_cache
def _unpacked(name: str) -> Path:
    folder = recordings_folder() / name
    if not folder.exists():  # A forked process that shares the folder may have unpacked it.
        # Unpacked elsewhere first: what is killed meanwhile leaves no half of a recording.
        with tempfile.TemporaryDirectory(dir=recordings_folder()) as beside:
            for path in (CORPORA / f"{name}.tar.xz", SHIPPED):
                if path.name == f"{name}.tar.xz":
                    _unpack(path, beside)
            Path(beside, name).rename(folder)
    return folder


def _unpack(path: Path, folder: str) -> None:
    with tarfile.open(path) as archive:
        # Python 3.11.0 to 3.11.3 extract without a filter and know no other way.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)  # noqa: S202 (archives of this repository)


@lru_cache
def recordings_folder() -> Path:
    """Return where recordings are unpacked. The process that made it removes it at its end."""
    folder = tempfile.mkdtemp(prefix="headrace-corpora-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
