"""What retention saw last, and where it lost sight."""

from pathlib import Path

import pytest

from headrace.sources.cassandra.errors import LogUnreadableError
from headrace.sources.cassandra.logs import last_seen
from headrace.sources.cassandra.logs.last_seen import Watched
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.holding import Node, job
from helpers.logs.node_logs import batches, source


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        pytest.param([], Watched(5, (3,)), id="nothing-is-there-yet"),
        pytest.param([5], Watched(5, (3,)), id="nothing-new"),
        pytest.param([4, 5, 9], Watched(9, (3,)), id="the-witness-is-there"),
        pytest.param([7, 9], Watched(9, (3, 7)), id="the-oldest-went-and-who-knows-what-else"),
        pytest.param([1, 2], Watched(2, (3, 1)), id="the-log-begins-again"),
    ],
)
def test_a_break_is_where_the_newest_one_seen_is_gone(here: list[int], expected: Watched) -> None:
    """The oldest go first, so all behind it may be gone; before it is there was nothing to see."""
    assert expected == Watched(5, (3,)).after(here, {1, 3, 7})
    assert Watched(here[-1] if here else None) == Watched().after(here, {*here})


def test_a_break_is_forgotten_with_its_segment() -> None:
    """A process that comes later never had what was before it."""
    assert Watched(9, (7,)) == Watched(9, (3, 7)).after([9], {7, 9})


def test_it_is_kept_in_the_hold(tmp_path: Path) -> None:
    """Also when who watched is another process; a file that is something else is named."""
    assert Watched() == last_seen.load(tmp_path / "none yet")
    last_seen.save(tmp_path, Watched(9, (3, 7)))
    assert Watched(9, (3, 7)) == last_seen.load(tmp_path)

    (path,) = tmp_path.iterdir()
    path.write_text("[")
    with pytest.raises(LogUnreadableError) as caught:
        last_seen.load(tmp_path)
    assert str(path) == caught.value.place


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_went_while_nobody_looked_is_a_gap_also_behind_what_is_held(
    tmp_path: Path, *, is_lost: bool
) -> None:
    """I10: a held segment tells nothing of what the node took away behind it meanwhile.

    While its newest one is still in `cdc_raw`, where the oldest go first, nothing did go.
    """
    node = Node(tmp_path / "n1")
    options = job([node], gaps="expire")
    node.write(1, [b"a"])
    node.write(2, [b"b"], index="20")
    made = source(options)
    (split,) = made.plan()
    *_, last = batches([made.open(split, None)])
    made.close()

    node.complete(2)
    node.write(3, [b"c"])
    node.write(5, [b"e"])
    node.discard(1, 2, 3)
    if is_lost:
        node.trim(2, 3)
    made = source(options)
    found = list(batches([made.open(split, last.end)]))
    made.close()

    assert isinstance(found[-1].end, CdcState)
    assert [(2, "possible")] * is_lost == [
        (gap.begin.segment_id, gap.kind) for gap in found[-1].end.met_gaps
    ]
