"""A node that knows users: a superuser, one with the permission CDC, one without; and the shell."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from real.servers.cassandra import CURRENT, Cassandra, Release
from real.stream import HEADRACE

SUPER, WITH, WITHOUT = "cassandra", "alice", "bob"
NO_CDC: Final = "User bob has no CDC permission on <headrace> or any of its parents"
NO_SELECT: Final = "User alice has no SELECT permission on <table shop.secrets>"

_LOGIN_SECONDS_MAX: Final = 120  # The first superuser is made a while after the node answers.
_MADE: Final = """
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


@contextlib.contextmanager
def guarded_node(folder: Path) -> Iterator[Cassandra]:
    """Run a node with authentication and authorisation, whose users' passwords are their names."""
    settings = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    release = Release(CURRENT.version, CURRENT.java, settings)
    with Cassandra(folder / "node1", release=release) as node:
        deadline = time.monotonic() + _LOGIN_SECONDS_MAX
        while said_by(node, folder, SUPER, "SHOW HOST").returncode:
            assert deadline > time.monotonic()
        assert "" == said_by(node, folder, SUPER, _MADE).stderr
        yield node


def said_by(
    node: Cassandra, folder: Path, user: str, text: str, *, rest: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Execute *text* in the shell as *user*: beside the state file in *folder*, or at *rest*."""
    credentials = folder / "credentials"
    credentials.touch(mode=0o600)
    credentials.write_text(f"[plain_text_auth]\nusername = {user}\npassword = {user}\n")
    place = ["--rest", rest] if rest else ["--state", str(folder / "state.db")]
    host = [] if rest else [node.host, str(node.port)]
    return subprocess.run(  # noqa: S603 (headrace itself)
        [*HEADRACE, "shell", *place, "--credentials", str(credentials), *host, "-e", text],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"HOME": str(folder), "PATH": os.environ["PATH"]},
    )
