"""The overview of a state: what is missing, how each source is, and what to do next."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.connector.control.health.overview import Overview, overview_of
from headrace.connector.control.plugins.probe import answer_to
from headrace.connector.control.plugins.probing import Answer, unpacked
from headrace.connector.control.running import JobLag
from headrace.connector.control.service import ControlService
from headrace.connector.foundation.processes import this_process
from headrace.connector.foundation.states import Observed
from headrace.connector.language.parser import parse_script
from headrace.connector.language.rendering import ResultTable
from headrace.connector.stores import Seen
from headrace.connector.stores.note_copy import NoteCopy

MADE = """
CREATE DATA_SINK bin WITH 'null://';
CREATE DATA_SOURCE brook ON TABLE s.t WITH bin AND job = 'j';
"""


def ask_here(question: Mapping[str, object]) -> Answer:
    """Answer in this process as a child process would."""
    return unpacked(answer_to(question))


def run(service: ControlService, text: str) -> ResultTable:
    """Execute all statements of *text* and return the last one's answer."""
    return [service.execute(parsed.statement) for parsed in parse_script(text)][-1]


@pytest.fixture
def made(connection: NoteCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlService:
    """Return a service with a source of five lines, whose job's file is known."""
    (tmp_path / "in.jsonl").write_bytes(b'{"n": 1}\n' * 5)
    source = "{plugin: brook, path: in.jsonl}"
    (tmp_path / "job.yaml").write_text(f"job: j\nstate: state.db\nsource: {source}\n")
    monkeypatch.chdir(tmp_path)
    service = ControlService(connection, ask=ask_here)
    run(service, MADE)
    connection.store("j").begin_run(str(tmp_path / "job.yaml"))
    return service


def test_what_is_missing(connection: NoteCopy, service: ControlService) -> None:
    """Without sink or source the overview has the statement that makes each, and it parses."""
    found = overview_of(connection, service)
    assert ["no data sink is defined", "no data source is defined"] == found.troubles
    for statement, name in (("sink", "name"), ("source", "sink_name")):
        left = overview_of(connection, service).missing
        assert f"no data {statement} is defined" == left[0].message
        text = left[0].hint.replace("kafka://host:9092?topic=changes", "bus://a")
        run(service, text.replace(name, "k").replace("keyspace.table", "ks.t"))
    assert [] == overview_of(connection, service).missing


def test_rows_are_those_of_show(connection: NoteCopy, made: ControlService) -> None:
    """State, lag and errors are those that SHOW STATUS, LAG and ERRORS have."""
    store = connection.store("j")
    store.register(["in.jsonl"])
    store.report("environment: the disk is gone\nhint: mount it")
    (line,) = (found := overview_of(connection, made)).lines
    lag = found.lags["j"]

    assert isinstance(lag, JobLag)
    ((part, (size_bytes, files)),) = lag.left.items()
    shown = ("brook.s.t", part, str(size_bytes), str(files))
    assert shown == run(made, "SHOW LAG").rows[0][:4]
    assert 45 == size_bytes
    assert line.status.reason == run(made, "SHOW STATUS").rows[0][-1]
    assert found.errors == run(made, "SHOW ERRORS")
    assert ["brook.s.t is FAILED"] == found.troubles
    assert "mount it" == line.next


def test_all_is_well(connection: NoteCopy, made: ControlService) -> None:
    """While a live worker reads its splits, a source needs no hand, and has a rate."""
    store, owner = connection.store("j"), this_process()
    store.register(["in.jsonl"])
    store.enroll(owner)
    tokens = store.claim(owner.worker, store.leases(), 10_000)
    store.renew(owner.worker, tokens, {"in.jsonl": 700})
    store.see([Seen(split="in.jsonl", state=Observed.RUNNING, generation=1, worker=owner.worker)])
    found = overview_of(connection, made)

    assert [] == found.troubles
    assert [("", 700)] == [(line.next, line.rate) for line in found.lines]


@pytest.mark.parametrize(
    ("verb", "following"),
    [("PAUSE", "RESUME DATA_SOURCE brook ON TABLE s.t;"), ("RESUME", "start it: headrace ")],
)
def test_the_next_step(
    connection: NoteCopy, made: ControlService, verb: str, following: str
) -> None:
    """What a user paused is to be resumed; what no worker runs is to be started."""
    run(made, f"{verb} DATA_SOURCE brook ON TABLE s.t")

    (line,) = overview_of(connection, made).lines
    assert line.next.startswith(following)


def test_a_lag_that_is_not_known(connection: NoteCopy, made: ControlService) -> None:
    """The overview says why, and has everything else."""
    Path("job.yaml").unlink()
    found: Overview = overview_of(connection, made)

    assert "cannot be read" in str(found.lags["j"])
    assert ["brook.s.t"] == [line.status.name for line in found.lines]
