"""`LATEST FROM SOURCE`: newest images as the table has them, over a node that answers by key."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cassandra import ConsistencyLevel

from headrace.connector.control.errors import NotAvailableError
from headrace.connector.control.histories.queries import BadQueryError
from headrace.connector.control.plugins.probe import answer_to
from headrace.connector.control.plugins.probing import unpacked
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.rendering import ResultTable
from headrace.connector.stores.open_control_store import open_notes
from headrace.sources.cassandra import table_source
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.jobs.filled_tables import Filled, T
from helpers.logs.forged import insert
from helpers.servers.cql_node import CqlNode

NAME = "h"
QUESTIONS: list[Mapping[str, Any]] = []
ALL = "FROM h WHERE CDC_TIME() >= 0"


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Filled]:
    """Return a job whose history has four changes of three rows, and keeps no images."""
    monkeypatch.chdir(tmp_path)

    def said(_: object) -> object:
        return parse_schema((tmp_path / "schema.cql").read_text())

    monkeypatch.setattr(table_source, "read_live_schema", said)
    with CqlNode() as node:
        made = Filled(tmp_path, node)
        made.job.from_statements()
        made.job.change(tables=None)
        made.job.execute(f"CREATE CDC {NAME} ON {T} WITH job = 'orders'")
        made.hold(T, 0)
        made.job.log(1, range(3))
        made.job.spread(2, insert(b"k0", b"\x06", at_us=1))
        assert 0 == made.job.run()
        made.hold_row(T, 0, b"\x07")
        made.hold_row(T, 1, None)
        made.hold_row(T, 2, b"\x02")
        yield made


def select(filled: Filled, text: str) -> ResultTable:
    """Execute a SELECT; the plugin is asked in this process."""

    def ask(question: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        QUESTIONS.append(question)
        return unpacked(answer_to(json.loads(json.dumps(question))))

    with closing(open_notes(filled.job.folder / "state.db")) as notes:
        return ControlService(notes, ask=ask).execute(parse_statement(text.replace("$ALL", ALL)))


def test_rows_are_read_of_the_source(filled: Filled) -> None:
    """Each of a page once, at the level that is named; one that is gone is empty."""
    QUESTIONS.clear()
    found = select(filled, "SELECT k, change, latest $ALL LATEST FROM SOURCE CONSISTENCY ALL")
    assert 4 == len(found.rows)
    shown = {row[0]: row[1:] for row in found.rows}
    assert {
        "0x6b30": ('{"v": "0x06"}', '{"v": "0x07"}'),
        "0x6b31": ('{"v": "0x01"}', "{}"),
        "0x6b32": ('{"v": "0x02"}', '{"v": "0x02"}'),
    } == shown
    assert ("latest_from", "source at ALL") == found.footer[-1]
    levels = [level for text, level in filled.node.levels.items() if "fromJson" in text]
    assert [ConsistencyLevel.ALL] * 3 == levels
    (question,) = QUESTIONS
    assert 3 == len(question["keys"])


def test_it_adds_the_image_to_those_of_the_history(filled: Filled) -> None:
    """Also to documents and to a hint; pages continue; without it no image is kept."""
    rows = select(filled, "SELECT JSON $ALL LATEST FROM SOURCE").rows
    documents = {each["key"]["k"]: each for (text,) in rows for each in [json.loads(text)]}
    mine = documents["0x6b30"]
    assert ({"v": "0x06"}, {"v": "0x07"}) == (mine["change_image"], mine["latest_image"])
    hint = "SELECT /*+ CDC_INCLUDE(LATEST) */ *"
    page = select(filled, f"{hint} $ALL LIMIT 2 LATEST FROM SOURCE")
    assert "latest" in page.columns
    assert "change" not in page.columns
    footer = dict(page.footer)
    assert "source at LOCAL_QUORUM" == footer["latest_from"]
    rest = select(filled, f"{hint} $ALL LIMIT 2 AFTER '{footer['next_token']}' LATEST FROM SOURCE")
    assert [2, 2] == [len(page.rows), len(rest.rows)]


def test_what_cannot_be_read_is_named(filled: Filled) -> None:
    """Too many rows, an unknown column, and an answer that the source did not get."""
    with pytest.raises(BadQueryError, match="found 101, expected at most 100: each row is read"):
        select(filled, "SELECT * $ALL LIMIT 101 LATEST FROM SOURCE")
    with pytest.raises(BadQueryError, match="images that are not among the columns"):
        select(filled, "SELECT k, change $ALL LATEST FROM SOURCE")
    filled.node.answers = {k: v for k, v in filled.node.answers.items() if "6b31" not in k}
    with pytest.raises(NotAvailableError, match=f"table_query: table {T}, 3 rows"):
        select(filled, "SELECT * $ALL LATEST FROM SOURCE")
    filled.job.change(contact_points=None)
    with pytest.raises(NotAvailableError, match="contact_points"):
        select(filled, "SELECT * $ALL LATEST FROM SOURCE")


def test_nothing_is_read_for_nothing(filled: Filled) -> None:
    """A page without changes asks no node."""
    filled.node.levels.clear()
    found = select(filled, "SELECT * $ALL AND CDC_TIME() < 5 LATEST FROM SOURCE")
    assert not found.rows
    assert not filled.node.levels
