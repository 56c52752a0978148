"""The shell with a real node and a real broker: CQL goes there, statements stay here."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from cassandra.cluster import Session
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs forget it.

from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real

CODE = (
    "import sys; from headrace.connector.commands.cli import main;"
    " sys.exit(main(['shell', *sys.argv[1:]]))"
)
SCHEMA = """
CREATE KEYSPACE shelled WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
USE shelled;
CREATE TYPE place (city text, "No" int);
CREATE TABLE orders (
    id int, at timestamp, total decimal, tags set<text>, lines map<text, int>, whole boolean,
    rate double, key blob, spot frozen<place>, pair frozen<tuple<int, text>>, note text static,
    PRIMARY KEY (id, at)
);
"""
ROW = """
INSERT INTO orders (id, at, total, tags, lines, whole, rate, key, spot, pair, note) VALUES (
    1, '2026-01-31 12:00:00.25+0000', 12.50, {'b', 'a;'}, {'x': 1}, true, 0.1, 0xCAFE,
    {city: 'Rom', "No": 7}, (1, 'it''s'), 'ab'
);
"""


ALL = "SELECT * FROM orders;"


@dataclass
class Shell:
    """Runs the shell on one state file, connected to one node."""

    folder: Path
    node: Cassandra

    def run(self, text: str, *flags: str) -> "subprocess.CompletedProcess[str]":
        """Execute *text* as `-e` does."""
        place = ["--state", str(self.folder / "state.db"), self.node.host, str(self.node.port)]
        return subprocess.run(  # noqa: S603 (headrace itself)
            [sys.executable, "-c", CODE, *place, "--format", "table", *flags, "-e", text],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={"HOME": str(self.folder), "COLUMNS": "200"},
        )

    def said(self, text: str, *flags: str) -> str:
        """Return what *text* answers; nothing may go wrong."""
        done = self.run(text, *flags)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout


@pytest.fixture
def shell(tmp_path: Path, node: Cassandra, session: Session) -> Shell:
    """Return a shell and an empty keyspace."""
    session.execute("DROP KEYSPACE IF EXISTS shelled")
    made = Shell(tmp_path, node)
    made.said(SCHEMA)
    return made


def test_one_script(shell: Shell) -> None:
    """CQL and our statements stand in one script, and share the current keyspace."""
    said = shell.said(
        "USE shelled; ALTER TABLE orders WITH cdc = true; CREATE DATA_SINK k WITH 'null://';"
        "CREATE DATA_SOURCE cdc ON TABLE orders WITH k; DESC DATA_SOURCE cdc ON TABLE orders;"
        "SELECT cdc FROM system_schema.tables WHERE keyspace_name = 'shelled';"
    )

    assert "CREATE DATA_SOURCE cdc ON TABLE shelled.orders WITH k;" in said
    assert "True" in said


def test_values(shell: Shell) -> None:
    """Values look as in cqlsh."""
    said = shell.said(f"{ROW}\n{ALL}\nEXPAND ON\n{ALL}", "-k", "shelled")
    for value in (
        "2026-01-31 12:00:00.250000+0000", "12.50", "{'a;', 'b'}", "{'x': 1}", "True", "0.1",
        "0xcafe", "{city: 'Rom', No: 7}", "(1, 'it''s')", "ab",
    ):  # fmt: skip
        assert value in said
    assert 2 == said.count("(1 rows)")
    assert "@ Row 1" in said


def test_describe(shell: Shell) -> None:
    """What Cassandra describes is shown as statements."""
    assert "CREATE TABLE shelled.orders (" in shell.said("DESCRIBE TABLE shelled.orders")
    assert "shelled" in shell.said("DESC KEYSPACES")


def test_commands(shell: Shell) -> None:
    """Consistency, tracing and versions are those of the connection."""
    said = shell.said(
        "CONSISTENCY; CONSISTENCY QUORUM; SELECT * FROM orders; SHOW VERSION; SHOW HOST;"
        "TRACING ON; SELECT * FROM orders",
        *("-k", "shelled"),
    )

    assert "Current consistency level is ONE." in said
    assert "Consistency level set to QUORUM." in said
    assert " | Native protocol v" in said
    assert f" at {shell.node.host}:{shell.node.port}" in said
    assert "source_elapsed" in said


def test_errors(shell: Shell) -> None:
    """What Cassandra refuses is reported in its words, and ends nothing."""
    done = shell.run("SELECT * FROM shelled.none; SELEC 1; SHOW VERSION")

    assert 2 == done.returncode
    assert "<stdin>:1:InvalidRequest: " in done.stderr
    assert "SyntaxException" in done.stderr
    assert "[headrace" in done.stdout


def test_pages(shell: Shell) -> None:
    """A long answer is returned whole without paging."""
    row = "INSERT INTO orders (id, at) VALUES (%d, 0);"
    rows = [row % number for number in range(250)]
    said = shell.said("".join([*rows, "SELECT id FROM orders"]), "-k", "shelled", "--format", "csv")

    assert 1 == said.splitlines().count("id")
    assert 250 == sum(line.strip().isdigit() for line in said.splitlines())


def test_validate(shell: Shell, bootstrap_servers: str) -> None:
    """A real cluster says whether topic, rights and sizes are fit."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    name = f"small-{uuid4().hex}"
    small = NewTopic(name, num_partitions=2, config={"max.message.bytes": "1000"})
    for made in admin.create_topics([small]).values():
        made.result(30)
    said = shell.said(
        f"CREATE DATA_SINK small WITH 'kafka://{bootstrap_servers}?topic={name}';"
        f"CREATE DATA_SINK none WITH 'kafka://{bootstrap_servers}?topic=none';"
        "VALIDATE DATA_SINK small; VALIDATE DATA_SINK none;",
        *("--format", "csv"),
    )

    assert f"topic,passed,{name} has 2 partitions," in said
    assert f'size,failed,"{name} takes 1000 bytes, a message has at most 1000000",' in said
    assert f"rights,passed,this user may write topic {name}," in said
    assert "topic,passed,none is missing; the brokers create it on first use," in said
