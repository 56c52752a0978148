"""The checks of `headrace doctor` by sources, sinks and schema stores."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from headrace.plugins.check_results import Finding


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of the checks: a job's tables, and for a schema store its subjects.

    Each subject has the tables whose schemas are published under it, as far as known.
    """

    tables: Sequence[str] = ()
    subjects: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)


class Check(msgspec.Struct, frozen=True):
    """A check, shown in a *group* by its *name*.

    `run` is called on its own thread, while other checks run. It may block for seconds, and writes
    nothing. An exception is shown as the result: checks do not hide each other.
    """

    group: str
    name: str
    run: Callable[[], Iterable[Finding]]


class Diagnosis(ABC):
    """Inherited by a source, a sink or a schema store that offers its own checks."""

    @abstractmethod
    def checks(self, about: Examined) -> Sequence[Check]:
        """Return the checks; connect to nothing yet.

        The framework itself checks the options, `plan`, missing tables, `check_tables`, and
        `Sink.check` of a sink that does not inherit this.
        """
