"""Sends the measures and spans of a job or a run over OTLP/HTTP, on its own thread.

The job does not wait for the endpoint: while it does not answer, its data is dropped. Certificates,
headers and compression are set by OpenTelemetry's environment variables.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from threading import Event, Thread
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as points
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event as SpanEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from headrace import __version__
from headrace.plugins.context import Clock
from headrace.plugins.metrics import Kind, Measure, Timing
from headrace.plugins.telemetry.spans import BatchTrace, Trail, WorkTrace

SEND_SECONDS_MAX: Final = 2.0  # For one request, including retries.
CLOSE_SECONDS_MAX: Final = 5.0
# Batches, and parts of bulk work, waiting to be sent; above it the oldest are dropped.
BATCHES_MAX: Final = 4_096
REQUEST_BATCHES_MAX: Final = 256
STEPS: Final = ("read", "encode", "deliver", "commit")
_SCOPE: Final = InstrumentationScope("headrace", __version__)
_NS: Final = 1_000_000  # In a millisecond.
_CUMULATIVE: Final = points.AggregationTemporality.CUMULATIVE


class OtlpSender:
    """The sender of one process. Trails may be used on any thread."""

    def __init__(  # noqa: PLR0913 (what it sends, and where to)
        self,
        endpoint: str,
        every_seconds: float,
        *,
        measures: Callable[[], Iterable[Measure]],
        labels: Mapping[str, str],
        instance: str,
        stages: Sequence[str],
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """Start the thread. *stages* are the names of the stages that batches have times of.

        Every metric and every span has the *labels* as attributes.
        """
        # Otherwise each failed request is logged, with its URL.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        base = endpoint.rstrip("/")
        self._spans = OTLPSpanExporter(f"{base}/v1/traces", timeout=SEND_SECONDS_MAX)
        self._metrics = OTLPMetricExporter(f"{base}/v1/metrics", timeout=SEND_SECONDS_MAX)
        self._resource = Resource.create(
            {
                "service.name": "headrace",
                "service.version": __version__,
                "service.instance.id": instance,
            }
        )
        self._every_seconds = every_seconds
        self._measures = measures
        self._labels = labels
        self._attributes = {f"headrace.{name}": value for name, value in labels.items()}
        self._stages = stages
        self._clock = clock
        self._log = log
        self._ids = RandomIdGenerator()
        self._begun_ns = clock.wall_ms() * _NS
        self._batches: deque[BatchTrace | WorkTrace] = deque(maxlen=BATCHES_MAX)
        self._answers = True
        self._closing = Event()
        self._thread = Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def trail(self, split: str) -> Trail:
        """Return a trail that sends the batches of a split once they are committed."""
        return Trail(split, self._batches.append)

    def add(self, trace: WorkTrace) -> None:
        """Send a part of bulk work. Any thread; does not block."""
        self._batches.append(trace)

    def close(self) -> None:
        """Send the rest and end. Blocks up to `CLOSE_SECONDS_MAX`."""
        self._closing.set()
        self._thread.join(CLOSE_SECONDS_MAX)
        self._spans.shutdown()  # type: ignore[no-untyped-call]  # Untyped.
        self._metrics.shutdown()

    def _run(self) -> None:
        ends = False
        while not ends:
            ends = self._closing.wait(self._every_seconds)
            answers = self._send()
            if self._answers and not answers:
                self._log.warning("otlp_not_sent")
            self._answers = answers

    def _send(self) -> bool:
        """Send everything. Return whether it arrived. The rest is dropped."""
        while self._batches:
            count = min(len(self._batches), REQUEST_BATCHES_MAX)
            taken = [self._batches.popleft() for _ in range(count)]
            spans = [
                span
                for trace in taken
                for span in (
                    [self._span_of(trace)]
                    if isinstance(trace, WorkTrace)
                    else self._spans_of(trace)
                )
            ]
            if self._spans.export(spans) is not SpanExportResult.SUCCESS:
                self._batches.clear()
                return False
        metrics = self._metrics_of(self._measures())
        if not metrics:
            return True
        scope = points.ScopeMetrics(_SCOPE, metrics, "")
        whole = points.MetricsData([points.ResourceMetrics(self._resource, [scope], "")])
        return self._metrics.export(whole) is points.MetricExportResult.SUCCESS

    def _span_of(self, trace: WorkTrace) -> ReadableSpan:
        failed = Status(StatusCode.ERROR, trace.problem)
        return ReadableSpan(
            trace.name,
            self._context(self._ids.generate_trace_id()),
            resource=self._resource,
            attributes={**self._attributes, **trace.attributes},
            status=failed if trace.problem else Status(),
            start_time=trace.start_ms * _NS,
            end_time=trace.end_ms * _NS,
            instrumentation_scope=_SCOPE,
        )

    def _spans_of(self, trace: BatchTrace) -> Iterator[ReadableSpan]:
        """Return the span of a batch, and below it those of its steps, in order."""
        ahead_ms = self._clock.wall_ms() - self._clock.monotonic_ms()
        times_ms = (
            trace.read_ms,
            trace.encode_ms,
            trace.sent_ms,
            trace.settled_ms,
            trace.committed_ms,
        )
        times_ns = [(ahead_ms + ms) * _NS for ms in times_ms]
        trace_id = self._ids.generate_trace_id()
        whole = self._context(trace_id)
        reached = zip(self._stages, trace.stages_ms, strict=False)
        yield ReadableSpan(
            "batch",
            whole,
            resource=self._resource,
            attributes={
                **self._attributes,
                "headrace.split": trace.split,
                "headrace.batch": trace.seq,
                "headrace.records": trace.records,
                "headrace.bytes": trace.size_bytes,
                "headrace.attempts": trace.attempts,
            },
            events=[SpanEvent(n, timestamp=int(ms * _NS)) for n, ms in reached if ms is not None],
            start_time=times_ns[0],
            end_time=times_ns[-1],
            instrumentation_scope=_SCOPE,
        )
        for name, (start_ns, end_ns) in zip(STEPS, pairwise(times_ns), strict=True):
            yield ReadableSpan(
                name,
                self._context(trace_id),
                whole,
                self._resource,
                start_time=start_ns,
                end_time=end_ns,
                instrumentation_scope=_SCOPE,
            )

    def _context(self, trace_id: int) -> SpanContext:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(
            trace_id, self._ids.generate_span_id(), is_remote=False, trace_flags=sampled
        )

    def _metrics_of(self, measures: Iterable[Measure]) -> Sequence[points.Metric]:
        """Return measures as in `/metrics`: merged by name, without counters of 0."""
        found: dict[str, tuple[Measure, list[_Point]]] = {}
        now_ns = self._clock.wall_ms() * _NS
        for each in measures:
            _, samples = found.setdefault(each.name, (each, []))
            samples += [
                self._point({**self._labels, **labels}, value, now_ns)
                for labels, value in each.samples
                if value or not labels or each.kind is not Kind.COUNTER
            ]
        return [points.Metric(m.name, m.doc, "", _data(m.kind, each)) for m, each in found.values()]

    def _point(self, labels: dict[str, str], value: float | Timing, now_ns: int) -> "_Point":
        if not isinstance(value, Timing):
            return points.NumberDataPoint(labels, self._begun_ns, now_ns, value)
        counts = list(value.counts)  # A copy: counting continues.
        return points.HistogramDataPoint(
            attributes=labels,
            start_time_unix_nano=self._begun_ns,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=value.sum,
            bucket_counts=counts,
            explicit_bounds=value.bounds,
            min=None,  # type: ignore[arg-type]  # Unknown: left out.
            max=None,  # type: ignore[arg-type]
        )


_Point = points.NumberDataPoint | points.HistogramDataPoint


def _data(kind: Kind, samples: Sequence[_Point]) -> points.Sum | points.Gauge | points.Histogram:
    if kind is Kind.HISTOGRAM:
        timings = [each for each in samples if isinstance(each, points.HistogramDataPoint)]
        return points.Histogram(timings, _CUMULATIVE)
    numbers = [each for each in samples if isinstance(each, points.NumberDataPoint)]
    if kind is Kind.COUNTER:
        return points.Sum(numbers, _CUMULATIVE, is_monotonic=True)
    return points.Gauge(numbers)
