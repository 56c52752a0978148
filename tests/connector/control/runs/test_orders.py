"""What a run is to do, as statements say it."""

import pytest

from headrace.connector.control.errors import BadRunError
from headrace.connector.control.runs.orders import bulk_order, order_of
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.statements import BulkSource, Literal, Moment, SnapshotSource
from headrace.connector.stores.asked_runs import Order, RunKind
from headrace.plugins import ConfigError

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("given", "us"),
    [
        (None, None),
        ("2026-01-31", 1_769_817_600_000_000),
        ("2026-01-31T12:00:00.000001+02:00", 1_769_853_600_000_001),
        (1_769_817_600_000, 1_769_817_600_000_000),
        (Moment("2026-01-31"), 1_769_817_600_000_000),
        (Moment(None, "1h30m"), (NOW_MS - 5_400_000) * 1_000),
    ],
)
def test_times(given: Literal | None, us: int | None) -> None:
    """A time is a text, ms, or now less a duration; the order has it in µs."""
    order = bulk_order(RunKind.REPLAY, given, None, {}, NOW_MS)
    assert (us, None) == (order.from_us, order.to_us)


@pytest.mark.parametrize("given", ["", "noon", True, -1, 1 << 60, 1.5, Moment(None, "soon")])
def test_no_times(given: Literal) -> None:
    """What is not a time is refused by the part of the statement that has it."""
    with pytest.raises(ConfigError) as raised:
        bulk_order(RunKind.RECONCILE, None, given, {}, NOW_MS)
    assert "to" == raised.value.problems[0].key


def test_now_is_no_beginning() -> None:
    """From now on nothing was written yet; the end may be later."""
    with pytest.raises(BadRunError, match="nothing was written after now"):
        bulk_order(RunKind.REPLAY, NOW_MS, None, {}, NOW_MS)
    bulk_order(RunKind.REPLAY, NOW_MS - 1, NOW_MS + 1, {}, NOW_MS)


def test_backfill_is_a_snapshot() -> None:
    """Both words ask for the same, with the same options."""
    found = []
    for word in ("BACKFILL", "SNAPSHOT"):
        parsed = parse_statement(f"{word} DATA_SOURCE cdc WHERE id = 7 WITH rate = 5")
        assert isinstance(parsed, SnapshotSource)
        found.append(order_of(parsed, NOW_MS))
    expected = Order(kind=RunKind.SNAPSHOT, key={"id": 7}, options={"rate": "5"})
    assert [expected, expected] == found


def test_options_belong_to_a_kind() -> None:
    """An option of another kind of run is refused."""
    parsed = parse_statement("RECONCILE DATA_SOURCE cdc WITH into_live = true")
    assert isinstance(parsed, BulkSource)
    with pytest.raises(ConfigError, match="into_live: is not an option"):
        order_of(parsed, NOW_MS)
