"""Which nodes have copies of a range: as a naive walk finds them, and as the driver does not."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.ring.placement import Place, holders
from helpers.model.walked_ring import EVERYWHERE, Member, Ring

tokens = st.integers(-(1 << 63), (1 << 63) - 1)


@given(
    owners=st.lists(st.tuples(tokens, st.integers(1, 7)), unique_by=lambda at: at[0], min_size=1),
    centres=st.lists(st.sampled_from(["east", "west"]), min_size=7, max_size=7),
    racks=st.lists(st.sampled_from(["r1", "r2", "r3"]), min_size=7, max_size=7),
    copies=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    simple=st.booleans(),
)
def test_copies_are_where_a_walk_of_the_ring_finds_them(
    owners: list[tuple[int, int]],
    centres: list[str],
    racks: list[str],
    copies: tuple[int, int],
    *,
    simple: bool,
) -> None:
    """Of any numbers of copies, tokens and racks, by both strategies."""
    ring = sorted((token, f"n{number}") for token, number in owners)
    members = {
        name: Member(tuple(t for t, n in ring if n == name), centres[i], racks[i])
        for i, name in enumerate(f"n{number}" for number in range(1, 8))
        if any(n == name for _, n in ring)
    }
    wanted = {EVERYWHERE: copies[0]} if simple else dict(zip(["east", "west"], copies, strict=True))
    walked = Ring(members, {"ks": wanted}, "ONE", "east")
    places = {
        name: Place(EVERYWHERE, name) if simple else Place(member.centre, member.rack)
        for name, member in members.items()
    }

    assert [(token, frozenset(walked.holders("ks", token))) for token, _ in ring] == list(
        holders(ring, places, wanted)
    )


def test_a_node_of_several_tokens_is_counted_once() -> None:
    """Two tokens of b come before the second rack; c has a copy all the same."""
    ring = [(1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "d")]
    places = {name: Place("east", "r2" if name == "d" else "r1") for name in "abcd"}

    assert {frozenset("abcd")} == {nodes for _, nodes in holders(ring, places, {"east": 4})}
