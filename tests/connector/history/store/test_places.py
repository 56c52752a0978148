"""A history can be opened often by one process, beside others that open and close it."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, beside, settled
from helpers.histories.rows import TABLE, change, delivery

NOW_US = 1_700_000_000_000_000
_LOOK = """
import sys
from headrace import history
with history.connect(sys.argv[1]) as opened:
    print(len(list(opened.select(0))))
"""


@pytest.mark.parametrize("files", ["1", "2"])
def test_what_a_process_looks_at_stays_locked(tmp_path: Path, files: str) -> None:
    """A process that closes a file as the last one removes its log: never that of a writer.

    The locks of a process on a file are gone when it closes any descriptor of it, also one that
    SQLite did not open.
    """
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty", files=files))
    writer = kept.writer()
    for number in range(1, 4):
        kept.history().close()
        command = [sys.executable, "-c", _LOOK, kept.sink.config.place]
        seen = subprocess.run(  # noqa: S603 (our own interpreter)
            command, check=True, capture_output=True, text=True, timeout=60
        )
        assert number - 1 == int(seen.stdout)
        writer.submit(delivery(change(written_us=NOW_US, of=(number, 1))), settled)
        kept.clock.advance(1)
        assert writer.commit({}, FOREVER_MS)
    writer.close()
