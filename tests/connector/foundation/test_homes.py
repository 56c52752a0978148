"""A file has one name on its machine, so that processes can compare what they have."""

from pathlib import Path

from headrace.connector.foundation.homes import file_home


def test_a_file_has_one_name(tmp_path: Path) -> None:
    """A file is the same at all its paths; another file, and none, have other names."""
    first, again, other, none = (tmp_path / name for name in ("first", "again", "other", "none"))
    first.touch()
    again.hardlink_to(first)
    other.touch()

    assert file_home(first) == file_home(again)
    assert 3 == len({file_home(path) for path in (first, other, none)})
