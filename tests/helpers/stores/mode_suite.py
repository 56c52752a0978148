"""What the store must do with the modes of logs, and requests for them: part of `StoreSuite`."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial

from headrace.connector.stores.keyed.mode_requests import KEPT_MAX
from headrace.connector.stores.target_state import FORK_MARK
from headrace.plugins.errors import LeaseLostError
from headrace.plugins.positions import EncodedPosition
from headrace.plugins.stores.contract import Successor
from headrace.plugins.stores.kept_modes import (
    AskedMode,
    KeptModes,
    LogMode,
    ModeAnswer,
    ModeOutcome,
    ModeRequest,
)
from helpers.stores.store_driver import LEASE_MS, StoreDriver, claim, commit, commit_of, registered

ANSWER = ModeAnswer(ModeOutcome.SUCCEEDED, "", 7, {"segment_id": 5, "position": 77})
ON = KeptModes(
    {"": AskedMode(1, "realtime")},
    {"n1": LogMode(mode="realtime", reason="asked", since_ms=6, request=1, answer=ANSWER)},
)
OFF = KeptModes({"": AskedMode(2, "log")}, {"n1": LogMode(mode="log", request=2)})


class ModeSuite:
    """See the module."""

    def test_modes_are_kept_with_the_position(self, driver: StoreDriver) -> None:
        """Commits leave them, and the next owner finds them."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            token = claim(store)
            assert {"a": None, "b": None} == other.modes()
            commit(store, commit_of(token))
            assert {} == store.keep_modes("w1", {"a": token}, {"a": ON})
            commit(store, commit_of(token, previous=1, seq=2))
            state = other.load("a", claim(other, "w2"))

            assert {"a": ON, "b": None} == other.modes()
            assert (ON, 2) == (state.modes, state.seq)

    def test_modes_of_a_former_owner_are_refused(self, driver: StoreDriver) -> None:
        """Only the token and the owner of the last claim keep modes (I2); others are kept."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            tokens = store.claim("w1", store.leases(), LEASE_MS)
            newer = claim(other, "w2", "a")
            refused = store.keep_modes("w1", tokens, {"a": ON, "b": ON})
            again = store.keep_modes("w1", {"a": newer}, {"a": ON})
            assert {} == other.keep_modes("w2", {"a": newer}, {"a": OFF})

            assert [("a", LeaseLostError)] == [(split, type(e)) for split, e in refused.items()]
            assert ["a"] == list(again)
            assert {"a": OFF, "b": ON} == other.modes()

    def test_modes_stay_where_positions_are_set(self, driver: StoreDriver) -> None:
        """By command, for a job that is forked, and for the splits of another plan."""
        with (
            closing(registered(driver)) as store,
            closing(driver.open(f"{driver.job}{FORK_MARK}s")) as fork,
        ):
            tokens = store.claim("w1", store.leases(), LEASE_MS)
            store.keep_modes("w1", tokens, {"a": OFF, "b": ON})
            for split, token in tokens.items():
                store.release("w1", split, token)
            store.reposition({"a": EncodedPosition(b"there", {}), "b": None})
            assert {"a": OFF, "b": ON} == store.modes()
            assert fork.become_copy(driver.job, busy=())
            assert {"a": OFF, "b": ON} == fork.modes()

            store.announce(["c"], after=1)
            tokens = store.claim("w1", store.leases(), LEASE_MS)
            store.replan("w1", tokens, lambda _: Successor({"c": None}, {}, {}))
            assert {"c": OFF} == store.modes()

    def test_requests_are_listed(self, driver: StoreDriver) -> None:
        """Those of two processes, up to a bound."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            assert [] == list(store.mode_requests().all())
            made = [
                ModeRequest(request=number, node="n1", mode="log", asked_ms=number)
                for number in range(KEPT_MAX + 5)
            ]
            for number, each in enumerate(made):
                process = (store, other)[number % 2]
                process.mode_requests().update(partial(_with, each))

            assert made[-KEPT_MAX:] == list(other.mode_requests().all())
            assert [] == list(driver.open(f"{driver.job}2").mode_requests().all())


def _with(request: ModeRequest, known: Sequence[ModeRequest]) -> Sequence[ModeRequest]:
    return [*known, request]
