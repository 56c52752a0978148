"""Sends dead letters of a job again, in the process that asks plugins."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.control.plugins.probing import Ask
from headrace.connector.language.rendering import ResultTable

LETTERS_MAX: Final = 1000  # The most letters of one statement.


class Redriving(msgspec.Struct, frozen=True):
    """A request to send *numbers* of the dead letters of *job* again; without any, all."""

    job: str
    numbers: Sequence[int] = ()

    @property
    def name(self) -> str:
        """The subject in the audit."""
        return f"{self.job}: {', '.join(map(str, self.numbers)) or 'all'}"


def redriven(ask: Ask, redriving: Redriving, file: Mapping[str, str]) -> ResultTable:
    """Return the outcome of each, and how many are left; *file* is that of the job.

    Raises:
        NotAvailableError: there is no answer.

    """
    found = ask({"verb": "redrive", **file, "numbers": list(redriving.numbers)})
    rows = tuple((str(number), problem or "delivered") for number, problem in found["sent"])
    footer = (("left", str(found["left"])),) if found["left"] else ()
    return ResultTable(("number", "result"), rows, footer=footer)
