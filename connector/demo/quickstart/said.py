"""The output of the quickstart's worker."""

from collections.abc import Sequence

import msgspec

from headrace.connector.runtime.books.figures import Figures


class Said(msgspec.Struct, frozen=True):
    """A line of its output. `failures` are errors that ended splits; only the last line has them.

    `console` is the address of the console, in the line that is said when it is there.
    """

    figures: Figures
    failures: Sequence[str] = ()
    console: str = ""
