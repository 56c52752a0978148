"""Tells for each mistake that tests plant into the model which search finds it soon.

After a change of the model, or of what it runs, another search may find a mistake sooner. FIRST in
`helpers.sabotage.searches` has the number of that search where it is not the first one. A search
is stopped that takes longer than most; if none is left, all get twice the time. Mistakes in modules
that are compiled can be planted with HEADRACE_NATIVE=off alone.

PYTHONPATH=tests python -m tests.searches [--over 1.5] [--numbers 40] [NAME ...]
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import Final

import pytest

from headrace.sources.cassandra.agreement import rules
from helpers.sabotage.searches import CASES, FIRST, INTERPRETED, Case, plant, search

GOOD_SECONDS: Final = 1.0  # In which a search is to find it, if one can.
SECONDS_MAX: Final = 60.0  # Of CPU, for a search.


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the mistakes whose search takes too long, each with a better one."""
    parser = argparse.ArgumentParser(prog="python -m tests.searches", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a mistake; all by default")
    parser.add_argument("--over", type=float, default=1.5, metavar="SECONDS", help="what is long")
    parser.add_argument("--numbers", type=int, default=40, help="how many searches are tried")
    given = parser.parse_args(arguments)
    # A search that is stopped leaves its files.
    with tempfile.TemporaryDirectory() as tempfile.tempdir:
        _compare(given)
    return 0


def _compare(given: argparse.Namespace) -> None:
    is_compiled = not rules.__file__.endswith(".py")
    for case in CASES if is_compiled else INTERPRETED:
        if given.names and case.name not in given.names:
            continue
        with pytest.MonkeyPatch.context() as patch:
            plant(case, patch)
            first = FIRST.get(case.name, 0)
            seconds = _timed(case, first, SECONDS_MAX)
            if seconds is None or seconds > given.over:
                number, better = _best(case, given.numbers, seconds or SECONDS_MAX)
                sys.stdout.write(f"{case.name}: {first} {seconds} s, {number} {better} s\n")
                sys.stdout.flush()


def _best(case: Case, count: int, seconds_max: float) -> tuple[int | None, float | None]:
    """Return which of the first searches ends soonest, and when; None if none is in time."""
    bound = GOOD_SECONDS
    while bound < seconds_max:
        for number in range(count):
            if seconds := _timed(case, number, bound):
                return number, seconds
        bound *= 2
    return None, None


def _timed(case: Case, number: int, seconds_max: float) -> float | None:
    """Return how much CPU a search takes; None if it finds nothing in time."""
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_PROF, seconds_max)  # Ends this process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
        try:
            status = 0 if search(case, number) else 1
        finally:
            os._exit(status)
    _, status, used = os.wait4(child, 0)
    return used.ru_utime + used.ru_stime if status == 0 else None


if __name__ == "__main__":
    sys.exit(main())
