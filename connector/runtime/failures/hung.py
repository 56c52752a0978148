"""Bounds the time of a plugin's call for a thread that must not wait for it (R8)."""

import threading
from collections.abc import Callable
from typing import TypeVar

from headrace.connector.obs.blame import place_in
from headrace.plugins import FatalError

T = TypeVar("T")


class PluginHungError(FatalError):
    """A call of a plugin did not return (R8): the process ends, so that others can take over."""

    code = "plugin_hung"
    restartable = True


def hung(seconds: float, where: str, thread: threading.Thread) -> PluginHungError:
    """Return the error that *thread* has been in a call of a plugin for *seconds*."""
    place = place_in(thread)
    return PluginHungError(
        f"a call has not returned for {seconds:g} s{place and f', at {place}'}",
        place=where,
        hint="runtime.call_seconds_max says how long a source or sink may take",
    )


def returned(call: Callable[[], T], where: str, *, seconds: float) -> T:
    """Return the result of *call*, which must not use anything that belongs to this thread.

    It runs on another thread, which is abandoned if it takes longer than *seconds*.

    Raises:
        PluginHungError: it took longer; *where* names the operation.
        BaseException: *call* raised it.

    """
    found: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 (raised again on the caller's thread)
            raised.append(error)

    thread = threading.Thread(target=run, name=where, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise hung(seconds, where, thread)
    return found[0]
