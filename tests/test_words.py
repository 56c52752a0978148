"""`make check` finds words that the prose of the project does not use."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.settings.native_modules import ROOT

LACKS = '\'lacks\': write "is missing", "has no …"'


def check(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Return the exit status of the check in *folder*, and the lines that it printed."""
    done = subprocess.run(  # noqa: S603 (our own)
        [sys.executable, str(ROOT / ".ci" / "words"), *arguments],
        capture_output=True,
        check=False,
        cwd=folder,
        text=True,
        timeout=600,
    )
    assert "" == done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("page.md", "one\n\nA row lacks a cell.\n", [3]),
        ("page.md", "A row\nlacks `lacks` and [lacks](lacks.md)\n", [2, 2]),
        ("page.md", "`lacks`, `is\nno`\n", []),
        ("page.md", "```\nIt lacks.\n```\nIt lacks.\n", [4]),
        ("room/module.py", '"""It lacks."""\n', [1]),
        ("room/module.py", 'x = 1\n\ndef f():\n    """It.\n\n    It lacks *lacks*."""\n', [6]),
        ("room/module.py", "lacks = 1  # It does.\n# It lacks\n", [2]),
        ("room/module.py", 'raise E("it " f"{lacks} lacks {x}")\n', [1]),
        ("room/module.py", 'KIND = "lacks"\nraise E("it lacks")\n', [2]),
        ("room/module.pxd", "cdef int lacks  # It lacks.\n", [1]),
        ("room/module.pyx", "cdef int lacks  # It lacks.\n", [1]),
        ("tests/test_it.py", 'def f():\n    """It lacks."""\n    x = "lacks"  # lacks\n', [2, 3]),
        ("room/native.h", "int lacks; // a\n/* It\n lacks. */\n", [3]),
        ("setup.cfg", "lacks = 1\n# lacks\n", [2]),
    ],
)
def test_a_word_is_found(tmp_path: Path, name: str, text: str, lines: list[int]) -> None:
    """A word in a page, comment, docstring or message is found, code in these is not."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    status, printed = check(tmp_path, name)

    assert [f"{name}:{line}: {LACKS}" for line in lines] == printed[:-1]
    assert f"words: {len(lines)} to replace in 1 files" == printed[-1]
    assert bool(lines) == status


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x is\nno file", 1),
        ("there is no file; if there are no files", 0),
        ("it is no longer used", 0),
        ("it is no more", 1),
        ("whoever comes", 1),
        ("in whatever order", 1),
        ("no such file or directory, no such table", 0),
        ("no such key; there is no such table", 2),
        ("what it was told.", 1),
        ("it goes on", 1),
        ("a log, begun anew", 2),
        ("records set aside", 1),
        ("a parted job", 1),
        ("seats and texts", 2),
    ],
)
def test_words_of_two_lines(tmp_path: Path, text: str, count: int) -> None:
    """A phrase is found over the end of a line; what only looks like one is not."""
    (tmp_path / "page.md").write_text(text)

    assert count == len(check(tmp_path, "page.md")[1]) - 1


def test_successive_comments_are_one_text(tmp_path: Path) -> None:
    """A phrase is found over two lines of one comment, not over code between."""
    (tmp_path / "a.py").write_text("# It is\n# no file.\nx = 1  # It is\ny = 2\n# no file\n")

    assert ["a.py:1: 'is no '"] == [
        line.partition(": write")[0] for line in check(tmp_path, "a.py")[1][:-1]
    ]
