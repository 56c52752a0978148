"""Leases: deadlines, take-over and sharing, by a driven clock and a real store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.stores import LeaseRow, Owner, StoreUnavailableError
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins.testing.doubles import DrivenClock

LEASE_MS = 9_000
SPLITS = [f"s{n}" for n in range(8)]


def owner(worker: str) -> Owner:
    """Return a worker's identity."""
    return Owner(worker=worker, host="h", boot="b", pid_space="p", pid=1, started=2)


class Machine:
    """A store, a clock, and workers of which a test says who is provably dead."""

    def __init__(self, path: Path) -> None:
        """Register eight splits."""
        self.clock = DrivenClock()
        self.store = SqliteStore.open(path, "job")
        self.store.register(SPLITS)
        self.dead: set[str] = set()
        self.provable = True

    def worker(
        self, name: str, splits: list[str] | None = None, *, lease_ms: int = LEASE_MS
    ) -> LeaseHolder:
        """Enroll a worker, whose source has *splits*."""
        self.store.enroll(owner(name))
        return LeaseHolder(
            self.store,
            owner(name),
            self.clock,
            lease_ms=lease_ms,
            splits=splits,
            dead=lambda other: other.worker in self.dead,
            alive=lambda other: self.provable and other.worker not in self.dead,
        )

    def owners(self) -> dict[str, str | None]:
        """Return who owns what."""
        return {row.split: row.owner for row in self.store.leases()}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a machine."""
    machine = Machine(tmp_path / "state.db")
    yield machine
    machine.store.close()


def give_up(lease_holder: LeaseHolder, machine: Machine, name: str, splits: list[str]) -> None:
    """Do what the data thread does with splits to hand over."""
    for split in splits:
        token = lease_holder.held[split].token
        machine.store.release(name, split, token)
        lease_holder.closed(split, token, failed=False)


def test_a_worker_alone_owns_everything(machine: Machine) -> None:
    """The first step claims all splits, with token 1, until a lease after the request."""
    gained = machine.worker("w1").step().gained

    assert SPLITS == [lease.split for lease in gained]
    assert {(1, 1_000 + LEASE_MS)} == {(lease.token, lease.deadline_ms) for lease in gained}


def test_a_store_that_is_away_is_asked_once_a_poll(machine: Machine) -> None:
    """Another worker's lease seems to have expired; requests still have pauses."""
    lease_holder, other = machine.worker("w1"), machine.worker("w2")
    for _ in range(2):
        lease_holder.step()
        other.step()
    assert machine.clock.monotonic_ms() + LEASE_MS >= lease_holder.next_ms(2 * LEASE_MS)

    machine.clock.advance(2 * LEASE_MS)

    assert machine.clock.monotonic_ms() + 100 == lease_holder.next_ms(100)


def test_a_split_that_its_source_lacks_is_for_others(machine: Machine) -> None:
    """A worker that slept while the plan changed claims no new split, and reports no death."""
    asleep = machine.worker("w1", ["1-of-2", "2-of-2", SPLITS[0]])

    assert [SPLITS[0]] == [lease.split for lease in asleep.step().gained]
    machine.clock.advance(3 * LEASE_MS)
    assert not asleep.step().gained
    assert not asleep.others_live
    assert {None} == {who for split, who in machine.owners().items() if split != SPLITS[0]}
    assert machine.worker("w2").step().gained


def test_nothing_is_submitted_in_the_margin(machine: Machine) -> None:
    """A lease allows submitting until its margin begins, not later (I2)."""
    lease = machine.worker("w1").step().gained[0]
    last_ms = 1_000 + LEASE_MS - LEASE_MS // 5

    assert lease.allows(last_ms - 1)
    assert not lease.allows(last_ms)


def test_deadline_counts_from_before_the_request(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal that took long extends the lease from when it was sent."""
    lease_holder = machine.worker("w1")
    lease = lease_holder.step().gained[0]
    machine.clock.advance(LEASE_MS // 3)
    real = machine.store.renew

    def slow(
        worker: str, tokens: dict[str, int], rates: Mapping[str, int] | None = None
    ) -> frozenset[str]:
        machine.clock.advance(2_000)
        return real(worker, tokens, rates)

    monkeypatch.setattr(machine.store, "renew", slow)
    lease_holder.step()

    assert 1_000 + LEASE_MS // 3 + LEASE_MS == lease.deadline_ms


def test_deadline_of_a_claim_counts_from_before_the_request(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that took long is a lease from when it was sent: others count from its row (I2)."""
    real = machine.store.claim

    def slow(worker: str, rows: Sequence[LeaseRow], lease_ms: int) -> Mapping[str, int]:
        tokens = real(worker, rows, lease_ms)
        machine.clock.advance(2_000)
        return tokens

    lease_holder = machine.worker("w1")
    sent_ms = machine.clock.monotonic_ms()
    monkeypatch.setattr(machine.store, "claim", slow)

    assert {sent_ms + LEASE_MS} == {lease.deadline_ms for lease in lease_holder.step().gained}


@pytest.mark.parametrize(("own_ms", "other_ms"), [(LEASE_MS, 3_000), (3_000, LEASE_MS)])
def test_of_two_lease_lengths_the_longer_one_counts(
    machine: Machine, own_ms: int, other_ms: int
) -> None:
    """A silent owner loses its splits after its own lease, and not before the claimer's (I2).

    It submits until its deadline has passed.
    """
    lease = machine.worker("w1", lease_ms=own_ms).step().gained[0]
    machine.provable = False
    thief = machine.worker("w2", lease_ms=other_ms)
    thief.step()
    seen_ms = machine.clock.monotonic_ms()
    while not thief.held:
        machine.clock.advance(500)
        thief.step()

    assert not lease.allows(machine.clock.monotonic_ms())
    assert seen_ms + LEASE_MS == machine.clock.monotonic_ms()


def test_a_silent_owner_is_left_alone_for_a_whole_period(machine: Machine) -> None:
    """A lease is stolen only after its row stood still for a lease period on the claimer's clock.

    The claimer's clock starts when it first sees the row, whenever that was written.
    """
    machine.worker("w1").step()
    machine.provable = False
    machine.clock.advance(100 * LEASE_MS)
    thief = machine.worker("w2")

    assert () == tuple(thief.step().gained)
    machine.clock.advance(LEASE_MS - 1)
    assert () == tuple(thief.step().gained)
    machine.clock.advance(1)
    assert SPLITS == [lease.split for lease in thief.step().gained]
    assert {2} == {lease.token for lease in thief.held.values()}


STEP_MS = 1_000


def counted(machine: Machine, patch: pytest.MonkeyPatch) -> list[int]:
    """Return when leases are read, from now on."""
    looks: list[int] = []
    real = machine.store.leases

    def look() -> Sequence[LeaseRow]:
        looks.append(machine.clock.monotonic_ms())
        return real()

    patch.setattr(machine.store, "leases", look)
    return looks


def test_leases_are_read_when_they_may_have_changed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TP03: read at renewals where each has its share, in each step when an owner is silent.

    Its splits move a lease after its row was last seen to move.
    """
    first, second = machine.worker("w1"), machine.worker("w2")
    first.step()
    second.step()
    machine.provable = False
    looks = counted(machine, monkeypatch)
    for _ in range(18):
        machine.clock.advance(STEP_MS)
        first.step()
        second.step()
    assert len(looks) <= 2 * 18 * STEP_MS // (LEASE_MS // 3)
    looks.clear()

    silent_ms, gained_ms = machine.clock.monotonic_ms(), 0
    while not gained_ms:
        machine.clock.advance(STEP_MS)
        gained_ms = machine.clock.monotonic_ms() if second.step().gained else 0

    assert LEASE_MS - LEASE_MS // 3 <= gained_ms - silent_ms <= LEASE_MS + STEP_MS
    assert 8 == len(second.held)
    assert len(looks) < 10


def test_a_worker_alone_with_all_splits_reads_no_leases(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews them; it reads them again when one is gone, or when another worker comes."""
    first = machine.worker("w1", SPLITS)
    first.step()
    first.step()
    looks = counted(machine, monkeypatch)
    for _ in range(18):
        machine.clock.advance(STEP_MS)
        assert not first.step().lost
    assert not looks
    assert all(lease.allows(machine.clock.monotonic_ms()) for lease in first.held.values())

    first.closed("s3", first.held["s3"].token, failed=False)
    machine.store.release("w1", "s3", 1)
    for _ in range(4):
        machine.clock.advance(STEP_MS)
        first.step()
    assert "s3" in first.held

    second = machine.worker("w2", SPLITS)
    second.step()
    machine.clock.advance(STEP_MS)
    assert 4 == len(first.step().hand_over)

    looks.clear()
    for _ in range(18):  # They are still here, but no longer those of a worker alone.
        machine.clock.advance(STEP_MS)
        machine.store.renew("w2", {})
        first.step()
    assert looks


def test_a_process_that_was_paused_submits_nothing_when_it_wakes(machine: Machine) -> None:
    """Its deadline has passed on the clock that counts sleep, before it sees the new owners."""
    first = machine.worker("w1")
    lease = first.step().gained[0]
    second = machine.worker("w2")
    machine.provable = False
    second.step()
    machine.clock.advance(LEASE_MS)
    assert 8 == len(second.step().gained)

    assert not lease.allows(machine.clock.monotonic_ms())
    assert SPLITS == list(first.step().lost)


def test_a_renewing_owner_is_never_robbed(machine: Machine) -> None:
    """As long as the rows change, no worker takes more than its share."""
    first, second = machine.worker("w1"), machine.worker("w2")
    first.step()
    machine.provable = False
    for _ in range(50):
        machine.clock.advance(LEASE_MS // 3)
        give_up(first, machine, "w1", list(first.step().hand_over))
        second.step()

    assert (4, 4) == (len(first.held), len(second.held))
    assert {1} == {row.token for row in machine.store.leases()}


def test_a_dead_owner_is_replaced_at_once(machine: Machine) -> None:
    """Splits of a provably dead process are taken over immediately, with a higher token."""
    machine.worker("w1").step()
    machine.dead.add("w1")
    target = machine.worker("w2")

    assert [(split, 2) for split in SPLITS] == [(g.split, g.token) for g in target.step().gained]


def test_a_neighbour_returns_what_it_took(machine: Machine) -> None:
    """TP03: a worker that replaces a dead one has its share again, under a new token."""
    machine.worker("w1").step()
    machine.dead.add("w1")
    neighbour = machine.worker("w2")
    neighbour.step()
    back = machine.worker("w3")
    back.step()
    give_up(neighbour, machine, "w2", list(neighbour.step().hand_over))

    assert [(split, 3) for split in SPLITS[4:]] == [(g.split, g.token) for g in back.step().gained]
    assert SPLITS[:4] == sorted(neighbour.held)


def test_a_robbed_owner_learns_it(machine: Machine) -> None:
    """A replaced owner learns it at its next renewal, and its deadline is not extended."""
    first = machine.worker("w1")
    lease = first.step().gained[0]
    deadline_ms = lease.deadline_ms
    machine.dead.add("w1")
    machine.worker("w2").step()
    machine.clock.advance(LEASE_MS)
    changes = first.step()

    assert SPLITS == list(changes.lost)
    assert {} == first.held
    assert deadline_ms == lease.deadline_ms
    assert not lease.allows(machine.clock.monotonic_ms())


def test_two_workers_share(machine: Machine) -> None:
    """The one that has more than its share hands over; nothing is taken before it is given."""
    first = machine.worker("w1")
    first.step()
    second = machine.worker("w2")

    assert [] == list(second.step().gained)
    extra = list(first.step().hand_over)
    assert SPLITS[4:] == extra
    assert [] == list(first.step().hand_over)  # Asked for once.
    assert [] == list(second.step().gained)
    give_up(first, machine, "w1", extra)
    assert SPLITS[4:] == [lease.split for lease in second.step().gained]
    assert [] == list(first.step().gained)
    assert {"w1": 4, "w2": 4} == count(machine.owners())


def count(owners: dict[str, str | None]) -> dict[str | None, int]:
    """Return how many splits each owns."""
    names = list(owners.values())
    return {name: names.count(name) for name in set(names)}


def test_a_failed_split_is_not_claimed_again(machine: Machine) -> None:
    """A process does not run into the same wall twice; another one may try."""
    lease_holder = machine.worker("w1")
    lease_holder.step()
    machine.store.release("w1", "s0", 1, "fatal: no")
    lease_holder.closed("s0", 1, failed=True)

    assert [] == list(lease_holder.step().gained)
    assert None is machine.owners()["s0"]
    machine.dead.add("w1")
    assert 8 == len(machine.worker("w2").step().gained)


def test_a_late_message_does_not_drop_a_new_lease(machine: Machine) -> None:
    """A lease given back under an old token says nothing about the new one."""
    lease_holder = machine.worker("w1")
    lease_holder.step()
    lease_holder.closed("s0", 0, failed=False)

    assert "s0" in lease_holder.held


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (lambda _: None, True),
        (lambda machine: setattr(machine, "provable", False), False),
        (lambda machine: machine.dead.add("w1"), True),
    ],
    ids=["alive", "nobody knows", "dead, and so taken"],
)
def test_others_live(
    machine: Machine, prepare: Callable[[Machine], None], *, expected: bool
) -> None:
    """Whether all other splits are in good hands decides if there is anything to wait for."""
    machine.worker("w1").step()
    prepare(machine)
    lease_holder = machine.worker("w2")
    lease_holder.step()

    assert expected == lease_holder.others_live == lease_holder.is_covered()


def test_who_wants_splits_gets_them_and_no_others(machine: Machine) -> None:
    """A worker that wants splits is handed these, and keeps them until it wants them no more."""
    first = machine.worker("w1")
    first.step()
    second = machine.worker("w2")
    bulk = machine.worker("bulk")
    machine.store.want("bulk", ["s1", "s7"])

    assert [] == bulk.take(["s1", "s7"]).gained
    changes = first.step()
    assert {"s1": "bulk", "s7": "bulk"} == changes.hand_over
    give_up(first, machine, "w1", ["s1", "s7"])
    assert [] == list(second.step().gained)
    assert ["s1", "s7"] == [lease.split for lease in bulk.take(["s1", "s7"]).gained]
    machine.clock.advance(LEASE_MS // 2)
    for lease_holder in (first, second):
        lease_holder.step()
    assert {"bulk"} == {machine.owners()[split] for split in ("s1", "s7")}
    assert ["w1", "w2"] == first.live

    give_up(bulk, machine, "bulk", ["s1", "s7"])
    machine.store.want("bulk", ())
    machine.store.dismiss("bulk")
    first.step()
    second.step()
    machine.clock.advance(LEASE_MS // 2)
    first.step()
    assert {"w1", "w2"} >= {machine.owners()[split] for split in ("s1", "s7")}


def test_who_wants_splits_and_dies_blocks_nobody(machine: Machine) -> None:
    """What a dead worker wanted, and held, is claimed by others."""
    bulk = machine.worker("bulk")
    machine.store.want("bulk", ["s1", "s2"])
    bulk.take(["s1"])
    lease_holder = machine.worker("w1")

    assert {*SPLITS} - {"s1", "s2"} == {lease.split for lease in lease_holder.step().gained}
    machine.dead.add("bulk")
    assert ["s1", "s2"] == [lease.split for lease in lease_holder.step().gained]


def test_of_two_that_want_a_split_one_gets_it(machine: Machine) -> None:
    """The first by name has it; the other waits."""
    one, two = machine.worker("a"), machine.worker("b")
    for name in ("a", "b"):
        machine.store.want(name, ["s0"])

    assert [] == two.take(["s0"]).gained
    assert ["s0"] == [lease.split for lease in one.take(["s0"]).gained]


def test_what_became_free_since_is_seen_at_the_end(machine: Machine) -> None:
    """The store is read again to check that all splits have live owners."""
    other, mine = machine.worker("w2"), machine.worker("w1")
    other.step()
    mine.step()
    assert mine.is_covered()
    machine.dead.add("w2")

    assert not mine.is_covered()


def test_a_split_that_is_free_is_not_in_good_hands(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was seen to be free, and could not be claimed."""
    mine = machine.worker("w1")
    monkeypatch.setattr(machine.store, "claim", _away)
    with pytest.raises(StoreUnavailableError):
        mine.step()

    assert not mine.is_covered()


def test_a_split_that_was_lost_is_reported_although_the_store_went_away(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round that saw the loss did not end: the next one reports it."""
    mine = machine.worker("w1")
    lost = mine.step().gained[0]
    machine.store.enroll(owner("w2"))
    rows = [row for row in machine.store.leases() if row.split == lost.split]
    machine.store.claim("w2", rows, LEASE_MS)
    machine.clock.advance(LEASE_MS // 3)
    with monkeypatch.context() as away:
        away.setattr(machine.store, "workers", _away)
        with pytest.raises(StoreUnavailableError):
            mine.step()

    assert [lost.split] == list(mine.step().lost)
    assert not mine.step().lost


def _away(*_given: object) -> NoReturn:
    raise StoreUnavailableError("no answer")
