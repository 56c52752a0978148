"""Books that are kept between looks are the committed ones."""

import contextlib
from pathlib import Path

import pytest
import structlog

from headrace.connector.hosting.host import Host
from headrace.connector.runtime.books.committed import KeptBooks, committed_books
from headrace.connector.runtime.books.equations import books_differences
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import EncodedPosition, Position
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.jobs.children import forged_job, write_ring


def test_only_changed_books_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept books are the committed ones after each run; unchanged ones are not decoded again."""
    forged_job(tmp_path)
    (tmp_path / "job.yaml").write_text(
        (tmp_path / "job.yaml").read_text().replace("splits: 2", "splits: 4")
    )
    monkeypatch.chdir(tmp_path)
    decoded: list[EncodedPosition] = []

    def decode(_: type[CassandraSource], encoded: EncodedPosition) -> Position:
        decoded.append(encoded)
        return CdcState.decode(encoded)

    kept = KeptBooks()
    for number in range(3):
        write_ring(tmp_path, number + 1, range(number * 9, number * 9 + 9))
        Host(tmp_path / "job.yaml", log=structlog.stdlib.get_logger()).run(until_idle=True)
        with contextlib.closing(open_notes(tmp_path / "state.db")) as notes:
            store = notes.store("crash")
            books, lines = found = kept.look(store, CassandraSource)
            expected = committed_books(store, CassandraSource)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(CassandraSource, "decode_position", classmethod(decode))
                assert found is kept.look(store, CassandraSource)
        assert expected == books
        assert books_differences(expected) == lines
        assert (number + 1) * 9 == sum(
            each.delivered for split in books for each in split.counters.values()
        )
    assert [] == decoded
