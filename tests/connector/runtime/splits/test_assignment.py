"""Which worker gets which split: level by bytes, near if that costs little, still if nothing gains.

The properties are checked on random rings of workers, each from a number.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from headrace.connector.runtime.splits.assignment import Part, assigned

NOWHERE: Mapping[str, Mapping[str, float]] = {}


def alike(count: int) -> Mapping[str, Collection[str]]:
    """Return so many workers without places."""
    return {f"w{n}": () for n in range(count)}


def idle(count: int) -> Sequence[Part]:
    """Return *count* splits without a worker that read nothing."""
    return [Part(f"s{n:02}", 0, None) for n in range(count)]


def placed(parts: Sequence[Part], owners: Mapping[str, str]) -> Sequence[Part]:
    """Return the parts as their owners have them."""
    return [replace(part, owner=owners[part.split]) for part in parts]


def loads(parts: Sequence[Part], owners: Mapping[str, str]) -> Counter[str]:
    """Return the bytes a second of each worker."""
    found: Counter[str] = Counter()
    for part in parts:
        found[owners[part.split]] += part.rate
    return found


def moves(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """Return how many splits are elsewhere."""
    return sum(before[split] != after[split] for split in before)


def test_nobody_gets_nothing() -> None:
    """Without workers nothing is assigned, and without splits neither."""
    assert {} == assigned(idle(3), {}, NOWHERE)
    assert {} == assigned([], alike(2), NOWHERE)


@pytest.mark.parametrize(("splits", "workers"), [(8, 3), (7, 2), (2, 5), (64, 9)])
def test_idle_splits_are_shared_evenly(splits: int, workers: int) -> None:
    """Splits without traffic count alike: no worker has two more than another."""
    owners = assigned(idle(splits), alike(workers), NOWHERE)
    counts = [list(owners.values()).count(worker) for worker in alike(workers)]

    assert splits == sum(counts)
    assert max(counts) - min(counts) <= 1


def test_a_hot_split_counts_for_what_it_reads() -> None:
    """The worker that has it gets fewer others."""
    parts = [Part(f"s{n}", 9_000 if n == 0 else 1_000, None) for n in range(10)]
    owners = assigned(parts, alike(2), NOWHERE)

    assert 10_000 == max(loads(parts, owners).values())


def test_a_worker_that_comes_gets_its_share_and_one_that_goes_leaves_it() -> None:
    """Nothing else moves."""
    parts = idle(64)
    before = assigned(parts, alike(8), NOWHERE)
    after = assigned(placed(parts, before), alike(9), NOWHERE)
    assert {"w8"} == {after[split] for split in before if before[split] != after[split]}
    assert 7 == moves(before, after)

    gone = {name: () for name in alike(9) if name != "w3"}
    left = [
        replace(part, owner=None) if part.owner == "w3" else part for part in placed(parts, after)
    ]
    again = assigned(left, gone, NOWHERE)
    assert {"w3"} == {after[split] for split in after if after[split] != again[split]}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_settled_stays(seed: int) -> None:
    """For any loads and places, the assignment of an assignment is itself (no oscillation)."""
    random = Random(seed)  # noqa: S311 (a test's dice)
    nodes = [f"n{n}" for n in range(random.randint(1, 12))]
    parts = [Part(f"s{n}", int(random.lognormvariate(9, 2)), None) for n in range(60)]
    workers = {
        f"w{n}": random.sample(nodes, random.randint(0, min(3, len(nodes))))
        for n in range(random.randint(1, 9))
    }
    places = {
        part.split: {node: random.random() for node in random.sample(nodes, min(3, len(nodes)))}
        for part in parts
    }
    once = assigned(parts, workers, places)
    shuffled = random.sample(placed(parts, once), len(parts))

    assert once == assigned(shuffled, dict(reversed(workers.items())), places)


@pytest.mark.parametrize("seed", range(5))
def test_rates_that_tremble_move_nothing(seed: int) -> None:
    """Rates that vary by a fifth do not move splits; four times the rate does."""
    random = Random(seed)  # noqa: S311 (a test's dice)
    steady = [Part(f"s{n}", 10_000, None) for n in range(32)]
    owners = assigned(steady, alike(4), NOWHERE)
    for _ in range(50):
        trembling = [replace(p, rate=int(p.rate * random.uniform(0.8, 1.2))) for p in steady]
        assert 0 == moves(owners, assigned(placed(trembling, owners), alike(4), NOWHERE))
    hot = owners["s0"]
    uneven = [replace(p, rate=p.rate * (4 if owners[p.split] == hot else 1)) for p in steady]
    after = assigned(placed(uneven, owners), alike(4), NOWHERE)

    assert max(loads(uneven, after).values()) < 0.6 * max(loads(uneven, owners).values())
    assert moves(owners, after) <= 12


def test_splits_go_to_where_they_are_near() -> None:
    """Of four workers that could have it, the one whose node holds it; loads stay level."""
    workers = {f"w{n}": (f"n{n}",) for n in range(4)}
    parts = [Part(f"s{n}", 1_000, None) for n in range(16)]
    places = {f"s{n}": {f"n{n % 4}": 1.0} for n in range(16)}
    owners = assigned(parts, workers, places)
    assert {f"s{n}": f"w{n % 4}" for n in range(16)} == owners

    elsewhere = {f"s{n}": f"w{(n + 1) % 4}" for n in range(16)}
    again = assigned(placed(parts, elsewhere), workers, places)
    assert {4_000} == set(loads(parts, again).values())
    assert owners == again


def test_near_is_not_worth_everything() -> None:
    """One worker beside all replicas does not get all the work."""
    workers = {"near": ("n1",), "far": ()}
    parts = [Part(f"s{n}", 1_000, None) for n in range(16)]
    owners = assigned(parts, workers, {part.split: {"n1": 1.0} for part in parts})

    assert 8 <= loads(parts, owners)["near"] / 1_000 <= 10
