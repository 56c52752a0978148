"""What notes say of a log is read from each file once, however many splits share it."""

from pathlib import Path

import msgspec
import pytest

from headrace.sources.cassandra.logs import pins
from headrace.sources.cassandra.logs.pins import HoldError, Need
from headrace.sources.cassandra.state.cdc_state import Marker

LISTED = ((0, (5, 2)),), ((0, (5, 1, 7)), (1, (2,)))


def test_what_splits_know_of_a_log_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a hundred others share one note, and one is being written."""
    pins.write_new(tmp_path, [f"job.{n}.s" for n in range(100)], pins.everything("job"))
    for number, listed in enumerate((*LISTED, LISTED[0])):
        need = Need.of("job", f"{number}", Marker(7, 1), {}, listed)
        pins.write(tmp_path, f"job.{number}.s", msgspec.json.encode(need))
    (tmp_path / ".job.9.s.77").write_bytes(b"{")
    read = Path.read_bytes
    opened = []

    def counted(path: Path) -> bytes:
        opened.append(path.name)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", counted)

    assert {(), *LISTED} == pins.listed_in(tmp_path)
    assert 4 == len(opened)
    assert {"0", "1", "2", "99"} <= {note.need.split for note in pins.notes_in(tmp_path)}


def test_a_note_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    """With its place: someone has to remove it."""
    (tmp_path / "job.1.s").write_bytes(b"{")

    for read in (pins.listed_in, pins.notes_in):
        with pytest.raises(HoldError, match="expected the needs of a job") as caught:
            read(tmp_path)
        assert str(tmp_path / "job.1.s") == caught.value.place
