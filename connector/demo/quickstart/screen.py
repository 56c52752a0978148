"""The output of the quickstart: scrolling lines, and a status line below them."""

import shutil
import sys
import time
from datetime import UTC, datetime
from typing import Final

from headrace.connector.demo.consumer import Received

_MICROS: Final = 1_000_000
_CLEAR: Final = "\r\x1b[K"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Screen:
    """Standard output. Without a terminal the status line is printed like any other."""

    def __init__(self) -> None:
        """Show nothing yet."""
        self._is_terminal = sys.stdout.isatty()
        self._staying = ""

    def line(self, text: str) -> None:
        """Print a line."""
        self._write(f"{text}\n")

    def notice(self, text: str) -> None:
        """Print a highlighted line."""
        text = f">>> {text}"
        self._write(f"{_BOLD}{text}{_PLAIN}\n" if self._is_terminal else f"{text}\n")

    def stay(self, text: str) -> None:
        """Show *text* as the status line; an empty text removes it."""
        if not self._is_terminal:
            self._write(f"--- {text}\n" if text else "")
            return
        self._staying = text[: shutil.get_terminal_size().columns - 1]
        self._write("")

    def _write(self, text: str) -> None:
        before, after = (_CLEAR, self._staying) if self._is_terminal else ("", "")
        sys.stdout.write(f"{before}{text}{after}")
        sys.stdout.flush()


def one_line(record: Received) -> str:
    """Return a change in a readable line."""
    value = record.value
    written_us = value["timestampMicros"]
    at = datetime.fromtimestamp(written_us / _MICROS, UTC).strftime("%H:%M:%S.%f")[:-3]
    key = " ".join(f"{name}={each}" for name, each in record.key.items())
    columns = " ".join(
        f"{name}={each}"
        for name, each in value["payload"].items()
        if each is not None and name not in record.key
    )
    verb = value["operationType"].partition("_")[0]
    table = f"{value['sourceKeyspace']}.{value['sourceTable']}"
    age_ms = (time.time_ns() // 1_000 - written_us) // 1_000
    copies = f"{value['copies']} copies, {age_ms:,} ms"
    return f"{at}  {verb:<6}  {table}  {key:<14}  {columns:<52}  {copies}".rstrip()
