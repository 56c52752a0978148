"""Charts of a page, as SVG: bars of counts, and figures over a time axis."""

import datetime as dt
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

STYLE: Final = (
    "<style>body{font:15px sans-serif;max-width:720px;margin:2em auto}"
    "td,th{padding:2px 12px;text-align:left}svg text{font:12px sans-serif}</style>"
)
BARS: Final = 40  # The bars of a chart over time.
_WIDTH: Final = 640
_LABELS: Final = 220
_HEIGHT: Final = 90
_LEFT, _TOP = 70, 10  # Room for the numbers of the vertical axis.
_TICKS: Final = 4


def head(title: str) -> str:
    """Return the beginning of a page."""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8>\n<title>{escape(title)}</title>\n"
        f"{STYLE}\n<h1>{escape(title)}</h1>"
    )


def bars(counts: Mapping[str, tuple[int, str]]) -> str:
    """Return a bar for each name, with its count and in its colour."""
    most = max(count for count, _ in counts.values()) or 1
    lines = []
    for place, (name, (count, color)) in enumerate(counts.items()):
        y = 24 * place
        width = round((_WIDTH - _LABELS) * count / most)
        lines.append(
            f'<text x="0" y="{y + 15}">{escape(name)}</text>'
            f'<rect x="130" y="{y + 2}" width="{width}" height="18" fill="{color}"/>'
            f'<text x="{138 + width}" y="{y + 15}">{count:,}</text>'
        )
    return f'<svg width="{_WIDTH}" height="{24 * len(counts)}">{"".join(lines)}</svg>'


def over_time(title: str, values: Sequence[float], from_us: int, to_us: int) -> str:
    """Return *values*, each of an equal part of the time, as bars over an axis of that time."""
    most = max(values) or 1
    width = (_WIDTH - _LEFT) / len(values)
    bottom = _TOP + _HEIGHT
    drawn = [
        f'<rect x="{_LEFT + width * place:.1f}" y="{bottom - _HEIGHT * value / most:.1f}" '
        f'width="{max(1.0, width - 1):.1f}" height="{_HEIGHT * value / most:.1f}" fill="#555"/>'
        for place, value in enumerate(values)
        if value
    ]
    axis = [
        f'<text x="0" y="{_TOP + 8}">{most:,.0f}</text><text x="0" y="{bottom}">0</text>',
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH}" fill="none" stroke="#999"/>',
    ]
    for tick in range(_TICKS):
        x = _LEFT + (_WIDTH - _LEFT) * tick / _TICKS
        text = time_text(from_us + (to_us - from_us) * tick // _TICKS)
        axis.append(f'<path d="M{x:.1f} {bottom}v4" stroke="#999"/>')
        axis.append(f'<text x="{x:.1f}" y="{bottom + 18}">{text}</text>')
    picture = f'<svg width="{_WIDTH + 10}" height="{bottom + 24}">{"".join(drawn + axis)}</svg>'
    return f"<p>{escape(title)}:</p>{picture}"


def time_text(time_us: int) -> str:
    """Return a time as a date, or in µs if a date cannot express it."""
    try:
        time = dt.datetime.fromtimestamp(time_us // 1_000_000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_us} µs"
    return f"{time:%Y-%m-%d %H:%M:%S}"
