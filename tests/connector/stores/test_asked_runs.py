"""Runs that were asked for."""

from contextlib import closing
from pathlib import Path

from headrace.connector.stores.asked_runs import AskedRuns, Order
from headrace.connector.stores.open_control_store import open_notes


def test_the_order_in_the_same_millisecond(tmp_path: Path) -> None:
    """Runs are in the order in which they were asked for, also if the clock went back."""
    with closing(open_notes(tmp_path / "state.db")) as notes:
        runs = AskedRuns(notes)
        times = (5, 5, 5, 3, 5, 9)
        asked = [runs.ask(f"cdc.s.t{n % 2}", at, Order()) for n, at in enumerate(times)]
        assert asked[::-1] == [run.name for run, _ in runs.all()]
