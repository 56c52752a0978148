"""What the pages show works."""

import re
from pathlib import Path

import pytest

from headrace.connector.job import read_job
from hot import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of *page* in *language*."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_readme_job(tmp_path: Path) -> None:
    """The README's job file is one that `headrace run` takes."""
    (text,) = blocks(ROOT / "README.md", "yaml")
    (tmp_path / "job.yaml").write_text(text)
    job = read_job(tmp_path / "job.yaml")

    assert "orders" == job.name
    assert ("CassandraSource", "FileSink") == (job.source.__name__, job.sink.__name__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks(page: Path) -> None:
    """Python on a page is Python."""
    for block in blocks(page, "python"):
        assert compile(block, page.name, "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    """A relative link leads to a file of this project."""
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())
    paths = [(page.parent / target).resolve() for target in targets]

    assert [] == [str(p) for p in paths if not (p.exists() and p.is_relative_to(ROOT.resolve()))]


def test_invariants_have_tests() -> None:
    """A test that a page names exists."""
    text = (ROOT / "docs" / "invariants.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
    missing = [name for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]

    assert named
    assert [] == missing


def test_make_targets() -> None:
    """A command that a page names is a target of the Makefile, and each target has its help."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    helped = set(re.findall(r"^([a-z-]+):.*  ## \S", makefile, re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"\bmake ([a-z-]+)", _code(page))}

    assert targets == helped
    assert targets >= named


def _code(page: Path) -> str:
    """Return what stands in *page* as code, inline or indented."""
    text = page.read_text()
    return "\n".join(re.findall(r"`[^`\n]+`|^ {4}.*", text, re.MULTILINE))
