"""Calls of plugins that are waited for, for a time."""

import threading

import pytest

from headrace.connector.runtime.failures.hung import PluginHungError, returned
from headrace.plugins import MissingRequirementError
from helpers.jobs.children import SECONDS_MAX


def test_what_a_call_returns_is_returned() -> None:
    """None, too, is a result."""
    assert 3 == returned(lambda: 3, "counting", seconds=SECONDS_MAX)
    assert [None] == [returned(lambda: None, "counting", seconds=SECONDS_MAX)]


def test_what_a_call_raises_is_raised() -> None:
    """The very same exception, with the place that raised it."""

    def refuse() -> None:
        raise MissingRequirementError("closed", place="here")

    with pytest.raises(MissingRequirementError, match="here: closed") as caught:
        returned(refuse, "asking", seconds=SECONDS_MAX)

    assert "refuse" == caught.traceback[-1].name


def test_a_call_that_does_not_return_is_left() -> None:
    """Its file, line and function are named; its thread does not keep the process."""
    over = threading.Event()

    def hang() -> None:
        over.wait(SECONDS_MAX)

    with pytest.raises(PluginHungError, match=r"waiting: .* 0\.05 s, at .*:\d+ in hang") as caught:
        returned(hang, "waiting", seconds=0.05)

    (thread,) = (each for each in threading.enumerate() if each.name == "waiting")
    assert thread.daemon
    assert caught.value.restartable
    over.set()
    thread.join(SECONDS_MAX)
