"""`headrace dlq` shows dead letters as text, JSON or hex digits, never as Python literals."""

import json
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main

JOB = """\
job: lines
state: state.db
source: {plugin: files, path: in.jsonl}
sink: {plugin: files, path: out.jsonl}
"""


def shown(folder: Path, line: bytes, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run a job whose only line cannot be delivered, and return what `dlq show` has of it."""
    (folder / "job.yaml").write_text(JOB)
    (folder / "in.jsonl").write_bytes(line)
    job = str(folder / "job.yaml")
    assert 0 == main(["--log-level", "error", "run", "--until-idle", job])
    capsys.readouterr()
    assert 0 == main(["dlq", "list", "--json", job])
    number = json.loads(capsys.readouterr().out)["number"]
    assert 0 == main(["dlq", "show", job, str(number)])
    lines = capsys.readouterr().out.splitlines()
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize(
    ("line", "content"),
    [
        (b"not json\n", r'"not json\n"'),
        (b"caf\xc3\xa9\t1\n", r'"café\t1\n"'),
        (b"\xff\x00\n", "0xff000a"),
        (b"\x1b[2J\n", "0x1b5b324a0a"),
    ],
)
def test_content_is_text_or_hex_digits(
    tmp_path: Path, line: bytes, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line that is not JSON is shown as it is in the file, not as a Python literal."""
    found = shown(tmp_path, line, capsys)

    assert content == found["content"]
    assert ("false", str(len(line))) == (found["in_topic"], found["bytes"])


def test_a_long_content_is_cut_between_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Omitted bytes are counted; a cut inside a character does not make hex digits of the rest."""
    found = shown(tmp_path, b"x" + "é".encode() * 4_000 + b"\n", capsys)

    assert found["content"].startswith("xéé")
    assert found["content"].endswith("é … and 3906 bytes")
