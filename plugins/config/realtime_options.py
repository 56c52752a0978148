"""Options of sources whose logs can be read as they are written."""

from dataclasses import dataclass
from typing import Final

from headrace.plugins.config.options import option

LOG: Final = "log"
REALTIME: Final = "realtime"
FALLBACK, BLOCK, FAIL = "fallback", "block", "fail"


@dataclass(frozen=True, kw_only=True)
class RealtimeOptions:
    """The options of a source that offers `Realtime`; its config class inherits them."""

    mode: str = option(
        "How logs are read: log, at each tick in large batches, or realtime, as they are written.",
        default=LOG,
        choices=(LOG, REALTIME),
    )
    realtime_buffer_bytes: int | None = option(
        "The most that is read and not acknowledged in mode realtime; default: four segments.",
        name="realtime.buffer_bytes",
        default=None,
        minimum=1,
    )
    realtime_on_overflow: str = option(
        "When that is reached: fallback (mode log until the backlog is small), block (wait until"
        " all of it is acknowledged) or fail (the splits stop).",
        name="realtime.on_overflow",
        default=FALLBACK,
        choices=(FALLBACK, BLOCK, FAIL),
    )
    realtime_return_after_seconds: float = option(
        "How long the backlog must be below a quarter of the buffer before mode realtime returns.",
        name="realtime.return_after_seconds",
        default=30.0,
        minimum=0,
        maximum=1_800,
    )
