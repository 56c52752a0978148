"""What sends metrics and spans over OTLP, for a job or a run that asks for it."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.foundation.processes import this_process
from headrace.plugins import Clock, ConfigError, MissingRequirementError, Problem
from headrace.plugins.metrics import Measure

if TYPE_CHECKING:
    from headrace.connector.obs.otlp import OtlpSender


class OtelMissingError(MissingRequirementError):
    """OTLP is asked for, and the packages for it are not installed."""

    code = "otel_missing"


def open_sender(  # noqa: PLR0913 (what it sends, and of what)
    runtime: RuntimeConfig,
    job: str,
    stack: contextlib.ExitStack,
    *,
    measures: Callable[[], Iterable[Measure]],
    stages: Sequence[str] = (),
    clock: Clock | None = None,
    log: structlog.stdlib.BoundLogger | None = None,
) -> "OtlpSender | None":
    """Return what sends *measures* until *stack* ends; None if `otel.endpoint` is not set.

    Raises:
        ConfigError: the endpoint is not a URL.
        OtelMissingError: the extra `otel` is not installed.

    """
    if not runtime.otel_endpoint:
        return None
    if not runtime.otel_endpoint.startswith(("http://", "https://")):
        hint = "http://127.0.0.1:4318"  # What was given may hold a password.
        said = "is not a URL of HTTP or HTTPS"
        raise ConfigError([Problem("runtime.otel.endpoint", said, hint)])
    try:  # Only here: it takes half a second to import.
        from headrace.connector.obs.otlp import OtlpSender  # noqa: PLC0415
    except ModuleNotFoundError as error:
        from headrace.connector.foundation.extras import install_hint  # noqa: PLC0415

        said, hint = f"{error.name} is not installed", install_hint("otel")
        raise OtelMissingError(said, place="runtime.otel.endpoint", hint=hint) from error
    sender = OtlpSender(
        runtime.otel_endpoint,
        runtime.otel_every_seconds,
        measures=measures,
        job=job,
        worker=this_process().worker,
        stages=stages,
        clock=clock or SystemClock(),
        log=log or structlog.stdlib.get_logger(),
    )
    return stack.enter_context(contextlib.closing(sender))
