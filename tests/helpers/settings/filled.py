"""Loops whose asserts must run at least once."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def filled(items: Iterable[T]) -> Iterator[T]:
    """Yield *items*, and fail if there are none: the test would otherwise show nothing."""
    none = True
    for item in items:
        none = False
        yield item
    assert not none, "there was nothing to look at"
