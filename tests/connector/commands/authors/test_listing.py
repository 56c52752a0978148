"""`headrace plugins` lists all, and says what is wrong with those that cannot be loaded."""

from pathlib import Path

import pytest

from headrace.connector.commands.authors.listing import main
from headrace.plugins.discovery import entries, names
from helpers.jobs import toys

GROUPS = ["sources", "sinks", "codecs", "transforms", "predicates", "schema_stores"]
GROUPS += ["claim_stores", "stores", "secrets", "commands"]


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Every plugin of every group has a line."""
    assert 0 == main([])
    listed = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert sum(len(entries(group)) for group in GROUPS) == len(listed)
    assert set(names("transforms")) == {row[1] for row in listed if row[0] == "transform"}


def test_broken_ones_have_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plugin that cannot be imported is listed with its error, and the status is 1."""
    toys.install(tmp_path, monkeypatch)

    assert 1 == main([])
    out = capsys.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(out) if " torn-sink " in line)
    assert "error [environment]: no_such_module:TornSink: plugin 'torn-sink' cannot" in out[at + 1]
    assert out[at + 2].strip().startswith("hint: mend the plugin")
