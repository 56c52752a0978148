"""The pages of the reference have what the code declares, and every diagram fits its room."""

import html
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.rest.exchange import RefusedError
from headrace.plugins.errors import RetriableError
from helpers.settings.filled import filled
from helpers.settings.native_modules import ROOT

STATEMENTS = (ROOT / "docs" / "statements.md").read_text("utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 (a module)
    """Return a module that MkDocs loads from beside its hook."""
    monkeypatch.syspath_prepend(ROOT / ".ci")
    return importlib.import_module(name)


@pytest.fixture
def declarations(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 (a module)
    """Return what reads the code."""
    return tool("declarations", monkeypatch)


def test_statuses_of_errors(declarations: Any) -> None:  # noqa: ANN401 (a module)
    """A status on the page for operators is the one that its class declares."""
    rows = declarations.explained(OPERATIONS, "Errors", 3)
    found = declarations.errors_of(declarations.modules(ROOT, "Error(", "_CODE"))

    assert RetriableError.code in found
    assert (3, True) == found["agent_version"][:2]  # Its code is a constant of another module.
    differing = {
        code: (status, rows[code][0])
        for code, (status, _, _) in filled(found.items())
        if code != RefusedError.code and rows[code][0] != str(status)  # It ends no process.
    }
    assert {} == differing


def test_kinds_of_metrics(declarations: Any) -> None:  # noqa: ANN401 (a module)
    """The page on metrics has each metric that is made, with its kind, and no other."""
    rows = declarations.documented_metrics((ROOT / "docs" / "metrics.md").read_text("utf-8"))
    found = declarations.metrics_of(declarations.modules(ROOT, "headrace_"))

    assert {"headrace_info", "headrace_hold_full", "headrace_commit_seconds"} < set(found)
    assert {name: kind for name, (kind, _) in found.items()} == {
        name: kind for name, (_, _, kind) in rows.items()
    }


def test_levels_of_events(declarations: Any) -> None:  # noqa: ANN401 (a module)
    """The page for operators has each event, with the level that it is logged at."""
    rows = declarations.explained(OPERATIONS, "The log", 3)
    found = declarations.events_of(declarations.modules(ROOT, "log"))

    assert "split_lost" in found  # By a method of the pipeline.
    assert ["split", "token", "seq"] == list(found["split_started"].fields)
    differing = {
        name: (sorted(event.levels), rows[name][0])
        for name, event in filled(found.items())
        if not event.levels <= set(rows[name][0].split(", "))
    }
    assert {} == differing


def test_every_page_is_made(declarations: Any) -> None:  # noqa: ANN401 (a module)
    """Options have their declared bounds and defaults, and links lead out of the folder."""
    pages = {name: make(ROOT) for name, make in declarations.PAGES.items()}

    runtime = pages["reference/options.md"].partition("## Section `runtime`")[2]
    assert "| `lease_seconds` | number, in s, or with a unit, 0.5 to 3,600 | `10.0` |" in runtime
    assert "](../operations.md#gaps)" in pages["reference/errors.md"]
    for text in pages.values():
        assert [] == re.findall(r"\]\((?!\.\./|https?:|#)[^)]*\)", text)


def test_what_is_not_explained_is_an_error(declarations: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """An error without a row on the page for operators ends `make docs`, by its code."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "operations.md").write_text("## Errors\n\n| `a_code` | 1 | this |\n")
    (tmp_path / "plugins").mkdir()
    module = tmp_path / "plugins" / "errors.py"
    module.write_text(
        'class HeadraceError(Exception):\n    """Base."""\n    code = "a_code"\n'
        "    exit_status = 1\n    restartable = False\n"
        'class AnError(HeadraceError):\n    """One."""\n    code = "b_code"\n'
    )
    with pytest.raises(declarations.UndocumentedError, match=r"no row for b_code$"):
        declarations.errors_page(tmp_path)


def test_diagrams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule has a diagram of all its words, inside its room, with the EBNF as its name."""
    diagrams = tool("diagrams", monkeypatch)
    rules = list(diagrams.rules_of(STATEMENTS))
    names = {name for name, _, _ in rules}

    assert {"script", "create", "bare_uri", "digit"} < names
    for name, right_side, _ in rules:
        figure = diagrams.figure(name, right_side, names)
        said = [html.unescape(label) for label in re.findall(r'aria-label="([^"]*)"', figure)]
        assert (
            right_side.split()
            == " | ".join(label.removeprefix(f"{name} = ") for label in said).split()
        )
        drawn = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)<", figure)]
        words = re.findall(r"\"([^\"]*)\"|'([^']*)'|\?([^?]*)\?|(\w+)|(…)", right_side)
        assert [("to" if "…" in word else "".join(word).strip()) for word in words] == drawn
        for svg in re.findall(r"<svg.*?</svg>", figure):
            assert [] == outside(svg)


def outside(svg: str) -> list[str]:
    """Return the boxes of a diagram that its view cuts off."""
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    boxes = re.findall(
        r'<rect height="([\d.]+)"[^>]* width="([\d.]+)" x="([\d.]+)" y="([\d.]+)"', svg
    )
    return [
        f"{x},{y}"
        for h, w, x, y in (map(float, box) for box in boxes)
        if x + w > width or y + h > height
    ]
