"""File descriptors behind one."""

import os
import select

import pytest

from headrace.sources.cassandra.logs.descriptors import Descriptors

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is of Linux")


def is_readable(descriptors: Descriptors) -> bool:
    """Return whether the one is readable."""
    assert descriptors.descriptor is not None
    return bool(select.select([descriptors.descriptor], [], [], 0)[0])


def test_any_of_them_makes_it_readable() -> None:
    """As long as it is one of them."""
    descriptors, pipes = Descriptors(), [os.pipe(), os.pipe()]
    for reads, _ in pipes:
        descriptors.add(reads)
    assert not is_readable(descriptors)
    os.write(pipes[1][1], b"x")
    assert is_readable(descriptors)
    descriptors.remove(pipes[1][0])
    assert not is_readable(descriptors)

    descriptors.close()
    descriptors.close()
    descriptors.remove(pipes[0][0])
    assert descriptors.descriptor is None
    for end in (end for pipe in pipes for end in pipe):
        os.close(end)


def test_where_there_is_no_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tells."""
    monkeypatch.delattr(select, "epoll")
    descriptors = Descriptors()
    descriptors.add(0)
    descriptors.remove(0)
    descriptors.close()
    assert descriptors.descriptor is None
