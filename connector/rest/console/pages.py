"""The pages by name: their documents, and their HTML."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace import __version__
from headrace.connector.control.console.paging import Document
from headrace.connector.rest.console.drawing import arc_path
from headrace.plugins.amounts import size_text, span_text

if TYPE_CHECKING:
    from jinja2 import Environment

HERE: Final = Path(__file__).parent
TITLES: Final = {
    "overview": "Overview",
    "sources": "Sources and sinks",
    "splits": "Splits",
    "logs": "Logs",
    "plots": "Plots",
    "books": "Books",
    "gaps": "Gaps",
    "dead-letters": "Dead letters",
    "runs": "Runs",
    "configuration": "Configuration",
    "audit": "Audit",
    "statements": "Statements",
}
_TYPES: Final = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
_WELL: Final = frozenset({"RUNNING", "PASS", "done", "covered", "mended"})
_BAD: Final = frozenset({"FAILED", "FAIL", "DIFF", "NOT COVERED", "open", "refused"})
_WAITING: Final = frozenset(
    {"RESTARTING", "STALLED", "UNASSIGNED", "STARTED", "accepted", "passed", "warned"}
)


@cache
def static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the files that pages load, by name, each with its media type."""
    found = sorted((HERE / "static").iterdir())
    return {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in found}


def rendered(template: str, document: Document, **more: object) -> bytes:
    """Return the HTML of a page; *more* has content besides its document."""
    page = _environment().get_template(f"{template}.html")
    return page.render(page=template, d=document, **more).encode(errors="backslashreplace")


@cache
def _environment() -> "Environment":
    # Imported here because a worker may never show its pages.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "size": lambda size: "" if size is None else size_text(size),
        "span": lambda seconds: "" if seconds is None else span_text(seconds),
        "number": _number,
        "tone": tone,
        "percent": lambda share: f"{100 * share:.0f} %",
    }
    made.globals |= {
        "titles": TITLES,
        "version": __version__,
        "arc_path": arc_path,
        "static": _address,
    }
    made.globals["parts"] = made.get_template("parts.html").module
    return made


def tone(state: str) -> str:
    """Return the tone of a state: good, bad, waiting, or idle."""
    if state in _WELL:
        return "good"
    return "bad" if state in _BAD else "waiting" if state in _WAITING else "idle"


def _address(name: str) -> str:
    """Return the path of a file, with a mark of its content, so that it can be cached for long."""
    content, _ = static_files()[name]
    return f"/console/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"


def _number(value: Any) -> str:  # noqa: ANN401 (of JSON)
    """Return a number in a readable form; an empty string for None."""
    if value is None:
        return ""
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004 (as read)
