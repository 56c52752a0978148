"""The facts of a change in the envelope `debezium`."""

import pytest

from headrace.connector.streams.envelopes import ENVELOPES
from headrace.plugins import Operation

_AFTER = {"type": "record", "name": "Value", "fields": []}
_WHOLE = {"type": "record", "fields": [{"name": "after", "type": ["null", _AFTER]}]}


@pytest.mark.parametrize(
    ("op", "snapshot", "operation"),
    [
        ("i", "false", Operation.INSERT),
        ("r", "false", Operation.DELETE_RANGE),
        ("r", "true", Operation.INSERT),
    ],
)
def test_a_row_of_a_snapshot_is_no_deleted_range(
    op: str, snapshot: str, operation: Operation
) -> None:
    """Both have the `op` r; `source.snapshot` distinguishes them."""
    source = {"ts_us": 7, "snapshot": snapshot}
    envelope = ENVELOPES["debezium"](_WHOLE)

    assert (operation, 7) == envelope.of({"op": op, "source": source, "after": None})[:2]
