"""Samples of metrics: rates and quantiles of the time between two of them."""

import asyncio
import random
import statistics
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.connector.control.console.workers import WorkerPace
from headrace.connector.rest.console.samples import SAMPLES_MAX, WORKERS_MAX, Samples, quantile
from headrace.plugins.metrics import Kind, Measure, Timing, counter, exposition, gauge


async def nobody() -> Mapping[str, WorkerPace]:
    """Return no workers."""
    return {}


def samples() -> Samples:
    """Return samples without any."""
    return Samples(tuple, asyncio.Lock(), nobody)


def add(made: Samples, now_s: float, *, published: int, timing: Timing, lag_s: float) -> None:
    """Add what a job measured."""
    changes = [({"table": "t", "fate": f}, published) for f in ("cut", "delivered")]
    measures = [
        counter("headrace_changes_total", "", changes),
        Measure("headrace_publish_seconds", "", Kind.HISTOGRAM, [({}, timing)]),
        gauge("headrace_lag_seconds", "", [({"split": "a"}, lag_s), ({"split": "b"}, 0.5)]),
        gauge("headrace_backlog_bytes", "", [({"node": n}, 100) for n in ("a", "b")]),
    ]
    made.add(text_string_to_metric_families(exposition(measures).decode()), now_s)


def lines(made: Samples) -> dict[str, list[float | None]]:
    """Return the values of each line."""
    return {line["name"]: line["values"] for p in made.document()["plots"] for line in p["lines"]}


def test_rates_and_quantiles() -> None:
    """A value is of the time since the sample before; what is not known is None."""
    made, timing = samples(), Timing()
    timing.observe(60_000, times=100)
    add(made, 100.0, published=500, timing=timing, lag_s=2.0)
    timing.observe(40, times=10)
    add(made, 110.0, published=700, timing=timing, lag_s=3.0)
    add(made, 120.0, published=10, timing=Timing(), lag_s=0.1)
    found = lines(made)

    assert [None, 20.0, None] == found["this worker"]  # Another process.
    assert [None, None] == [found["p50"][0], found["p50"][2]]
    assert 0.01 < (found["p95"][1] or 0) <= 0.05  # Not what was before.
    assert [2.0, 3.0, 0.5] == found["lag"]
    assert [200.0] * 3 == found["backlog"]


def test_all_workers_are_summed_and_listed() -> None:
    """What all publish is of the time since they were looked at, also after a failed look."""
    made = samples()
    for now_s, published in ((100.0, 7), (110.0, 50), (120.0, None), (130.0, 60)):
        pace = {"a:1": WorkerPace(3, published), "b:2": WorkerPace(1, 10)} if published else None
        made.add([], now_s, pace)

    assert [None, 6.0, None, 3.5] == lines(made)["all workers"]
    listed = [{"worker": "a:1", "splits": 3, "published": 3.0}]
    assert [*listed, {"worker": "b:2", "splits": 1, "published": 0.5}] == made.document()["workers"]


def test_listed_workers_are_bounded() -> None:
    """The others are counted."""
    made = samples()
    made.add([], 1.0, {f"w:{number}": WorkerPace(1, 0) for number in range(WORKERS_MAX + 2)})

    found = made.document()
    assert (WORKERS_MAX, WORKERS_MAX + 2) == (len(found["workers"]), found["workers_count"])


def test_samples_are_bounded() -> None:
    """The oldest ones go."""
    made = samples()
    for number in range(SAMPLES_MAX + 5):
        made.add([], float(number))

    assert list(range(5, SAMPLES_MAX + 5)) == made.document()["times"]


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_quantiles_are_near_the_true_ones(share: float) -> None:
    """The quantile is in the bucket of the true one."""
    seed = random.Random(5)  # noqa: S311 (no secret)
    values = [seed.expovariate(10) for _ in range(5_000)]
    timing = Timing()
    for value in values:
        timing.observe(value * 1000)
    bounds = [*timing.bounds, float("inf")]
    counts = {b: float(sum(timing.counts[: n + 1])) for n, b in enumerate(bounds)}
    true = statistics.quantiles(values, n=100)[round(share * 100) - 1]
    found = quantile(counts, share)

    assert found is not None
    assert next(b for b in bounds if b >= true) == next(b for b in bounds if b >= found)
