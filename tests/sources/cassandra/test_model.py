"""A ring, a job and all that can befall them, as one state machine; see model_machine.

HEADRACE_MODEL_EXAMPLES asks for more schedules than a few, HEADRACE_MODEL_STEPS for longer ones.
"""

import os
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from model_machine import Machine

pytestmark = pytest.mark.long

EXAMPLES: Final = int(os.environ.get("HEADRACE_MODEL_EXAMPLES", "30"))
STEPS: Final = int(os.environ.get("HEADRACE_MODEL_STEPS", "40"))


def test_whatever_happens_the_promises_hold() -> None:
    """I1 to I7 and lines 35 to 37, under schedules that are the same each time."""
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
            print_blob=False,
        ),
    )
