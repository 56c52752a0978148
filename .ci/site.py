"""What MkDocs calls while it makes the site.

Links out of docs/ become the names of the files. The pages below reference/ are made of what the
code declares, and of the grammar on the page about statements.
"""

import re
from pathlib import Path
from typing import Any

from declarations import PAGES
from diagrams import grammar_page
from mkdocs.structure.files import File

_ROOT = Path(__file__).parents[1]
_OUT = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)(?:#[^)\s]*)?\)")
_GRAMMAR = "## Grammar\n"
_HERE = "The same [as railroad diagrams](reference/grammar.md).\n"


def on_files(files: Any, config: Any, **_: object) -> Any:  # noqa: ANN401 (MkDocs's own)
    """Add the pages of the reference."""
    made = {name: page(_ROOT) for name, page in PAGES.items()}
    statements = (_ROOT / "docs" / "statements.md").read_text("utf-8")
    made["reference/grammar.md"] = grammar_page(statements)
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401 (MkDocs's own)
    """Return the page; what lies beside docs/ is not part of the site."""
    if page.file.src_uri == "statements.md":
        markdown = markdown.replace(_GRAMMAR, f"{_GRAMMAR}\n{_HERE}")
    return markdown if "/" in page.file.src_uri else _OUT.sub(_named, markdown)


def _named(link: re.Match[str]) -> str:
    text, path = link[1], link[2]
    return text if path in text else f"{text} (`{path}`)"
