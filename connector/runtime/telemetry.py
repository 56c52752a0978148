"""Sends metrics and spans of a job, or of a run of it, as the section `runtime` configures."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.foundation.processes import this_process
from headrace.plugins import Clock
from headrace.plugins.metrics import Measure
from headrace.plugins.telemetry import open_sender

if TYPE_CHECKING:
    from headrace.plugins.telemetry.otlp import OtlpSender


def sender_of(  # noqa: PLR0913 (what it sends, and of what)
    runtime: RuntimeConfig,
    job: str,
    stack: contextlib.ExitStack,
    *,
    measures: Callable[[], Iterable[Measure]],
    stages: Sequence[str] = (),
    clock: Clock | None = None,
    log: structlog.stdlib.BoundLogger | None = None,
) -> "OtlpSender | None":
    """Return a sender of *measures* until *stack* ends; None if `otel.endpoint` is not set.

    Raises as `open_sender` does.
    """
    return open_sender(
        runtime.otel_endpoint,
        runtime.otel_every_seconds,
        stack,
        key="runtime.otel.endpoint",
        instance=this_process().worker,
        measures=measures,
        labels={"job": job},
        clock=clock or SystemClock(),
        log=log or structlog.stdlib.get_logger(),
        stages=stages,
    )
