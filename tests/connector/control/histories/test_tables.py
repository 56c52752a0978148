"""Where the state of jobs is in Cassandra, a history without a path is there, too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.control.connector_config import sink_options
from headrace.connector.control.errors import StatementError
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.rendering import ResultTable
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, settled
from helpers.histories.places import FILE, TablePlaces, table_places
from helpers.histories.rows import change, delivery

CREATE = "CREATE CDC h ON shop.orders INCLUDE (CHANGE, PRE, POST) WITH seed = 'empty'"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TablePlaces]:
    """Return the tables of a node, which the file of a worker names."""
    with table_places() as made:
        made.begin(tmp_path)
        yield made


def test_it_is_in_the_store_of_the_workers_file(
    node: TablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All statements find it there, from any folder; PURGE leaves nothing of it."""
    service = ControlService.open(tmp_path / FILE)

    def run(text: str) -> ResultTable:
        return service.execute(parse_statement(text))

    run(CREATE)
    described = dict(zip(*_only(run("DESCRIBE CDC h")), strict=True))
    assert f"{tmp_path}/{FILE}#h" == described["file"]
    assert "nothing yet: no worker has run its job" == described["kept"]
    (sink,) = service.commands.sinks()
    options = sink_options(sink.config)
    assert f"{FILE}#h" == options["path"]
    with monkeypatch.context() as patched:
        patched.chdir(tmp_path)  # As a job does.
        kept = Kept(DrivenClock(), **options | {"retention": "9999d"})
        writer = kept.writer()
    writer.submit(delivery(change(written_us=1, note="a")), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    shown = run("SELECT post FROM h WHERE CDC_TIME() >= '2023-01-01'")
    assert 1 == len(shown.rows)
    assert "1" == dict(zip(*_only(run("DESCRIBE CDC h")), strict=True))["changes"]
    run("DROP CDC h PURGE")
    assert 0 == node.tables.count("history_changes")
    assert () == tuple(service.commands.sinks())
    service.close()


def test_another_store_keeps_no_history(node: TablePlaces, tmp_path: Path) -> None:
    """There the path of a file is required, and the error says so."""
    del node
    service = ControlService.open(tmp_path / FILE)
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace("plugin: cassandra", "plugin: mine"))
    with pytest.raises(StatementError, match="only a store in Cassandra keeps histories"):
        service.execute(parse_statement(CREATE))
    service.close()


def _only(table: ResultTable) -> tuple[tuple[str, ...], tuple[object, ...]]:
    (row,) = table.rows
    return tuple(table.columns), tuple(row)
