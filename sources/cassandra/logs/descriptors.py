"""File descriptors behind one: it is readable when any of them is."""

import select


class Descriptors:
    """See the module; none where the system has no epoll."""

    def __init__(self) -> None:
        """Have none yet."""
        self._epoll = select.epoll() if hasattr(select, "epoll") else None

    @property
    def descriptor(self) -> int | None:
        """What is readable when any of them is; None where nothing tells."""
        return None if self._epoll is None or self._epoll.closed else self._epoll.fileno()

    def add(self, descriptor: int) -> None:
        """Have one more."""
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Have it no more; it is still open."""
        if self._epoll is not None and not self._epoll.closed:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Have none any more. Safe to call twice."""
        if self._epoll is not None:
            self._epoll.close()
