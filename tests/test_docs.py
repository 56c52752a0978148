"""What the pages show works."""

import re
from pathlib import Path

import pytest

from headrace.connector.control.jobs import read_job
from headrace.connector.foundation.job_file import JobFile, RuntimeConfig
from headrace.plugins.config.options import declared_options
from headrace.plugins.discovery import load, names
from helpers.settings.filled import filled
from helpers.settings.native_modules import ROOT

ROOMS = ("connector", "plugins", "sinks", "sources")
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


WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
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


def table_problems(text: str) -> list[str]:
    """Return the lines of a page on which a table would not be rendered as one."""
    problems = []
    wanted = 0  # Cells in a row of the table that the line before belongs to.
    lines = re.sub(r"^```.*?^```", _emptied, text, flags=re.DOTALL | re.MULTILINE).split("\n")
    lines.append("")
    for number, line in enumerate(lines, start=1):
        cells = len(re.findall(r"(?<!\\)\|", line.strip())) - 1
        if not line.startswith("|"):
            wanted = 0
        elif not line.rstrip().endswith("|"):
            problems.append(f"{number}: does not end with |")
        elif wanted:
            if cells != wanted:
                problems.append(f"{number}: {cells} cells of {wanted}")
        elif re.fullmatch(r"\|(?: *:?-+:? *\|)+", lines[number].strip()):
            wanted = cells
        else:
            problems.append(f"{number}: belongs to no table")
    return problems


def _emptied(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("| a | b |\n|---|---|\n| 1 | `x \\| y` |\n", []),
        ("| a | b |\n|---|---|\n| 1 |\n", ["3: 1 cells of 2"]),
        ("| a | b |\n|---|\n", ["2: 1 cells of 2"]),
        ("| a | b |\n|---|---|\n| 1 | x | y |\n", ["3: 3 cells of 2"]),
        ("| a |\n|---|\n\n| 1 |\n", ["4: belongs to no table"]),
        ("| a |\n|---|\n| 1\n", ["3: does not end with |"]),
        ("```\n| a\n```\n| a |\n|---|\n", []),
    ],
)
def test_broken_tables_are_found(text: str, problems: list[str]) -> None:
    """A row with other cells than its header, and a row that is cut off, are problems."""
    assert problems == table_problems(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables(page: Path) -> None:
    """Every table on a page is rendered as one."""
    assert [] == table_problems(page.read_text())


@pytest.mark.parametrize(
    "config_class",
    [
        JobFile,
        RuntimeConfig,
        *(load("sources", name).config_class for name in names("sources")),
        *(load("sinks", name).config_class for name in names("sinks")),
        *(load("stores", name).config_class for name in names("stores")),
    ],
    ids=lambda config_class: config_class.__name__,
)
def test_options_are_documented(config_class: type) -> None:
    """The page on jobs has every option; where it gives a number or a word, it is the default."""
    text = _page("jobs.md")
    for key, (field, declared) in filled(declared_options(config_class).items()):
        if declared.keys_allowed:
            continue
        if isinstance(field.default, bool):
            assert f"| `{key}` | {str(field.default).lower()} |" in text
        elif isinstance(field.default, int | float):
            assert f"| `{key}` | {field.default} |" in text
        elif isinstance(field.default, str):
            assert f"| `{key}` | `{field.default}` |" in text
        else:
            assert f"`{key}`" in text


def test_errors_are_documented() -> None:
    """The page for operators has the code of every error."""
    text = _page("operations.md")
    modules = [m for room in ROOMS for m in modules_of(room)]
    codes = {
        code for m in modules for code in re.findall(r"^    code\b.* = \"(\w+)\"$", m, re.MULTILINE)
    }

    assert {"corrupt_segment", "state_lost"} < codes
    assert [] == sorted(code for code in codes if f"`{code}`" not in text)


def test_events_are_documented() -> None:
    """The page for operators has every event that is logged by its name."""
    text = _page("operations.md")
    called = r"log\.(?:info|warning|error|exception)\(\s*\"(\w+)\"|_log\(run, \"(\w+)\""
    modules = [m for room in ROOMS for m in modules_of(room)]
    events = {first or second for m in modules for first, second in re.findall(called, m)}

    assert {"split_failed", "split_pauses"} < events
    assert [] == sorted(event for event in events if f"`{event}`" not in text)


def test_citations_lead_somewhere() -> None:
    """A section of the format, or a line of the rules, that the code cites is on its page."""
    modules = "\n".join(modules_of("sources/cassandra"))
    sections = re.findall(r"^##+ ([\d.]*\d)", _page("commit-log.md"), re.MULTILINE)
    rules = re.findall(r"^\| (\d+) \|", _page("agreement.md"), re.MULTILINE)
    cited = re.findall(r"\((\d+\.\d+)\)|(?:commit-log\.md|section) (\d[\d.]*\d|\d)", modules)

    assert cited
    assert set(sections) >= {inline or named for inline, named in cited}
    assert set(rules) >= set(re.findall(r"\b[Ll]ine (\d+)", modules))


def test_promises_and_rules_are_there() -> None:
    """An invariant or a rule for plugins that the code cites is on its page."""
    modules = "\n".join(m for room in ROOMS for m in modules_of(room))
    promises = re.findall(r"^\*\*(I\d+)\. ", _page("invariants.md"), re.MULTILINE)
    rules = re.findall(r"^\| (R\d+) \|", _page("plugins.md"), re.MULTILINE)

    assert set(promises) >= set(re.findall(r"\bI(?:10|[1-9])\b", modules))
    assert set(rules) >= set(re.findall(r"\bR(?:1[0-2]|[1-9])\b", modules))


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def modules_of(room: str) -> list[str]:
    """Return the sources of a room's modules."""
    return [path.read_text() for path in (ROOT / room).rglob("*.py")]


def test_invariants_have_tests() -> None:
    """A test that a page names exists."""
    text = _page("invariants.md")
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
