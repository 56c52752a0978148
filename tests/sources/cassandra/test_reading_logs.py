"""The page about reading logs is true: its program runs on a recorded log."""

import re
from pathlib import Path

import pytest

from helpers.recordings.corpora import recording

PAGE = Path(__file__).parents[3] / "docs" / "reading-logs.md"


def test_the_pages_programs_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs print every change of the log they are given, and the rows it leaves."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for program in programs:
        assert len([line for line in program.splitlines() if line and "import" not in line]) <= 10
    folder = recording("5.0-ops")
    (tmp_path / "cdc_raw").symlink_to(folder / "segments")
    (tmp_path / "schema.cql").symlink_to(folder / "schema.cql")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = []
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), names)  # noqa: S102 (what the page tells to run)
        printed.append(capsys.readouterr().out.splitlines())
    changes, rows = printed
    assert 945 + 48 == len(changes)
    assert changes[0].startswith("INSERT ")
    assert 60 < len(rows) < 993
    assert all("{" in row for row in rows)
