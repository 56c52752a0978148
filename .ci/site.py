"""What MkDocs calls while it makes the site: links out of docs/ become the names of the files."""

import re
from typing import Any

_OUT = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401 (MkDocs's own)
    """Return the page; what lies beside docs/ is not part of the site."""
    return markdown if "/" in page.file.src_uri else _OUT.sub(_named, markdown)


def _named(link: re.Match[str]) -> str:
    text, path = link[1], link[2]
    return text if path in text else f"{text} (`{path}`)"
