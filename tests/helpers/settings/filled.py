"""Loops whose asserts must have looked at something."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def filled(items: Iterable[T]) -> Iterator[T]:
    """Yield *items*, and fail when there were none: the test would otherwise have shown nothing."""
    none = True
    for item in items:
        none = False
        yield item
    assert not none, "there was nothing to look at"
