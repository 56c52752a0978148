"""Samples of the metrics of all jobs, for the plots: the newest of them, in memory.

Counters become rates, and histograms quantiles, of the time between two samples. A number that is
not known, such as after the restart of a process, is None.
"""

import asyncio
import contextlib
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from headrace.connector.obs import structlog

if TYPE_CHECKING:
    from headrace.plugins.metrics import Families

EVERY_SECONDS: Final = 15.0
SHARE_MAX: Final = 0.02  # Of the time, at most, one sample takes.
SAMPLES_MAX: Final = 240
QUANTILES: Final = (0.5, 0.95, 0.99)

_PLOTS: Final = (
    ("changes", "Changes published", "per second", ("published",)),
    ("publish", "Time to publish a batch", "seconds", tuple(f"p{q * 100:.0f}" for q in QUANTILES)),
    ("lag", "Lag of the slowest split", "seconds", ("lag",)),
    ("backlog", "Unread bytes of logs", "bytes", ("backlog",)),
)
_PUBLISH: Final = "headrace_publish_seconds_bucket"
Buckets = Mapping[float, float]
Values = Mapping[str, float | None]


class Samples:
    """See the module. Belongs to the event loop's thread."""

    def __init__(self, metrics: "Callable[[], Families]", asking: asyncio.Lock) -> None:
        """*metrics* is called on another thread, while *asking* is held; it may block for seconds.

        Nothing is sampled before `start`.
        """
        self._metrics = metrics
        self._asking = asking
        self._samples: deque[tuple[float, Values]] = deque(maxlen=SAMPLES_MAX)
        self._before: tuple[float, float, Buckets] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Take a sample now and then, until `close`. Safe to call twice."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="samples")

    async def close(self) -> None:
        """Take no more samples."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def add(self, found: "Families", now_s: float) -> None:
        """Add a sample of *found*, which was read at *now_s*, in seconds since 1970."""
        published, lag, backlog = 0.0, None, 0.0
        buckets: defaultdict[float, float] = defaultdict(float)
        for sample in (sample for family in found for sample in family.samples):
            if sample.name == "headrace_changes_total" and sample.labels["fate"] == "delivered":
                published += sample.value
            elif sample.name == _PUBLISH:
                buckets[float(sample.labels["le"])] += sample.value
            elif sample.name == "headrace_lag_seconds":
                lag = max(lag or 0.0, sample.value)
            elif sample.name == "headrace_backlog_bytes":
                backlog += sample.value
        values: dict[str, float | None] = {"published": None, "lag": lag, "backlog": backlog}
        values |= dict.fromkeys(_PLOTS[1][3])
        if self._before is not None:
            then_s, before, old = self._before
            if published >= before and now_s > then_s:
                values["published"] = (published - before) / (now_s - then_s)
            new = {bound: buckets[bound] - old.get(bound, 0.0) for bound in sorted(buckets)}
            values |= {f"p{q * 100:.0f}": quantile(new, q) for q in QUANTILES}
        self._before = now_s, published, buckets
        self._samples.append((now_s, values))

    def document(self) -> Mapping[str, Any]:  # Any: JSON.
        """Return the plots: for each line a value, or None, for each of `times`."""
        return {
            "every_seconds": EVERY_SECONDS,
            "times": [round(now_s) for now_s, _ in self._samples],
            "plots": [
                {
                    "name": name,
                    "title": title,
                    "unit": unit,
                    "lines": [
                        {"name": line, "values": [values[line] for _, values in self._samples]}
                        for line in lines
                    ],
                }
                for name, title, unit, lines in _PLOTS
            ],
        }

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = time.monotonic()
            try:
                async with self._asking:
                    found = await loop.run_in_executor(None, lambda: list(self._metrics()))
                self.add(found, time.time())
            except Exception:  # noqa: BLE001 (the next sample may succeed)
                structlog.get_logger().exception("sample_failed")
            took = time.monotonic() - began
            await asyncio.sleep(max(EVERY_SECONDS, took / SHARE_MAX))


def quantile(buckets: Buckets, share: float) -> float | None:
    """Return the value below which *share* of what was counted is; None if nothing was.

    *buckets* are cumulated, by their upper bound, ascending; within one values are even.
    """
    counts: Sequence[tuple[float, float]] = [(0.0, 0.0), *buckets.items()]
    total = counts[-1][1]
    if total <= 0 or any(count < before for (_, before), (_, count) in pairwise(counts)):
        return None
    for (low, before), (high, count) in pairwise(counts):
        if count >= share * total:
            if high == float("inf"):
                return low
            return low + (high - low) * (share * total - before) / (count - before)
    return None
