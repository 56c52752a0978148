"""Sizes and times as people read them."""

from typing import Final

_KIB: Final = 1024.0
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LONG: Final = 365 * 86_400.0
_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_SHORT: Final = 10.0  # Below it, one decimal is shown.


def count_text(count: int, noun: str) -> str:
    """Return `1 segment` or `3 segments`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size_text(size_bytes: float) -> str:
    """Return `1.2 MiB`."""
    size = float(size_bytes)
    for unit in _UNITS:
        if size < _KIB or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" or size >= _SHORT else f"{size:.1f} {unit}"
        size /= _KIB
    raise AssertionError(size_bytes)


def span_text(seconds: float) -> str:
    """Return `3 s`, `5.0 min`, `2.5 h` or `12 d`."""
    if seconds > _LONG:
        return "over a year"
    for length, unit in _SPANS:
        if seconds >= length:
            count = seconds / length
            return f"{count:.0f} {unit}" if count >= _SHORT else f"{count:.1f} {unit}"
    return f"{seconds:.1f} s" if 0 < seconds < _SHORT else f"{seconds:.0f} s"
