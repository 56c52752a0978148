"""Samples for the plots: of changes published by all workers, and of metrics of this one's jobs.

The newest are kept, in memory.

Counters become rates, and histograms quantiles, of the time between two samples. An unknown number,
such as after the restart of a process, is None.
"""

import asyncio
import contextlib
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from headrace.connector.control.console.workers import WorkerPace
from headrace.connector.obs import structlog
from headrace.plugins import HeadraceError

if TYPE_CHECKING:
    from headrace.plugins.metrics import Families

EVERY_SECONDS: Final = 15.0
SHARE_MAX: Final = 0.02  # The greatest share of time that samples may take.
SAMPLES_MAX: Final = 240
WORKERS_MAX: Final = 100  # The number listed; the sum has all.
QUANTILES: Final = (0.5, 0.95, 0.99)

_PLOTS: Final = (
    ("changes", "Changes published", "per second", ("all workers", "this worker")),
    ("publish", "Time to publish a batch", "seconds", tuple(f"p{q * 100:.0f}" for q in QUANTILES)),
    ("lag", "Lag of the slowest split", "seconds", ("lag",)),
    ("backlog", "Unread bytes of logs", "bytes", ("backlog",)),
)
_PUBLISH: Final = "headrace_publish_seconds_bucket"
Buckets = Mapping[float, float]
Values = Mapping[str, float | None]
Workers = Mapping[str, WorkerPace]


class Samples:
    """See the module. Belongs to the event loop's thread."""

    def __init__(
        self,
        metrics: "Callable[[], Families]",
        asking: asyncio.Lock,
        look: Callable[[], Awaitable[Workers]],
    ) -> None:
        """*metrics* is called on another thread, while *asking* is held; it may block for seconds.

        *look* returns the changes that workers published since its last call. Sampling begins with
        `start`.
        """
        self._metrics = metrics
        self._look = look
        self._asking = asking
        self._samples: deque[tuple[float, Values]] = deque(maxlen=SAMPLES_MAX)
        self._before: tuple[float, float, Buckets] | None = None
        self._looked_s: float | None = None
        self._workers: Sequence[tuple[str, int, float | None]] = ()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Take samples periodically, until `close`. Safe to call twice."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="samples")

    async def close(self) -> None:
        """Stop sampling."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def add(self, found: "Families", now_s: float, workers: Workers | None = None) -> None:
        """Add a sample of *found* and *workers*, read at *now_s*, in seconds since 1970.

        *workers* is None if they are currently unknown.
        """
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
        values: dict[str, float | None] = {"this worker": None, "lag": lag, "backlog": backlog}
        values["all workers"] = self._all_published(workers, now_s)
        values |= dict.fromkeys(_PLOTS[1][3])
        if self._before is not None:
            then_s, before, old = self._before
            if published >= before and now_s > then_s:
                values["this worker"] = (published - before) / (now_s - then_s)
            new = {bound: buckets[bound] - old.get(bound, 0.0) for bound in sorted(buckets)}
            values |= {f"p{q * 100:.0f}": quantile(new, q) for q in QUANTILES}
        self._before = now_s, published, buckets
        self._samples.append((now_s, values))

    def _all_published(self, workers: Workers | None, now_s: float) -> float | None:
        """Return how many changes all workers publish a second; keep the rate of each."""
        if workers is None:
            self._workers = ()
            return None
        then_s, self._looked_s = self._looked_s, now_s
        took_s = now_s - then_s if then_s is not None and now_s > then_s else None
        self._workers = [
            (name, pace.splits, None if took_s is None else pace.published / took_s)
            for name, pace in sorted(workers.items())
        ]
        if took_s is None:
            return None
        return sum(pace.published for pace in workers.values()) / took_s

    def document(self) -> Mapping[str, Any]:  # Any: JSON.
        """Return the plots: for each line a value, or None, for each of `times`."""
        return {
            "every_seconds": EVERY_SECONDS,
            "workers": [
                {"worker": name, "splits": splits, "published": published}
                for name, splits, published in self._workers[:WORKERS_MAX]
            ],
            "workers_count": len(self._workers),
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

    async def _asked(self) -> Workers | None:
        try:
            return await self._look()
        except HeadraceError:  # The pages say why; the next sample has the missed changes.
            return None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = time.monotonic()
            try:
                async with self._asking:
                    found = await loop.run_in_executor(None, lambda: list(self._metrics()))
                self.add(found, time.time(), await self._asked())
            except Exception:  # noqa: BLE001 (the next sample may succeed)
                structlog.get_logger().exception("sample_failed")
            took = time.monotonic() - began
            await asyncio.sleep(max(EVERY_SECONDS, took / SHARE_MAX))


def quantile(buckets: Buckets, share: float) -> float | None:
    """Return the quantile at *share* of a histogram; None if it is empty.

    *buckets* are cumulative counts by upper bound, ascending; values are taken as even within one.
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
