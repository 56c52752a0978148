"""The options of holding and disposing of segments, which agents and jobs have in common."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.plugins import option
from headrace.sources.cassandra.keeper import Disposal

STOP: Final = "stop_holding"
DROP: Final = "drop_oldest"
_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOptions:
    """How long and how much is held."""

    hold_retention_seconds: int = option(
        "How old a finished segment becomes in any case.",
        default=0,
        minimum=0,
        name="hold.retention_seconds",
    )
    hold_bytes_max: int | None = option(
        "How much is held at most; default: what hold.min_free leaves.",
        default=None,
        minimum=1,
        name="hold.bytes_max",
    )
    hold_min_free: int = option(
        "So much of the disk stays free of held segments.",
        default=5 * 1024**3,
        minimum=0,
        name="hold.min_free",
        unit="bytes",
    )
    hold_full: str = option(
        "At these bounds: stop_holding (Cassandra's own limit counts again), or drop_oldest.",
        default=STOP,
        choices=(STOP, DROP),
        name="hold.full",
    )

    def disposing(self, archive: Path | None = None) -> Disposal:
        """Return how finished segments are deleted, or archived."""
        return Disposal(
            keep=False,
            archive=archive,
            retention_ms=self.hold_retention_seconds * _MS,
            bytes_max=self.hold_bytes_max,
            min_free=self.hold_min_free,
            drop_oldest=self.hold_full == DROP,
        )
