"""What was entered before, one JSON text a line, so that line ends stay. Secrets never go in.

A statement that gives a secret a literal is refused when it is executed; it is not kept either.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

from headrace.connector.shell.places import has_secret

ENTRIES_MAX: Final = 5_000  # Read back; older ones stay in the file.
FILE_BYTES_MAX: Final = 8 * 1024 * 1024

_CQL_SECRET: Final = re.compile(
    r"(?i)\bidentified\b|^\s*login\b|(?<![.\w])password\s*=\s*'(?!\$\{)"
)


class ShellHistory(History):
    """See the module. Without a path nothing outlives the process."""

    def __init__(self, path: Path | None) -> None:
        """Read nothing yet."""
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the entries, the newest first."""
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, self._path.stat().st_size - FILE_BYTES_MAX))
                lines = file.read(FILE_BYTES_MAX).splitlines()
        except OSError:  # It is not there yet, or not for us: then there is none.
            return []
        return list(filter(None, map(_entry, reversed(lines[-ENTRIES_MAX:]))))

    def store_string(self, string: str) -> None:
        """Add an entry to the file."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):  # Whoever may not write it has none.
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(json.dumps(string) + "\n")

    def append_string(self, string: str) -> None:
        """Add an entry, unless it may hold a secret."""
        if not is_secret(string):
            super().append_string(string)


def is_secret(text: str) -> bool:
    """Say whether *text* may hold a secret: a literal where one belongs, or a user's password."""
    return has_secret(text) or _CQL_SECRET.search(text) is not None


def _entry(line: bytes) -> str:
    try:
        text = json.loads(line)
    except ValueError:
        return ""
    return text if isinstance(text, str) else ""
