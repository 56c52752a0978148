"""The context that the framework provides to a plugin."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from headrace.plugins.origin import NO_ORIGIN, Origin


class Clock(Protocol):
    """Time for plugins; tests control it."""

    def monotonic_ms(self) -> int:
        """Return milliseconds that never decrease and include suspended time."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; for display, never for decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context that the framework provides to a plugin.

    `job_key` is 16 secret bytes shared by all workers of a job: never log or publish it. A
    *read_only* plugin leaves no traces that another process could notice. In the folder `cache` a
    plugin may keep data that it can rebuild; several processes use it at once. A job that *resumes*
    has opened its sink before with this configuration: remains of a crash are its own. A sink gets
    the *origin* of the changes that it will write.
    """

    job: str
    clock: Clock
    job_key: bytes = field(repr=False)
    log: structlog.stdlib.BoundLogger
    read_only: bool = False
    cache: Path | None = None
    resumes: bool = False
    origin: Origin = NO_ORIGIN
