"""The ring on paper: a small one keeps what is promised of a large one."""

import subprocess
import sys

import pytest

from helpers.settings.native_modules import ROOT

SECONDS_MAX = 300


def figures(*arguments: str) -> dict[str, float]:
    """Return what the simulator says; its status must be that of a promise that is kept."""
    child = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-m", "bench.ring", *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    lines = (line.rpartition("  ") for line in child.stdout.splitlines())
    return {name.strip(): float(value.replace(",", "")) for name, _, value in lines}


@pytest.mark.long
def test_a_small_ring_keeps_its_promises() -> None:
    """Nothing moves without a reason, a join moves at most twice its share, all leases are kept."""
    found = figures("--nodes", "40", "--workers", "20", "--seconds", "8")

    assert 128 == found["splits"]
    assert 0 == found["moves without a reason"]
    assert found["moves after a node joined"] <= 2 * found["an ideal share"]
    assert found["most loaded worker, of the mean"] < 1.5
    assert 20 * 2 / 8 <= found["writes each second"] <= 20 * 4 / 8
    assert 1 <= found["splits that it got"] <= 2 * found["an ideal share"]
    assert 1 <= found["network bytes for a published byte"] <= 1.3
