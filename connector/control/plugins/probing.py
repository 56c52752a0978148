"""Asks plugins in a process of their own, so that a plugin can neither block nor end this process.

`headrace.connector.control.plugins.probe` answers. Both processes run the same version of headrace
on the same machine.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.connector.control.errors import BadPositionError, NotAvailableError

SECONDS_MAX: Final = 30.0
_CODE: Final = "from headrace.connector.control.plugins.probe import main; main()"

Answer = Any  # Any: JSON.
Ask = Callable[[Mapping[str, object]], Answer]


def ask(question: Mapping[str, object], *, seconds_max: float | None = None) -> Answer:
    """Return the answer to *question*; `probe.ANSWERS` lists the questions.

    Without *seconds_max*, `SECONDS_MAX` bounds it.

    Raises:
        BadPositionError: the source has no such position.
        NotAvailableError: with why there is no answer.

    """
    if seconds_max is None:
        seconds_max = SECONDS_MAX
    try:
        done = subprocess.run(  # noqa: S603 (headrace itself)
            [sys.executable, "-c", _CODE],
            input=json.dumps(question).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # The log of the plugin; its answer has what matters.
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise late(seconds_max) from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        message = f"the plugin ended its process with status {done.returncode}"
        raise NotAvailableError("", message) from None
    return unpacked(answer)


def late(seconds_max: float) -> NotAvailableError:
    """Return the error of a plugin that did not answer in time."""
    message = f"the plugin did not answer within {seconds_max:g} s"
    return NotAvailableError("", message, "it may wait for a disk or the network")


def unpacked(answer: Mapping[str, Answer]) -> Answer:
    """Return the `answer` of what `probe.answer_to` returned. Raises as `ask` does."""
    if "error" not in answer:
        return answer["answer"]
    code, key, message, hint = answer["error"]
    if key == "position":
        raise BadPositionError("position", message, hint)
    about = f"{key}: " if key else ""
    raise NotAvailableError("", f"{code}: {about}{message}", hint)
