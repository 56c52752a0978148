"""Orders of runs, from statements and requests; checked before a run is requested. Pure."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.connector.control.errors import BadRunError
from headrace.connector.control.runs.options import OF_KIND, IntoFolder, ReplayOptions
from headrace.connector.control.runs.parts import part_of
from headrace.connector.history.arrival import us_of
from headrace.connector.history.durations import duration_ms
from headrace.connector.language.statements import (
    TIME_HINT,
    Bulk,
    BulkSource,
    Condition,
    Literal,
    Moment,
    SnapshotSource,
)
from headrace.connector.stores.asked_runs import Order, RunKind
from headrace.plugins import Sink, parse_config

_KINDS: Final = {Bulk.REPLAY: RunKind.REPLAY, Bulk.RECONCILE: RunKind.RECONCILE}
_US_PER_MS: Final = 1_000
_MS_MAX: Final = 253_402_300_800_000  # The end of the year 9999.


def order_of(statement: SnapshotSource | BulkSource, now_ms: int) -> Order:
    """Return the order in *statement*.

    Raises:
        BadRunError: the part of the table or the range of time is invalid.
        ConfigError: it has every option that is wrong.

    """
    if isinstance(statement, SnapshotSource):
        return snapshot_order(statement.where, dict(statement.options))
    kind, options = _KINDS[statement.verb], dict(statement.options)
    return bulk_order(kind, statement.since, statement.before, options, now_ms)


def snapshot_order(where: Sequence[Condition], options: Mapping[str, str]) -> Order:
    """Return the order of a snapshot. Raises as `order_of`."""
    checked(RunKind.SNAPSHOT, options)
    return Order(kind=RunKind.SNAPSHOT, options=options, **part_of(where))


def bulk_order(
    kind: RunKind,
    since: Literal | None,
    before: Literal | None,
    options: Mapping[str, str],
    now_ms: int,
) -> Order:
    """Return the order of another run, between two times. Raises as `order_of`."""
    checked(kind, options)
    low, high = _us("from", since, now_ms), _us("to", before, now_ms)
    if low is not None and low >= now_ms * _US_PER_MS:
        raise BadRunError("from", "nothing was written after now", TIME_HINT)
    if low is not None and high is not None and low >= high:
        raise BadRunError("to", "is not after FROM", "changes are from FROM on, and before TO")
    return Order(kind=kind, from_us=low, to_us=high, options=options)


def checked(kind: RunKind, options: Mapping[str, str]) -> Any:  # noqa: ANN401 (of `OF_KIND`)
    """Return the *options* of a run. Raises ConfigError with every one that is wrong."""
    return parse_config(OF_KIND[kind], options)


def check_sink(order: Order, name: str, sink: type[Sink]) -> None:
    """Raise if a run asks for topics of its own and the *sink* has no topics.

    Raises:
        BadRunError: it has none.

    """
    given = checked(order.kind, order.options)
    if not isinstance(given, IntoFolder) or given.to_folder:
        return
    suffix = given.topics_suffix if isinstance(given, ReplayOptions) else given.suffix
    if suffix and not sink.heeds_topics:
        hint = "WITH into_live = true, or to_folder = '…'"
        if not isinstance(given, ReplayOptions):
            hint = "leave suffix out, or give to_folder = '…'"
        key = "suffix" if given.suffix else "sink"
        raise BadRunError(key, f"{name} has no topics, so none that end in {suffix}", hint)


def _us(key: str, value: Literal | None, now_ms: int) -> int | None:
    match value:
        case None:
            return None
        case Moment(given=None, ago=ago):
            return (now_ms - (duration_ms(ago, key) if ago else 0)) * _US_PER_MS
        case Moment(given=str() as text) | (str() as text):
            try:
                return us_of(dt.datetime.fromisoformat(text))
            except ValueError:
                said = f"expected a time, found {text[:48]!r}"
                raise BadRunError(key, said, TIME_HINT) from None
        case int() if not isinstance(value, bool) and 0 <= value < _MS_MAX:
            return value * _US_PER_MS
    raise BadRunError(key, f"expected a time, found {str(value)[:48]!r}", TIME_HINT)
