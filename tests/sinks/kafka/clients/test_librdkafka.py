"""Which librdkafka is called."""

import ctypes.util
from collections.abc import Callable
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from confluent_kafka import cimpl

from helpers.servers.kafka_clients import DIRECT, WAYS

if TYPE_CHECKING or DIRECT in WAYS:
    from headrace.sinks.kafka.clients import librdkafka

pytestmark = pytest.mark.skipif(DIRECT not in WAYS, reason="it is machine code")

VERSION: int = confluent_kafka.libversion()[1]


def test_the_one_that_confluent_kafka_loaded() -> None:
    """It has every function, and the version that confluent-kafka says."""
    assert "" == librdkafka.load(cimpl.__file__, VERSION)


@pytest.mark.parametrize(
    ("path", "version", "expected"),
    [
        (lambda: cimpl.__file__, VERSION + 1, "confluent-kafka has version"),
        (lambda: "/no/such/library", VERSION, "cannot be loaded"),
        (lambda: ctypes.util.find_library("c"), VERSION, "librdkafka has no rd_kafka_version"),
    ],
    ids=["another version", "no library", "another library"],
)
def test_another_is_refused(path: Callable[[], str], version: int, expected: str) -> None:
    """With the reason; what was found before stays in use."""
    assert expected in librdkafka.load(path(), version)
    assert "" == librdkafka.load(cimpl.__file__, VERSION)


def test_another_major_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its structures may differ."""
    monkeypatch.setattr(librdkafka, "VERSION_END", VERSION)

    assert "is not known" in librdkafka.load(cimpl.__file__, VERSION)
