"""A collector of OpenTelemetry that keeps what it is sent over OTLP/HTTP."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """What was received; lists only grow."""

    def __init__(self) -> None:
        """Nothing came yet."""
        self.url = ""
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []

    def take(self, path: str, body: bytes) -> None:
        """Keep one request."""
        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))

    def spans(self) -> Sequence[Span]:
        """Return all spans."""
        return [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def of_all(self, name: str) -> Sequence[NumberDataPoint]:
        """Return the points of one sum, of all requests."""
        return [
            point
            for request in list(self.metrics)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.sum.data_points
            if metric.name == name
        ]

    def newest(self) -> dict[str, Metric]:
        """Return the metrics of the last request by their names."""
        return {
            metric.name: metric
            for request in self.metrics[-1:]
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def attributes(pairs: Sequence[KeyValue]) -> dict[str, object]:
    """Return attributes as a dictionary."""
    return {p.key: getattr(p.value, str(p.value.WhichOneof("value"))) for p in pairs}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Serve a collector on a free port of this machine."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Take one request."""
            collector.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
