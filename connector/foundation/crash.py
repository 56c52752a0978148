"""Named points at which a test can kill the process, to prove that no instant loses anything (I7).

With `HEADRACE_CRASH_AT=<step>` or `<step>:<n>` in the environment the process kills itself with
SIGKILL the first, or n-th, time it reaches that step. Unset, a step costs one empty call; steps
are per batch or rarer, never per record.
"""

import os
import signal
from collections import Counter

_seen: Counter[str] = Counter()


def _at_step(name: str) -> None:
    step, _, turn = os.environ["HEADRACE_CRASH_AT"].partition(":")
    if name == step:
        _seen[name] += 1
        if _seen[name] >= int(turn or "1"):
            os.kill(os.getpid(), signal.SIGKILL)


def _nothing(name: str) -> None:
    pass


reached = _at_step if "HEADRACE_CRASH_AT" in os.environ else _nothing
