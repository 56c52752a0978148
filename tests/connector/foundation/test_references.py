"""A reference is resolved where it is used, and what cannot be resolved names no secret."""

from pathlib import Path

import pytest

from headrace.connector.foundation.references import (
    FILE_BYTES_MAX,
    NAMES_VARIABLE,
    ROOTS_VARIABLE,
    resolved,
)
from headrace.plugins import SecretUnavailableError, is_reference


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with secrets in every form."""
    monkeypatch.setenv("CANARY", "from env")
    (tmp_path / "p.env").write_text("# note\n! note\n\na = b = c \npassword=from file\n")
    (tmp_path / "p.json").write_text('{"password": "from json", "n": 1}')
    (tmp_path / "list.json").write_text('["canary"]')
    (tmp_path / "torn.json").write_text('{"canary": ')
    (tmp_path / "bytes").write_bytes(b"canary \xff")
    (tmp_path / "whole").write_text("from whole\r\n")
    (tmp_path / "fits").write_bytes(b"x" * FILE_BYTES_MAX)
    (tmp_path / "large").write_bytes(b"x" * (FILE_BYTES_MAX + 1))
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("${env:CANARY}", "from env"),
        ("${file:{}/p.env:password}", "from file"),
        ("${file:{}/p.env:a}", "b = c"),
        ("${file:{}/p.json:password}", "from json"),
        ("${file:{}/whole}", "from whole"),
        ("${dir:{}:whole}", "from whole"),
        ("${file:{}/fits}", "x" * FILE_BYTES_MAX),
    ],
)
def test_resolved(secrets: Path, reference: str, expected: str) -> None:
    """A reference stands for a variable, a key in a file, a file, or a file in a directory."""
    reference = reference.replace("{}", str(secrets))

    assert is_reference(reference)
    assert {"password": expected} == resolved({"password": reference}, section="sink")


@pytest.mark.parametrize("value", ["plain", "", "x${env:CANARY}", "${vault:x}", "${env:}", 7, None])
def test_no_reference(value: object) -> None:
    """Everything else is left as it is."""
    assert {"a": value} == resolved({"a": value}, section="sink")


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("${env:HEADRACE_NO_SUCH_VARIABLE}", "the variable is not set"),
        ("${file:{}/none:a}", "cannot be read: No such file"),
        ("${file:{}:a}", "cannot be read: Is a directory"),
        ("${file:p.env:a}", "the path is not absolute"),
        ("${file:{}/p.env:canary}", "the file does not have this key"),
        ("${file:{}/p.json:n}", "the file does not have this key"),
        ("${file:{}/list.json:a}", "is not a JSON object"),
        ("${file:{}/torn.json:a}", "is not a JSON object"),
        ("${file:{}/bytes:a}", "is not UTF-8"),
        ("${file:{}/large:a}", "has more than 1048576 bytes"),
        ("${dir:{}}", "KEY is a file's name"),
        ("${dir:{}:../x}", "KEY is a file's name"),
        ("${dir:{}:..}", "KEY is a file's name"),
    ],
)
def test_unavailable(secrets: Path, reference: str, why: str) -> None:
    """What a reference does not lead to is the environment's fault, and names the option."""
    with pytest.raises(SecretUnavailableError, match=why) as caught:
        resolved({"password": reference.replace("{}", str(secrets))}, section="sink")

    assert ("sink.password", 3) == (caught.value.place, caught.value.exit_status)
    assert "from " not in caught.value.message


@pytest.mark.parametrize(
    ("reference", "allowed"),
    [
        ("${{file:{}/in/p:a}}", True),
        ("${{dir:{}/in:p}}", True),
        ("${{file:{}/out/p:a}}", False),
        ("${{file:{}/in/../out/p:a}}", False),
        ("${{file:{}/in/link:a}}", False),
        ("${{dir:{}/out:p}}", False),
        ("${{file:{}/inner/p:a}}", False),
    ],
)
def test_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, *, allowed: bool
) -> None:
    """What statements refer to lies below a root, also behind links and dots."""
    for folder in ("in", "out", "inner"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p").write_text("a=canary\n")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out" / "p")
    monkeypatch.setenv(ROOTS_VARIABLE, f"/nowhere:{tmp_path}/in")
    options = {"password": reference.format(tmp_path)}

    assert "canary" in resolved(options, section="sink")["password"]
    if allowed:
        assert "canary" in resolved(options, section="sink", confined=True)["password"]
        return
    with pytest.raises(SecretUnavailableError, match="outside the folders for secrets") as caught:
        resolved(options, section="sink", confined=True)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "name", "allowed"),
    [
        (None, "HEADRACE_SECRET_BUS", True),
        (None, "AWS_SECRET_ACCESS_KEY", False),
        (None, "HEADRACE_SECRETS_ROOTS", False),
        (None, "headrace_secret_bus", False),
        ("BUS:KAFKA_*", "BUS", True),
        ("BUS:KAFKA_*", "KAFKA_PASSWORD", True),
        ("BUS:KAFKA_*", "BUS_2", False),
        ("BUS:KAFKA_*", "HEADRACE_SECRET_BUS", False),
        ("", "BUS", False),
        ("*", "ANY", True),
    ],
)
def test_names(
    monkeypatch: pytest.MonkeyPatch, names: str | None, name: str, *, allowed: bool
) -> None:
    """Statements refer to the variables that are meant for them, job files to any."""
    monkeypatch.setenv(name, "canary")
    monkeypatch.delenv(NAMES_VARIABLE, raising=False)
    if names is not None:
        monkeypatch.setenv(NAMES_VARIABLE, names)
    options = {"password": f"${{env:{name}}}"}

    assert {"password": "canary"} == resolved(options, section="sink")
    if allowed:
        assert {"password": "canary"} == resolved(options, section="sink", confined=True)
        return
    with pytest.raises(SecretUnavailableError, match="may not refer to") as caught:
        resolved(options, section="sink", confined=True)
    assert "sink.password" == caught.value.place
    assert "canary" not in str(caught.value)
