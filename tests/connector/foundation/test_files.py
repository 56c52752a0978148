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
