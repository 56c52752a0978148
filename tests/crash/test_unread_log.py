"""An agent that is killed while a job reads it: every place where one looks reports it."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_script
from headrace.connector.rest.server import RestServer
from headrace.plugins.testing.doubles import context
from helpers.jobs.children import RUN, stop, until
from helpers.jobs.shells import lookout_on
from helpers.recordings.corpora import recording
from helpers.servers.ports import free_ports
from helpers.servers.rest_server import Client, serving

NODES = ("node1", "node2", "node3")
TABLE = "ring_cobalt_ticket.a_frost_stock"
NAME = f"cdc.{TABLE}"
WORKER = """\
state: state.db
source:
  plugin: cassandra
  schema: {schema}
  consistency: QUORUM
  splits: 2
  nodes: {{{nodes}}}
runtime: {{tick_min_ms: 5, commit_max_seconds: 0.02}}
"""


@contextlib.contextmanager
def started(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start headrace, and kill what is left of it in the end."""
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 (headrace itself)
            [sys.executable, "-c", RUN, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=output,
            env=os.environ,
        )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def rows(service: ControlService, text: str) -> list[dict[str, str]]:
    """Return the rows of an answer, by column."""
    (parsed,) = parse_script(text)
    table = service.execute(parsed.statement)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_an_agent_that_is_killed_is_seen_everywhere(tmp_path: Path) -> None:
    """STATUS, ERRORS, LAG, REST and the toolbar name the node; healthy nodes' rows stay in LAG.

    When it is back, nothing of that is left.
    """
    ring, ports = tmp_path / "ring", free_ports(len(NODES))
    shutil.copytree(recording("5.0-ring"), ring)  # Agents write into it.
    listens = {n: f"127.0.0.1:{port}" for n, port in zip(NODES, ports, strict=True)}
    nodes = ", ".join(f"{n}: {{url: 'http://{at}'}}" for n, at in listens.items())
    job = tmp_path / "worker.yaml"
    job.write_text(WORKER.format(schema=ring / "schema.cql", nodes=nodes))
    state, log = tmp_path / "state.db", tmp_path / "log"

    def agent(node: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        folder = str(ring / "segments" / node)
        return started("agent", "--cdc-raw", folder, "--listen", listens[node], log=log)

    with contextlib.ExitStack() as stack:
        service = stack.enter_context(contextlib.closing(ControlService.open(state)))
        for text in (
            f"CREATE DATA_SINK f WITH 'file://{tmp_path}/out.jsonl'",
            f"CREATE DATA_SOURCE cdc ON TABLE {TABLE} WITH f",
        ):
            assert [] == rows(service, text)
        agents = {node: stack.enter_context(agent(node)) for node in NODES}
        until(lambda: log.read_text().count("agent_started") == len(NODES), "an agent is missing")
        child = stack.enter_context(started("run", str(job), "--job", "f", log=log))

        def status() -> dict[str, str]:
            return rows(service, "SHOW STATUS")[0]

        until(lambda: status()["splits"] == "2/2", "it never ran")
        until(lambda: bool(rows(service, "SHOW OFFSETS")), "it never committed")
        assert not status()["reason"]
        agents["node2"].kill()
        until(lambda: bool(status()["reason"]), "nobody reported of the killed agent")

        found = status()
        assert ("RUNNING", "2/2") == (found["state"], found["splits"])
        assert found["reason"].startswith("agent_unavailable: since 20")
        for word in ("the log of node2", "QUORUM can be met without it", "nothing expires before"):
            assert word in found["reason"]
        (error,) = rows(service, "SHOW ERRORS")
        assert ("unread", "node2", "agent_unavailable") == (
            *(error["kind"], error["place"], error["code"]),
        )
        lag = {row["partition"]: row for row in rows(service, "SHOW LAG")}
        assert {f"node={node}" for node in NODES} == lag.keys()
        assert "agent_unavailable" in lag["node=node2"]["problem"]
        assert [("", True)] * 2 == [
            (row["problem"], row["behind_bytes"].isdigit())
            for partition, row in lag.items()
            if partition != "node=node2"
        ]
        assert "cannot be read: node=node2" in lookout_on(state).lag()
        with serving(RestServer(state, log=context().log)) as address:
            shown = Client(address.port)("GET", f"/connectors/{NAME}/status").json
        # The first look after the kill sees a connection that is reset, later ones a refused one.
        assert found["reason"].partition("(")[0] == shown["connector"]["trace"].partition("(")[0]
        assert "RUNNING" == shown["connector"]["state"]
        assert {"RUNNING"} == {task["state"] for task in shown["tasks"]}

        stack.enter_context(agent("node2"))
        until(lambda: not status()["reason"], "it is not reported that the agent is back")
        assert [] == rows(service, "SHOW ERRORS")
        assert "cannot be read" not in lookout_on(state).lag()
        assert 0 == stop(child)
