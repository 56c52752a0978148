"""Metrics of a running process, and their text for Prometheus.

Each part returns measures of its counters. They are made for each request, on the thread of the
caller, so making them only reads numbers and directories.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    Families = Iterable[Metric]

SPLIT: Final = "split"
SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

STAGE_SECONDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 600.0),
)


class Kind(StrEnum):
    """The kind of a measure: a counter only grows, until its process ends."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Timing:
    """Durations in seconds: their number, and the number below each of *bounds*.

    One thread observes, others read.
    """

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        """Start without observations."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, ms: float, times: int = 1) -> None:
        """Observe *ms*, *times* times."""
        seconds = ms / 1000
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.sum += times * seconds


class Passed(msgspec.Struct, frozen=True):
    """When *changes* came to each of the stages but the last; None if unknown."""

    changes: int
    times_ms: Sequence[float | None]


class Stages:
    """How long changes took from each of *names* to the next one.

    Negative times, from clock differences, count as 0, and are counted in `negative`.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        """Start without observations."""
        steps = [f"{before}_to_{after}" for before, after in pairwise(names)]
        self.timings: Mapping[str, Timing] = {step: Timing(STAGE_SECONDS) for step in steps}
        self._steps = tuple(self.timings.items())
        self.negative: Counter[str] = Counter()

    def ended(self, passed: Iterable[Passed], now_ms: int) -> None:
        """Note that *passed* reached the last stage."""
        for each in passed:
            times_ms = (*each.times_ms, now_ms)
            before = times_ms[0]
            for (step, timing), after in zip(self._steps, times_ms[1:], strict=True):
                if before is not None and after is not None:
                    if after < before:
                        self.negative[step] += each.changes
                    timing.observe(max(0, after - before), each.changes)
                before = after


Sample = tuple[Mapping[str, str], float | Timing]
Across = Callable[[Sequence[float]], float]


class Measure(msgspec.Struct, frozen=True):
    """One name with its samples, each by its labels; samples of a histogram are timings.

    Names are Prometheus's: a counter's ends with `_total`, after the unit. *across* combines the
    numbers of a job's splits; None: the job has none.
    """

    name: str
    doc: str
    kind: Kind
    samples: Sequence[Sample]
    across: Across | None = sum


def gauge(name: str, doc: str, samples: Iterable[Sample], across: Across | None = sum) -> Measure:
    """Return a gauge."""
    return Measure(name, doc, Kind.GAUGE, tuple(samples), across)


def counter(name: str, doc: str, samples: Iterable[Sample]) -> Measure:
    """Return a counter."""
    return Measure(name, doc, Kind.COUNTER, tuple(samples))


def of_the_job(measures: Iterable[Measure]) -> Iterator[Measure]:
    """Yield *measures* without the label `split`: one number for all splits.

    Histograms are unchanged.
    """
    for each in measures:
        numbers: dict[tuple[tuple[str, str], ...], list[float]] = {}
        samples: list[Sample] = []
        for labels, value in each.samples:
            if SPLIT not in labels or isinstance(value, Timing):
                samples.append((labels, value))
                continue
            rest = tuple((name, said) for name, said in labels.items() if name != SPLIT)
            numbers.setdefault(rest, []).append(value)
        if each.across is not None:
            samples += [(dict(rest), each.across(found)) for rest, found in numbers.items()]
        yield replace(each, samples=samples)


def exposition(measures: Iterable[Measure], **labels: str) -> bytes:
    """Return *measures* in Prometheus's text format, with these *labels* on each sample."""
    return encoded(families(measures, **labels))[0]


def families(measures: Iterable[Measure], **labels: str) -> "list[Metric]":
    """Return *measures* as metrics of the client; equal names are one, declared by the first.

    Counters with labels are left out while they are 0.
    """
    # Imported only here: no other module needs it, and it takes 0.1 s.
    from prometheus_client.core import Metric  # noqa: PLC0415

    found: dict[str, Metric] = {}
    for each in measures:
        name = each.name.removesuffix("_total")
        family = found.setdefault(name, Metric(name, each.doc, each.kind.value))
        for own, value in each.samples:
            named = {**labels, **own}
            if isinstance(value, Timing):
                _add_timing(family, named, value)
            elif value or not own or each.kind is not Kind.COUNTER:
                family.add_sample(each.name, named, value)
    return list(found.values())


def encoded(given: "Families", accept: str = "") -> tuple[bytes, str]:
    """Return *given* as text, and its media type; *accept* is the header of the request.

    It is OpenMetrics if the header asks for it, else Prometheus's text format.
    """
    from prometheus_client import CollectorRegistry  # noqa: PLC0415
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(_Given(list(given)))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Given:
    """The metrics, for the client to collect."""

    def __init__(self, given: "list[Metric]") -> None:
        self._given = given

    def collect(self) -> "list[Metric]":
        return self._given


def _add_timing(family: "Metric", labels: dict[str, str], timing: Timing) -> None:
    counts = list(accumulate(timing.counts))  # A copy: counting continues.
    for bound, count in zip((*map(str, timing.bounds), "+Inf"), counts, strict=True):
        family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
    family.add_sample(f"{family.name}_count", labels, counts[-1])
    family.add_sample(f"{family.name}_sum", labels, timing.sum)
