"""Many workers over one store: how soon splits move, how seldom, and to whom, by a driven clock."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import Nearness
from headrace.plugins.testing.doubles import DrivenClock
from helpers.jobs.fleet import LEASE_SECONDS, Fleet

SPLITS = [f"s{n:02}" for n in range(16)]
HAND_OVER_MS_MAX = 2_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Return a fleet without members over sixteen splits."""
    store = SqliteStore.open(tmp_path / "state.db", "job")
    yield Fleet(store, DrivenClock(), SPLITS)
    store.close()


def held(fleet: Fleet) -> Counter[str]:
    """Return how many splits each worker owns."""
    return Counter(owner or "" for owner in fleet.owners().values())


def test_a_planned_hand_over_takes_less_than_two_seconds(fleet: Fleet) -> None:
    """From when a split is asked back until another has it: drain, commit, release, claim."""
    for name in ("w0", "w1", "w2"):
        fleet.join(name)
        fleet.run(30.3)
    taken = {split: at_ms for at_ms, split, _ in fleet.moved}

    assert {5, 6} == set(held(fleet).values())
    assert len(fleet.freed) >= 10
    assert max(taken[split] - at_ms for split, at_ms in fleet.freed.items()) < HAND_OVER_MS_MAX


@pytest.mark.parametrize("silent_after", [0.05, 0.55, 1.0, 2.35, 2.9])
def test_splits_of_a_silent_worker_move_within_a_lease(fleet: Fleet, silent_after: float) -> None:
    """Whenever it falls silent: its death is not proven, so all wait for its lease to end."""
    for name in ("w0", "w1", "w2"):
        fleet.join(name)
    fleet.run(30 + silent_after)
    fleet.members["w1"].stopped = True
    lost = {split for split, owner in fleet.owners().items() if owner == "w1"}
    silent_ms, before = fleet.clock.monotonic_ms(), len(fleet.moved)
    fleet.run(LEASE_SECONDS)

    taken = {split: at_ms for at_ms, split, _ in fleet.moved[before:]}
    assert lost == taken.keys()
    assert max(taken.values()) - silent_ms <= 1_000 * LEASE_SECONDS
    assert {"w0": 8, "w2": 8} == held(fleet)


def test_who_wakes_after_its_lease_submits_nothing_and_joins_again(fleet: Fleet) -> None:
    """It finds its deadlines passed (I2), learns what it lost, and gets a share again."""
    for name in ("w0", "w1"):
        fleet.join(name)
    fleet.run(30)
    sleeper = fleet.members["w1"]
    leases = list(sleeper.lease_holder.held.values())
    sleeper.stopped = True
    fleet.run(LEASE_SECONDS + 1)
    now_ms = fleet.clock.monotonic_ms()
    assert [False] * 8 == [lease.allows(now_ms) for lease in leases]
    assert {"w0": 16} == held(fleet)

    sleeper.stopped = False
    fleet.run(5)
    assert {"w0": 8, "w1": 8} == held(fleet)
    tokens = {row.split: row.token for row in fleet.store.leases()}
    assert all(lease.token < tokens[lease.split] for lease in leases)


def test_splits_follow_the_bytes(fleet: Fleet) -> None:
    """Hot splits on one worker are spread, once, and by a few moves."""
    for name in ("w0", "w1"):
        fleet.join(name)
    fleet.run(30)
    hot = [split for split, owner in fleet.owners().items() if owner == "w0"]
    fleet.bytes_per_second = {split: 90_000 if split in hot else 1_000 for split in SPLITS}
    before = len(fleet.moved)
    fleet.run(600)
    owners = fleet.owners()
    assert 4 <= sum(owners[split] == "w0" for split in hot) <= 5
    assert len(fleet.moved) - before <= 8

    before = len(fleet.moved)
    fleet.run(600)
    assert before == len(fleet.moved)


def test_loads_that_tremble_move_nothing(fleet: Fleet) -> None:
    """Every ten seconds each split has another rate, up to half more or less: nothing moves."""
    random = Random(1)  # noqa: S311 (a test's dice)
    for name in ("w0", "w1", "w2"):
        fleet.join(name)
    fleet.bytes_per_second = dict.fromkeys(SPLITS, 50_000)
    fleet.run(120)
    before = len(fleet.moved)
    for _ in range(30):
        fleet.bytes_per_second = {s: int(50_000 * random.uniform(0.5, 1.5)) for s in SPLITS}
        fleet.run(10)

    assert before == len(fleet.moved)


def test_splits_settle_beside_their_nodes(fleet: Fleet) -> None:
    """Each worker ends with the splits whose node it reads locally, in any order of joining."""
    shares = {split: {f"n{number % 2}": 1.0} for number, split in enumerate(SPLITS)}
    fleet.join("w0", Nearness(["n0"], shares))
    fleet.run(70)
    assert {"w0": 16} == held(fleet)
    fleet.join("w1", Nearness(["n1"], shares))
    fleet.run(70)

    assert {s: f"w{n % 2}" for n, s in enumerate(SPLITS)} == fleet.owners()


def test_what_its_worker_does_not_claim_another_one_does(fleet: Fleet) -> None:
    """A split that failed in the worker that should have it is claimed by another."""
    for name in ("w0", "w1"):
        fleet.join(name)
    fleet.run(30)
    split, lease = next(iter(fleet.members["w0"].lease_holder.held.items()))
    fleet.store.release("w0", split, lease.token, "broken: here")
    fleet.members["w0"].lease_holder.closed(split, lease.token, failed=True)
    fleet.run(120)

    assert "w1" == fleet.owners()[split]
    assert {"w0": 8, "w1": 8} == held(fleet)  # It got another one for it.


def test_what_failed_at_its_node_stays_with_who_claimed_it(fleet: Fleet) -> None:
    """The worker beside the node does not claim it: it is not handed over to it (to and fro)."""
    shares = {split: {f"n{number % 2}": 1.0} for number, split in enumerate(SPLITS)}
    for number in range(2):
        fleet.join(f"w{number}", Nearness([f"n{number}"], shares))
    fleet.run(40)
    lease_holder = fleet.members["w0"].lease_holder
    fleet.store.release("w0", SPLITS[0], lease_holder.held[SPLITS[0]].token, "broken: here")
    lease_holder.closed(SPLITS[0], lease_holder.held[SPLITS[0]].token, failed=True)
    before = len(fleet.moved)
    fleet.run(80)

    assert ["w1"] == [name for _, split, name in fleet.moved[before:] if split == SPLITS[0]]
    assert "w1" == fleet.owners()[SPLITS[0]]
