"""A file of users is taken as a whole, or every mistake in it is named, and no value repeated."""

from pathlib import Path

import argon2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.control.access.permission import Role
from headrace.connector.rest.users import FILE_BYTES_MAX, NAME_CHARS_MAX, read_users
from headrace.plugins import ConfigError

HASH = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("x")
ANN = f"{{password: '{HASH}', role: admin}}"
SECTIONS = "expected the sections"


def test_reads_users_and_certificates(tmp_path: Path) -> None:
    """Each has a role; a section that does not exist is None."""
    path = tmp_path / "users.yaml"
    path.write_text(f"users: {{ann: {ANN}}}\ncertificates: {{cn: viewer}}\n")
    users, certificates = read_users(path)

    assert users is not None
    assert ({"ann": Role.ADMIN}, {"cn": Role.VIEWER}) == (
        {name: user.role for name, user in users.items()},
        certificates,
    )
    assert HASH == users["ann"].password
    path.write_text("certificates: {cn: viewer}")
    assert (None, {"cn": Role.VIEWER}) == read_users(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", SECTIONS),
        ("null", SECTIONS),
        ("[1]", SECTIONS),
        ("canary", SECTIONS),
        ("3", SECTIONS),
        ("others: {canary: canary}", "others: is not an option"),
        ("a: [", "users.yaml:1:5: "),
        ("users: \0", "is not YAML"),
        ("a: " + "x" * FILE_BYTES_MAX, "has more than 1048576 bytes"),
        ("[" * 1_000, "nested too deep"),
        ("users: [canary]", "users: expected a mapping, found a secret"),
        ("users: canary", "users: expected a mapping"),
        ("users: 3", "users: expected a mapping"),
        ("users: true", "users: expected a mapping"),
        ("users:", "users: expected a mapping"),
        ("users: {}", "names no user"),
        ("users: {}\ncertificates: {}", "names no user"),
        ("certificates: [canary]", "certificates: expected a mapping"),
        ("users: {ann: canary}", "users.ann: expected a mapping"),
        ("users: {ann: [canary]}", "users.ann: expected a mapping"),
        ("users: {ann: 3}", "users.ann: expected a mapping"),
        ("users: {ann: }", "users.ann: expected a mapping"),
        ("users: {ann: {}}", "users.ann.password: is required; users.ann.role: is required"),
        ("users: {a: {password: plain-canary, role: admin}}", "is not an argon2 hash"),
        ("users: {a: {password: $argon2canary, role: admin}}", "is not an argon2 hash"),
        ("users: {a: {password: [canary], role: admin}}", "a.password: expected a text"),
        (f"users: {{a: {{password: '{HASH}', role: king}}}}", "a.role: expected one of"),
        (f"users: {{a: {{password: '{HASH}', role: [admin]}}}}", "a.role: expected a text"),
        (f"users: {{a: {{password: '{HASH}', rôle: canary}}}}", "did you mean role?"),
        ("certificates: {cn: king}", "expected one of viewer, operator, admin"),
        ("certificates: {cn: [admin]}", "certificates.cn.role: expected a text"),
        (f"users:\n  ann: {ANN}\n  ann: {ANN}", "users.yaml:3:3: ann is given twice"),
        ("users: {}\nusers: {}", "users is given twice"),
        (f"users: {{1: {ANN}}}", "a key must be text, found 1"),
        ("users: {[canary]: 1}", "a key must be text, found a sequence"),
        ("users: {{a: canary}: 1}", "a key must be text, found a mapping"),
        (f"users: {{'a:b': {ANN}}}", "users.a:b: is not a name"),
        (f"users: {{'': {ANN}}}", "users.: is not a name"),
        (f'users: {{"a\\u0007b": {ANN}}}', "is not a name"),
        (f"users: {{{'x' * (NAME_CHARS_MAX + 1)}: {ANN}}}", "is not a name"),
        ("users: !!python/object:os.system canary", "constructor for the tag"),
        ("users: !canary x", "constructor for the tag"),
        ("users: !!timestamp canary", "found a value that is not a valid timestamp"),
        ("users: &a {x: *a}", "users.x.x: is not an option"),
        ("a: &a [x,x]\nusers: *a", "users: expected a mapping, found a secret"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    """What is wrong is named with its place."""
    (tmp_path / "users.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_users(tmp_path / "users.yaml")

    shown = str(caught.value).replace(str(tmp_path), "")
    assert message in shown
    assert "canary" not in shown


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that does not exist, or is a folder, is named."""
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="cannot be read: ") as caught:
            read_users(path)
        assert str(path) == caught.value.place


@given(content=st.binary(max_size=200) | st.text(alphabet="users: {}[]'\"&*!-\n\tab1", max_size=60))
def test_any_content(tmp_path_factory: pytest.TempPathFactory, content: bytes | str) -> None:
    """With any content a file is read or refused by name."""
    path = tmp_path_factory.getbasetemp() / "any-users.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        is_reported = any(read_users(path))
    except ConfigError as error:
        is_reported = error.place.startswith(str(path)) and bool(error.problems)
    assert is_reported
