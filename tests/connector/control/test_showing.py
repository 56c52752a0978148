"""SHOW lists what the state file has about all sources, or about one."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.connector.control.service import ControlService
from headrace.connector.control.status import time_text
from headrace.connector.foundation.states import Observed
from headrace.connector.language.parser import parse_script
from headrace.connector.language.rendering import ResultTable
from headrace.connector.stores import Commit, Loss, Owner, Seen
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import NumberPosition

MADE = """
CREATE DATA_SINK k WITH bus://a;
CREATE DATA_SOURCE flow ON TABLE s.t WITH k AND job = 'j';
CREATE DATA_SOURCE flow ON TABLE s.u WITH k AND job = 'other';
"""

pytestmark = pytest.mark.parametrize("connection", ["file", "shared"], indirect=True)


def run(service: ControlService, text: str) -> ResultTable:
    """Execute all statements of *text* and return the last one's answer."""
    return [service.execute(parsed.statement) for parsed in parse_script(text)][-1]


@pytest.fixture
def shown(connection: NoteCopy, service: ControlService) -> ControlService:
    """Return a service of two sources; their job has committed, has lost a change, and failed."""
    run(service, MADE)
    store = connection.store("j")
    store.register(["a", "b"])
    owner = Owner(worker="w", host="h", boot="b", pid_space="p", pid=1, started=2)
    store.enroll(owner)
    token = store.claim("w", store.leases(), 1_000)["a"]
    loss = Loss(kind="quarantined", table="s.t", place="here", code="bad_record", message="torn")
    commit = Commit(
        split="a",
        plan=1,
        token=token,
        owner="w",
        previous=0,
        seq=1,
        position=NumberPosition(5).encode(),
        counters={},
        losses=[loss],
    )
    assert not store.commit([commit])
    store.release("w", "a", token, "fatal: it broke")
    connection.store("j").see([Seen(split="a", state=Observed.FAILED, generation=1)])
    return service


def test_status(shown: ControlService) -> None:
    """STATUS has the target state, the actual state, and the reason."""
    found = run(shown, "SHOW STATUS")

    expected = ("flow.s.t", "k", "j", "RUNNING", "FAILED", "1/2", "1", "h:1", "fatal: it broke")
    assert expected == found.rows[0]
    assert ("flow.s.u", "UNASSIGNED") == (found.rows[1][0], found.rows[1][4])


@pytest.mark.parametrize(("text", "command"), [("job: other", "run"), ("rest: {}", "worker")])
def test_the_command_that_starts_a_job(
    shown: ControlService, connection: NoteCopy, tmp_path: Path, text: str, command: str
) -> None:
    """The reason of a source that no worker runs has the command for it: with its file, if known.

    A source that is not to run has none.
    """
    show, file = "SHOW STATUS FOR DATA_SOURCE flow ON TABLE s.u", tmp_path / "job.yaml"
    file.write_text(f"state: state.db\nsource: {{}}\n{text}\n")
    if connection.file is None:  # A store that machines share is named by a file.
        said = "not_started: no worker runs job other; start it: headrace worker WORKER.yaml"
        assert said == run(shown, show).rows[0][-1]
        connection.store("other").begin_run(str(file))
        assert run(shown, show).rows[0][-1].endswith(f"start it: headrace {command} {file}")
    run(shown, "STOP DATA_SOURCE flow ON TABLE s.u")
    assert ("STOPPED", "") == run(shown, show).rows[0][4::4]


def test_verbs_are_seen(shown: ControlService) -> None:
    """PAUSE and STOP change the target state that STATUS shows."""
    for verb, expected in [("PAUSE", "PAUSED"), ("STOP", "STOPPED"), ("RESUME", "RUNNING")]:
        assert ResultTable() == run(shown, f"{verb} DATA_SOURCE flow ON TABLE s.u")
        assert expected == run(shown, "SHOW STATUS FOR DATA_SOURCE flow ON TABLE s.u").rows[0][3]
    assert ResultTable() == run(shown, "RESTART DATA_SOURCE flow ON TABLE s.u")


def test_splits(shown: ControlService) -> None:
    """SPLITS has a row for each split."""
    found = run(shown, "SHOW SPLITS FOR DATA_SOURCE flow ON TABLE s.t")

    assert [("flow.s.t", "a", "0", "FAILED"), ("flow.s.t", "b", "1")] == [
        found.rows[0][:4],
        found.rows[1][:3],
    ]


def test_offsets(shown: ControlService) -> None:
    """OFFSETS has the committed positions in the source's own words."""
    assert (("flow.s.t", "a", "", "offset=5"),) == run(shown, "SHOW OFFSETS").rows


def test_errors(shown: ControlService) -> None:
    """ERRORS has what stopped a split and what was lost; it can be limited to one source."""
    expected = (
        ("j", "a", "failed", "", "", "fatal", "it broke", ""),
        ("j", "a", "quarantined", "s.t", "here", "bad_record", "torn", "0"),
    )
    assert expected == run(shown, "SHOW ERRORS").rows
    assert expected == run(shown, "SHOW ERRORS FOR DATA_SOURCE flow ON TABLE s.t").rows
    assert () == run(shown, "SHOW ERRORS FOR DATA_SOURCE flow ON TABLE s.u").rows


def test_a_missing_table(connection: NoteCopy, shown: ControlService) -> None:
    """STATUS and ERRORS show a missing table at its source, and not at other sources of the job."""
    run(shown, "CREATE DATA_SOURCE flow ON TABLE s.v WITH k AND job = 'other'")
    row = Seen(split="~table s.v", state=Observed.FAILED, generation=1, reason="config: no s.v")
    connection.store("other").see([row])

    (found,) = run(shown, "SHOW STATUS FOR DATA_SOURCE flow ON TABLE s.v").rows
    assert ("FAILED", "config: no s.v") == (found[4], found[-1])
    (found,) = run(shown, "SHOW STATUS FOR DATA_SOURCE flow ON TABLE s.u").rows
    assert ("UNASSIGNED", "not_started") == (found[4], found[-1].partition(":")[0])
    failed = ("other", "", "failed", "", "", "config", "no s.v", "")
    assert (failed,) == run(shown, "SHOW ERRORS FOR DATA_SOURCE flow ON TABLE s.v").rows
    assert failed in run(shown, "SHOW ERRORS").rows


def test_a_part_that_cannot_be_read(connection: NoteCopy, shown: ControlService) -> None:
    """STATUS and ERRORS name the part, since when, and what follows, while its worker lives."""
    store = connection.store("j")
    why = "agent_unavailable: the log of node2 cannot be read; QUORUM can be met without it"
    row = Seen(split="~unread node2", state=Observed.STALLED, generation=1, worker="w", reason=why)
    store.see([row, replace(row, split="~unread node3", worker="dead")])
    since = time_text(store.seen()["~unread node2"].since_ms)
    reported = f"since {since} the log of node2 cannot be read; QUORUM can be met without it"
    unread = ("j", "", "unread", "", "node2", "agent_unavailable", reported, "")

    assert unread == run(shown, "SHOW ERRORS FOR DATA_SOURCE flow ON TABLE s.t").rows[1]
    assert [unread] == [row for row in run(shown, "SHOW ERRORS").rows if row[2] == "unread"]
    store.release("w", "a", 1)
    store.claim("w", store.leases(), 1_000)
    (found,) = run(shown, "SHOW STATUS FOR DATA_SOURCE flow ON TABLE s.t").rows
    assert ("RUNNING", f"agent_unavailable: {reported}") == (found[4], found[-1])
    store.dismiss("w")
    (found,) = run(shown, "SHOW STATUS FOR DATA_SOURCE flow ON TABLE s.t").rows
    assert ("UNASSIGNED", "not_started") == (found[4], found[-1].partition(":")[0])
