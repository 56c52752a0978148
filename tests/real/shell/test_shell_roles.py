"""Who may do what in the shell is what Cassandra says of who is logged in, in its words."""

from pathlib import Path

import pytest

from real.servers.cassandra import Cassandra
from real.shell.guarded import said_by

pytestmark = pytest.mark.real

SINK = "CREATE DATA_SINK k WITH 'null://';"


def test_who_may(guarded: Cassandra, tmp_path: Path) -> None:
    """A superuser may all; CDC lets one change, and SELECT take a table; others are refused."""

    def run(user: str, text: str) -> str:
        done = said_by(guarded, tmp_path, user, text)
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
    done = said_by(guarded, tmp_path, "mallory", "DESC DATA_SINKS")

    assert 1 == done.returncode or "cql_unreachable" in done.stderr
    assert "AuthenticationFailed" in done.stderr
