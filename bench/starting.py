"""Starting headrace as a child process, and waiting for it, for a bounded time."""

import subprocess
import threading
from typing import Final

from bench.errors import ProbeFailedError

START_SECONDS_MAX: Final = 120
HEADRACE: Final = "import sys; from headrace.connector.commands.cli import main; sys.exit(main())"


def ready_line(
    child: subprocess.Popen[str],
    stream: str,
    holding: str = "",
    *,
    seconds: float = START_SECONDS_MAX,
) -> str:
    """Return the first line that *child* prints with *holding* in it.

    A child that prints none within *seconds* is killed. The error says whether it was, or ended by
    itself, and what it printed.
    """
    pipe, printed = getattr(child, stream), []
    late = threading.Event()

    def give_up() -> None:
        late.set()
        child.kill()

    killer = threading.Timer(seconds, give_up)
    killer.start()
    try:
        while line := pipe.readline():
            if holding in line:
                return str(line)
            printed.append(line)
    finally:
        killer.cancel()
    when = f"did not start within {seconds} s" if late.is_set() else "ended before it had started"
    raise ProbeFailedError(f"{child.args!r} {when}; it printed {printed}")
