"""The sender of metrics and spans over OTLP, for a job, a run or an agent with the option."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from headrace.plugins.context import Clock
from headrace.plugins.errors import ConfigError, MissingRequirementError, Problem, install_hint
from headrace.plugins.metrics import Measure

if TYPE_CHECKING:
    from headrace.plugins.telemetry.otlp import OtlpSender


class OtelMissingError(MissingRequirementError):
    """OTLP is configured, but its packages are not installed."""

    code = "otel_missing"


def open_sender(  # noqa: PLR0913 (what it sends, and where to)
    endpoint: str | None,
    every_seconds: float,
    stack: contextlib.ExitStack,
    *,
    key: str,
    instance: str,
    measures: Callable[[], Iterable[Measure]],
    labels: Mapping[str, str],
    clock: Clock,
    log: structlog.stdlib.BoundLogger,
    stages: Sequence[str] = (),
) -> "OtlpSender | None":
    """Return a sender of *measures* until *stack* ends; None without an *endpoint*.

    *key* is the option with the endpoint. *instance* is `service.instance.id`; *labels* are those
    of all metrics and, with the prefix `headrace.`, attributes of all spans.

    Raises as `checked_sender` does.
    """
    made = checked_sender(endpoint, key=key)
    if not endpoint or made is None:
        return None
    sender = made(
        endpoint,
        every_seconds,
        measures=measures,
        labels=labels,
        instance=instance,
        stages=stages,
        clock=clock,
        log=log,
    )
    return stack.enter_context(contextlib.closing(sender))


def checked_sender(endpoint: str | None, *, key: str) -> "type[OtlpSender] | None":
    """Return the class of the sender to *endpoint*; None without one. Connects to nothing.

    *key* is the option with the endpoint.

    Raises:
        ConfigError: the endpoint is not a URL.
        OtelMissingError: the extra `otel` is not installed.

    """
    if not endpoint:
        return None
    if not endpoint.startswith(("http://", "https://")):
        hint = "http://127.0.0.1:4318"  # The given value may contain a password.
        raise ConfigError([Problem(key, "is not a URL of HTTP or HTTPS", hint)])
    try:  # Imported only here: it takes half a second.
        from headrace.plugins.telemetry.otlp import OtlpSender  # noqa: PLC0415
    except ModuleNotFoundError as error:
        said, hint = f"{error.name} is not installed", install_hint("otel")
        raise OtelMissingError(said, place=key, hint=hint) from error
    return OtlpSender
