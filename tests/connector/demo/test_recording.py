"""Opening a recording, or saying why not."""

from pathlib import Path

import pytest

from headrace.connector.demo.recording import SHIPPED, Recording, RecordingError, opened
from helpers.recordings.corpora import recording


def test_an_archive_and_its_folder_are_the_same_recording(tmp_path: Path) -> None:
    """Both forms give the same nodes, in the folder that is given."""
    unpacked = opened(SHIPPED, tmp_path)
    (tmp_path / "copied").mkdir()
    given = opened(recording("5.0-ring"), tmp_path / "copied")

    assert ["node1", "node2", "node3"] == list(unpacked.nodes) == list(given.nodes)
    assert given.schema.read_text() == unpacked.schema.read_text()
    assert (tmp_path / "5.0-ring", tmp_path / "copied" / "5.0-ring") == (
        unpacked.folder,
        given.folder,
    )


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    """The error says which path, and what is wanted; it is one of the environment."""
    with pytest.raises(RecordingError, match=r"none\.tar\.xz") as caught:
        opened(tmp_path / "none.tar.xz", tmp_path)

    assert caught.value.exit_status == 3
    assert "--recording" in caught.value.hint


def test_an_archive_that_is_none_is_named(tmp_path: Path) -> None:
    """A file of another kind is refused."""
    (tmp_path / "x.tar.xz").write_bytes(b"not an archive")

    with pytest.raises(RecordingError, match="cannot be read"):
        opened(tmp_path / "x.tar.xz", tmp_path)

    assert [tmp_path / "x.tar.xz"] == [*tmp_path.iterdir()]


def test_a_folder_without_an_oracle_is_named(tmp_path: Path) -> None:
    """What is missing is in the message."""
    (tmp_path / "segments").mkdir()
    (tmp_path / "schema.cql").touch()
    (tmp_path / "tables.json").touch()

    with pytest.raises(RecordingError, match=r"oracle\.jsonl is missing"):
        Recording(tmp_path)


@pytest.mark.parametrize("bytes_max", [100_000, 200_000])
def test_an_archive_that_is_cut_short_is_named(tmp_path: Path, bytes_max: int) -> None:
    """A copy that did not get through is not a bug of headrace."""
    whole = SHIPPED.read_bytes()
    (tmp_path / "x.tar.xz").write_bytes(whole[:bytes_max])

    with pytest.raises(RecordingError, match="cannot be read"):
        opened(tmp_path / "x.tar.xz", tmp_path)

    assert [tmp_path / "x.tar.xz"] == [*tmp_path.iterdir()]


def test_a_recording_of_one_node_is_named(tmp_path: Path) -> None:
    """Only a ring can be played: its segments lie in a folder for each node."""
    with pytest.raises(RecordingError, match="expected a folder for each node"):
        opened(recording("5.0-types"), tmp_path)
