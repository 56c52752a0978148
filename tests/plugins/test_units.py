"""Durations and sizes carry their unit, in the key or in the value."""

from dataclasses import dataclass
from decimal import Decimal

import pytest

from headrace.plugins import ConfigError, option, parse_config
from headrace.plugins.config.options import quantity, unit_in


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("linger.ms", "ms"),
        ("tick_min_ms", "ms"),
        ("commit_max_seconds", "seconds"),
        ("queue.buffering.max.kbytes", "kbytes"),
        ("batch_bytes_max", "bytes"),
        ("items", ""),
        ("port", ""),
        ("mseconds", ""),
    ],
)
def test_unit_in_key(key: str, unit: str) -> None:
    """A unit is a whole word of the key."""
    assert unit == unit_in(key)


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("500ms", "ms", 500),
        ("2s", "ms", 2_000),
        ("1.5h", "seconds", 5_400),
        ("250 ms", "seconds", Decimal("0.25")),
        ("1d", "seconds", 86_400),
        ("16MiB", "bytes", 16 << 20),
        ("64KiB", "kbytes", 64),
        ("1GiB", "ms", None),
        ("5s", "bytes", None),
        ("16MB", "bytes", None),
        ("500", "ms", None),
        ("-5s", "ms", None),
        ("5S", "ms", None),
    ],
)
def test_quantity(text: str, unit: str, expected: int | Decimal | None) -> None:
    """A quantity is a number and a unit of the right kind, converted without loss."""
    assert expected == quantity(text, unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Options with units in and beside their keys."""

    wait_seconds: float = option("How long.", default=1.0, minimum=0, maximum=60)
    tick_ms: int = option("How often.", default=100)
    delay: int = option("How late.", default=0, unit="ms")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"wait_seconds": "500ms"}, (0.5, 100, 0)),
        ({"wait_seconds": 2}, (2.0, 100, 0)),
        ({"tick_ms": "1s", "delay": "2s"}, (1.0, 1_000, 2_000)),
    ],
)
def test_options(given: dict[str, object], expected: tuple[float, int, int]) -> None:
    """Numbers are of the key's unit; a quantity may have another."""
    found = parse_config(Sample, given)

    assert expected == (found.wait_seconds, found.tick_ms, found.delay)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delay": 5}, "expected a number with its unit, found 5"),
        ({"delay": "5"}, "as in 500ms, 10s, 2h"),
        ({"delay": "5MiB"}, "expected a number with its unit"),
        ({"tick_ms": "1.5"}, "whole number"),
        ({"tick_ms": "0.1ms"}, "whole number"),
        ({"tick_ms": "5MiB"}, "whole number"),
        ({"wait_seconds": "2m"}, "must be at most 60"),
    ],
)
def test_refused(given: dict[str, object], message: str) -> None:
    """A number without unit, or with another kind's, is a mistake; bounds hold in any unit."""
    with pytest.raises(ConfigError, match=message):
        parse_config(Sample, given)
