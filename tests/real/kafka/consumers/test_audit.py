"""The audit app, a process of its own, with a real broker: what it counted, beside the books."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from headrace.connector.streams.audit.books import JobBooks
from headrace.connector.streams.audit.comparing import audited
from headrace.connector.streams.changes import ChangeReader
from helpers.jobs.committed import committed
from helpers.jobs.deliveries import consume
from helpers.servers.pages import page_of
from helpers.servers.ports import free_ports
from helpers.streams.published import published, records, send
from real.servers.process import ServerProcess

pytestmark = pytest.mark.real


# Takes no second change before a file says so, and writes what is not processed.
PROGRAM = """
import asyncio, json, os, sys
from faust.types import TP
from headrace.connector.streams.changes import ChangeReader
from headrace.connector.streams.kit import Consumer

job, topic = sys.argv.pop(1), sys.argv.pop(1)
consumer = Consumer(ChangeReader.of_job(job))
app = consumer.app("audit-slow", datadir="faust")

@app.agent(consumer.topic(app, "any.table"))
async def take(stream):
    async for change in consumer.changes(stream):
        while not os.path.exists("go"):
            await asyncio.sleep(0.05)

@app.timer(0.5)
async def look():
    ends = dict(await app.consumer.highwaters(*(TP(topic, number) for number in range(3))))
    with open("behind.jsonl", "a") as out:
        print(json.dumps(list(await consumer.behind(app, ends))), file=out)

app.main()
"""


class App:
    """The app on a topic, in its folder."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        """Do not start it yet."""
        folder.mkdir()
        (self.port,) = free_ports(1)
        self._folder = folder
        options = ["--seconds", "1", "--port", str(self.port), "--store", "rocksdb"]
        module = [sys.executable, "-m", "headrace.connector.streams.audit"]
        self._command = [*module, *arguments, *options]

    def start(self) -> ServerProcess:
        """Start it."""
        return ServerProcess(self._command, self._folder)

    def page(self) -> Mapping[str, Any]:
        """Return the last audit; nothing before it, and while the page does not answer."""
        return page_of(self.port, "/audit/") or {}

    def figures(self) -> tuple[int, ...]:
        """Return what is counted, missing, repeated and unexpected; nothing if not all was read."""
        page = self.page()
        if not page or page["unread"] or page["is_moving"]:
            return ()
        names = ("found", "missing", "repeated", "unexpected")
        return tuple(sum(table[name] for table in page["tables"].values()) for name in names)

    def log(self) -> str:
        """Return all that it printed."""
        return (self._folder / "output.log").read_text()


def test_it_follows_a_topic(tmp_path: Path, bootstrap_servers: str) -> None:
    """It warns of a lost change until it comes; a repeat is a repeat."""
    job = published(tmp_path / "job", bootstrap_servers, "audit-whole")
    first, *others = consume(bootstrap_servers, "audit-whole")
    send(bootstrap_servers, "audit-copy", others)
    where = ["--bootstrap-servers", bootstrap_servers, "--topic", "audit-copy"]
    state = ["--state", str(job.parent / "state.db"), "--job-name", "published-audit-whole"]
    app = App(tmp_path / "app", [*where, *state])
    count = len(records())
    process = app.start()
    try:
        process.wait_until(lambda: app.figures() == (count - 1, 1, 0, 0))
        assert "audit_differs" in app.log()
        assert "audit_agrees" not in app.log()
        send(bootstrap_servers, "audit-copy", [first, others[-1]])
        process.wait_until(lambda: app.figures() == (count, 0, 1, 0))
        process.wait_until(lambda: "audit_agrees" in app.log())
    finally:
        process.stop()


def abort(servers: str, topic: str, messages: Sequence[Message]) -> None:
    """Send messages to their partitions again, in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"abort-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for each in messages:
        producer.produce(
            topic, each.value(), each.key(), each.partition() or 0, headers=each.headers()
        )
    assert 0 == producer.flush(60)
    producer.abort_transaction(60)


def test_transactions_have_ends(tmp_path: Path, bootstrap_servers: str) -> None:
    """Of a job that writes exactly once all is read, though marks are the last; and it is kept.

    Faust sees what was aborted, too: to the app it is a repeat, as it is sent again.
    """
    once = {"exactly.once": "true"}
    job = published(tmp_path / "job", bootstrap_servers, "audit-once", **once)
    app = App(tmp_path / "app", [str(job)])
    process = app.start()
    try:
        process.wait_until(lambda: bool(app.figures()))
        assert (len(records()), 0, 0, 0) == app.figures()
        process.stop()
        process = app.start()
        process.wait_until(lambda: bool(app.figures()))
        assert (len(records()), 0, 0, 0) == app.figures()
        abort(bootstrap_servers, "audit-once", committed(bootstrap_servers, "audit-once")[:3])
        process.wait_until(lambda: app.figures() == (len(records()), 0, 3, 0))
        assert "audit_differs" not in app.log()
    finally:
        process.stop()
    once_read = audited(ChangeReader.of_job(job), JobBooks.of_job(job).read)
    assert 0 == sum(table.repeated for table in once_read.tables.values())


def test_what_was_fetched_and_not_processed_is_behind(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """While an app takes no change, no partition is read to its end, though all were fetched."""
    job = published(tmp_path, bootstrap_servers, "audit-slow", **{"exactly.once": "true"})
    (tmp_path / "program.py").write_text(PROGRAM)
    worker = ["worker", "--loglevel", "warn", "--without-web"]
    command = [sys.executable, "program.py", str(job), "audit-slow", *worker]

    def behind() -> list[Any]:
        path = tmp_path / "behind.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    process = ServerProcess(command, tmp_path)
    try:
        process.wait_until(lambda: len(behind()) > 1)
        assert [[f"audit-slow:{number}" for number in range(3)]] * 2 == behind()[:2]
        (tmp_path / "go").touch()
        process.wait_until(lambda: not behind()[-1])
    finally:
        process.stop()
