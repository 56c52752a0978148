"""Asks for the lag of jobs repeatedly, in a process for each job that is kept between questions.

To start a process takes half a second of CPU; to ask one that knows the job, a few ms.
"""

import threading
from collections.abc import Mapping
from typing import Final

from headrace.connector.control.plugins import probing
from headrace.connector.control.plugins.probing import Answer, Probe

PROBES_MAX: Final = 32  # Further jobs get a process for each question.


class KeptProbes:
    """See the module. Any thread may call. Processes that are not asked end by themselves."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._probes: dict[tuple[str, str], Probe] = {}
        self._is_closed = False

    def ask_lag(self, question: Mapping[str, object]) -> Answer:
        """Return the answer to a question of verb `lag`. Raises as `probing.ask`. Blocks."""
        key = (str(question["job_file"]), str(question["job"]))
        with self._lock:
            for other in [k for k, probe in self._probes.items() if probe.has_ended()]:
                self._probes.pop(other).close()
            if key not in self._probes and len(self._probes) < PROBES_MAX and not self._is_closed:
                self._probes[key] = Probe()
            probe = self._probes.get(key)
        return probing.ask(question) if probe is None else probe.ask(question)

    def close(self) -> None:
        """End all processes. Safe to call twice."""
        with self._lock:
            probes, self._probes, self._is_closed = self._probes, {}, True
        for probe in probes.values():
            probe.close()
