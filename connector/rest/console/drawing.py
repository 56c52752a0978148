"""Shapes of the pages' pictures. Pure."""

import math
from typing import Final

from headrace.connector.control.console.ring import LOWEST, TOKENS

SIZE: Final = 100.0  # The side of the square around the ring; its centre is at 0.
_OUTER, _INNER = 48.0, 36.0
_SPACE: Final = 0.004  # Between two arcs, as a share of the ring.


def arc_path(first: int, behind: int) -> str:
    """Return the SVG path of the tokens from *first* up to, without, *behind*."""
    begin, end = ((token - LOWEST) / TOKENS for token in (first, behind))
    if end - begin > 1 - _SPACE:
        return "".join(_circle(radius) for radius in (_OUTER, _INNER))
    space = min(_SPACE, (end - begin) / 4)
    begin, end = begin + space / 2, end - space / 2
    is_large = int(end - begin > 1 / 2)
    (a, b), (c, d) = _point(begin, _OUTER), _point(end, _OUTER)
    (e, f), (g, h) = _point(end, _INNER), _point(begin, _INNER)
    return (
        f"M{a} {b}A{_OUTER} {_OUTER} 0 {is_large} 1 {c} {d}"
        f"L{e} {f}A{_INNER} {_INNER} 0 {is_large} 0 {g} {h}Z"
    )


def _circle(radius: float) -> str:
    half = f"A{radius} {radius} 0 1 1"
    return f"M0 {-radius}{half} 0 {radius}{half} 0 {-radius}Z"


def _point(share: float, radius: float) -> tuple[float, float]:
    """Return the point at *share* of the circle, clockwise from the top."""
    angle = 2 * math.pi * share
    return round(radius * math.sin(angle), 2), round(-radius * math.cos(angle), 2)
