"""Converts a SELECT to a query of a history, and reports its wrong part."""

import datetime as dt
from collections.abc import Iterable
from typing import Final

from headrace.connector.control.errors import StatementError
from headrace.connector.history.arrival import us_of
from headrace.connector.history.config import LATEST, SCOPES
from headrace.connector.history.durations import duration_ms
from headrace.connector.history.following import WAIT_MS_MAX, Pace, place_of
from headrace.connector.history.query import LIMIT_MAX, READS_MAX, Query, operations_of
from headrace.connector.language.parser import CDC_TIME, PARTITION_ID, WRITE_TIME
from headrace.connector.language.statements import (
    TIME_HINT,
    Comparison,
    Condition,
    Literal,
    Moment,
    PollCdc,
    SelectCdc,
    TailCdc,
)

LIMIT: Final = 100  # The limit of a SELECT without LIMIT.
OP: Final = "op"
_US_PER_MS: Final = 1_000
_NUMBER_MAX: Final = 1 << 53  # In ms, or in µs: later than any time.


class BadQueryError(StatementError):
    """A SELECT that cannot be answered."""

    code = "bad_query"


def query_of(statement: SelectCdc, now_ms: int) -> Query:
    """Return the query of *statement* at *now_ms*.

    Raises:
        BadQueryError: a condition compares something else, or has no value of its type.
        QueryError: the operation is unknown.

    """
    by_column: dict[str, list[Condition]] = {}
    for condition in statement.where:
        by_column.setdefault(condition.column, []).append(condition)
    times = _range(CDC_TIME, by_column.pop(CDC_TIME, []), now_ms, 1)
    if times[0] is None:
        raise BadQueryError(
            "cdc_time",
            "the time is not bounded below",
            "add WHERE CDC_TIME() >= NOW() - '15m', or another time",
        )
    if statement.source_level:
        _check_source(statement)
    written = _range(WRITE_TIME, by_column.pop(WRITE_TIME, []), now_ms, _US_PER_MS)
    partitions = _members(PARTITION_ID, by_column.pop(PARTITION_ID, []))
    operations = _members(OP, by_column.pop(OP, []))
    return Query(
        from_ms=times[0],
        to_ms=times[1],
        scopes=_scopes(statement),
        partitions=frozenset(map(_partition, partitions)),
        key={name: _equal(name, conditions) for name, conditions in by_column.items()},
        operations=operations_of(map(str, operations), OP),
        written_from_us=written[0],
        written_to_us=written[1],
        descending=statement.descending,
        limit=statement.limit or LIMIT,
        after=statement.after,
    )


def _check_source(statement: SelectCdc) -> None:
    if statement.columns and LATEST not in statement.columns:
        what = "the source is to be read for images that are not among the columns"
        raise BadQueryError(LATEST, what, "name the column latest, too")
    if (statement.limit or LIMIT) > READS_MAX:
        what = f"found {statement.limit}, expected at most {READS_MAX}: each row is read"
        raise BadQueryError("limit", what, "continue with AFTER 'next_token'")


def tail_query(statement: TailCdc, now_ms: int) -> Query:
    """Return the query of a TAIL: from its time or token on, otherwise from now on."""
    from_ms = place_of(statement.after) if statement.after else _since(statement.since, now_ms)
    return Query(from_ms=from_ms, after=statement.after, limit=statement.limit or LIMIT)


def poll_query(statement: PollCdc, now_ms: int) -> tuple[Query, Pace]:
    """Return the query of a POLL, and its pace. Raises BadQueryError."""
    pace = Pace(duration_ms(statement.every, "every"), duration_ms(statement.safety, "safety"))
    if pace.every_ms + pace.safety_ms > WAIT_MS_MAX:
        what = f"both durations are at most {WAIT_MS_MAX // 1_000}s together"
        raise BadQueryError("every", what)
    return Query(from_ms=_since(statement.since, now_ms), limit=LIMIT_MAX), pace


def _since(value: Literal | None, now_ms: int) -> int:
    return now_ms if value is None else _time("from", value, now_ms, 1)


def _scopes(statement: SelectCdc) -> frozenset[str] | None:
    """Return the images that the hint asks for or, without one, the named columns."""
    if statement.scopes is not None:
        return frozenset(statement.scopes)
    named = frozenset(SCOPES).intersection(statement.columns)
    return named or None


def _range(
    column: str, conditions: Iterable[Condition], now_ms: int, per_ms: int
) -> tuple[int | None, int | None]:
    """Return the first time and the one after the last, in units; a ms has *per_ms* units."""
    first: int | None = None
    behind: int | None = None
    for condition in conditions:
        at = _time(column, condition.values[0], now_ms, per_ms)
        match condition.comparison:
            case Comparison.AT_LEAST | Comparison.AFTER:
                begin = at + (condition.comparison is Comparison.AFTER)
                first = begin if first is None else max(first, begin)
            case Comparison.AT_MOST | Comparison.BEFORE:
                end = at + (condition.comparison is Comparison.AT_MOST)
                behind = end if behind is None else min(behind, end)
            case Comparison.EQUAL:
                first, behind = at, at + 1
            case Comparison.IN:
                what = f"{column.upper()} has no IN: it is compared by >=, >, <=, < and ="
                raise BadQueryError(_key(column), what)
    return first, behind


def _time(column: str, value: Literal, now_ms: int, per_ms: int) -> int:
    match value:
        case Moment(given=None, ago=ago):
            return (now_ms - (duration_ms(ago, _key(column)) if ago else 0)) * per_ms
        case Moment(given=str() as text):
            value = text
        case int() if not isinstance(value, bool) and 0 <= value <= _NUMBER_MAX:
            return value
    try:
        at = dt.datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        what = f"expected a time, found {str(value)[:32]!r}"
        raise BadQueryError(_key(column), what, TIME_HINT) from None
    return us_of(at) // (_US_PER_MS // per_ms)


def _members(column: str, conditions: Iterable[Condition]) -> list[Literal]:
    found: list[Literal] = []
    for condition in conditions:
        if condition.comparison not in (Comparison.EQUAL, Comparison.IN) or found:
            what = f"{column.upper()} is compared once, by = or IN"
            raise BadQueryError(_key(column), what)
        found += condition.values
    return found


def _partition(value: Literal) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        what = f"expected a number of a bucket, from 0, found {value!r}"
        raise BadQueryError(_key(PARTITION_ID), what)
    return value


def _equal(column: str, conditions: list[Condition]) -> Literal:
    (first, *more) = conditions
    if more or first.comparison is not Comparison.EQUAL or isinstance(first.values[0], Moment):
        what = "a column of the key is compared once, by = and a value"
        raise BadQueryError(column, what)
    return first.values[0]


def _key(column: str) -> str:
    return column.removesuffix("()")
