"""Manifests: what is listed later never has a lower number, also if ids come again."""

from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.commitlog.manifest import (
    RUN_GAP_MAX,
    RUNS_MAX,
    Manifest,
    file_of,
    number_in,
    place_of,
)

FAR = 10 * RUN_GAP_MAX  # A restart of a node makes at least such a step.


def noted(manifest: Manifest, *ids: int) -> Sequence[tuple[int, int]]:
    """Return the ids in the order of their numbers, each behind its log generation."""
    numbers = sorted(manifest.note(set(ids)).values())
    return [place_of(number) for number in numbers]


def test_numbers_are_ids_while_ids_grow() -> None:
    """One log generation: also with ids left out, restarts, and what is gone."""
    manifest = Manifest()

    assert [(0, 5), (0, 6)] == noted(manifest, 5, 6)
    assert [(0, 6), (0, 9), (0, FAR)] == noted(manifest, 6, 9, FAR)
    assert (5, 9, None) == (manifest.number(5), manifest.number(9), manifest.number(8))


def test_a_lower_id_begins_a_generation() -> None:
    """A clock that was set back: what is there keeps its numbers, and what comes is behind it."""
    manifest = Manifest()
    noted(manifest, FAR, FAR + 1)

    assert [(0, FAR + 1), (1, 7)] == noted(manifest, FAR + 1, 7)
    assert [(0, FAR + 1), (1, 7), (1, 8)] == noted(manifest, FAR + 1, 7, 8)
    assert [(0, FAR + 1), (1, 8), (1, 3 * FAR)] == noted(manifest, FAR + 1, 8, 3 * FAR)
    assert [(1, 3 * FAR), (2, 6)] == noted(manifest, 3 * FAR, 6)


def test_what_went_on_while_nobody_looked_is_distinguished_from_what_began_again() -> None:
    """Ids that follow the last one were made by the same run of the node."""
    manifest = Manifest()
    noted(manifest, FAR)

    assert [(0, FAR), (0, FAR + 2), (1, 7), (1, 9), (1, 4 * FAR)] == noted(
        manifest, FAR, FAR + 2, 7, 9, 4 * FAR
    )


def test_an_older_generation_that_goes_on_is_behind_all() -> None:
    """Something old was put into the directory of a node that runs: nothing has a lower number."""
    manifest = Manifest()
    noted(manifest, FAR)
    noted(manifest, FAR, 3)

    assert [(0, FAR), (1, 3), (2, FAR + 1)] == noted(manifest, FAR, 3, FAR + 1)


def test_what_was_read_before_manifests_were_kept_is_old() -> None:
    """Only if all that is there is lower than the place, and it is gone, the log restarted."""
    kept, new = Manifest(), Manifest()
    for manifest in (kept, new):
        manifest.begin_at(FAR)

    assert [(0, 3), (0, FAR)] == noted(kept, 3, FAR)
    assert [(1, 3), (1, 4)] == noted(new, 3, 4)


def test_a_manifest_is_stored_in_few_numbers() -> None:
    """Ids in a row take two numbers; another manifest learns them."""
    manifest = Manifest()
    noted(manifest, *range(100, 200))
    noted(manifest, 199, 7, 8, 11)

    assert ((0, (100, 99)), (1, (7, 1, 3, 0))) == manifest.stored
    learned = Manifest(manifest.stored)
    assert [(0, 199), (1, 8), (1, 12)] == noted(learned, 199, 8, 12)
    learned = Manifest(learned.stored)
    learned.learn(((3, (50, 0)),))
    assert [(0, 199), (3, 50), (3, 51)] == noted(learned, 199, 50, 51)


def test_what_is_gone_for_long_is_forgotten() -> None:
    """Its id would begin an log generation; what is there is never forgotten."""
    manifest = Manifest()
    noted(manifest, *range(0, 4 * RUNS_MAX, 2))
    for last in range(4 * RUNS_MAX, 8 * RUNS_MAX, 2):
        noted(manifest, 0, last)

    assert RUNS_MAX >= sum(len(steps) // 2 for _, steps in manifest.stored)
    assert (0, None) == (manifest.number(0), manifest.number(2))


@given(
    listings=st.lists(st.frozensets(st.integers(0, 40) | st.integers(5000, 5040)), max_size=12),
    restarts=st.frozensets(st.integers(0, 11)),
)
@pytest.mark.parametrize("step", [1, RUN_GAP_MAX + 1])
def test_what_is_listed_later_never_has_a_lower_number(
    listings: Sequence[Collection[int]], restarts: Collection[int], step: int
) -> None:
    """While ids come and go, also over restarts: what has a number keeps it."""
    manifest = Manifest()
    known: dict[int, int] = {}
    for turn, ids in enumerate(listings):
        if turn in restarts:
            manifest = Manifest(manifest.stored)
        numbers = manifest.note({each * step for each in ids})
        before = max(known.values(), default=-1)
        for file_id, number in numbers.items():
            assert file_id == file_of(number) == number - number_in(place_of(number)[0], 0)
            assert known.get(file_id, number) == number
            assert file_id in known or number > before
        known.update(numbers)


def test_what_was_heard_counts_until_a_state_tells_more() -> None:
    """Who numbers ids from the beginning makes nothing old for whom there was a log before them."""
    later = Manifest()
    noted(later, 7, 8)
    manifest = Manifest()
    manifest.hear(later.stored)
    assert [(0, 7), (0, 8), (0, 9)] == noted(manifest, 7, 8, 9)

    before = Manifest()
    noted(before, FAR)
    manifest.learn(before.stored)

    assert [(1, 7), (1, 8), (1, 9)] == noted(manifest, 7, 8, 9)
