"""Every attempt adds a line to the audit log, without secrets; a changed line is detected."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.control.access.audit import (
    FIRST,
    NEWEST_BYTES_MAX,
    NEWEST_MAX,
    Audit,
    broken_lines,
    newest_lines,
)
from headrace.connector.control.access.permission import CALLER, Caller, Role, UnauthorizedError
from headrace.connector.control.commands import Commands
from headrace.connector.control.errors import NotFoundError
from headrace.connector.language.statements import AlterSink, CreateSink
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import ConfigError


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of an audit."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """Return where the state file of the tests is audited."""
    return tmp_path / "state.db.audit"


def test_attempts(connection: NoteCopy, audit: Path) -> None:
    """Attempts that succeeded, failed or were denied have lines, with hashes of the change."""
    commands = Commands(connection)
    commands.create_sink(CreateSink(name="k", uri="bus://a?password=${env:CANARY}"))
    commands.alter_sink(AlterSink(name="k", options=(("line", "2"),)))
    with pytest.raises(ConfigError):
        commands.create_sink(CreateSink(name="z", uri="bus://a?password=canary-1"))
    with pytest.raises(NotFoundError):
        commands.pause("none")
    token = CALLER.set(Caller(name="alice", role=Role.VIEWER, door="rest", address="10.0.0.1"))
    with pytest.raises(UnauthorizedError):
        commands.drop_sink("k")
    CALLER.reset(token)
    commands.drop_sink("k")
    found = lines(audit)

    assert [
        ("create_sink", "k", "done", ""),
        ("alter_sink", "k", "done", ""),
        ("create_sink", "z", "refused", "config"),
        ("pause", "none", "refused", "not_found"),
        ("drop_sink", "k", "refused", "unauthorized"),
        ("drop_sink", "k", "done", ""),
    ] == [(line["verb"], line["object"], line["outcome"], line["reason"]) for line in found]
    assert ("alice", "10.0.0.1", "rest", ["viewer"]) == tuple(
        found[4][key] for key in ("actor", "address", "door", "roles")
    )
    assert "" == found[0]["before"]
    assert found[0]["after"] == found[1]["before"] != found[1]["after"]
    assert (found[1]["after"], "") == (found[5]["before"], found[5]["after"])
    assert "canary-1" not in audit.read_text()
    assert 0o600 == audit.stat().st_mode & 0o777
    assert 6 == len({line["execution_id"] for line in found})


def test_chain(connection: NoteCopy, audit: Path) -> None:
    """A line that was changed, removed or inserted is detected."""
    commands = Commands(connection)
    for name in "abcd":
        commands.create_sink(CreateSink(name=name, uri="bus://a"))
    text = audit.read_bytes().splitlines(keepends=True)
    assert FIRST == lines(audit)[0]["previous"]
    assert [] == list(broken_lines(audit))
    for changed, broken in [
        ([text[0], text[1].replace(b'"b"', b'"x"'), *text[2:]], [2]),
        ([text[0], *text[2:]], [2]),
        ([text[1], text[0], *text[2:]], [1, 2, 3]),
        ([*text[:2], b"{}\n", *text[2:]], [3, 4]),
        ([*text[:2], b"not json\n", *text[2:]], [3, 4]),
    ]:
        audit.write_bytes(b"".join(changed))
        assert broken == list(broken_lines(audit))


def test_the_newest_lines(audit: Path) -> None:
    """They are read from the end of the file alone; half of a line is none."""
    assert [] == newest_lines(audit)
    audit.write_bytes(b"".join(b'{"n": %d}\n' % n for n in range(NEWEST_MAX + 50)) + b'{"n": ')
    assert list(range(NEWEST_MAX + 49, 49, -1)) == [line["n"] for line in newest_lines(audit)]
    long = b'{"n": 1, "text": "' + b"x" * NEWEST_BYTES_MAX + b'"}\n'
    audit.write_bytes(long + b'{"n": 2}\n[3]\n')
    assert [{"n": 2}] == newest_lines(audit)


def test_many_at_once(tmp_path: Path) -> None:
    """Lines of several processes and threads form one chain of hashes."""
    path = tmp_path / "audit"

    def write() -> None:
        for _ in range(20):
            Audit(path).note(Caller(), "v", "o", before="", after="", error=None)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (80, []) == (len(lines(path)), list(broken_lines(path)))


def test_no_audit_no_change(connection: NoteCopy, audit: Path) -> None:
    """A change that cannot be audited is not made."""
    audit.mkdir()
    commands = Commands(connection)
    with pytest.raises(StoreUnavailableError, match="audit"):
        commands.create_sink(CreateSink(name="k", uri="bus://a"))

    assert [] == commands.sinks()
