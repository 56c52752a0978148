"""Asks plugins, in a process of their own, so that none can hold up or end the one that asks.

`headrace.connector.control.plugins.probe` answers. Both ends are the same headrace on the same
machine.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.connector.control.errors import BadPositionError, NotAvailableError

SECONDS_MAX: Final = 30.0
# A statement that was carried out already waits for these answers.
SECONDS_MAX_OF: Final = {"tables": 10.0}
_CODE: Final = "from headrace.connector.control.plugins.probe import main; main()"

Answer = Any  # Whatever JSON holds.
Ask = Callable[[Mapping[str, object]], Answer]


def ask(question: Mapping[str, object], *, seconds_max: float | None = None) -> Answer:
    """Return the answer to *question*; see `probe.ANSWERS` for what can be asked.

    Without *seconds_max* the bound is that of the question.

    Raises:
        BadPositionError: the source has no such position.
        NotAvailableError: with why there is no answer.

    """
    if seconds_max is None:
        seconds_max = SECONDS_MAX_OF.get(str(question["verb"]), SECONDS_MAX)
    try:
        done = subprocess.run(  # noqa: S603 (headrace itself)
            [sys.executable, "-c", _CODE],
            input=json.dumps(question).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # Its log: what matters is in its answer.
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"the plugin did not answer within {seconds_max:g} s"
        raise NotAvailableError("", message, "it may wait for a disk or the network") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        message = f"the plugin ended its process with status {done.returncode}"
        raise NotAvailableError("", message) from None
    return unpacked(answer)


def unpacked(answer: Mapping[str, Answer]) -> Answer:
    """Return what `probe.answer_to` found. Raises as `ask` does."""
    if "error" not in answer:
        return answer["answer"]
    code, key, message, hint = answer["error"]
    if key == "position":
        raise BadPositionError("position", message, hint)
    about = f"{key}: " if key else ""
    raise NotAvailableError("", f"{code}: {about}{message}", hint)
