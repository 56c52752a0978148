"""What the framework lends a plugin."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog


class Clock(Protocol):
    """Time as plugins see it; tests drive it."""

    def monotonic_ms(self) -> int:
        """Return milliseconds that never go back and count suspended time."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; for display, never for decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the framework lends a plugin.

    `job_key` is 16 secret bytes shared by all workers of a job: never log or publish it. A
    *spectator* only looks: it leaves nothing behind that anybody else could notice. In the folder
    `cache` a plugin may keep what it can find again; several processes use it at once. A job that
    *resumes* has opened its sink before, as it is configured: what a death has left there is its.
    """

    job: str
    clock: Clock
    job_key: bytes = field(repr=False)
    log: structlog.stdlib.BoundLogger
    spectator: bool = False
    cache: Path | None = None
    resumes: bool = False
