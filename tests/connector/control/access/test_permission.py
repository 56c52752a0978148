"""Which role may do what; and nothing is allowed while Cassandra does not answer."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NoReturn

import pytest

from headrace.connector.control.access.permission import (
    CACHE_SECONDS,
    CALLER,
    Caller,
    CassandraGuard,
    Role,
    UnauthorizedError,
)
from headrace.connector.control.commands import Commands
from headrace.connector.control.errors import NotAvailableError
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_script
from headrace.connector.language.statements import AlterSink, CreateSink, TableName
from headrace.connector.stores.asked_runs import Order, RunKind
from headrace.connector.stores.note_copy import NoteCopy

CONFIG = {
    "name": "x",
    "connector.class": "RiverFlowSource",
    "keyspace": "s",
    "table": "t",
    "sink": "k",
}
READS: list[Callable[[Commands], object]] = [
    lambda c: c.sinks(),
    lambda c: c.sources(),
    lambda c: c.statuses(),
    lambda c: c.offsets("x"),
    lambda c: c.check_source(CONFIG),
    lambda c: c.services(),
]
STEERS: list[Callable[[Commands], object]] = [
    lambda c: c.pause("x"),
    lambda c: c.resume("x"),
    lambda c: c.stop("x"),
    lambda c: c.restart("x"),
]
CHANGES: list[Callable[[Commands], object]] = [
    lambda c: c.create_sink(CreateSink(name="z", uri="bus://a")),
    lambda c: c.alter_sink(AlterSink(name="k", options=(("line", "2"),))),
    lambda c: c.create_source({**CONFIG, "name": "y", "table": "u"}),
    lambda c: c.alter_source("x", {"tasks.max": "2"}),
    lambda c: c.put_source("x", CONFIG),
    lambda c: c.put_service("cdc", {"topic": "t"}),
    lambda c: c.delete_service("cdc"),
    lambda c: c.set_log_level("info"),
    lambda c: c.stop("x") or c.reset_offsets("x"),
    lambda c: c.drop_source("x"),
    lambda c: c.drop_sink("z"),
]


@pytest.fixture(autouse=True)
def _caller() -> Iterator[None]:
    """Let each test set the caller, and reset it afterwards."""
    token = CALLER.set(Caller())
    yield
    CALLER.reset(token)


@pytest.fixture
def commands(connection: NoteCopy) -> Commands:
    """Return the verbs over a sink and a source."""
    made = Commands(connection)
    made.create_sink(CreateSink(name="k", uri="bus://a"))
    made.create_source(CONFIG)
    return made


def attempt(verb: Callable[[Commands], object], commands: Commands) -> bool:
    """Return whether *verb* was allowed."""
    try:
        verb(commands)
    except UnauthorizedError:
        return False
    return True


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.VIEWER, (True, False, False)),
        (Role.OPERATOR, (True, True, False)),
        (Role.ADMIN, (True, True, True)),
    ],
)
def test_roles(commands: Commands, role: Role, allowed: tuple[bool, bool, bool]) -> None:
    """Each role may use its own verbs, and no others."""
    CALLER.set(Caller(name="alice", role=role))

    for verbs, expected in zip((READS, STEERS, CHANGES), allowed, strict=True):
        assert [expected] * len(verbs) == [attempt(verb, commands) for verb in verbs]


def test_denied_changes_nothing(commands: Commands) -> None:
    """A denied verb changes nothing."""
    before = commands.sinks(), commands.sources(), commands.statuses()
    CALLER.set(Caller(name="alice", role=Role.VIEWER))
    for verb in (*STEERS, *CHANGES):
        assert not attempt(verb, commands)

    assert before == (commands.sinks(), commands.sources(), commands.statuses())


class Cluster:
    """The answers of a Cassandra about roles."""

    cluster = "test"

    def __init__(self) -> None:
        """Start without roles."""
        self.superusers: set[str] = set()
        self.cdc: set[str] = set()
        self.readers: set[tuple[str, str]] = set()
        self.down = False
        self.asked = 0

    def is_superuser(self, role: str) -> bool:
        """Answer, or fail like a node that is down."""
        self.asked += 1
        if self.down:
            raise ConnectionError("secret detail")
        return role in self.superusers

    def has_cdc(self, role: str) -> bool:
        """Answer."""
        return role in self.cdc

    def may_select(self, role: str, table: TableName) -> bool:
        """Answer."""
        return (role, f"{table.keyspace}.{table.name}") in self.readers


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster with a superuser, a role with the permission, and a role without it."""
    made = Cluster()
    made.superusers = {"root"}
    made.cdc = {"operator"}
    return made


def guarded(connection: NoteCopy, cluster: Cluster, name: str) -> Commands:
    """Return the verbs as they are for the user *name*."""
    CALLER.set(Caller(name=name, role=Role.NONE, door="shell"))
    return Commands(connection, guard=CassandraGuard(cluster))


def test_cassandra_decides(commands: Commands, connection: NoteCopy, cluster: Cluster) -> None:
    """A superuser and a role with the permission are allowed; the error names what others miss."""
    del commands
    for name in ("root", "operator"):
        guarded(connection, cluster, name).pause("x")
    with pytest.raises(UnauthorizedError) as caught:
        guarded(connection, cluster, "alice").pause("x")

    expected = "User alice has no CDC permission on <test> or any of its parents"
    assert expected == caught.value.message
    assert guarded(connection, cluster, "alice").sinks()


def test_a_source_needs_select(commands: Commands, connection: NoteCopy, cluster: Cluster) -> None:
    """A user without SELECT on a table cannot publish its changes, by any statement."""
    verbs = guarded(connection, cluster, "operator")
    new = {**CONFIG, "name": "y", "table": "u"}
    for attempt_ in (
        lambda: verbs.create_source(new),
        lambda: verbs.put_source("y", new),
        lambda: verbs.alter_source("x", {"table": "u"}),
        lambda: verbs.replace_source("x", {**CONFIG, "table": "u"}),
    ):
        with pytest.raises(UnauthorizedError, match=r"no SELECT permission on <table s\.u>"):
            attempt_()
    cluster.readers.add(("operator", "s.u"))
    assert ["x"] == [source.name for source in commands.sources()]
    assert guarded(connection, cluster, "operator").create_source(new)


def test_a_preview_needs_select(commands: Commands, connection: NoteCopy, cluster: Cluster) -> None:
    """A user without SELECT on a table sees none of its changes: no plugin is asked for them."""
    commands.create_source({**CONFIG, "name": "flow.s.u", "table": "u"})
    CALLER.set(Caller(name="operator", role=Role.NONE, door="shell"))
    (preview,) = parse_script("PREVIEW DATA_SOURCE flow ON TABLE s.u")

    def shown() -> object:
        service = ControlService(connection, ask=no_plugin, guard=CassandraGuard(cluster))
        return service.execute(preview.statement)

    with pytest.raises(UnauthorizedError, match=r"no SELECT permission on <table s\.u>"):
        shown()
    cluster.readers.add(("operator", "s.u"))
    with pytest.raises(NotAvailableError):  # No job file says how to make the source.
        shown()


@pytest.mark.parametrize("verb", ["snapshot_source", "replay_source", "reconcile_source"])
def test_a_run_needs_select(
    commands: Commands, connection: NoteCopy, cluster: Cluster, verb: str
) -> None:
    """A user without SELECT on a table cannot have its rows or its changes sent."""
    config = {**CONFIG, "name": "y", "table": "u"}
    commands.create_source(config)
    order = Order(kind=RunKind(verb.partition("_")[0]), options={})
    if order.kind is RunKind.REPLAY:
        order = replace(order, options={"into_live": "true"})

    def ask() -> str:
        made: str = getattr(guarded(connection, cluster, "operator"), verb)(config, order)
        return made

    with pytest.raises(UnauthorizedError, match=r"no SELECT permission on <table s\.u>"):
        ask()
    cluster.readers.add(("operator", "s.u"))
    name = ask()
    assert [name] == [run.name for run, _ in commands.runs()]


def no_plugin(question: Mapping[str, object]) -> NoReturn:
    """Fail: no plugin may be asked."""
    raise AssertionError(question)


def test_no_answer_of_cassandra(commands: Commands, connection: NoteCopy, cluster: Cluster) -> None:
    """While Cassandra does not answer nothing is allowed, and the error has no details."""
    del commands
    cluster.down = True
    with pytest.raises(UnauthorizedError, match="could not be read") as caught:
        guarded(connection, cluster, "root").pause("x")

    assert "secret detail" not in str(caught.value)


def test_an_answer_is_about_one_user(cluster: Cluster) -> None:
    """A guard that several users ask keeps the answers apart: those of superusers, CDC, SELECT."""
    guard, table = CassandraGuard(cluster), TableName("s", "t")
    cluster.cdc = {"operator", "reader"}
    cluster.readers = {("reader", "s.t")}

    def may(name: str, table: TableName | None) -> bool:
        try:
            guard.check(Caller(name=name, role=Role.NONE), Role.ADMIN, table)
        except UnauthorizedError:
            return False
        return True

    allowed = {"root": (True, True), "reader": (True, True), "operator": (True, False)}
    for name in ("root", "alice", "reader", "operator", "alice", "root"):
        assert allowed.get(name, (False, False)) == (may(name, None), may(name, table))


def test_answers_are_kept_for_a_while(cluster: Cluster) -> None:
    """A revoked permission is effective within a minute."""
    now = [0.0]
    guard = CassandraGuard(cluster, clock=lambda: now[0])
    caller = Caller(name="root", role=Role.NONE)
    for _ in range(3):
        guard.check(caller, Role.ADMIN, None)
    assert 1 == cluster.asked
    cluster.superusers.clear()
    now[0] = CACHE_SECONDS
    with pytest.raises(UnauthorizedError):
        guard.check(caller, Role.ADMIN, None)
