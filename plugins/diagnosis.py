"""The checks of `headrace doctor`: what sources, sinks and schema stores can find out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from headrace.plugins.check_results import Finding


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is about: its tables, and for a schema store its subjects.

    Each subject has the tables whose schemas are published under it, as far as they are known.
    """

    tables: Sequence[str] = ()
    subjects: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)


class Check(msgspec.Struct, frozen=True):
    """A check, shown in a *group* by its *name*.

    `run` is called on a thread of its own, while other checks run. It may block, for seconds, and
    writes nothing. An exception is shown as the result: checks do not hide each other.
    """

    group: str
    name: str
    run: Callable[[], Iterable[Finding]]


class Diagnosis(ABC):
    """A source, a sink or a schema store inherits it to offer checks beside the framework's."""

    @abstractmethod
    def checks(self, about: Examined) -> Sequence[Check]:
        """Return the checks; connect to nothing yet.

        The framework itself checks the options, `plan`, missing tables, `check_tables`, and
        `Sink.check` of a sink that does not inherit this.
        """
