"""Faust apps of the consumer kit, each a process of its own, with a real broker."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs forget them.
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headrace.connector.streams.changes import Change
from headrace.plugins.records.codecs import CHUNK_ID_HEADER
from helpers.jobs.deliveries import consume
from helpers.servers.registries import registry
from helpers.settings.native_modules import ROOT
from helpers.streams.claim_box import install
from helpers.streams.published import facts_of, facts_of_records, published, send
from real.servers.kafka import RELEASE_3, Kafka
from real.servers.process import EndedError, ServerProcess

pytestmark = pytest.mark.real

CHANGE = re.compile(r"(?:INSERT|UPDATE|DELETE|DELETE_RANGE|DELETE_PARTITION)\b")
QUIX = "quixstreams==3.28.1"
USER, PASSWORD = "reader", "reader-secret"
# Writes a line for each change.
PROGRAM = """
import json, sys
from headrace.connector.streams.changes import ChangeReader
from headrace.connector.streams.kit import Consumer

given = json.loads(sys.argv.pop(1))
reader = ChangeReader.of(given["options"], state=given.get("state"))
consumer = Consumer(reader, wait_seconds_max=5)
app = consumer.app(given["name"], datadir="faust", broker_commit_interval=0.2)

@app.agent(consumer.topic(app, "any.table"))
async def show(stream):
    async for change in consumer.changes(stream):
        fact = [change.table, change.operation, change.timestamp_us, sorted(change.written)]
        with open("facts.jsonl", "a") as out:
            print(json.dumps(fact), file=out)

app.main()
"""


class App:
    """The program above, in its folder."""

    def __init__(self, folder: Path, name: str, options: dict[str, str], **given: str) -> None:
        """Do not start it yet."""
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        self._folder = folder
        text = json.dumps({"name": name, "options": options, **given})
        self._command = [
            sys.executable,
            "program.py",
            text,
            "worker",
            "--loglevel",
            "warn",
            "--without-web",
        ]

    def start(self) -> ServerProcess:
        """Start it."""
        return ServerProcess(self._command, self._folder)

    def run_until(self, expected: Sequence[object]) -> None:
        """Run it until it wrote as many facts as are *expected*, and stop it."""
        process = self.start()
        try:
            process.wait_until(lambda: len(self.facts()) >= len(expected))
        finally:
            process.stop()

    def facts(self) -> list[tuple[str, str, int, frozenset[str]]]:
        """Return what it wrote since the first start."""
        path = self._folder / "facts.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = map(json.loads, lines)
        return sorted((table, name, at, frozenset(written)) for table, name, at, written in found)

    def log(self) -> str:
        """Return all that it printed."""
        return (self._folder / "output.log").read_text()


def test_a_job_with_a_registry_and_parts(tmp_path: Path, bootstrap_servers: str) -> None:
    """Each change comes whole, by the registry's numbers, without the job's state file."""
    sink = {"large.policy": "chunk", "large.bytes": "1000", "schema.framing": "confluent"}
    with registry(tmp_path / "registry.db") as url:
        sink |= {"schema.store": "registry", "schema.store.url": url}
        published(tmp_path / "job", bootstrap_servers, "kit-parts", **sink)
        app = App(
            tmp_path / "app", "kit-parts-app", {**where(bootstrap_servers, "kit-parts"), **sink}
        )
        app.run_until(expected := facts_of_records())

    assert expected == app.facts()


def test_messages_in_json(tmp_path: Path, bootstrap_servers: str) -> None:
    """They are the same changes, by the schemas of the job's state file."""
    job = published(tmp_path / "job", bootstrap_servers, "kit-json", format="json")
    options = {**where(bootstrap_servers, "kit-json"), "format": "json"}
    app = App(tmp_path / "app", "kit-json-app", options, state=str(job.parent / "state.db"))
    app.run_until(expected := facts_of_records())

    assert expected == app.facts()


def test_claims_of_a_plugin(
    tmp_path: Path, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large value that a plugin's claim store keeps is whole in an app of its own."""
    install(tmp_path / "plugin", monkeypatch)
    claims = {"large.store": "box", "large.store.file": str(tmp_path / "values")}
    large = {"large.policy": "claim-check", "large.bytes": "1000"}
    job = published(tmp_path / "job", bootstrap_servers, "kit-box", **large, **claims)
    options = {**where(bootstrap_servers, "kit-box"), **claims}
    app = App(tmp_path / "app", "kit-box-app", options, state=str(job.parent / "state.db"))
    app.run_until(expected := facts_of_records())

    assert expected == app.facts()


def blocks() -> list[str]:
    """Return the programs in Python of the page about consumers."""
    text = (ROOT / "docs" / "consumers.md").read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_programs_of_the_page(
    tmp_path: Path, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's app prints each change; its plain consumer yields, commits and audits each."""
    with_faust, plain, audit, *_ = blocks()
    sink = {"large.policy": "chunk", "large.bytes": "1000"}
    published(tmp_path, bootstrap_servers, "page", **sink)
    (tmp_path / "orders.py").write_text(with_faust)
    command = [sys.executable, "-m", "faust", "-A", "orders", "worker", "-l", "info"]
    expected = facts_of_records()
    process = ServerProcess([*command, "--without-web"], tmp_path)
    log = tmp_path / "output.log"
    try:
        process.wait_until(lambda: len(CHANGE.findall(log.read_text())) >= len(expected))
    finally:
        process.stop()

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(plain, "consumers.md", "exec"), names)  # noqa: S102 (what the page says to run)
    yielded, found = names["changes"], []

    def changes() -> Iterator[Change]:
        for change in yielded():
            found.append(facts_of(change))
            yield change

    names["changes"] = changes
    exec(compile(audit, "consumers.md", "exec"), names)  # noqa: S102 (the same)
    assert expected == sorted(found)
    assert [] == list(names["audit"].differences())
    assert len(expected) == sum(table.found for table in names["audit"].tables.values())
    names["consumer"].close()
    group = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "orders", "log_level": 0})
    places = group.committed([TopicPartition("page", number) for number in range(3)], timeout=30)
    ends = [group.get_watermark_offsets(place, timeout=30) for place in places]
    group.close()
    assert [end for _, end in ends] == [place.offset for place in places]


def test_the_program_for_quix_streams(tmp_path: Path, bootstrap_servers: str) -> None:
    """In an environment without headrace, it prints each change of a job with a registry."""
    venv, uv = tmp_path / "venv", Path(sys.executable).with_name("uv")
    commands = (["venv", "-p", sys.executable, venv], ["pip", "install", "-p", str(venv), QUIX])
    for command in commands:
        subprocess.run([uv, *map(str, command), "-q"], check=True, timeout=300)  # noqa: S603 (ours)
    sink = {"schema.framing": "confluent", "schema.store": "registry"}
    with registry(tmp_path / "registry.db") as url:
        sink |= {"schema.store.url": url}
        published(tmp_path / "job", bootstrap_servers, "cdc.shop.orders", **sink)
        program = blocks()[-1].replace("http://registry:8081", url)
        program = program.replace("broker1:9092", bootstrap_servers)
        (tmp_path / "orders.py").write_text(program)
        log, expected = tmp_path / "output.log", [name for _, name, _, _ in facts_of_records()]
        process = ServerProcess([str(venv / "bin" / "python"), "-u", "orders.py"], tmp_path)
        try:
            process.wait_until(lambda: len(CHANGE.findall(log.read_text())) >= len(expected))
        finally:
            process.stop()

    assert sorted(expected) == sorted(CHANGE.findall(log.read_text()))


def where(servers: str, topic: str) -> dict[str, str]:
    """Return the options that every reader needs."""
    return {"bootstrap.servers": servers, "topic": topic}


def committed(servers: str, group: str, topic: str) -> int:
    """Return the offset that a group has committed of the only partition; -1 if none."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    return max(found.offset, -1)


def test_a_part_is_read_again_until_its_value_is_whole(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """An app that ends between two parts leaves them to the next one: nothing is missing."""
    sink = {"large.policy": "chunk", "large.bytes": "1000"}
    job = published(tmp_path / "job", bootstrap_servers, "kit-cut", **sink)
    sent = consume(bootstrap_servers, "kit-cut")
    parts = [m for m in sent if CHUNK_ID_HEADER in dict(m.headers() or ())]
    name = dict(parts[0].headers() or ())[CHUNK_ID_HEADER]
    parts = [m for m in parts if dict(m.headers() or ())[CHUNK_ID_HEADER] == name]
    plain = next(m for m in sent if CHUNK_ID_HEADER not in dict(m.headers() or ()))
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic("kit-cut-2", 1, 1)])["kit-cut-2"].result(30)
    options = {**where(bootstrap_servers, "kit-cut-2"), **sink}
    app = App(tmp_path / "app", "kit-cut-app", options, state=str(job.parent / "state.db"))
    send(bootstrap_servers, "kit-cut-2", [plain, *parts[:-1]])
    process = app.start()
    try:
        process.wait_until(lambda: committed(bootstrap_servers, "kit-cut-app", "kit-cut-2") >= 1)
    finally:
        process.stop()
    assert 1 == committed(bootstrap_servers, "kit-cut-app", "kit-cut-2")
    send(bootstrap_servers, "kit-cut-2", [parts[-1], plain])
    end = 1 + len(parts) + 1
    process = app.start()
    try:
        process.wait_until(lambda: committed(bootstrap_servers, "kit-cut-app", "kit-cut-2") == end)
    finally:
        process.stop()

    assert 3 == len(app.facts())
    assert 2 == len(set(app.facts()))


def test_what_cannot_be_read_ends_the_app(tmp_path: Path, bootstrap_servers: str) -> None:
    """A message whose schema does not come is not left out, and what follows it is not read."""
    job = published(tmp_path / "job", bootstrap_servers, "kit-bad")
    sent = consume(bootstrap_servers, "kit-bad")
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic("kit-bad-2", 1, 1)])["kit-bad-2"].result(30)
    headers: Any = [("schemaId", b"x" * 16)]
    producer.produce("kit-bad-2", b"row-value", b"k", partition=0, headers=headers)
    producer.flush(30)
    send(bootstrap_servers, "kit-bad-2", sent[:3])
    options = where(bootstrap_servers, "kit-bad-2")
    app = App(tmp_path / "app", "kit-bad-app", options, state=str(job.parent / "state.db"))
    process = app.start()
    try:
        with pytest.raises(EndedError):
            process.wait_until(lambda: bool(app.facts()))
    finally:
        process.stop()

    assert [] == app.facts()
    assert f"no schema has the id {headers[0][1].hex()}" in app.log()
    assert -1 == committed(bootstrap_servers, "kit-bad-app", "kit-bad-2")
    assert "row-value" not in app.log()


def test_a_broker_with_users_and_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink's options of SASL and TLS are enough; the log has no password."""
    monkeypatch.setenv("HEADRACE_SECRET_READER", PASSWORD)
    users = {USER: PASSWORD}
    with Kafka(tmp_path / "kafka", release=RELEASE_3, users=users) as kafka:
        job = published(tmp_path / "job", kafka.internal_servers, "kit-users")
        admin = AdminClient({"bootstrap.servers": kafka.internal_servers})
        for future in admin.create_acls(
            [
                AclBinding(
                    *(kind, "*", ResourcePatternType.LITERAL, f"User:{USER}", "*"),
                    *(AclOperation.ALL, AclPermissionType.ALLOW),
                )
                for kind in (ResourceType.TOPIC, ResourceType.GROUP)
            ]
        ).values():
            future.result(30)
        client = kafka.client(USER, "${env:HEADRACE_SECRET_READER}")
        state = str(job.parent / "state.db")
        app = App(tmp_path / "app", "kit-users-app", {"topic": "kit-users", **client}, state=state)
        app.run_until(expected := facts_of_records())

    assert expected == app.facts()
    assert PASSWORD not in app.log()
