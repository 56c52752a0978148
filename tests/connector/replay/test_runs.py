"""The run table."""

import time

from headrace.connector.replay.delivery import Target
from headrace.connector.replay.runs import Run


def test_a_run_has_the_time_when_it_was_planned() -> None:
    """In milliseconds since 1970, by which the newest run is found."""
    before_s = time.time()
    run = Run.new("replay", Target(directory=""), {})

    assert before_s <= run.made_ms / 1000 + 0.001
    assert run.made_ms / 1000 <= time.time()
