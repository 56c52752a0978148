"""How state machines are run: with the same schedules each time.

HEADRACE_MODEL_EXAMPLES asks for more schedules than a few, as `make soak` does, and
HEADRACE_MODEL_STEPS for longer ones.
"""

import os
from typing import Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

EXAMPLES: Final = int(os.environ.get("HEADRACE_MODEL_EXAMPLES", "4"))
STEPS: Final = int(os.environ.get("HEADRACE_MODEL_STEPS", "40"))


def run(
    machine: type[RuleBasedStateMachine],
    examples: int,
    steps: int = STEPS,
    *,
    number: int | None = None,
) -> int:
    """Run some schedules; another *number* gives other ones. Raises what the machine raises.

    Returns how many of them reached their ends, where the machine checks again.
    """
    ended = 0

    def teardown(self: RuleBasedStateMachine) -> None:
        nonlocal ended
        machine.teardown(self)
        ended += 1

    given = type(machine.__name__, (machine,), {"teardown": teardown})
    run_state_machine_as_test(
        given if number is None else seed(number)(given),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=number is None,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
            report_multiple_bugs=False,
            print_blob=False,
        ),
    )
    return ended
