"""What the store must do when the splits of a job change: part of `StoreSuite`."""

from collections.abc import Mapping, Sequence
from contextlib import closing

import pytest
from msgspec.structs import replace

from headrace.connector.stores.keyed.store import Store
from headrace.plugins.errors import LeaseLostError
from headrace.plugins.positions import EncodedPosition
from headrace.plugins.stores.contract import SplitState, Successor
from helpers.stores.store_driver import (
    COUNTS,
    LEASE_MS,
    LOSS,
    StoreDriver,
    claim,
    commit,
    commit_of,
    lease,
    registered,
)


class PlanSuite:
    """See the module."""

    def test_a_plan_is_announced_once(self, driver: StoreDriver) -> None:
        """Every process sees it; a second one, or one after another plan, changes nothing."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            assert (1, ("a", "b")) == (store.plans().in_force.number, store.plans().in_force.splits)
            assert None is store.plans().announced
            store.announce(["c"], after=1)
            other.announce(["d"], after=1)
            other.announce(["d"], after=2)
            announced = other.plans().announced

            assert announced is not None
            assert (2, ("c",)) == (announced.number, announced.splits)
            assert ["a", "b"] == [row.split for row in store.leases()]

    def test_a_plan_takes_the_place_of_another(self, driver: StoreDriver) -> None:
        """Its splits begin where the successor says, above all tokens; the old books are kept."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            old = claim(other, "w0")
            token = claim(store, "w1")
            commit(store, replace(commit_of(token, chunks={"x": b"x"}), losses=[LOSS]))
            seen = _replanned(store, {"c": EncodedPosition(b"c", {"1": b"1"}), "d": None})
            plans, states = other.plans(), {state.split: state for state in other.states()}

            assert {"a": EncodedPosition(b"head", {"x": b"x"}), "b": None} == seen
            assert (2, ("c", "d"), None) == (
                plans.in_force.number,
                plans.in_force.splits,
                plans.announced,
            )
            (ended,) = plans.ended
            assert (1, ("a", "b"), {"n": 7}, COUNTS) == (
                ended.number,
                ended.splits,
                ended.books,
                ended.counters,
            )
            assert EncodedPosition(b"c", {"1": b"1"}) == states["c"].position
            assert (None, {}, 2) == (states["d"].position, states["d"].counters, states["d"].plan)
            assert ["c", "d"] == [row.split for row in other.leases()]
            assert claim(other, "w2", "c") > token > old
            assert 2 == other.register(["c", "d"])
            assert [LOSS] == [kept.loss for kept in other.unsent_losses(["c"], bytes_max=100)]
            assert [] == list(other.unsent_losses(["d"], bytes_max=100))
            assert [LOSS] == [kept.loss for kept in other.losses()]

    def test_who_has_a_split_of_a_plan_that_ended_commits_nothing(
        self, driver: StoreDriver
    ) -> None:
        """Neither who had it before, nor who claims it after (I2); both have lost a lease."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            token, row = claim(other, "w0"), lease(other)
            commit(other, commit_of(token, worker="w0"))
            _replanned(store, {"c": EncodedPosition(b"c", {})})
            late = commit_of(token, worker="w0", previous=1, seq=2, head=b"late")

            assert isinstance(other.commit([late])["a"], LeaseLostError)
            assert {} == other.claim("w0", [row], LEASE_MS)
            with pytest.raises(LeaseLostError):
                other.load("a", token)
            assert [b"c"] == [_head(state.position) for state in store.states()]

    def test_names_of_splits_may_come_back(self, driver: StoreDriver) -> None:
        """They have what the last plan gave them, and nothing of what they had before."""
        with closing(registered(driver)) as store:
            token = claim(store)
            commit(store, replace(commit_of(token, chunks={"x": b"x"}), losses=[LOSS]))
            _replanned(store, {"c": EncodedPosition(b"c", {"1": b"1"})})
            _replanned(store, {"a": EncodedPosition(b"a", {"x": b"new"}), "b": None})
            again = claim(store)
            state = store.load("a", again)

            assert again > token
            assert (3, EncodedPosition(b"a", {"x": b"new"})) == (state.plan, state.position)
            later = commit_of(again, previous=state.seq, seq=state.seq + 1, head=b"later")
            commit(store, replace(later, plan=3))
            assert b"later" == _head(store.load("a", again).position)
            assert [LOSS] == [kept.loss for kept in store.losses()]
            assert [1, 2] == [plan.number for plan in store.plans().ended]

    def test_a_change_of_plan_that_ends_halfway_is_taken_up_again(
        self, driver: StoreDriver
    ) -> None:
        """The plan stays announced, the states are what they were, and another one continues."""

        def dies(states: Sequence[SplitState]) -> Successor:
            raise ZeroDivisionError(len(states))

        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            commit(store, commit_of(claim(store)))
            store.announce(["c"], after=1)
            tokens = {split: claim(store, "w1", split) for split in ("a", "b")}
            with pytest.raises(ZeroDivisionError):
                store.replan("w1", tokens, dies)
            assert ["a", "b"] == [row.split for row in store.leases()]
            assert 1 == other.plans().in_force.number
            seen = _replanned(other, {"c": EncodedPosition(b"c", {})}, "w2")

            assert {"a": EncodedPosition(b"head", {}), "b": None} == seen
            assert ["c"] == [state.split for state in store.states()]
            with pytest.raises(LeaseLostError):
                store.replan("w1", tokens, dies)

    def test_no_commit_comes_between_the_states_and_the_plan_made_of_them(
        self, driver: StoreDriver
    ) -> None:
        """Who claims a split meanwhile commits nothing, or else the plan does not change (I2)."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            committed: list[bool] = []

            def meanwhile(states: Sequence[SplitState]) -> Successor:
                assert 2 == len(states)
                token = claim(other, "w2")
                try:
                    plan = other.load("a", token).plan
                    late = replace(commit_of(token, worker="w2", head=b"w2"), plan=plan)
                    committed.append(not other.commit([late]))
                except LeaseLostError:
                    committed.append(False)
                return Successor({"c": None}, {}, {})

            store.announce(["c"], after=1)
            tokens = {split: claim(store, "w1", split) for split in ("a", "b")}
            try:
                store.replan("w1", tokens, meanwhile)
            except LeaseLostError:
                changed = False
            else:
                changed = True

            assert [changed] == [not each for each in committed]
            assert changed == (2 == store.plans().in_force.number)


def _replanned(
    store: Store, positions: Mapping[str, EncodedPosition | None], worker: str = "w1"
) -> Mapping[str, EncodedPosition | None]:
    """Put another plan in force; return where the splits of the old one stood."""
    plans = store.plans()
    store.announce(list(positions), after=plans.in_force.number)
    seen: dict[str, EncodedPosition | None] = {}

    def succeed(states: Sequence[SplitState]) -> Successor:
        seen.update((state.split, state.position) for state in states)
        return Successor(positions, {"n": 7}, COUNTS)

    tokens = {split: claim(store, worker, split) for split in plans.in_force.splits}
    store.replan(worker, tokens, succeed)
    return seen


def _head(position: EncodedPosition | None) -> bytes | None:
    return position.head if position else None
