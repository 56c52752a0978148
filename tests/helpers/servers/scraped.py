"""What a running job tells at `/metrics`."""

import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog
from prometheus_client.parser import text_string_to_metric_families

from headrace.connector.hosting.host import Host
from headrace.connector.obs.metrics import Metrics, metrics_address
from headrace.plugins.testing.doubles import context
from helpers.jobs.children import SECONDS_MAX

Samples = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]


def samples(text: str) -> Samples:
    """Return the samples of a text by their names."""
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def asked(port: int) -> Samples:
    """Ask for the metrics at *port*."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=180) as answer:
        return samples(answer.read().decode())


def one(found: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples that have these labels."""
    return sum(v for own, v in found.get(name, ()) if labels.items() <= own.items())


@contextmanager
def running(job: Path, log: structlog.stdlib.BoundLogger | None = None) -> Iterator[Metrics]:
    """Run a job on a thread, and serve its metrics; *log* takes its events."""
    host = Host(job, log=log or context().log)
    metrics = Metrics(metrics_address("127.0.0.1:0", key="--metrics"), host.measures, host.name)
    thread = threading.Thread(target=host.run, kwargs={"until_idle": False})
    thread.start()
    try:
        yield metrics
    finally:
        host.stop()
        thread.join(SECONDS_MAX)
        metrics.close()
