"""Why something stands still, as Connect's clients see it: RUNNING, with a trace."""

from contextlib import closing
from dataclasses import replace
from typing import Any

from headrace.connector.runtime.processes import this_process
from headrace.connector.states import Observed
from headrace.connector.stores import Seen
from headrace.connector.stores.notes import job_store
from headrace.connector.stores.sqlite_file import connect
from rest_server import RestWorker

STALL = "12 s without progress: the sink gave no verdict"
UNREAD = "agent_unavailable: the log of node2 cannot be read; QUORUM can be met without it"


def shown(served: RestWorker, *rows: Seen) -> Any:  # noqa: ANN401 (JSON)
    """Return the status of a source of two splits after its worker told *rows*."""
    config = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t", "sink": "k"}
    served.commands.create_source({"name": "o", **config})
    with closing(connect(served.folder / "state.db")) as connection:
        store, owner = job_store(connection, "k"), this_process()
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
