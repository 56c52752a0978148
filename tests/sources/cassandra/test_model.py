"""A ring, a job and all that can befall them, as state machines; see `model_plans`, `model_away`.

HEADRACE_MODEL_EXAMPLES asks for more schedules than a few, HEADRACE_MODEL_STEPS for longer ones.
"""

import os
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from model_away import Away
from model_changes import Changing
from model_machine import Machine
from model_plans import Everything

pytestmark = pytest.mark.long

EXAMPLES: Final = int(os.environ.get("HEADRACE_MODEL_EXAMPLES", "20"))
STEPS: Final = int(os.environ.get("HEADRACE_MODEL_STEPS", "40"))


@pytest.mark.parametrize(
    ("machine", "part"), [(Machine, 1), (Changing, 1), (Everything, 1), (Away, 4)]
)
def test_whatever_happens_the_promises_hold(machine: type[Machine], part: int) -> None:
    """I1 to I8, I10 and lines 35 to 37, under schedules that are the same each time."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=-(-EXAMPLES // part),  # Where time must pass, they cost more.
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
            print_blob=False,
        ),
    )
