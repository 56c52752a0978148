"""Pages of apps in other processes."""

import json
import urllib.request
from typing import Any

from helpers.servers.ports import HOST


def page_of(port: int, path: str) -> Any:  # noqa: ANN401 (JSON)
    """Return what a page shows, as JSON; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return None
