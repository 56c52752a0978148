"""A ring, a job and all that can befall them, as state machines; see `model_plans`, `model_away`.

How many, and how long they are, says `model_runs`.
"""

import pytest

from model_anew import Anew
from model_away import Away
from model_changes import Changing
from model_machine import Machine
from model_plans import Everything
from model_runs import EXAMPLES, run

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("machine", "part"), [(Machine, 1), (Changing, 1), (Everything, 1), (Away, 4), (Anew, 4)]
)
def test_whatever_happens_the_promises_hold(machine: type[Machine], part: int) -> None:
    """I1 to I8, I10 and lines 35 to 37, under schedules that are the same each time."""
    schedules = -(-EXAMPLES // part)  # Where time must pass, they cost more.
    assert schedules <= run(machine, schedules)
