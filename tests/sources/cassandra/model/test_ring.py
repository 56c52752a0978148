"""A ring, a job and all that can befall them, as state machines; see `helpers.model`.

How many, and how long they are, says `helpers.model.machines.runs`.
"""

import pytest

from helpers.model.machines.changes import Changing
from helpers.model.machines.machine import Machine
from helpers.model.machines.new_generations import NewGenerations
from helpers.model.machines.plans import Everything
from helpers.model.machines.runs import EXAMPLES, run
from helpers.model.machines.unavailable_logs import UnavailableLogs

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(
    ("machine", "part"),
    [(Machine, 1), (Changing, 1), (Everything, 1), (UnavailableLogs, 4), (NewGenerations, 4)],
)
def test_the_promises_hold_after_any_events(machine: type[Machine], part: int) -> None:
    """I1 to I8, I10 and lines 35 to 37, under schedules that are the same each time."""
    schedules = -(-EXAMPLES // part)  # Where time must pass, they cost more.
    assert schedules <= run(machine, schedules)
