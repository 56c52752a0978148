"""What brokers measure of a record at the least; that they do is shown by tests/real."""

import random
from pathlib import Path

import pytest

from headrace.plugins import parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sinks.kafka.bounds import KNOWN_MS, TopicBounds, size_of
from headrace.sinks.kafka.config import KafkaConfig

RANDOM = random.Random(0).randbytes(100_000)  # noqa: S311 (a test's dice)
HEADERS = (("a", b"b"),)


def bounds(**options: str) -> TopicBounds:
    """Return the bounds of topics for a sink with *options*."""
    return bounds_at(DrivenClock(), **options)


def bounds_at(clock: DrivenClock, **options: str) -> TopicBounds:
    """Return the same, with a clock of the caller's."""
    given = {"bootstrap.servers": "h:1", "topic": "t", **options}
    return TopicBounds(parse_config(KafkaConfig, given), clock)


def test_without_compression_it_is_the_size() -> None:
    """Nothing is left to judge."""
    assert size_of(b"k", RANDOM, HEADERS) == bounds().least_size(b"k", RANDOM, HEADERS)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_compression_makes_it_less(codec: str) -> None:
    """What cannot be compressed stays large, what can be is small; there is a margin."""
    found = bounds(**{"compression.type": codec})

    assert 80_000 <= found.least_size(None, RANDOM, ()) < 100_000
    assert found.least_size(b"k", b"x" * 100_000, HEADERS) < 10_000


@pytest.mark.parametrize("level", ["-1", "0", "1", "9", "12"])
@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_it_is_compressed_at_the_level_that_is_asked_for(codec: str, level: str) -> None:
    """All levels that the client takes are known here."""
    found = bounds(**{"compression.type": codec, "compression.level": level})

    assert 80_000 <= found.least_size(None, RANDOM, ()) < 100_000


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_higher_level_compresses_more(codec: str) -> None:
    """Judged at a lower one, what the brokers take could be refused."""
    low, high = (
        bounds(**{"compression.type": codec, "compression.level": level}) for level in ("1", "9")
    )

    text = Path(__file__).read_bytes() * 3

    assert high.least_size(None, text, ()) < low.least_size(None, text, ())


def test_the_least_size_that_was_refused_is_remembered_for_a_while() -> None:
    """The topic's bound may be raised; each topic has a size of its own."""
    clock = DrivenClock()
    found = bounds_at(clock)
    found.refuse("t", 5_000)
    clock.advance(KNOWN_MS - 1)
    found.refuse("t", 4_000)
    found.refuse("t", 6_000)

    assert {"t": 4_000} == found.refused(["t", "other"])
    clock.advance(KNOWN_MS)
    assert {} == found.refused(["t"])
    found.refuse("t", 6_000)
    assert {"t": 6_000} == found.refused(["t"])


def test_a_size_that_cannot_be_read_is_not_remembered() -> None:
    """Every record would have that size, or a larger one."""
    found = bounds()

    found.refuse("t", 0)

    assert {} == found.refused(["t"])
