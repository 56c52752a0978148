"""The part of a table for a snapshot, from the WHERE of SNAPSHOT. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from headrace.connector.control.errors import BadRunError
from headrace.connector.language.statements import TOKEN_COLUMN, Comparison, Condition, Moment

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_LOWER: Final = {Comparison.AFTER: 0, Comparison.AT_LEAST: -1}
_UPPER: Final = {Comparison.AT_MOST: 0, Comparison.BEFORE: -1}
_KEY: Final = "token"


class Part(TypedDict):
    """Token ranges, which exclude their first token and include their last, or a partition key."""

    tokens: tuple[tuple[int, int], ...]
    key: Mapping[str, str | int | float | bool] | None


def part_of(where: Sequence[Condition]) -> Part:
    """Return the part that *where* selects.

    Raises:
        BadRunError: the conditions do not fit together.

    """
    of_tokens = [each for each in where if each.column == TOKEN_COLUMN]
    if of_tokens and len(of_tokens) < len(where):
        message = "tokens and columns of the key do not go together"
        raise BadRunError(_KEY, message, "give TOKEN(), or the columns of the partition key")
    if of_tokens:
        low, high = _bound(of_tokens, _LOWER, _LOWEST), _bound(of_tokens, _UPPER, _HIGHEST)
        if low >= high:
            raise BadRunError(_KEY, f"no token is after {low} and up to {high}")
        return Part(tokens=((low, high),), key=None)
    key: dict[str, str | int | float | bool] = {}
    for each in where:
        (value,) = each.values
        if isinstance(value, Moment):
            raise BadRunError(each.column, "expected a value, found a time of now", "quote it")
        if each.column in key:
            raise BadRunError(each.column, "is given twice")
        key[each.column] = value
    return Part(tokens=(), key=key or None)


def _bound(conditions: Sequence[Condition], signs: Mapping[Comparison, int], otherwise: int) -> int:
    """Return the only bound with one of *signs*, each with its addend to the token."""
    found = [each for each in conditions if each.comparison in signs]
    if len(found) > 1:
        raise BadRunError(_KEY, "is bounded twice on one side")
    for each in found:
        (token,) = each.values
        if type(token) is not int or not _LOWEST <= token + signs[each.comparison] <= _HIGHEST:
            hint = f"a whole number from {_LOWEST} to {_HIGHEST}"
            raise BadRunError(_KEY, f"expected a token, found {str(token)[:24]!r}", hint)
        return token + signs[each.comparison]
    return otherwise
