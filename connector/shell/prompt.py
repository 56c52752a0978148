"""The shell at a terminal: editing, completion, colours, the toolbar, and questions."""

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from headrace.connector.language.places import has_secret
from headrace.connector.shell.completion import Known, suggestions
from headrace.connector.shell.lookout import Lookout
from headrace.connector.shell.scanning import highlighted, is_whole
from headrace.connector.shell.session import LeaveShell, Session
from headrace.connector.shell.terminal import (
    EMPTY_LINES_MAX,
    REMINDER,
    continuation_text,
    prompt_text,
)

HEALTH_SECONDS: Final = 2.0
LAG_SECONDS: Final = 20.0  # It needs a process.
_REDRAWN_SECONDS: Final = 1.0
_STYLE: Final = Style.from_dict({
    "keyword": "ansiblue bold",
    "string": "ansiyellow",
    "number": "ansigreen",
    "comment": "ansibrightblack",
    "open": "ansired",
    "bottom-toolbar": "reverse",
})  # fmt: skip
ENTRIES_MAX: Final = 5_000  # Entries read from the history; older ones stay in the file.
FILE_BYTES_MAX: Final = 8 * 1024 * 1024
_CQL_SECRET: Final = re.compile(
    r"(?i)\bidentified\b|^\s*login\b|(?<![.\w])password\s*=\s*'(?!\$\{)"
)


class ShellHistory(History):
    """The entered text, one JSON string a line, so that line ends stay.

    It never has secrets. A statement with a literal as a secret is refused when it is executed, and
    it is not kept. Without a path the history ends with the process.
    """

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
        except OSError:  # It is missing, or unreadable: no history.
            return []
        return list(filter(None, map(_entry, reversed(lines[-ENTRIES_MAX:]))))

    def store_string(self, string: str) -> None:
        """Add an entry to the file."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):  # Without write permission there is none.
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(json.dumps(string) + "\n")

    def append_string(self, string: str) -> None:
        """Add an entry, unless it may hold a secret."""
        if not is_secret(string):
            super().append_string(string)


def is_secret(text: str) -> bool:
    """Return whether *text* may have a secret: one as a literal, or a user's password."""
    return has_secret(text) or _CQL_SECRET.search(text) is not None


def _entry(line: bytes) -> str:
    try:
        text = json.loads(line)
    except ValueError:
        return ""
    return text if isinstance(text, str) else ""


class Prompt:
    """Reads units from a terminal and executes them in a session."""

    def __init__(
        self, session: Session, history: ShellHistory, lookout: Lookout, *, colour: bool = True
    ) -> None:
        """Show nothing yet."""
        self._session = session
        self._toolbar = _Toolbar((lookout.health, HEALTH_SECONDS), (lookout.lag, LAG_SECONDS))
        self._prompt: PromptSession[str] = PromptSession(
            multiline=True,
            history=history,
            completer=_ShellCompleter(lookout.known),
            complete_in_thread=True,
            complete_while_typing=True,
            complete_style=CompleteStyle.COLUMN,
            lexer=_Highlighter() if colour else None,
            style=_STYLE if colour else None,
            include_default_pygments_style=False,
            bottom_toolbar=self._toolbar.text,
            refresh_interval=_REDRAWN_SECONDS,
            prompt_continuation=lambda width, _, __: continuation_text(width),
            key_bindings=_bindings(),
        )
        session.history = history.get_strings

    def run(self) -> None:
        """Read and execute until EXIT or Ctrl-D. Ctrl-C discards input, or cancels a statement."""
        with self._toolbar:
            while True:
                try:
                    text = self._prompt.prompt(prompt_text(self._session))
                    if text.strip():
                        self._session.run(text)
                except KeyboardInterrupt:
                    continue
                except (EOFError, LeaveShell):
                    return


class _ShellCompleter(Completer):
    def __init__(self, known: Callable[[], Known]) -> None:
        self._known = known

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterable[Completion]:
        for one in suggestions(document.text_before_cursor, self._known()):
            yield Completion(one.text, -one.replaces, display_meta=one.meaning)


class _Highlighter(Lexer):
    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines: list[StyleAndTextTuples] = [[]]
        for style, text in highlighted(document.text):
            first, *rest = text.split("\n")
            lines[-1].append((f"class:{style}" if style else "", first))
            lines += [[(f"class:{style}" if style else "", line)] for line in rest]

        def line(number: int) -> StyleAndTextTuples:
            return lines[number] if number < len(lines) else []

        return line


class _Toolbar:
    """The line at the bottom: threads update its parts, so that none can block."""

    def __init__(self, *parts: tuple[Callable[[], str], float]) -> None:
        """Start with a list of parts, each with its refresh interval in seconds."""
        self._parts = parts
        self._shown = [""] * len(parts)
        self._ended = threading.Event()

    def text(self) -> str:
        return f" {' · '.join(filter(None, self._shown))}"

    def __enter__(self) -> None:
        for number in range(len(self._parts)):
            threading.Thread(target=self._keep, args=(number,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _keep(self, number: int) -> None:
        ask, seconds = self._parts[number]
        while not self._ended.is_set():
            self._shown[number] = ask()
            self._ended.wait(seconds)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_state = None  # Taken from the menu; more input may follow.
            return
        at_the_end = buffer.document.is_cursor_at_the_end or "\n" not in text
        if not text.strip() or (at_the_end and is_whole(text)):
            buffer.validate_and_handle()
            return
        buffer.insert_text("\n")
        if text.endswith("\n" * (EMPTY_LINES_MAX - 1)):
            run_in_terminal(lambda: sys.stdout.write(f"{REMINDER}\n"))

    return bindings
