"""The shell on a terminal: a process behind a pseudo-terminal, and what its screen shows."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pyte
import pytest

LINES, COLUMNS = 24, 90
WAIT_SECONDS_MAX = 300  # A busy machine starts a process slowly.
CODE = (
    "import sys; from headrace.connector.commands.shell import main; sys.exit(main(sys.argv[1:]))"
)


class _Terminal(pyte.Screen):
    """A terminal that says where its cursor is when it is asked."""

    answer: Callable[[str], object]

    def write_process_input(self, data: str) -> None:
        """Answer."""
        self.answer(data)


class Screen:
    """What someone in front of the terminal sees, and their keyboard."""

    def __init__(self, child: "pexpect.spawn[bytes]") -> None:
        """Look at what *child* writes."""
        self.child = child
        self.screen = _Terminal(COLUMNS, LINES)
        self.screen.answer = child.send
        self._stream = pyte.ByteStream(self.screen)

    def type(self, text: str) -> None:
        """Press the keys of *text*."""
        self.child.send(text)

    def shows(self, condition: str | Callable[[str], bool]) -> str:
        """Wait until the screen shows a text, or fits a condition; return all of it."""
        wanted = condition if callable(condition) else lambda text: condition in text
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            try:
                self._stream.feed(self.child.read_nonblocking(65536, timeout=0.1))
            except (pexpect.TIMEOUT, pexpect.EOF):
                text = "\n".join(line.rstrip() for line in self.screen.display)
                if wanted(text):
                    return text
                assert deadline > time.monotonic(), f"never shown: {condition}\n{text}"


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    """Start a shell at a terminal."""
    environment = os.environ | {
        "HOME": str(tmp_path),
        "TERM": "xterm",
        "PAGER": "cat",
        "LANG": "C.UTF-8",
    }
    for name in ("CQLSH_HOST", "HEADRACE_STATE", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "NO_COLOR"):
        environment.pop(name, None)
    child = pexpect.spawn(
        sys.executable,
        ["-c", CODE, "--state", str(tmp_path / "state.db")],
        env=environment,
        dimensions=(LINES, COLUMNS),
        timeout=WAIT_SECONDS_MAX,
        # As when tests run in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    found = Screen(child)
    found.shows("headrace>")
    yield found
    if child.isalive():  # `close` would wait for its end for a tenth of a second only.
        child.kill(signal.SIGKILL)
        child.wait()
    child.close()


def test_conversation(screen: Screen, tmp_path: Path) -> None:
    """Statements over several lines, answers, questions, Ctrl-C and Ctrl-D work as in cqlsh."""
    screen.shows("no data source yet")  # The toolbar.
    screen.type("CREATE DATA_SINK k\r")
    screen.shows("      ...")
    screen.type("WITH 'null://';\r")
    screen.type("DESC DATA_SINKS\r")
    screen.shows("(1 rows)")
    screen.type("DROP DATA_SINK k;\r")
    screen.shows("Really? [y/N]")
    screen.type("n\r")
    screen.type("WATCH 1 SHOW STATUS\r")
    screen.shows("(0 rows)")
    screen.type("\x03")
    screen.shows("headrace>")
    screen.type("SOMETHING\x03")  # Ctrl-C gives up what was typed.
    screen.type("EXPAND\r")
    screen.shows("EXPAND is OFF\nheadrace>")
    screen.type("\x04")
    screen.child.expect(pexpect.EOF)
    screen.child.close()

    assert 0 == screen.child.exitstatus
    history = (tmp_path / ".local" / "state" / "headrace" / "history").read_text()
    assert "\"CREATE DATA_SINK k\\nWITH 'null://';\"\n" in history


def test_completion_while_typing(screen: Screen) -> None:
    """A menu of what may follow opens by itself, and Tab takes from it."""
    screen.type("CREATE DATA_S")
    # Of all that was typed: the menu of DATA_ has the same entries, and closes at the next key.
    screen.shows(lambda text: "CREATE DATA_S\n" in text and "DATA_SOURCE" in text)
    screen.type("\t")
    screen.shows("> CREATE DATA_SINK")
    screen.type(" x WITH 'nu")
    screen.shows("null://")
    screen.type("\x03")
    screen.type("DROP DATA_SINK \t")
    assert "IF" in screen.shows("IF")


def test_colours_and_resize(screen: Screen) -> None:
    """Keywords have a colour, and an error is red."""
    screen.type("DROP 'x")
    screen.shows("DROP 'x")
    (line,) = [n for n, text in enumerate(screen.screen.display) if "headrace> DROP" in text]
    assert "blue" == screen.screen.buffer[line][10].fg
    screen.type("';\r")
    screen.shows("SyntaxException")
    (line,) = [n for n, text in enumerate(screen.screen.display) if "SyntaxException" in text]
    assert "red" == screen.screen.buffer[line][0].fg


def test_paste(screen: Screen) -> None:
    """A long script is pasted whole, and executed with one Enter."""
    script = "".join(f"CREATE DATA_SINK k{number} WITH 'null://';\n" for number in range(200))
    screen.type(f"\x1b[200~{script}SHOW VERSION\x1b[201~")
    screen.type("\r")
    screen.shows("[headrace 0.1.0]\nheadrace>")
    screen.type("PAGING OFF\rFORMAT csv\rDESC DATA_SINKS\r")
    assert "k98,null" in screen.shows("k99,null")


def test_history(screen: Screen, tmp_path: Path) -> None:
    """What was entered comes back with the arrow up and by Ctrl-R; a secret is not kept."""
    screen.type("SHOW VERSION\r")
    screen.shows(lambda text: text.count("[headrace 0.1.0]") == 2)
    screen.type("CREATE DATA_SINK k WITH 'kafka://h?topic=x' AND sasl.password = 'canary';\r")
    screen.shows("is a secret")
    screen.type("\x1b[A")
    screen.shows(lambda text: text.count("headrace> SHOW VERSION") == 2)
    screen.type("\x03\x12VERS")
    screen.shows(lambda text: text.count("SHOW VERSION") == 3)

    assert "canary" not in (tmp_path / ".local" / "state" / "headrace" / "history").read_text()
