"""What the store must do over every backend: for workers, plans of splits, and those who steer."""

from contextlib import closing
from dataclasses import replace

import msgspec
import pytest

from headrace.plugins.errors import LeaseLostError
from headrace.plugins.positions import EncodedPosition
from headrace.plugins.records.record import RecordSchema
from headrace.plugins.stores.contract import PlanChangedError, QuarantineFullError, StateLostError
from helpers.stores.mode_suite import ModeSuite
from helpers.stores.note_suite import NoteSuite
from helpers.stores.plan_suite import PlanSuite
from helpers.stores.store_driver import (
    COUNTS,
    LEASE_MS,
    LOSS,
    StoreDriver,
    claim,
    commit,
    commit_of,
    lease,
    owner,
    registered,
)


class StoreSuite(PlanSuite, NoteSuite, ModeSuite):
    """Subclass it, and give it a fixture `driver` that returns a `StoreDriver`."""

    @pytest.fixture
    def driver(self) -> StoreDriver:
        """Return what to test."""
        raise NotImplementedError("a subclass of StoreSuite has a fixture named driver")

    def test_job_key_is_made_once(self, driver: StoreDriver) -> None:
        """Every process of a job finds the same 16 bytes; another job has others."""
        names = (driver.job, driver.job, f"{driver.job}-other")
        stores = [driver.open(name) for name in names]
        first, again, stranger = (store.job_key() for store in stores)
        for store in stores:
            store.close()

        assert 16 == len(first)
        assert first == again
        assert first != stranger

    def test_jobs_are_apart(self, driver: StoreDriver) -> None:
        """A job sees nothing of another one's workers, leases and states."""
        with closing(registered(driver)) as store, closing(driver.open(f"{driver.job}2")) as other:
            store.enroll(owner())
            commit(store, commit_of(claim(store)))

            assert ([], [], []) == (
                list(other.workers()),
                list(other.leases()),
                list(other.states()),
            )

    def test_token_grows_with_each_claim(self, driver: StoreDriver) -> None:
        """A claim takes the next token; a row that changed meanwhile cannot be claimed."""
        with closing(registered(driver)) as store:
            stale = lease(store)

            assert 1 == claim(store, "w1")
            assert {} == store.claim("w2", [stale], LEASE_MS)
            assert 2 == claim(store, "w2")
            assert ("w2", 2) == (lease(store).owner, lease(store).token)

    def test_a_lease_that_was_renewed_meanwhile_is_not_claimed(self, driver: StoreDriver) -> None:
        """Its owner lives: who looked at it before the renewal cannot take it (I2)."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            token = claim(store, "w1")
            for rates in (None, {"a": 7}):
                stale = lease(other)
                assert frozenset() == store.renew("w1", {"a": token}, rates)
                assert {} == other.claim("w2", [stale], LEASE_MS)

            assert ("w1", token) == (lease(other).owner, lease(other).token)
            commit(store, commit_of(token))

    def test_two_claim_at_once(self, driver: StoreDriver) -> None:
        """Of two who saw the same free leases, each gets what the other does not."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            rows = store.leases()
            mine = store.claim("w1", rows[:1], LEASE_MS)
            others = other.claim("w2", rows, LEASE_MS)

            assert ({"a": 1}, {"b": 1}) == (mine, others)

    def test_token_exceeds_that_of_the_head(self, driver: StoreDriver) -> None:
        """A lease row that was lost or set back does not bring old tokens back."""
        with closing(registered(driver)) as store:
            driver.set_head_token("a", 41)

            assert 42 == claim(store)

    def test_two_owners_of_one_state(self, driver: StoreDriver) -> None:
        """K02: after a take-over the former owner is refused by name and changes nothing (I2)."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            old = claim(store, "w1")
            commit(store, commit_of(old, chunks={"kept": b"1"}))
            new = claim(other, "w2")
            late = commit_of(old, previous=1, seq=2, head=b"late", chunks={"x": b"x"})
            refused = store.commit([late])["a"]

            assert isinstance(refused, LeaseLostError)
            assert ("split a", True) == (refused.place, f"token {new}" in str(refused))
            state = other.load("a", new)
            assert EncodedPosition(b"head", {"kept": b"1"}) == state.position
            assert 1 == state.seq
            with pytest.raises(LeaseLostError, match=f"token {new}, mine is {old}"):
                store.load("a", old)

    def test_only_the_token_of_the_last_claim_commits(self, driver: StoreDriver) -> None:
        """Neither one of an earlier claim by the same worker does, nor one that was not given."""
        with closing(registered(driver)) as store:
            old, token = claim(store, "w1"), claim(store, "w1")
            store.load("a", token)

            for wrong in (old, token + 1):
                assert isinstance(store.commit([commit_of(wrong)])["a"], LeaseLostError)
            assert 0 == store.load("a", token).seq
            commit(store, commit_of(token))

    def test_a_successor_goes_on(self, driver: StoreDriver) -> None:
        """A worker that takes over commits on top of what the former owner committed."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            commit(store, commit_of(claim(store), chunks={"one": b"1", "two": b"2"}))
            token = claim(other, "w2")
            other.load("a", token)
            later = commit_of(
                token, worker="w2", previous=1, seq=2, chunks={"two": b"2", "three": b"3"}
            )
            commit(other, later)
            (state,) = [each for each in store.states() if each.split == "a"]

            assert later.position == state.position
            assert (token, 2) == (state.token, state.seq)

    def test_one_lost_split_does_not_hold_up_another(self, driver: StoreDriver) -> None:
        """The splits that are still mine are committed, the lost one is named."""
        with closing(registered(driver)) as store:
            old, mine = claim(store, "w1", "a"), claim(store, "w1", "b")
            claim(store, "w2", "a")
            refused = store.commit([commit_of(old), commit_of(mine, split="b")])

            assert ["a"] == list(refused)
            assert 1 == store.load("b", mine).seq

    def test_commit_replaces_head_chunks_and_counters(self, driver: StoreDriver) -> None:
        """Chunks that the new head does not list are dropped with the old head (I7)."""
        with closing(registered(driver)) as store:
            token = claim(store)
            commit(store, commit_of(token, chunks={"one": b"1", "two": b"2"}))
            next_chunks = {"two": b"2", "three": b"3"}
            commit(store, commit_of(token, previous=1, seq=4, head=b"next", chunks=next_chunks))
            state = store.load("a", token)

            assert EncodedPosition(b"next", next_chunks) == state.position
            assert (1, 4, COUNTS) == (state.plan, state.seq, state.counters)

    def test_a_chunk_may_come_back(self, driver: StoreDriver) -> None:
        """A chunk that was dropped and is listed again is there again."""
        with closing(registered(driver)) as store:
            token = claim(store)
            for number, chunks in enumerate(({"one": b"1"}, {}, {"one": b"1"})):
                commit(store, commit_of(token, previous=number, seq=number + 1, chunks=chunks))

            assert EncodedPosition(b"head", {"one": b"1"}) == store.load("a", token).position

    def test_chunks_that_are_named_only_are_kept(self, driver: StoreDriver) -> None:
        """A commit may name chunks of the one before: they stay, and a state has their bytes."""
        with closing(registered(driver)) as store:
            token = claim(store)
            commit(store, commit_of(token, chunks={"one": b"1", "two": b"2"}))
            for number, kept in enumerate((["one", "two"], ["two"]), start=1):
                chunks = {"three": b"3"}
                later = commit_of(token, previous=number, seq=number + 1, chunks=chunks, kept=kept)
                commit(store, later)
                commit(store, later)  # Its outcome was not known.
                expected = {"one": b"1", "two": b"2", "three": b"3"}
                whole = {name: expected[name] for name in (*chunks, *kept)}
                assert EncodedPosition(b"head", whole) == store.states()[0].position

            assert EncodedPosition(b"head", whole) == store.load("a", token).position
            commit(store, commit_of(token, previous=3, seq=4, kept=["two", "three"]))
            whole = {"two": b"2", "three": b"3"}
            assert EncodedPosition(b"head", whole) == store.load("a", token).position

    def test_a_successor_names_what_it_loaded(self, driver: StoreDriver) -> None:
        """Chunks stay that a former owner wrote, and that his successor names after loading."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            commit(store, commit_of(claim(store), chunks={"one": b"1", "two": b"2"}))
            token = claim(other, "w2")
            other.load("a", token)
            commit(other, commit_of(token, worker="w2", previous=1, seq=2, kept=["two"]))

            again = claim(store, "w1")
            assert EncodedPosition(b"head", {"two": b"2"}) == store.load("a", again).position

    def test_a_named_chunk_that_is_missing_is_refused(self, driver: StoreDriver) -> None:
        """What the store does not have is lost: the state that is there stays as it is (I2)."""
        with closing(registered(driver)) as store:
            token, mine = claim(store, split="a"), claim(store, split="b")
            commit(store, commit_of(token, chunks={"one": b"1", "two": b"2"}))
            commit(store, commit_of(token, previous=1, seq=2, kept=["two"]))
            chunks = {"three": b"3"}
            gone = commit_of(token, previous=2, seq=3, chunks=chunks, kept=["one", "two"])
            gone = msgspec.structs.replace(gone, losses=[LOSS])
            refused = store.commit([gone, commit_of(mine, split="b")])

            assert ["a"] == list(refused)
            assert isinstance(refused["a"], StateLostError)
            assert "chunk one, kept from an earlier commit, is missing" in str(refused["a"])
            state = store.load("a", token)
            assert (2, EncodedPosition(b"head", {"two": b"2"})) == (state.seq, state.position)
            assert [] == list(store.losses())
            assert 1 == store.load("b", mine).seq

    def test_a_large_state_is_kept(self, driver: StoreDriver) -> None:
        """A head of 64 KiB and chunks of 256 KiB come back as they were."""
        with closing(registered(driver)) as store:
            token = claim(store)
            chunks = {f"c{n}": bytes([n]) * (256 * 1024) for n in range(12)}
            large = commit_of(token, head=b"h" * (64 * 1024), chunks=chunks)
            commit(store, large)

            assert large.position == store.load("a", token).position

    def test_commit_must_follow_the_previous_one(self, driver: StoreDriver) -> None:
        """A commit that skips one is refused: another wrote with this token, or state is lost."""
        with closing(registered(driver)) as store:
            refused = store.commit([commit_of(claim(store), previous=3, seq=4)])

            assert isinstance(refused["a"], StateLostError)

    def test_repeated_commit_is_recognised(self, driver: StoreDriver) -> None:
        """The same commit again, after an unknown outcome, changes nothing and is not refused."""
        with closing(registered(driver)) as store:
            wanted = msgspec.structs.replace(commit_of(claim(store)), losses=[LOSS])
            commit(store, wanted)
            commit(store, wanted)

            assert [LOSS] == [kept.loss for kept in store.losses()]

    @pytest.mark.parametrize("what", ["head", "chunks", "position"])
    def test_lost_state_is_named(self, driver: StoreDriver, what: str) -> None:
        """A split without its head, or with an incomplete head, is lost: it does not start over."""
        with closing(registered(driver)) as store:
            commit(store, commit_of(claim(store), chunks={"one": b"1"}))
            driver.remove(what, "a")
            token = claim(store, "w2")
            with pytest.raises(StateLostError, match=r"is missing|found NULL") as caught:
                store.load("a", token)

            assert ("state_lost", 1) == (caught.value.code, caught.value.exit_status)

    @pytest.mark.parametrize("what", ["lease", "head"])
    def test_registered_split_is_lost(self, driver: StoreDriver, what: str) -> None:
        """A split that the job knows must have a lease and a head."""
        with closing(registered(driver)) as store:
            driver.remove(what, "a")
            with pytest.raises(StateLostError, match="split a"):
                store.register(["a", "b"])

    def test_plan_may_grow_but_not_lose_a_split(self, driver: StoreDriver) -> None:
        """New splits begin without state; a split that has state must stay in the plan."""
        with closing(registered(driver)) as store:
            store.register(["a", "b", "c"])

            assert ["a", "b", "c"] == [row.split for row in store.leases()]
            with pytest.raises(PlanChangedError, match="without 'a'") as caught:
                store.register(["b", "c"])
            assert 2 == caught.value.exit_status

    def test_state_before_the_firstcommit(self, driver: StoreDriver) -> None:
        """A split without a commit has no position, and its first number is above 0."""
        with closing(registered(driver)) as store:
            state = store.load("a", claim(store))

            assert (None, 0, {}) == (state.position, state.seq, state.counters)

    def test_renewal_names_what_was_lost(self, driver: StoreDriver) -> None:
        """A renewal moves the beats of the worker and of what it holds, and names the rest."""
        with closing(registered(driver)) as store:
            store.enroll(owner())
            tokens = {"a": claim(store, "w1", "a"), "b": claim(store, "w1", "b")}
            claim(store, "w2", "b")
            before, worker = lease(store), store.workers()[0]

            assert frozenset({"b"}) == store.renew("w1", tokens)
            assert before.beat != lease(store).beat
            assert worker.beat != store.workers()[0].beat
            assert worker.owner == store.workers()[0].owner

    def test_a_claim_moves_the_beat_of_its_worker(self, driver: StoreDriver) -> None:
        """A worker whose row did not change for a lease time got no lease in that time."""
        with closing(registered(driver)) as store:
            store.enroll(owner())
            before = store.workers()[0].beat
            claim(store)

            assert before != store.workers()[0].beat

    def test_a_renewal_tells_rates(self, driver: StoreDriver) -> None:
        """Bytes a second stay with the lease until others are reported, also for new owners."""
        with closing(registered(driver)) as store:
            store.enroll(owner())
            tokens = {"a": claim(store, "w1", "a"), "b": claim(store, "w1", "b")}
            assert [0, 0] == [row.rate for row in store.leases()]
            store.renew("w1", tokens, {"a": 5 << 33})
            store.renew("w1", tokens, {"b": 7})
            claim(store, "w2", "a")

            assert [5 << 33, 7] == [row.rate for row in store.leases()]

    def test_a_worker_tells_its_places_and_targets(self, driver: StoreDriver) -> None:
        """All others see what a worker reads at home, and to whom it is handing splits over."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            store.enroll(owner(), ["n1", "n 2"])
            assert [(("n1", "n 2"), ())] == [
                (r.places, r.handover_targets) for r in other.workers()
            ]
            store.offer("w1", ["w2"])
            store.renew("w1", {})
            assert [(("n1", "n 2"), ("w2",))] == [
                (r.places, r.handover_targets) for r in other.workers()
            ]
            store.offer("w1", ())

            assert [()] == [row.handover_targets for row in other.workers()]

    def test_a_worker_tells_what_it_wants(self, driver: StoreDriver) -> None:
        """All others see which splits one is to have, until it says otherwise."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            store.enroll(owner())
            assert [()] == [row.wants for row in other.workers()]
            store.want("w1", ["a", "b"])
            store.renew("w1", {})
            assert [("a", "b")] == [row.wants for row in other.workers()]
            store.want("w1", ())

            assert [()] == [row.wants for row in other.workers()]

    def test_released_lease_shows_its_problem(self, driver: StoreDriver) -> None:
        """A free lease tells why it was given back, until someone claims it."""
        with closing(registered(driver)) as store:
            store.release("w1", "a", claim(store), "fatal: no")

            assert (None, "fatal: no") == (lease(store).owner, lease(store).problem)
            claim(store)
            assert "" == lease(store).problem

    def test_release_with_an_old_token_does_nothing(self, driver: StoreDriver) -> None:
        """Only the holder can give a lease back."""
        with closing(registered(driver)) as store:
            old = claim(store, "w1")
            claim(store, "w2")
            store.release("w1", "a", old)

            assert "w2" == lease(store).owner

    def test_dismissed_worker_holds_nothing(self, driver: StoreDriver) -> None:
        """A worker that leaves frees its leases."""
        with closing(registered(driver)) as store:
            store.enroll(owner())
            claim(store)

            assert [owner()] == [row.owner for row in store.workers()]
            store.dismiss("w1")
            assert ([], None) == (list(store.workers()), lease(store).owner)

    def test_losses_are_reported_and_forgotten(self, driver: StoreDriver) -> None:
        """What was dead-lettered is found by its number, is sent once, and can be removed."""
        with closing(registered(driver)) as store:
            token = claim(store)
            second = replace(LOSS, kind="quarantined", key=None, content=b"6" * 10)
            commit(store, msgspec.structs.replace(commit_of(token), losses=[LOSS, second]))
            first, last = store.losses()

            assert [(LOSS, "a"), (second, "a")] == [(k.loss, k.split) for k in (first, last)]
            assert [last] == list(store.losses([last.number]))
            assert [first] == list(store.unsent_losses(["a"], bytes_max=1))
            assert [first, last] == list(store.unsent_losses(["a", "b"], bytes_max=100))
            assert [] == list(store.unsent_losses(["b"], bytes_max=100))
            store.mark_losses_sent([first.number])
            assert [last] == list(store.unsent_losses(["a"], bytes_max=100))
            assert [True, False] == [kept.sent for kept in store.losses()]
            store.remove_losses([last])
            assert [first.number] == [kept.number for kept in store.losses()]

    def test_quarantine_is_bounded(self, driver: StoreDriver) -> None:
        """A loss that does not fit stops its split's commit, all of it, and says the bound."""
        bound = 2 * (len(LOSS.content) + len(LOSS.key or b""))
        with (
            closing(registered(driver)) as store,
            closing(driver.open(driver.job, quarantine_bytes_max=bound)) as small,
        ):
            token = claim(store)
            commit(small, msgspec.structs.replace(commit_of(token), losses=[LOSS, LOSS]))
            full = msgspec.structs.replace(commit_of(token, previous=1, seq=2), losses=[LOSS])
            refused = small.commit([full])

            assert isinstance(refused["a"], QuarantineFullError)
            assert f"bound of {bound}" in str(refused["a"])
            assert 1 == store.load("a", token).seq
            assert [LOSS, LOSS] == [kept.loss for kept in store.losses()]

    def test_schemas_are_found_by_id(self, driver: StoreDriver) -> None:
        """What was announced is found by its id from every job; an unknown id is not."""
        schema = RecordSchema("ks.t", "CREATE", b"\1" * 16, {"type": "int"}, {"type": "string"})
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            store.put_schemas([schema])
            store.put_schemas([schema])
            found = other.schema(b"\1" * 16)

            assert schema == found
            assert found is not None
            assert ({"type": "int"}, {"type": "string"}) == (found.key, found.value)
            assert None is other.schema(b"\2" * 16)

    def test_closes_twice(self, driver: StoreDriver) -> None:
        """A store may be closed again, and what it wrote is there for the next one."""
        store = registered(driver)
        splits = {row.split for row in store.leases()}
        store.close()
        store.close()

        assert splits
        with closing(driver.open(driver.job)) as other:
            assert splits == {row.split for row in other.leases()}
