"""Files that are on disk as a whole, or not at all."""

import os
from pathlib import Path

import pytest

from headrace.connector.foundation.files import write_durably


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there stays until the new content is on disk."""
    path = tmp_path / "folder" / "file"
    write_durably(path, b"old")

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            write_durably(path, b"new")
    assert b"old" == path.read_bytes()

    write_durably(path, b"new")
    assert b"new" == path.read_bytes()


def test_names_are_on_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced under another name, then its folder, and those that have new folders."""
    path = tmp_path / "new" / "newer" / "file"
    synced: list[tuple[int, bool]] = []
    sync = os.fsync

    def note(number: int) -> None:
        synced.append((os.fstat(number).st_ino, path.exists()))
        sync(number)

    monkeypatch.setattr(os, "fsync", note)
    write_durably(path, b"content")

    content, *folders = synced
    assert (path.stat().st_ino, False) == content
    assert {(each.stat().st_ino, True) for each in path.parents[:3]} == set(folders)
    synced.clear()
    write_durably(path, b"more")
    assert [(path.stat().st_ino, True), (path.parent.stat().st_ino, True)] == synced
