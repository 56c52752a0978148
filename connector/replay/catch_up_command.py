"""`headrace replay catch-up`: splits that lag are read in bulk, and given back to their workers."""

import argparse
import contextlib
import sys
import threading
from collections.abc import Mapping
from typing import Final

from headrace.connector.job import job_text, read_job
from headrace.connector.replay.catching_up import (
    CaughtUp,
    Driver,
    Orders,
)
from headrace.connector.replay.engine import Engine, engine
from headrace.connector.replay.errors import ShardFailedError
from headrace.connector.replay.options import number_of
from headrace.connector.replay.run_metrics import CatchUpMeasures, telling
from headrace.connector.replay.shards import inside
from headrace.connector.runtime.commands import stopped_by_signals

WATCH_SECONDS: Final = 10.0


def catch_up(given: argparse.Namespace) -> int:
    """Take lagging splits over, work them off, and give them back. Returns the exit status.

    Raises:
        ShardFailedError: of some splits a part could not be read or delivered, or they were lost.
        HeadraceError: nothing can be caught up.

    """
    for name, least in (("lag_bytes", 0), ("chunk_bytes", 1)):
        number_of(given, name, least=least)
    text, job = job_text(given.job), read_job(given.job)
    orders = Orders(
        splits=tuple(filter(None, map(str.strip, (given.split or "").split(",")))),
        lag_bytes=given.lag_bytes,
        until=given.until or "",
        chunk_bytes=given.chunk_bytes,
    )
    stopped, measures = threading.Event(), CatchUpMeasures()
    with contextlib.ExitStack() as stack, stopped_by_signals(stopped.set):
        stack.enter_context(telling(given, text.name, measures))
        stack.enter_context(inside(str(text.directory)))
        used: Engine | None = None
        while not stopped.is_set():
            with contextlib.closing(
                Driver(text, job, orders, stopped=stopped, measures=measures)
            ) as driver:
                lagging = driver.lagging()
                _tell(lagging)
                if given.plan:
                    return 0
                if lagging:
                    used = used or stack.enter_context(engine(given.master))
                    _judge(driver.run(list(lagging), used))
            if not given.watch:
                return 0
            stopped.wait(WATCH_SECONDS)
    return 0


def _tell(lagging: Mapping[str, int]) -> None:
    for split, size_bytes in lagging.items():
        sys.stdout.write(f"split {split}: {size_bytes} bytes to read\n")
    if not lagging:
        sys.stdout.write("no split lags so much\n")
    sys.stdout.flush()


def _judge(came_to: CaughtUp) -> None:
    """Say what was done; raise what was not."""
    sys.stdout.write(
        f"caught up: {len(came_to.done)} splits, {came_to.changes} changes in "
        f"{came_to.chunks} chunks\n"
    )
    sys.stdout.flush()
    problems = dict(came_to.failed) | dict.fromkeys(came_to.lost, "lease_lost: another owns it")
    for split, problem in problems.items():
        raise ShardFailedError(
            f"{len(problems)} splits were given back before their end; the first: {problem}",
            place=f"split {split}",
            hint="their workers go on from what was committed last",
        )
