"""The domain store over the backend in memory: what every store must do, and who is too late."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from msgspec.structs import replace

from headrace.connector.commands.cli import main
from headrace.connector.stores import StoreUnavailableError, Successor
from headrace.connector.stores.keyed.rows import TRIES_MAX, JobRows
from headrace.connector.stores.keyed.store import Store, store_over
from headrace.plugins import EncodedPosition, LeaseLostError
from headrace.plugins.stores.key_values import Change, Entry, Key, Partition
from headrace.plugins.testing.memory_values import Memory, MemoryConfig, MemoryValues
from helpers.jobs import toys
from helpers.stores.drivers import KeyedDriver
from helpers.stores.store_driver import LEASE_MS, LOSS, claim, commit, commit_of, owner
from helpers.stores.store_suite import StoreSuite

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def driver() -> KeyedDriver:
    """Return a driver of a memory of this test."""
    memory = Memory()
    return KeyedDriver(lambda: MemoryValues(memory), "job")


class TestStore(StoreSuite):
    """The domain store passes the suite."""

    @pytest.fixture
    def driver(self, driver: KeyedDriver) -> KeyedDriver:
        """Return a driver of a memory of this test."""
        return driver


def test_who_changes_a_plan_too_late_overwrites_nothing(
    driver: KeyedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another changed it while he made the new states: what was committed since stays (I2)."""
    with closing(driver.open("job")) as store, closing(driver.open("job")) as other:
        store.register(["a"])
        store.announce(["c"], after=1)
        first = store.claim("w1", store.leases(), LEASE_MS)
        begins = Successor({"c": EncodedPosition(b"begins", {})}, {}, {})
        real: Callable[..., None] = store._put_plan  # noqa: SLF001 (what comes too late)

        def late(*given: object) -> None:
            second = other.claim("w2", other.leases(), LEASE_MS)
            other.replan("w2", second, lambda _: begins)
            token = claim(other, "w2", "c")
            made = commit_of(token, split="c", worker="w2", head=b"went on")
            commit(other, replace(made, plan=2))
            real(*given)

        monkeypatch.setattr(store, "_put_plan", late)
        with pytest.raises(LeaseLostError):
            store.replan("w1", first, lambda _: begins)
        (state,) = other.states()

        assert b"went on" == (state.position and state.position.head)


def test_who_registers_at_the_same_time_removes_no_lease(
    driver: KeyedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases that another process made, and whose splits are not in the plan yet, stay (I2)."""
    with closing(driver.open("job")) as store, closing(driver.open("job")) as other:
        real: Callable[..., int] = store._change_job  # noqa: SLF001 (what the other one is before)

        def ended(*_: object) -> None:
            raise KeyboardInterrupt

        def late(*given: object) -> int:
            with pytest.raises(KeyboardInterrupt):
                other.register(["a"])
            return real(*given)

        monkeypatch.setattr(other, "_make", ended)
        monkeypatch.setattr(store, "_change_job", late)
        store.register(["a"])

        assert ["a"] == [row.split for row in store.leases()]


def test_a_plan_that_ended_leaves_no_lease() -> None:
    """Who changes the plan removes its leases; after a crash who registers next does."""
    values = MemoryValues(Memory())
    rows = JobRows(values, "job")
    with closing(store_over(MemoryValues)(values, "job")) as store:
        store.register(["a"])
        store.announce(["c"], after=1)
        tokens = store.claim("w1", store.leases(), LEASE_MS)
        begins = Successor({"c": EncodedPosition(b"begins", {})}, {}, {})
        store.replan("w1", tokens, lambda _: begins)
        left = [key.name for key in values.scan(rows.buckets)]
        old, (entry,) = rows.lease("a"), values.scan(rows.buckets).values()
        values.change([Change(partition=old.partition, expected={}, rows={"a": entry.value})])
        store.register(["c"])

        assert ["c"] == left == [key.name for key in values.scan(rows.buckets)]


class CountedValues(MemoryValues):
    """Counts the questions, each of which is a round trip to a store on other machines."""

    asked = 0

    def read(self, keys: Collection[Key]) -> Mapping[Key, Entry]:
        """See `KeyValues.read`."""
        self.asked += bool(keys)
        return super().read(keys)

    def scan(self, partitions: Collection[Partition]) -> Mapping[Key, Entry]:
        """See `KeyValues.scan`."""
        self.asked += 1
        return super().scan(partitions)


def test_how_often_the_backend_is_asked() -> None:
    """Registering reads job, leases and heads; a claim after a look heads; a renewal nothing."""
    values = CountedValues(Memory())
    asked = []
    with closing(store_over(CountedValues)(values, "job")) as store:
        store.register(["a"])
        store.enroll(owner())
        rows, tokens = store.leases(), dict[str, int]()
        for step in (
            lambda: store.register(["a"]),
            lambda: tokens.update(store.claim("w1", rows, LEASE_MS)),
            lambda: store.renew("w1", tokens),
        ):
            before = values.asked
            step()
            asked.append(values.asked - before)

    assert [3, 1, 0] == asked


class WrittenValues(MemoryValues):
    """Counts what is written: each is a wait for a disk."""

    written = 0

    def put(self, rows: Mapping[Key, bytes | None]) -> None:
        """See `KeyValues.put`."""
        self.written += 1
        super().put(rows)

    def change(
        self, changes: Sequence[Change], before: Mapping[Key, bytes] | None = None
    ) -> Sequence[bool | None]:
        """See `KeyValues.change`."""
        self.written += 1
        return super().change(changes, before)


def test_what_is_known_is_not_written_again() -> None:
    """A job that registers the same splits, and fares as before, writes nothing."""
    values = WrittenValues(Memory())
    with closing(store_over(WrittenValues)(values, "job")) as store:
        store.register(["a"])
        store.report("kafka_unreachable: h:1")
        before = values.written
        assert 1 == store.register(["a"])
        store.report("kafka_unreachable: h:1")
        assert before == values.written

        store.report("")
        assert (before + 1, "") == (values.written, store.problem())


class BusyValues(MemoryValues):
    """Another process is always faster."""

    def change(
        self, changes: Sequence[Change], before: Mapping[Key, bytes] | None = None
    ) -> Sequence[bool | None]:
        """See `KeyValues.change`."""
        del before
        return [False] * len(changes)


def test_a_row_that_others_replace_each_time_is_given_up() -> None:
    """It is read and made again a bounded number of times, and the error says what is in it."""
    rows, seen = JobRows(BusyValues(Memory()), "job"), list[int | None]()

    def changed(before: int | None) -> int:
        seen.append(before)
        return 1

    with pytest.raises(StoreUnavailableError, match="others replace the number all the time"):
        rows.replace(Key(rows.seen, "n"), int, changed, "the number")

    assert [None] * TRIES_MAX == seen


def test_a_loss_is_removed_without_a_look_at_the_others(
    driver: KeyedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row alone is read, by the name that the loss has of it."""
    with closing(driver.open("job")) as store:
        store.register(["a"])
        commit(store, commit_of(claim(store), losses=[LOSS] * 3))
        first, *others = store.losses()
        with monkeypatch.context() as patch:
            patch.delattr(MemoryValues, "scan")
            store.remove_losses([first])

        assert others == list(store.losses())


def test_losses_of_all_splits_are_numbered_from_one(driver: KeyedDriver) -> None:
    """Each commit takes as many numbers as it has losses."""
    with closing(driver.open("job")) as store:
        store.register(["a", "b"])
        for split in ("a", "b"):
            token = claim(store, split=split)
            commit(store, commit_of(token, split=split, losses=[LOSS] * 2))

        assert [1, 2, 3, 4] == [kept.number for kept in store.losses()]


class OvertakenValues(MemoryValues):
    """Lets another process write between a look at rows and the change that follows."""

    meanwhile: "Callable[[], object] | None" = None

    def change(
        self, changes: Sequence[Change], before: Mapping[Key, bytes] | None = None
    ) -> Sequence[bool | None]:
        """See `KeyValues.change`."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()
        return super().change(changes, before)


def overtaken() -> tuple[OvertakenValues, Store, Store]:
    """Return a backend, the store over it that is overtaken, and the other one of the same job."""
    memory = Memory()
    values = OvertakenValues(memory)
    store, other = Store(values, "job"), Store(MemoryValues(memory), "job")
    other.register(["a"])
    return values, store, other


def test_a_lease_that_is_renewed_during_a_claim_is_not_taken() -> None:
    """The claim read it before the renewal and writes after it: it finds another row (I2)."""
    values, store, other = overtaken()
    with closing(store), closing(other):
        token = claim(other, "w1")
        seen = store.leases()
        values.meanwhile = lambda: other.renew("w1", {"a": token})

        assert {} == store.claim("w2", seen, LEASE_MS)
        assert values.meanwhile is None
        commit(other, commit_of(token))


def test_a_split_that_is_claimed_during_a_commit_is_not_moved() -> None:
    """The commit read the head before the claim and writes after it: the claim counts (I2)."""
    values, store, other = overtaken()
    with closing(store), closing(other):
        token = claim(store, "w1")
        values.meanwhile = lambda: claim(other, "w2")
        refused = store.commit([commit_of(token)])
        (state,) = other.states()

        assert isinstance(refused["a"], LeaseLostError)
        assert (token + 1, 0, None) == (state.token, state.seq, state.position)


def test_a_backend_is_a_store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """A plugin that implements the key-value contract keeps the state of a job."""
    toys.install(tmp_path, monkeypatch)
    name = request.node.nodeid
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(9)))
    job = {
        "job": "lines",
        "state": "state.db",
        "store": {"plugin": "attic", "name": name},
        "source": {"plugin": "files", "path": "in.jsonl"},
        "sink": {"plugin": "files", "path": "out.jsonl"},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    for _ in range(2):
        assert 0 == main(
            ["--log-level", "error", "run", "--until-idle", str(tmp_path / "job.yaml")]
        )

    assert 9 == len((tmp_path / "out.jsonl").read_text().splitlines())
    with closing(store_over(MemoryValues).open_job(MemoryConfig(name=name), "lines")) as store:
        assert [9] == [state.counters["lines"].delivered for state in store.states()]
