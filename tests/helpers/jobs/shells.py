"""Sessions of the shell whose output a test can read."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.connector.control.service import ControlService
from headrace.connector.shell.commands import SHELL_COMMANDS
from headrace.connector.shell.lookout import Lookout
from headrace.connector.shell.session import Screen, Session, Settings
from headrace.connector.stores.open_control_store import open_notes


@dataclass
class Seen:
    """A session, its output and its questions; each question is answered with `answer`."""

    session: Session
    out: io.StringIO
    err: io.StringIO
    asked: list[str] = field(default_factory=list)
    answer: bool = True

    def run(self, text: str) -> str:
        """Execute *text* as typed at a prompt; return what was written, errors last."""
        for stream in (self.out, self.err):
            stream.seek(0)
            stream.truncate()
        self.session.run(text)
        return self.out.getvalue() + self.err.getvalue()

    def ask(self, question: str) -> bool:
        """Record the question."""
        self.asked.append(question)
        return self.answer


@contextlib.contextmanager
def opened(state: Path) -> Iterator[Seen]:
    """Open an interactive session on a state file."""
    with contextlib.closing(open_notes(state)) as connection:
        screen = Screen(out=io.StringIO(), err=io.StringIO(), interactive=True)
        session = Session(ControlService(connection), SHELL_COMMANDS, Settings(), screen)
        assert isinstance(screen.out, io.StringIO)
        assert isinstance(screen.err, io.StringIO)
        seen = Seen(session, screen.out, screen.err)
        screen.ask = seen.ask
        yield seen
        session.close()


def lookout_on(state: Path) -> Lookout:
    """Return a status line over a state file, which it does not create."""

    @contextlib.contextmanager
    def service() -> Iterator[ControlService]:
        with contextlib.closing(open_notes(state, create=False)) as connection:
            yield ControlService(connection)

    return Lookout(service)
