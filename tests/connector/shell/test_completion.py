"""Completion offers what the parser would accept and what there is, the likely first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.parser import parse_script
from headrace.connector.language.statements import Statement, TableName
from headrace.connector.shell.completion import Known, suggestions
from helpers.jobs import toys
from helpers.jobs.statements import statements

KNOWN = Known(
    sinks={"k": "bus://a?line=2", "My": "bus://b"},
    sources={TableName("shop", "orders"): "flow"},
    tables={
        TableName("shop", "items"): False,
        TableName("shop", "orders"): True,
        TableName("other", "t"): True,
    },
    splits=("0", "1"),
    runs=("snapshot-1",),
    jobs=("orders",),
    own=("lines",),
)


@pytest.fixture(autouse=True)
def _toys(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.install(tmp_path_factory.mktemp("toys"), monkeypatch)


def offered(before: str) -> list[str]:
    """Return the strings that are offered."""
    return [one.text for one in suggestions(before, KNOWN)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("CREATE DATA_S", ["DATA_SINK", "DATA_SOURCE"]),
        ("create data_si", ["DATA_SINK"]),
        ("create /* it's */ data_si", ["DATA_SINK"]),
        ("DROP DATA_SINK ", ["IF", "k", '"My"']),
        ('DROP DATA_SINK "', ['"My"']),
        ("DROP DATA_SINK k; PAU", ["PAUSE"]),
        ("CREATE DATA_SINK ", ["IF"]),
        ("CREATE DATA_SINK n WITH ", ["'"]),
        ("CREATE DATA_SINK n WITH 'b", ["bus://"]),
        ("CREATE DATA_SINK n WITH 'bus://h?l", ["line="]),
        ("CREATE DATA_SINK n WITH 'bus://h?line=1&se", ["seats="]),
        ("CREATE DATA_SINK n WITH 'bus://h?line=1&li", []),
        ("CREATE DATA_SINK n WITH 'bus://h' AND s", ["seats"]),
        ("CREATE DATA_SINK n WITH 'bus://h' AND line = 1 AND l", []),
        ("CREATE DATA_SINK n WITH 'bus://h' AND password = ", ["'${env:", "'${file:", "'"]),
        ("ALTER DATA_SINK k WITH se", ["seats"]),
        ("CREATE DATA_SOURCE fl", ["flow"]),
        ("CREATE DATA_SOURCE flow ON TABLE ", ["other.t", "shop.orders", "shop.items"]),
        ("CREATE DATA_SOURCE flow ON TABLE shop.", ["orders", "items"]),
        ("PAUSE DATA_SOURCE flow ON TABLE ", ["shop.orders"]),
        ("CREATE DATA_SOURCE flow ON TABLE shop.orders WITH ", ["k", '"My"']),
        ("CREATE DATA_SOURCE flow ON TABLE shop.orders WITH k AND j", ["job"]),
        ("ALTER DATA_SOURCE flow ON TABLE a.b SET POSITION = 'e", ["earliest'"]),
        ("ALTER DATA_SOURCE flow ON TABLE a.b SET POSITION = 'x' FOR SPLIT '", ["0'", "1'"]),
        ("PAUSE SNAPSHOT 'sn", ["snapshot-1'"]),
        ("STOP RUN 'sn", ["snapshot-1'"]),
        ("REPLAY DATA_SOURCE cdc ON TABLE a.b WITH into", ["into_live"]),
        ("reconcile DATA_SOURCE cdc ON TABLE a.b FROM '2026-01-01' WITH buc", ["buckets"]),
        ("BACKFILL DATA_SOURCE cdc ON TABLE a.b WITH lake = ", ["'delta'", "'iceberg'", "'"]),
        ("PAUSE DATA_SOURCE li", ["lines"]),
        ("CREATE DATA_SOURCE li", []),
        ("CREATE DATA_SOURCE li WITH k AND pl", ["plugin"]),
        ("CREATE DATA_SOURCE li WITH k AND plugin = ", ["'files'", "'history'", "'river'"]),
        ("CREATE DATA_SOURCE li WITH k AND plugin = 'files' AND p", ["path"]),
        ("REDRIVE DEAD_LETTERS FOR JOB 'or", ["orders'"]),
        ("CREATE DATA_SOURCE flow ON TABLE a.b WITH k AND snapshot = '", []),
        ("SHOW S", ["STATUS", "SPLITS", "SNAPSHOTS"]),
        ("SHOW M", ["MODE"]),
        ("SHOW MODE ", ["CHANGES", "FOR", ";"]),
        ("TAIL k FROM ", ["NOW", "TO_DATE", "'", "TRUE", "FALSE"]),
        ("ALTER DATA_SOURCE cdc ON TABLE a.b SET MODE = ", ["'"]),
        ("ALTER DATA_SOURCE cdc ON TABLE a.b SET MODE = 're", ["realtime'"]),
        ("SELECT * FROM h WHERE CDC_TIME() > 1 AND op = 'tt", ["ttl_delete'", "ttl_update'"]),
        ("SELECT * FROM h WHERE CDC_TIME() > 1 AND op IN ('insert', 'up", ["update'", "upsert'"]),
        ("SELECT * FROM h WHERE CDC_TIME() > 1 AND id = 'tt", []),
        ("SELECT * FROM t WHERE op = 'tt", []),
        ("SHOW LAG", []),
        ("CREATE DATA_SINK n WITH 'bus://h' AND bus.x = ", ["'", "TRUE", "FALSE"]),
        ("SHOW LAG ", ["FOR", ";"]),
        ("EXPAND ", ["ON", "OFF"]),
        ("format j", ["json", "jsonl"]),
        ("HELP CREATE", ["CREATE_CDC", "CREATE_DATA_SINK", "CREATE_DATA_SOURCE"]),
        ("EXPAND ON\nDESC DATA_SINKS", []),
        ("SELECT * FROM ", []),
        ("CREATE DATA_SNK ", []),
    ],
)
def test_offered(before: str, expected: list[str]) -> None:
    """Keywords, names, tables, schemes and options are offered where they may stand."""
    assert expected == offered(before)


def test_behind_a_number() -> None:
    """A keyword is offered after a space only: it would make the number a mistake."""
    assert [] == offered("REDRIVE DEAD_LETTER 10")
    assert ["FOR"] == offered("REDRIVE DEAD_LETTER 10 ")


def test_beginning() -> None:
    """An empty line offers statements, CQL and commands."""
    assert {"CREATE", "SELECT", "HELP"} < set(offered(""))
    assert ["HELP"] == offered("hel")


def test_meaning() -> None:
    """An option is explained."""
    (one,) = suggestions("CREATE DATA_SINK n WITH 'bus://h' AND li", KNOWN)

    assert ("line", 2, "Which line.") == (one.text, one.replaces, one.meaning)


@given(st.text() | st.text("'\" ;CREATE_DASINK=:/.\n"))
def test_any_text(before: str) -> None:
    """For any input, something or nothing is offered."""
    for one in suggestions(before, KNOWN):
        assert 0 <= one.replaces <= len(before)


@given(statements, st.data())
def test_keywords_fit(statement: Statement, data: st.DataObject) -> None:
    """A keyword that is offered is not a mistake where it is offered."""
    text = format_statement(statement)
    cut = text[: data.draw(st.integers(0, len(text)))]
    for one in suggestions(cut, Known()):
        if not one.text.isupper() or one.text in ("VERSION", "HOST") or "\n" in cut:
            continue
        head = cut[: len(cut) - one.replaces].strip()
        if not head or head.endswith(";"):
            continue  # At the start, CQL and commands are offered too.
        after = cut[: len(cut) - one.replaces] + one.text
        assert _mistake(after) in (None, len(after))


def _mistake(text: str) -> int | None:
    """Return the column of the first mistake in *text*, which has one line."""
    try:
        list(parse_script(text))
    except StatementSyntaxError as error:
        return error.where.column
    return None
