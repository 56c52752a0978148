"""The page about reading logs is true: its program runs on a recorded log."""

import re
from pathlib import Path

import pytest

from corpora import recording

PAGE = Path(__file__).parents[3] / "docs" / "reading-logs.md"


def test_the_pages_program_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program prints every change of the log it is given."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in program.splitlines() if line and "import" not in line]) <= 10
    folder = recording("5.0-ops")
    (tmp_path / "cdc_raw").symlink_to(folder / "segments")
    (tmp_path / "schema.cql").symlink_to(folder / "schema.cql")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, str(PAGE), "exec"), {})  # noqa: S102 (what the page tells to run)
    printed = capsys.readouterr().out.splitlines()
    assert 945 == len(printed)
    assert printed[0].startswith("INSERT ")
