"""Whether a log looks as it did when it was listed."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.sources.cassandra.logs.glance import RECENT_NS, Glance

OLD_NS = 10 * RECENT_NS
INDEX = "CommitLog-7-1_cdc.idx"


@pytest.fixture
def glance(tmp_path: Path) -> Glance:
    """Return what noted a folder with an index; both are older than a listing."""
    (tmp_path / INDEX).write_text("100")
    return noted(tmp_path)


def noted(folder: Path, *, age_ns: int = OLD_NS) -> Glance:
    """Note a folder whose names changed so long ago."""
    at = time.time_ns() - age_ns
    os.utime(folder, ns=(at, at))
    made = Glance([folder])
    for path in folder.glob("*.idx"):
        made.note(path, path.read_bytes())
    return made


def rewritten(folder: Path) -> None:
    """Write another offset of the same length, at the same time."""
    path = folder / INDEX
    before = path.stat()
    path.write_text("200")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def begun(folder: Path) -> None:
    """Begin another segment."""
    (folder / "CommitLog-7-2_cdc.idx").touch()


def removed(folder: Path) -> None:
    """Remove the index."""
    (folder / INDEX).unlink()


@pytest.mark.parametrize("change", [rewritten, begun, removed])
def test_a_change_is_seen(glance: Glance, tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Another content is, also with the same time and length; and so is another name."""
    assert not glance.is_other()
    change(tmp_path)
    assert glance.is_other()


def test_a_folder_that_changed_just_now_may_change_again(tmp_path: Path) -> None:
    """Within what clocks of file systems distinguish its time shows nothing."""
    assert noted(tmp_path, age_ns=0).is_other()
    assert not noted(tmp_path).is_other()


def test_a_folder_that_is_missing_is_another(tmp_path: Path) -> None:
    """A listing says what is wrong with it."""
    assert Glance([tmp_path / "missing"]).is_other()
