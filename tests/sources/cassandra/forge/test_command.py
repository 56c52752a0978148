"""`headrace forge` writes what `headrace inspect` reads."""

import json
from pathlib import Path

import pytest

from headrace.sources.cassandra.forge.command import main
from headrace.sources.cassandra.inspect import command
from helpers.logs.sample_log import SCHEMA
from helpers.settings.native_modules import ROOT

SCRIPT = """
- {insert: shop.users, values: {id: 7, seq: 1, name: Ann, tags: [a, b], attrs: {k: 7}}, ttl: 60}
- {delete: shop.users, key: {id: 7}, range: {start: {values: [1]}, end: null}}
"""


def test_round_trip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script's values come out as changes, and the mutations are a script themselves."""
    (tmp_path / "schema.cql").write_text(SCHEMA.format(static=""))
    (tmp_path / "script.yaml").write_text(SCRIPT)
    common = ["--schema", str(tmp_path / "schema.cql"), "--out"]

    assert 0 == main([str(tmp_path / "script.yaml"), *common, str(tmp_path / "a")])
    path = Path(capsys.readouterr().out.strip())
    assert 0 == command.main([str(path)])
    insert, deletion = map(json.loads, capsys.readouterr().out.splitlines())
    assert ["INSERT", "DELETE_RANGE"] == [insert["op"], deletion["op"]]
    assert {"k": 7} == insert["columns"]["attrs"]["value"]
    assert 60 == insert["ttl"]

    assert 0 == command.main([str(path), "--form", "mutations"])
    (tmp_path / "again.jsonl").write_text(capsys.readouterr().out)
    assert 0 == main([str(tmp_path / "again.jsonl"), *common, str(tmp_path / "b")])
    again = Path(capsys.readouterr().out.strip())
    assert path.read_bytes() == again.read_bytes()


def test_the_script_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What docs/forge.md shows makes two segments; `inspect` reports the damage to one."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "forge.md").read_text()
    for name, language in (("schema.cql", "cql"), ("script.yaml", "yaml")):
        _, _, rest = page.partition(f"```{language}\n")
        Path(name).write_text(rest.partition("```")[0])

    assert 0 == main(["script.yaml", "--schema", "schema.cql", "--out", "cdc_raw"])
    assert 2 == len(capsys.readouterr().out.splitlines())
    assert 1 == command.main(["cdc_raw", "--schema", "schema.cql"])
    shown = capsys.readouterr()
    assert ["INSERT", "UPDATE", "DELETE_RANGE", "INSERT", "INSERT", "INSERT"] == [
        json.loads(line)["op"] for line in shown.out.splitlines()
    ]
    assert "corrupt" in shown.err


def test_mistakes_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with the status of a mistake in what was given."""
    (tmp_path / "schema.cql").write_text(SCHEMA.format(static=""))
    (tmp_path / "bad.yaml").write_text("- {insert: shop.none}")
    (tmp_path / "file").touch()
    common = ["--schema", str(tmp_path / "schema.cql"), "--out", str(tmp_path / "file" / "x")]
    for script, message in (
        ("gone", "forge_script: gone: cannot be read"),
        (str(tmp_path / "bad.yaml"), f"forge_script: {tmp_path / 'bad.yaml'}: step 1: shop.none"),
    ):
        assert 2 == main([script, *common])
        assert capsys.readouterr().err.startswith(f"error [{message.replace(': ', ']: ', 1)}")
    (tmp_path / "good.yaml").write_text("- segment:")
    assert 2 == main([str(tmp_path / "good.yaml"), *common])
    assert "cannot be written" in capsys.readouterr().err
