"""Who may do what in the shell is what Cassandra says of who is logged in, in its words."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.cassandra import CURRENT, Cassandra, Release, cassandra

pytestmark = pytest.mark.real

CODE = "import sys; from headrace.connector.shell.main import main; sys.exit(main(sys.argv[1:]))"
LOGIN_SECONDS_MAX = 120  # The first superuser is made a while after the node answers.
MADE = """
CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TABLE shop.orders (id int PRIMARY KEY) WITH cdc = true;
CREATE TABLE shop.secrets (id int PRIMARY KEY) WITH cdc = true;
CREATE KEYSPACE sidecar_internal
    WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TABLE sidecar_internal.role_permissions_v1 (
    role text, resource text, permissions set<text>, PRIMARY KEY (role, resource));
INSERT INTO sidecar_internal.role_permissions_v1 (role, resource, permissions)
    VALUES ('streams', 'cluster', {'CDC'});
CREATE ROLE streams;
CREATE ROLE alice WITH PASSWORD = 'alice' AND LOGIN = true;
CREATE ROLE bob WITH PASSWORD = 'bob' AND LOGIN = true;
GRANT streams TO alice;
GRANT SELECT ON sidecar_internal.role_permissions_v1 TO alice;
GRANT SELECT ON sidecar_internal.role_permissions_v1 TO bob;
GRANT SELECT ON shop.orders TO alice;
"""
SINK = "CREATE DATA_SINK k WITH 'null://';"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """Run a node that knows users."""
    settings = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    release = Release(CURRENT.version, CURRENT.java, settings)
    with cassandra(tmp_path_factory.mktemp("guarded") / "node1", release=release) as node:
        folder = tmp_path_factory.mktemp("admin")
        deadline = time.monotonic() + LOGIN_SECONDS_MAX
        while said(node, folder, "cassandra", "SHOW HOST").returncode:
            assert deadline > time.monotonic()
        assert "" == said(node, folder, "cassandra", MADE).stderr
        yield node


def said(node: Cassandra, folder: Path, user: str, text: str) -> "subprocess.CompletedProcess[str]":
    """Execute *text* as *user*, whose password is like the name."""
    credentials = folder / "credentials"
    credentials.touch(mode=0o600)
    credentials.write_text(f"[plain_text_auth]\nusername = {user}\npassword = {user}\n")
    place = ["--state", str(folder / "state.db"), "--credentials", str(credentials), node.host]
    return subprocess.run(  # noqa: S603 (headrace itself)
        [sys.executable, "-c", CODE, *place, str(node.port), "-e", text],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"HOME": str(folder)},
    )


def test_who_may(guarded: Cassandra, tmp_path: Path) -> None:
    """A superuser may all; CDC lets one change, and SELECT take a table; others are refused."""

    def run(user: str, text: str) -> str:
        done = said(guarded, tmp_path, user, text)
        assert (2 if done.stderr else 0) == done.returncode
        return done.stderr

    no_cdc = "User bob has no CDC permission on <headrace> or any of its parents"
    assert f"Unauthorized: {no_cdc}" in run("bob", SINK)
    assert "" == run("alice", SINK)
    assert no_cdc in run("bob", "DROP DATA_SINK k;")
    assert "" == run("alice", "CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH k;")
    no_select = "User alice has no SELECT permission on <table shop.secrets>"
    assert no_select in run("alice", "CREATE DATA_SOURCE cdc ON TABLE shop.secrets WITH k;")
    assert "" == run("cassandra", "CREATE DATA_SOURCE cdc ON TABLE shop.secrets WITH k;")
    assert no_cdc in run("bob", "PAUSE DATA_SOURCE cdc ON TABLE shop.orders;")
    assert "" == run("bob", "DESC DATA_SOURCES; SHOW STATUS;")
    assert "" == run("alice", "PAUSE DATA_SOURCE cdc ON TABLE shop.orders;")
    assert "" == run("cassandra", "DROP DATA_SOURCE cdc ON TABLE shop.secrets;")


def test_wrong_password(guarded: Cassandra, tmp_path: Path) -> None:
    """Who is not known there does not get in."""
    done = said(guarded, tmp_path, "mallory", "DESC DATA_SINKS")

    assert 1 == done.returncode or "cql_unreachable" in done.stderr
    assert "AuthenticationFailed" in done.stderr
