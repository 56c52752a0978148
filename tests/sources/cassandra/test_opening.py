"""Compressed and encrypted segments of real nodes, opened by `inspect` and by the source."""

import json
from pathlib import Path

import pytest

from corpora import recording
from headrace.sources.cassandra.inspect import main

KEYS = ("--keystore", "--keystore-password", "${env:KSPW}")


def folder(name: str) -> Path:
    """Return a part of the recordings of wrapped segments."""
    return recording("wrapped") / name


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the password of the key store by a variable."""
    monkeypatch.setenv("KSPW", "cassandra")


def inspected(
    capsys: pytest.CaptureFixture[str], path: Path, *options: str, status: int = 0
) -> list[dict[str, object]]:
    """Return what `headrace inspect` prints of a recording."""
    schema = str(path.parent / "schema.cql")
    assert status == main([str(path), "--schema", schema, *options])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def oracle(name: str, file: str = "oracle.jsonl") -> list[dict[str, object]]:
    """Return what Cassandra's own reader made of it."""
    return [json.loads(line) for line in (folder(name) / file).read_text().splitlines()]


def key_options(store: Path) -> list[str]:
    """Return the options that name the recordings' key store."""
    return ["--keystore", str(store), "--keystore-password", "${env:KSPW}"]


@pytest.mark.parametrize("name", ["lz4", "snappy", "deflate", "zstd", "aes-4.0", "aes-5.0"])
def test_wrapped_logs_read_as_cassandra_reads_them(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every mutation is what the node's own reader made of it, at the same position."""
    keys = key_options(folder("aes128.jceks")) if name.startswith("aes") else []
    found = inspected(capsys, folder(name) / "segments", "--form", "mutations", *keys)

    assert oracle(name) == found
    assert 30 < len(found)


@pytest.mark.parametrize(
    ("state", "expected"), [("killed", "killed"), ("restarted", "stopped"), ("stopped", "stopped")]
)
def test_a_crash_leaves_what_cassandra_replays(
    state: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed while it wrote, after its restart, and stopped: offsets of indexes do not mislead."""
    found = inspected(capsys, folder("crash") / state, "--form", "mutations")

    assert oracle("crash", f"oracle-{expected}.jsonl") == found
