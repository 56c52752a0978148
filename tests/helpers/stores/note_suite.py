"""What the store must do for those who ask and steer: part of `StoreSuite`."""

from contextlib import closing

import pytest
from msgspec.structs import replace

from headrace.connector.stores import StoreUnavailableError
from headrace.plugins.errors import LeaseLostError
from headrace.plugins.positions import EncodedPosition
from headrace.plugins.records.record import RecordSchema
from headrace.plugins.stores.control_store import Observed, Publication, PublicationState, Seen
from helpers.stores.store_driver import (
    COUNTS,
    LEASE_MS,
    StoreDriver,
    claim,
    commit,
    commit_of,
    registered,
)

_SCHEMA = b"\1" * 16
_PLACE = EncodedPosition(b"there", {"c": b"chunk"})


class NoteSuite:
    """See the module."""

    def test_what_is_seen(self, driver: StoreDriver) -> None:
        """What is seen last counts, and since when it is so stays while it is so."""
        with closing(registered(driver)) as store, closing(driver.open(f"{driver.job}2")) as other:
            store.see([Seen(split="a", state=Observed.RUNNING, generation=1)])
            first = store.seen()["a"]
            row = Seen(split="a", state=Observed.RUNNING, generation=2, reason="r", attempt=3)
            store.see([row, replace(row, split="", next_attempt_ms=7)])
            second = store.seen()["a"]

            assert (2, "r", first.since_ms) == (second.generation, second.reason, second.since_ms)
            assert 0 < first.since_ms <= second.seen_ms
            assert (7, 3) == (store.seen()[""].next_attempt_ms, store.seen()[""].attempt)
            assert {} == other.seen()

    def test_only_the_owner_of_a_split_is_heard(self, driver: StoreDriver) -> None:
        """What a worker reports of a split is ignored while another one owns it."""
        with closing(registered(driver)) as store:
            (a, b) = store.leases()
            store.claim("w1", [a], LEASE_MS)
            store.claim("w2", [b], LEASE_MS)
            mine = [
                Seen(split=s, state=Observed.RUNNING, generation=1, worker="w1") for s in ("a", "b")
            ]
            store.see(mine)
            heard = store.seen()
            store.see([replace(row, worker="w2", state=Observed.STALLED) for row in mine])
            store.see(mine)
            both = store.seen()

            assert ["a"] == list(heard)
            assert ("w1", Observed.RUNNING) == (both["a"].worker, both["a"].state)
            assert ("w2", Observed.STALLED) == (both["b"].worker, both["b"].state)
            store.release("w2", "b", store.leases()[1].token)
            store.see([replace(row, worker="w2", state=Observed.FAILED) for row in mine])
            then = store.seen()
            assert Observed.RUNNING is then["a"].state
            assert Observed.FAILED is then["b"].state

    def test_a_problem_is_reported(self, driver: StoreDriver) -> None:
        """It is there until another one is reported, or that there is none."""
        with closing(registered(driver)) as store, closing(driver.open(driver.job)) as other:
            before = other.problem()
            store.report("kafka_unreachable: h:1")
            during = other.problem()
            store.report("")

            assert ("", "kafka_unreachable: h:1", "") == (before, during, other.problem())
            assert {} == store.seen()

    def test_what_a_job_ran_with(self, driver: StoreDriver) -> None:
        """Its file and, for each host, its sink are kept; its key and its splits stay."""
        with closing(driver.open(driver.job)) as store, closing(driver.open(driver.job)) as other:
            unknown = store.job_file(), store.opened_sink("h")
            key = store.begin_run("/a.yaml")
            first = other.job_file()
            store.register(["a"])
            store.note_sink("h", "mark")

            assert ("", None, "/a.yaml") == (*unknown, first)
            assert key == other.begin_run("/b.yaml") == store.job_key()
            assert ("/b.yaml", ["a"]) == (store.job_file(), [row.split for row in store.leases()])
            assert ("mark", None) == (other.opened_sink("h"), other.opened_sink("i"))
            assert {} == other.seen()

    def test_queue_of_schemas(self, driver: StoreDriver) -> None:
        """It keeps its order, takes each text once, and knows what became of it."""
        key, value = (
            Publication(subject=f"t-{part}", schema_id=_SCHEMA, part=part, text="{}")
            for part in ("value", "key")
        )
        done = replace(key, state=PublicationState.PUBLISHED, number=3, guid=b"g")
        with closing(driver.open(driver.job)) as store, closing(driver.open(driver.job)) as other:
            queue = store.publications()
            queue.enqueue([key, value])
            queue.settle(done)
            queue.enqueue([key])

            assert [done, value] == list(other.publications().all())
            again = replace(key, text='"int"')
            queue.enqueue([again, value])
            queue.settle(done)
            assert [again, value] == list(other.publications().all())

    def test_all_schemas(self, driver: StoreDriver) -> None:
        """They are found whichever job wrote them."""
        schema = RecordSchema("ks.t", "CREATE", _SCHEMA, {"a": 1}, {"b": 2})
        with closing(driver.open(driver.job)) as store, closing(driver.open("another")) as other:
            store.put_schemas([schema])

            assert schema in other.schemas()

    def test_reposition(self, driver: StoreDriver) -> None:
        """A split stands elsewhere, with its books, or starts over; its last owner is out."""
        with closing(registered(driver)) as store:
            tokens = store.claim("w1", store.leases(), LEASE_MS)
            commit(store, commit_of(tokens["a"], chunks={"old": b"1"}))
            commit(store, commit_of(tokens["b"], split="b"))
            store.reposition({"a": _PLACE, "b": None})
            here, restarted = store.states()
            refused = store.commit([commit_of(tokens["a"], previous=1, seq=2)])

            assert (_PLACE, COUNTS) == (here.position, dict(here.counters))
            assert (None, {}) == (restarted.position, dict(restarted.counters))
            assert isinstance(refused["a"], LeaseLostError)
            token = claim(store, "w2")
            assert _PLACE == store.load("a", token).position
            commit(store, commit_of(token, worker="w2", previous=here.seq, seq=here.seq + 1))

    def test_reposition_waits_for_its_owner(self, driver: StoreDriver) -> None:
        """While a worker that may be alive owns it, nothing is moved."""
        with closing(registered(driver)) as store:
            claim(store)
            with pytest.raises(LeaseLostError):
                store.reposition({"a": _PLACE}, busy={"w1"})

            assert [None, None] == [state.position for state in store.states()]

    def test_a_copy_goes_its_own_way(self, driver: StoreDriver) -> None:
        """It has key, plan and positions of the other job, and books of its own; as often as asked.

        What it did alone before does not count.
        """
        copy = f"{driver.job}~x"
        with closing(registered(driver)) as store, closing(driver.open(copy)) as fork:
            commit(store, commit_of(claim(store), chunks={"c": b"1"}))
            busy = fork.become_copy(driver.job, busy={"w1"})
            for _ in range(2):
                store.release("w1", "a", store.states()[0].token)
                copied = fork.become_copy(driver.job, busy=frozenset())
                (there, _), (here, _) = store.states(), fork.states()
                assert (there.position, there.seq, {}) == (here.position, here.seq, here.counters)
                commit(
                    fork,
                    commit_of(claim(fork, "v"), worker="v", previous=here.seq, seq=here.seq + 1),
                )

            assert (False, True) == (busy, copied)
            assert store.job_key() == fork.job_key()
            assert COUNTS == dict(store.states()[0].counters)
            assert EncodedPosition(b"head", {"c": b"1"}) == store.states()[0].position

    def test_beginning_beside(self, driver: StoreDriver) -> None:
        """A job that starts over beside another has its key, and nothing else of before."""
        copy = f"{driver.job}~x"
        with closing(registered(driver)) as store, closing(driver.open(copy)) as fork:
            for _ in range(2):
                fork.begin_beside(driver.job)
                empty = fork.states()
                fork.register(["a", "b"])
                commit(fork, commit_of(claim(fork, "v"), worker="v"))

                assert [] == list(empty)
            assert store.job_key() == fork.job_key()

    def test_notes_are_replaced_whole(self, driver: StoreDriver) -> None:
        """Of two that saw the same notes one writes; a reader finds all of what it wrote."""
        notes, other = driver.open_notes(), driver.open_notes()
        with closing(notes), closing(other):
            kind = driver.job
            assert {} == other.all(kind)
            with other.snapshot() as seen:
                with notes.transaction():
                    for number in range(100):
                        notes.put(kind, f"n{number}", "x" * 1000)
                with pytest.raises(StoreUnavailableError, match="at the same time"):
                    other.put(kind, "n0", "y")
            with other.snapshot() as then:
                assert seen != then
                assert 100 == len(other.all(kind))
            with other.transaction():
                other.put(kind, "n0", None)
                other.put(kind, "n1", "y")
            notes.put(kind, "n2", "z")
            found = notes.all(kind)
            assert (99, "y", "z") == (len(found), found["n1"], found["n2"])
            assert found == other.all(kind)
