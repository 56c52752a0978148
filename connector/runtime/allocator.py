"""Lets the C library give memory back that is not used any more."""

import ctypes
from contextlib import suppress
from typing import Final

_M_MMAP_THRESHOLD: Final = -3  # From glibc's malloc.h.
_BLOCK_BYTES: Final = 256 * 1024


def return_large_blocks() -> None:
    """Let blocks of 256 KiB or more go back to the system as soon as they are freed.

    Left to itself, glibc keeps ever larger ones for later, up to 32 MiB, and what lies between them
    stays resident: 16 MB of a worker's 150. Other C libraries have no such threshold. Call it
    once, when a process starts.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)
