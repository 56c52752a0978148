"""The verbs of the command service: each takes effect wholly or not at all, and is stored."""

import pytest

from headrace.connector.control.commands import Commands
from headrace.connector.control.errors import (
    AlreadyExistsError,
    InUseError,
    NotFoundError,
    NotStoppedError,
)
from headrace.connector.control.offsets import Offset
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.language.statements import AlterSink, CreateSink, TableName
from headrace.connector.stores import Commit, Owner, Seen
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import WHOLE_JOB
from headrace.plugins import ConfigError, NumberPosition

pytestmark = pytest.mark.parametrize("connection", ["file", "shared"], indirect=True)

OWNER = Owner(worker="w", host="h", boot="b", pid_space="p", pid=1, started=2)
SINK = CreateSink(name="k", uri="bus://a?line=2", options=(("seats", "7"),))


def config(name: str, table: str = "t", **more: str) -> dict[str, str]:
    """Return a connector config."""
    made = {"connector.class": "RiverFlowSource", "keyspace": "s", "table": table, "sink": "k"}
    return {"name": name} | made | more


@pytest.fixture
def commands(connection: NoteCopy) -> Commands:
    """Return the command service with a sink and two sources, `x` and `y`."""
    made = Commands(connection)
    made.create_sink(SINK)
    made.create_source(config("x", "t"))
    made.create_source(config("y", "u"))
    return made


@pytest.fixture
def store(connection: NoteCopy) -> Store:
    """Return the store of the job that runs both, with a split at 5 that has no owner."""
    store = connection.store("k")
    store.register(["a"])
    store.enroll(OWNER)
    token = store.claim("w", store.leases(), 1_000)["a"]
    commit = Commit(
        split="a",
        plan=1,
        token=token,
        owner="w",
        previous=0,
        seq=1,
        position=NumberPosition(5).encode(),
        counters={},
    )
    assert not store.commit([commit])
    store.release("w", "a", token)
    return store


def test_one_job_for_a_sink(commands: Commands) -> None:
    """Sources of one sink share its job, unless a source names another."""
    commands.create_source(config("z", "v", job="mine"))

    assert {"x": "k", "y": "k", "z": "mine"} == {n: s.job for n, s in commands.statuses().items()}


def test_a_name_of_its_own(commands: Commands) -> None:
    """A connector may have any name; its statement creates it under that name."""
    source = commands.source_on("flow", TableName("s", "t"))

    assert "x" == source.name
    assert "CREATE DATA_SOURCE flow ON TABLE s.t WITH k AND name = 'x';" == source.statement


def test_twice(commands: Commands) -> None:
    """A name can be used once."""
    with pytest.raises(AlreadyExistsError):
        commands.create_source(config("x"))
    with pytest.raises(AlreadyExistsError):
        commands.create_sink(SINK)

    assert not commands.create_source(config("x"), if_not_exists=True)
    with pytest.raises(InUseError):
        commands.drop_sink("k")


def test_a_name_that_another_table_has(commands: Commands) -> None:
    """The error for a name that is in use has its table; statements of a table mean its source."""
    odd = config("flow.S.T") | {"table": "odd"}
    commands.create_source(odd)
    taken = config("flow.S.T") | {"keyspace": "S", "table": "T"}

    with pytest.raises(AlreadyExistsError) as caught:
        commands.create_source(taken)
    assert "it is on table s.odd: give this one another `name`" == caught.value.problems[0].hint
    with pytest.raises(AlreadyExistsError) as caught:
        commands.create_source(odd)
    assert "first DROP DATA_SOURCE flow ON TABLE s.odd" in caught.value.problems[0].hint
    with pytest.raises(NotFoundError):
        commands.source_on("flow", TableName("S", "T"))


def test_alter_sink(commands: Commands) -> None:
    """Options that ALTER does not name stay; the job's generation grows."""
    before = commands.status("x").generation
    commands.alter_sink(AlterSink(name="k", options=(("line", "9"),)))

    statement = "CREATE DATA_SINK k WITH 'bus://a' AND seats = 7 AND line = 9;"
    assert statement == commands.sink("k").statement
    assert before + 1 == commands.status("x").generation


def test_alter_nothing_by_halves(commands: Commands) -> None:
    """An invalid option leaves sink and generation as they were."""
    before = commands.sink("k"), commands.statuses()
    with pytest.raises(ConfigError, match="seats"):
        commands.alter_sink(AlterSink(name="k", options=(("seats", "many"),)))

    assert before == (commands.sink("k"), commands.statuses())


def test_alter_source(commands: Commands) -> None:
    """A source can be moved to another sink, and keeps its name."""
    commands.create_sink(CreateSink(name="k2", uri="bus://b"))
    assert "k2" == commands.alter_source("x", {"sink": "k2"}).sink
    assert "k2" == commands.source("x").config["sink"]
    with pytest.raises(ConfigError, match="keeps its name"):
        commands.alter_source("x", {"name": "z"})
    with pytest.raises(NotFoundError, match="data sink k3 does not exist"):
        commands.alter_source("x", {"sink": "k3"})


def test_wanted_states(commands: Commands) -> None:
    """A target state is stored at once, twice as well as once; no worker has acted on it."""
    for ask, expected in (
        (commands.pause, Desired.PAUSED),
        (commands.stop, Desired.STOPPED),
        (commands.resume, Desired.RUNNING),
    ):
        ask("x")
        ask("x")
        assert expected is commands.status("x").desired
        assert Desired.RUNNING is commands.status("y").desired
        with pytest.raises(NotFoundError):
            ask("z")


def test_restart(commands: Commands, store: Store, connection: NoteCopy) -> None:
    """RESTART is stored for the job, for what failed of it, or for one split."""
    board = connection.board
    assert [0] == list(commands.restart("x"))
    assert [] == list(commands.restart("x", only_failed=True))
    store.see([Seen(split="a", state=Observed.FAILED, generation=1)])
    token = store.claim("w", store.leases(), 1_000)["a"]
    store.release("w", "a", token, "segment: byte 7")
    assert [0] == list(commands.restart("x", only_failed=True))
    commands.restart_split("x", 0)

    assert {WHOLE_JOB: 1, "a": 2} == board.wanted("k").restarts
    with pytest.raises(NotFoundError, match="1 tasks, not 1"):
        commands.restart_split("x", 1)


def test_offsets(commands: Commands, store: Store) -> None:
    """Positions are shown as committed, and can be moved only while the source is stopped."""
    moved = [Offset({"split": "a"}, {"offset": 3})]
    assert [Offset({"split": "a"}, {"offset": 5})] == list(commands.offsets("x"))
    with pytest.raises(NotStoppedError, match="not STOPPED"):
        commands.alter_offsets("x", moved)
    change = commands.alter_offsets("x", moved, dry_run=True)
    assert ([5], [3]) == (
        [part.offset["offset"] for part in change.before if part.offset],
        [part.offset["offset"] for part in change.after if part.offset],
    )
    assert NumberPosition(5).encode() == store.states()[0].position

    commands.stop("x")
    commands.stop("y")
    assert moved == list(commands.alter_offsets("x", moved).after)
    assert moved == list(commands.offsets("y"))
    assert [] == list(commands.reset_offsets("x").after)
    assert [] == list(commands.offsets("x"))


def test_offsets_of_one_of_two(commands: Commands, store: Store) -> None:
    """Moving one of two sources of a job does not move the other."""
    assert store.leases()
    commands.stop("x")
    commands.alter_offsets("x", [Offset({"split": "a"}, {"offset": 3})])

    assert "k~x" == commands.status("x").job
    assert [{"offset": 3}] == [part.offset for part in commands.offsets("x")]
    assert [{"offset": 5}] == [part.offset for part in commands.offsets("y")]


def test_offsets_while_stopping(commands: Commands, store: Store) -> None:
    """A source whose splits a worker still owns is not stopped yet, and cannot be moved."""
    store.claim("w", store.leases(), 1_000)
    commands.stop("x")
    commands.stop("y")
    with pytest.raises(NotStoppedError, match="still stopping"):
        commands.reset_offsets("x")


@pytest.mark.parametrize(
    ("partition", "offset", "message"),
    [
        ({"split": "b"}, {"offset": 1}, "split 'b' does not exist"),
        ({}, {"offset": 1}, "split '' does not exist"),
        ({"split": "a", "node": "n"}, {"offset": 1}, "has no part"),
        ({"split": "a"}, {"offset": -1}, "whole number"),
        ({"split": "a"}, {"offset": "x"}, "whole number"),
        ({"split": "a"}, {"offset": "9" * 30}, "whole number"),
        ({"split": "a"}, {"byte": 1}, "byte: is not known here"),
    ],
)
def test_offsets_refused(
    commands: Commands,
    store: Store,
    partition: dict[str, str],
    offset: dict[str, int | str],
    message: str,
) -> None:
    """An invalid position is named, and changes nothing."""
    assert store.leases()
    commands.stop("x")
    commands.stop("y")
    with pytest.raises(ConfigError, match=message):
        commands.alter_offsets(
            "x", [Offset({"split": "a"}, {"offset": 1}), Offset(partition, offset)]
        )

    assert [Offset({"split": "a"}, {"offset": 5})] == list(commands.offsets("x"))
