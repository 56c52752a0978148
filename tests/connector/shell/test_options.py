"""Flags win over the environment, and that over cqlsh's file."""

from pathlib import Path

import pytest

from headrace.connector.language.errors import ShellError
from headrace.connector.shell.options import ShellOptions, read_options

CQLSHRC = """
[authentication]
username = rc-user
password = rc-password
keyspace = rc_ks
[connection]
hostname = rc-host
port = 1
timeout = 7
request_timeout = 8
[ui]
color = off
[history]
disabled = true
"""


def write(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def read(home: Path, *argv: str, **environment: str) -> ShellOptions:
    """Read the options of someone with this home."""
    return read_options(argv, environment, home)


def test_defaults(tmp_path: Path) -> None:
    """Without anything there is no host, and what is left is as in cqlsh."""
    found = read(tmp_path)

    assert ("", 9042, "", None) == (found.host, found.port, found.username, found.password)
    assert (5.0, 10.0, None) == (found.connect_seconds, found.request_seconds, found.tls)
    assert tmp_path / ".local" / "state" / "headrace" / "history" == found.history
    assert found.colour is None


def test_cqlshrc(tmp_path: Path) -> None:
    """What cqlsh's file says of connection, user and colours holds."""
    write(tmp_path / ".cassandra" / "cqlshrc", CQLSHRC)
    found = read(tmp_path)

    assert ("rc-host", 1, "rc-user", "rc-password", "rc_ks") == (
        *(found.host, found.port, found.username, found.password),
        found.keyspace,
    )
    assert (7.0, 8.0) == (found.connect_seconds, found.request_seconds)
    assert found.colour is False
    assert found.history is None


def test_precedence(tmp_path: Path) -> None:
    """A flag wins over a variable, and a variable over the file."""
    write(tmp_path / ".cassandra" / "cqlshrc", CQLSHRC)

    assert "env-host" == read(tmp_path, CQLSH_HOST="env-host").host
    found = read(
        *(tmp_path, "flag-host", "2", "-u", "me", "-k", "ks", "-C"), CQLSH_HOST="e", CQLSH_PORT="3"
    )
    assert ("flag-host", 2, "me", "ks") == (found.host, found.port, found.username, found.keyspace)
    assert found.colour is True


def test_credentials(tmp_path: Path) -> None:
    """The credentials file gives user and password, if no one else can read it."""
    path = tmp_path / ".cassandra" / "credentials"
    write(path, "[plain_text_auth]\nusername = u\npassword = p%\n")
    found = read(tmp_path)
    assert ("u", "p%") == (found.username, found.password)

    path.chmod(0o644)
    with pytest.raises(ShellError, match="chmod 600"):
        read(tmp_path)
    with pytest.raises(ShellError, match="does not exist"):
        read(tmp_path, "--credentials", str(tmp_path / "none"))


def test_password_on_the_command_line(tmp_path: Path) -> None:
    """A password that others can see is used, with a warning, and never shown."""
    found = read(tmp_path, "-u", "me", "-p", "canary")

    assert "canary" == found.password
    assert "seen by others" in found.warnings[0]
    assert "canary" not in repr(found) + found.warnings[0]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"TERM": "xterm"}, None)],
)
def test_colour(tmp_path: Path, environment: dict[str, str], *, expected: bool | None) -> None:
    """NO_COLOR and a dumb terminal have no colours."""
    assert expected is read(tmp_path, **environment).colour


def test_ours(tmp_path: Path) -> None:
    """What is ours stands in a file of its own."""
    write(tmp_path / "xdg" / "headrace" / "headracerc", "[shell]\nstate = /s.db\nformat = csv\n")
    found = read(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "xdg"))

    assert ("/s.db", "csv") == (found.state, found.format)
    assert "/t.db" == read(tmp_path, HEADRACE_STATE="/t.db").state


def test_history(tmp_path: Path) -> None:
    """CQL_HISTORY moves the history, and a flag leaves it out."""
    assert Path("/h") == read(tmp_path, CQL_HISTORY="/h").history
    assert read(tmp_path, "--disable-history", CQL_HISTORY="/h").history is None


@pytest.mark.parametrize(
    ("text", "argv", "message"),
    [
        ("no section", (), "cqlshrc cannot be read"),
        ("\xff", (), "cqlshrc cannot be read"),
        ("[connection]\nport = x", (), "port is a number"),
        ("", ("--connect-timeout", "soon"), "takes seconds"),
        ("", ("h", "port"), "port is a number"),
        ("[ssl]\ncertfile = /no/such", ("--ssl",), "certificates of TLS cannot be used"),
    ],
)
def test_refused(tmp_path: Path, text: str, argv: tuple[str, ...], message: str) -> None:
    """What cannot be is a named error."""
    path = tmp_path / ".cassandra" / "cqlshrc"
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(ShellError, match=message):
        read(tmp_path, *argv)


def test_tls(tmp_path: Path) -> None:
    """TLS checks the node's certificate unless that is turned off."""
    checked, unchecked = read(tmp_path, "--ssl"), read(tmp_path, "--ssl", SSL_VALIDATE="false")

    assert checked.tls is not None
    assert unchecked.tls is not None
    assert (2, 0) == (checked.tls.verify_mode, unchecked.tls.verify_mode)
