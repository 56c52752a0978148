"""What signals ask for, over a state with sources on two tables."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.control.commands import Commands
from headrace.connector.control.runs.signals import BadSignalError, follow_signal
from headrace.connector.control.service import ControlService
from headrace.connector.foundation.states import Desired
from headrace.connector.language.parser import parse_script
from headrace.connector.stores.asked_runs import AskedRuns, Progress, RunState
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import Signal

MINE = ("cdc.s.t", "cdc.s.u")
STATEMENTS = """
CREATE DATA_SINK k WITH 'file://out.jsonl';
CREATE DATA_SOURCE cdc ON TABLE s.t WITH k;
CREATE DATA_SOURCE cdc ON TABLE s.u WITH k;
CREATE DATA_SOURCE cdc ON TABLE s.other WITH k;
"""
Json = dict[str, object]


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[NoteCopy]:
    """Return a state with three sources, of which two are the job's."""
    with closing(open_notes(tmp_path / "state.db")) as notes:
        service = ControlService(notes)
        for parsed in parse_script(STATEMENTS):
            service.execute(parsed.statement)
        yield notes


def _follow(notes: NoteCopy, kind: str, data: Json, origin: str = "t:0:1") -> list[str]:
    given = {key.replace("_", "-"): value for key, value in data.items()}
    value = json.dumps({"id": "a", "type": kind, "data": given}).encode()
    return list(follow_signal(Commands(notes), MINE, Signal(origin, b"k", value)))


def test_a_snapshot_of_tables(notes: NoteCopy) -> None:
    """`execute-snapshot` asks for one of each table; followed again it asks for nothing more."""
    data: Json = {"data_collections": ["s.t", "s.u"], "type": "INCREMENTAL"}
    names = _follow(notes, "execute-snapshot", data)

    assert names == _follow(notes, "execute-snapshot", data)
    asked = {each.source: each.name for each, _ in AskedRuns(notes).all()}
    assert dict(zip(MINE, names, strict=True)) == asked
    assert not set(names) & set(_follow(notes, "execute-snapshot", data, "t:0:2"))


def test_a_part_of_a_table(notes: NoteCopy) -> None:
    """A filter is the WHERE of SNAPSHOT DATA_SOURCE: tokens, or the key."""
    filters = [
        {"data-collection": "s.t", "filter": "TOKEN() > 5 AND TOKEN() <= 9"},
        {"data-collection": "s.u", "filter": "id = 'x'"},
    ]
    data: Json = {"data_collections": ["s.t", "s.u"], "additional_conditions": filters}
    _follow(notes, "execute-snapshot", data)

    found = {each.source: (each.order.tokens, each.order.key) for each, _ in AskedRuns(notes).all()}
    assert {MINE[0]: (((5, 9),), None), MINE[1]: ((), {"id": "x"})} == found


def test_pause_resume_and_stop(notes: NoteCopy) -> None:
    """They are about the snapshots of their tables, or of all, that are not over."""
    of_t: Json = {"data_collections": ["s.t"]}
    over, first = (_follow(notes, "execute-snapshot", of_t, n)[0] for n in "ab")
    (second,) = _follow(notes, "execute-snapshot", {"data_collections": ["s.u"]})
    AskedRuns(notes).report(over, Progress(state=RunState.COMPLETED))

    assert [first] == _follow(notes, "pause-snapshot", of_t)
    assert {first, second} == set(_follow(notes, "stop-snapshot", {}))
    assert [] == _follow(notes, "resume-snapshot", {})
    wanted = {each.name: each.wanted for each, _ in AskedRuns(notes).all()}
    assert {over: Desired.RUNNING, first: Desired.STOPPED, second: Desired.STOPPED} == wanted


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "data-collections: is required"),
        ({"data_collections": ["s.other"]}, "no data source on table 's.other'"),
        ({"data_collections": ["s.t", "s.x"]}, "no data source on table 's.x'"),
        ({"data_collections": ["s.t"], "type": "blocking"}, "expected incremental"),
        ({"data_collections": "s.t"}, "expected a signal in JSON"),
        (
            {
                "data_collections": ["s.t"],
                "additional_conditions": [{"data-collection": "s.u", "filter": "id = 1"}],
            },
            "'s.u' is not in data-collections",
        ),
        *(
            (
                {
                    "data_collections": ["s.t"],
                    "additional_conditions": [{"data-collection": "s.t", "filter": filter_}],
                },
                r"WHERE in SNAPSHOT DATA_SOURCE",
            )
            for filter_ in ("id > 7", "", "id = 1; DROP DATA_SINK k", "TOKEN() > 5 AND id = 1")
        ),
    ],
)
def test_what_cannot_be_followed(notes: NoteCopy, data: Json, said: str) -> None:
    """The error names what is wrong, and no snapshot is asked for, not even of other tables."""
    with pytest.raises(BadSignalError, match=said):
        _follow(notes, "execute-snapshot", data)
    assert [] == AskedRuns(notes).all()


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"[]", b'{"type": "log"}', b'{"type": 7}', b"x" * 1_000_001]
)
def test_what_is_no_signal(notes: NoteCopy, value: bytes | None) -> None:
    """Other messages are refused, without their content."""
    with pytest.raises(BadSignalError) as failure:
        follow_signal(Commands(notes), MINE, Signal("t:0:1", b"k", value))
    assert "xxx" not in str(failure.value)
    assert "execute-snapshot" in str(failure.value)
