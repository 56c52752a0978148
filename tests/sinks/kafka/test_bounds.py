"""What brokers measure of a record at the least; that they do is shown by tests/real."""

import random

import pytest

from headrace.plugins import parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sinks.kafka.bounds import TopicBounds, size_of
from headrace.sinks.kafka.config import KafkaConfig

RANDOM = random.Random(0).randbytes(100_000)  # noqa: S311 (a test's dice)
HEADERS = (("a", b"b"),)


def bounds(**options: str) -> TopicBounds:
    """Return the bounds of topics for a sink with *options*."""
    given = {"bootstrap.servers": "h:1", "topic": "t", **options}
    return TopicBounds(parse_config(KafkaConfig, given), DrivenClock())


def test_without_compression_it_is_the_size() -> None:
    """Nothing is left to judge."""
    assert size_of(b"k", RANDOM, HEADERS) == bounds().least_size(b"k", RANDOM, HEADERS)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_compression_makes_it_less(codec: str) -> None:
    """What cannot be compressed stays large, what can be is small; there is a margin."""
    found = bounds(**{"compression.type": codec})

    assert 80_000 <= found.least_size(None, RANDOM, ()) < 100_000
    assert found.least_size(b"k", b"x" * 100_000, HEADERS) < 10_000


def test_a_level_of_compression_leaves_it_open() -> None:
    """It may compress by more than the margin, so the broker decides."""
    found = bounds(**{"compression.type": "zstd", "compression.level": "9"})

    assert 0 == found.least_size(None, RANDOM, ())
