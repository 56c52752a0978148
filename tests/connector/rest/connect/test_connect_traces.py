"""Why something stops, as Connect's clients see it: RUNNING, with a trace."""

from contextlib import closing
from typing import Any

from msgspec.structs import replace

from headrace.connector.control.showing import show
from headrace.connector.foundation.processes import this_process
from headrace.connector.foundation.states import Observed
from headrace.connector.language.statements import Subject
from headrace.connector.stores import Seen
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.target_state import Failure
from helpers.servers.rest_server import RestWorker

STALL = "12 s without progress: the sink reported no result"
UNREAD = "agent_unavailable: the log of node2 cannot be read; QUORUM can be met without it"


def shown(served: RestWorker, *rows: Seen) -> Any:  # noqa: ANN401 (JSON)
    """Return the status of a source of two splits after its worker reported *rows*."""
    config = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t", "sink": "k"}
    served.commands.create_source({"name": "o", **config})
    with closing(open_notes(served.folder / "state.db")) as connection:
        store, owner = connection.store("k"), this_process()
        store.job_key()
        store.register(["a", "b"])
        store.enroll(owner)
        store.claim(owner.worker, store.leases(), 60_000)
        store.see([replace(row, worker=owner.worker) for row in rows])
        answer = served.client("GET", "/connectors/o/status").json
        task = served.client("GET", "/connectors/o/tasks/1/status").json
    assert task == answer["tasks"][1]
    return answer


def test_a_task_that_is_stalled(served: RestWorker) -> None:
    """It is RUNNING, as Connect knows no other word, and its trace says what holds it up."""
    answer = shown(
        served,
        Seen(split="a", state=Observed.RUNNING, generation=1),
        Seen(split="b", state=Observed.STALLED, generation=1, reason=STALL),
    )

    assert [("RUNNING", None), ("RUNNING", STALL)] == [
        (task["state"], task.get("trace")) for task in answer["tasks"]
    ]
    assert ("RUNNING", False) == (answer["connector"]["state"], "trace" in answer["connector"])


def test_a_part_that_cannot_be_read(served: RestWorker) -> None:
    """The connector is RUNNING, and its trace names the part, since when, and what follows."""
    row = Seen(split="~unread node2", state=Observed.STALLED, generation=1, reason=UNREAD)
    connector = shown(served, row)["connector"]

    assert "RUNNING" == connector["state"]
    code, _, rest = UNREAD.partition(": ")
    assert connector["trace"].startswith(f"{code}: since 20")
    assert connector["trace"].endswith(f"Z {rest}")


def test_a_source_that_failed_alone(served: RestWorker) -> None:
    """The connector is FAILED with code, time, reason and hint until someone restarts it."""
    assert "RUNNING" == shown(served)["connector"]["state"]
    with closing(open_notes(served.folder / "state.db")) as connection, connection.transaction():
        failure = Failure("schema_incompatible: table s.t: not after that one", "allow it", 0)
        connection.board.fail("o", failure)

    connector = served.client("GET", "/connectors/o/status").json["connector"]
    said = "schema_incompatible: since 1970-01-01T00:00:00Z table s.t: not after that one; allow it"
    assert ("FAILED", said) == (connector["state"], connector["trace"])
    with closing(open_notes(served.folder / "state.db")) as connection:
        (error,) = show(connection, served.commands, Subject.ERRORS).rows
    assert ("failed", "schema_incompatible") == (error[2], error[5])

    query = "includeTasks=true&onlyFailed=true"
    restarted = served.client("POST", f"/connectors/o/restart?{query}").json["connector"]
    assert "RESTARTING" == restarted["state"]
    assert "RUNNING" == served.client("GET", "/connectors/o/status").json["connector"]["state"]
