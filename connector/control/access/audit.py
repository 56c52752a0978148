"""The audit: one line of JSON for each attempt to change something, allowed or denied.

A line holds no configuration, only its hash before and after the change. Each line also holds the
hash of the line before it, so a line cannot be changed or removed unnoticed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from headrace.connector.control.access.permission import Caller
from headrace.connector.stores import StoreUnavailableError
from headrace.plugins import HeadraceError

FIRST: Final = "0" * 64
LINE_BYTES_MAX: Final = 16_384
NEWEST_BYTES_MAX: Final = 256 * 1024  # Read from the end of a file.
NEWEST_MAX: Final = 200


class Audit:
    """Appends lines to one file; several processes may append to the same file."""

    def __init__(self, path: Path) -> None:
        """Write to *path*."""
        self._path = path

    def ready(self) -> None:
        """Check that a line can be written. Raises StoreUnavailableError."""
        try:
            os.close(_opened(self._path))
        except OSError as failure:
            raise _unwritable(self._path, failure) from failure

    def note(  # noqa: PLR0913 (the fields of a line)
        self,
        caller: Caller,
        verb: str,
        subject: str,
        *,
        before: str,
        after: str,
        error: HeadraceError | None,
        warned: str = "",
    ) -> None:
        """Append a line about an attempt; *warned* has the codes of warnings that the caller got.

        Raises:
            StoreUnavailableError: the line cannot be written.

        """
        outcome = "warned" if warned else "done"
        line = {
            "ts": datetime.fromtimestamp(time.time(), UTC).isoformat(),
            "execution_id": secrets.token_hex(8),
            "actor": caller.name,
            "roles": [caller.role.name.lower(), *caller.roles],
            "address": caller.address,
            "door": caller.door,
            "verb": verb,
            "object": subject[:400],
            "before": before,
            "after": after,
            "outcome": outcome if error is None else "refused",
            "reason": warned if error is None else error.code,
        }
        try:
            _append(self._path, line)
        except OSError as failure:
            raise _unwritable(self._path, failure) from failure


def fingerprint(text: str | None) -> str:
    """Return the hash that a line holds instead of *text*; None becomes the empty string."""
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()[:32]


def broken_lines(path: Path) -> Iterator[int]:
    """Yield the number, from 1, of each line that does not hold the hash of the line before it."""
    previous = FIRST
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                line = json.loads(raw)
                good = line.pop("hash") == _hash(line) and line["previous"] == previous
            except (ValueError, KeyError, AttributeError, TypeError):
                good = False
            if not good:
                yield number
            previous = _hash_in(raw)


def newest_lines(path: Path) -> Sequence[Mapping[str, Any]]:  # Any: JSON.
    """Return the newest lines of the file, the newest first; none of a file that is missing."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - NEWEST_BYTES_MAX))
            lines = file.read(NEWEST_BYTES_MAX).splitlines()
    except FileNotFoundError:
        return []
    found = []
    for raw in reversed(lines):
        with contextlib.suppress(ValueError):  # The first one may be half of a line.
            found.append(json.loads(raw))
    return [line for line in found if isinstance(line, dict)][:NEWEST_MAX]


def _append(path: Path, line: dict[str, Any]) -> None:  # Any: JSON.
    handle = _opened(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        line["previous"] = _last_hash(handle)
        line["hash"] = _hash(line)
        os.write(handle, json.dumps(line).encode() + b"\n")
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


def _unwritable(path: Path, failure: OSError) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the audit cannot be written: {failure.strerror}",
        place=str(path),
        hint="nothing is changed without it",
    )


def _last_hash(handle: int) -> str:
    size = os.fstat(handle).st_size
    tail = os.pread(handle, LINE_BYTES_MAX, max(0, size - LINE_BYTES_MAX))
    lines = tail.splitlines()
    return _hash_in(lines[-1]) if lines else FIRST


def _hash_in(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["hash"])
    except (ValueError, KeyError, TypeError):
        return FIRST


def _hash(line: Mapping[str, Any]) -> str:  # Any: JSON.
    text = json.dumps(dict(line), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
