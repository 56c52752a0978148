"""One file descriptor for several: it is readable when any of them is."""

import select


class Descriptors:
    """A set of file descriptors, as one; it does nothing where the system has no epoll."""

    def __init__(self) -> None:
        """Create an empty set."""
        self._epoll = select.epoll() if hasattr(select, "epoll") else None

    @property
    def descriptor(self) -> int | None:
        """The descriptor that is readable when any of them is; None without epoll."""
        return None if self._epoll is None or self._epoll.closed else self._epoll.fileno()

    def add(self, descriptor: int) -> None:
        """Add a descriptor."""
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Remove a descriptor without closing it."""
        if self._epoll is not None and not self._epoll.closed:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Empty the set. Safe to call twice."""
        if self._epoll is not None:
            self._epoll.close()
