"""`headrace hash-password` makes the hashes that a file of users contains."""

import io

import argon2
import pytest

from headrace.connector.commands.access.hash_password import main
from headrace.plugins import ConfigError


def test_hash(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the first line of the input is hashed."""
    monkeypatch.setattr("sys.stdin", io.StringIO("pass word\nmore\n"))
    assert 0 == main([])

    assert argon2.PasswordHasher().verify(capsys.readouterr().out.strip(), "pass word")


def test_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty password is refused."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    with pytest.raises(ConfigError, match="expected a password"):
        main([])
