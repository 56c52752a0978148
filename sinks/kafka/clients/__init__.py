"""Producers: direct calls of librdkafka if possible, otherwise confluent-kafka."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import confluent_kafka
from confluent_kafka import KafkaException, Producer, cimpl

from headrace.plugins import ConfigError, Problem
from headrace.sinks.kafka.clients.client import Client, OnError
from headrace.sinks.kafka.clients.confluent import ConfluentClient

try:
    from headrace.sinks.kafka.clients.librdkafka import load
except ImportError:  # Installed without a compiler.
    load = None  # type: ignore[assignment]

__all__ = ["Client", "OnError", "new_client", "new_producer", "why_not_direct"]


@cache
def why_not_direct() -> str:
    """Return why this process cannot call librdkafka directly; nothing if it can."""
    if load is None:
        return "headrace was installed without machine code"
    return load(cimpl.__file__, confluent_kafka.libversion()[1])


def new_client(options: Mapping[str, str], on_error: OnError, *, place: str) -> Client:
    """Return a client, which connects in the background.

    Raises:
        ConfigError: librdkafka rejects a value.

    """
    make: Callable[[Mapping[str, str], OnError], Client] = ConfluentClient
    if not why_not_direct():
        from headrace.sinks.kafka.clients.direct import DirectClient  # noqa: PLC0415 (if possible)

        make = DirectClient
    with _refusals(place):
        return make(options, on_error)


def new_producer(options: Mapping[str, object], *, place: str) -> Producer:
    """Return a producer of confluent-kafka, for few messages. Raises ConfigError."""
    with _refusals(place):
        return Producer(dict(options))


@contextmanager
def _refusals(place: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        problem = Problem("", error.args[0].str(), "librdkafka's CONFIGURATION.md lists values")
        raise ConfigError([problem], place=place) from error
