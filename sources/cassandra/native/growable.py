"""Memory for tables that grow in place: zeroed, and resident only where it was written."""

import mmap
from typing import Final

_HUGE_BYTES: Final = 4 << 20  # From this size on, a half-used huge page is a small loss.


class Block:
    """Zeroed items of one type, whose number can grow.

    The first write to a page of 4 KiB costs 2 µs on a virtual machine, and 10 µs if the host must
    find the page: more than the write itself. So nothing is cleared in advance, a table that grows
    keeps its pages, and a large one grows by huge pages if the system has them.
    """

    def __init__(self, code: str, count: int) -> None:
        """Allocate *count* items of a native type by its `array` code, all zero."""
        self._code = code
        self._item_bytes = memoryview(bytes(8)).cast(code).itemsize  # type: ignore[call-overload]
        self._pages = mmap.mmap(
            -1, count * self._item_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )

    def view(self) -> memoryview:
        """Return all items. The memory lives as long as a view of it does."""
        return memoryview(self._pages).cast(self._code)  # type: ignore[call-overload,no-any-return]

    def grow(self, count: int) -> None:
        """Grow to *count* items. BufferError while a view is left; OSError without memory."""
        self._pages.resize(count * self._item_bytes)
        if len(self._pages) >= _HUGE_BYTES:
            self._pages.madvise(mmap.MADV_HUGEPAGE)
