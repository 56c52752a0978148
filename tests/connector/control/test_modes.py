"""What became of requests for a mode, from what the owners of splits kept."""

import pytest

from headrace.connector.control.access.permission import CALLER, Caller, Role, UnauthorizedError
from headrace.connector.control.errors import NotFoundError
from headrace.connector.control.modes import JobModes, least_places
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_script
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import NotOfferedError
from headrace.plugins.config.realtime_options import LOG, REALTIME
from headrace.plugins.stores.kept_modes import (
    NO_SUCH_LOG,
    AskedMode,
    KeptModes,
    LogMode,
    ModeAnswer,
    ModeOutcome,
)

BOTH = pytest.mark.parametrize("connection", ["file", "shared"], indirect=True)
MADE = "CREATE DATA_SINK k WITH bus://a; CREATE DATA_SOURCE flow ON TABLE s.t WITH k AND job = 'j';"
ASKED = "ALTER DATA_SOURCE flow ON TABLE s.t SET MODE = 'realtime'"


@pytest.fixture
def store(connection: NoteCopy) -> Store:
    """Return the store of a job with two splits."""
    store = connection.store("j")
    store.register(["a", "b"])
    return store


def keep(store: Store, split: str, **logs: LogMode) -> None:
    """Keep modes as an owner of *split* does."""
    rows = [row for row in store.leases() if row.split == split]
    tokens = store.claim("w", rows, 1_000)
    last = max(mode.request for mode in logs.values())
    asked = {"": AskedMode(last, REALTIME)}
    assert {} == store.keep_modes("w", tokens, {split: KeptModes(asked, logs)})


def answered(request: int, outcome: ModeOutcome, reason: str = "", at: int = 0) -> LogMode:
    """Return a mode with an answer."""
    answer = ModeAnswer(outcome, reason, at, {"segment": 1, "offset": at})
    mode = REALTIME if outcome is ModeOutcome.SUCCEEDED else LOG
    return LogMode(mode=mode, reason="asked", since_ms=at, request=request, answer=answer)


def ask(modes: JobModes, mode: str = REALTIME, node: str = "") -> int:
    """Ask for a mode."""
    return modes.ask("j", mode, node=node, places={"n1": {"offset": 5}}, now_ms=50)


def found(modes: JobModes, request: int) -> dict[str, str]:
    """Return the outcome of a request for each log."""
    changes = [each for each in modes.changes("j") if each.request == request]
    return {each.node: f"{each.outcome} {each.reason}".strip() for each in changes}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("succeeded", "succeeded", "succeeded"),
        ("succeeded", "refused", "refused"),
        ("fell_back", "refused", "fell_back"),
        ("failed", "fell_back", "failed"),
        ("succeeded", "pending", "pending"),
    ],
)
def test_the_worst_answer_counts(
    connection: NoteCopy, store: Store, first: str, second: str, expected: str
) -> None:
    """Once each owner has one; the time is the last one, the place the first one."""
    modes = JobModes(connection)
    request = ask(modes)
    keep(store, "a", n1=answered(request, ModeOutcome(first), at=9))
    assert {"n1": "pending"} == found(modes, request)
    keep(store, "b", n1=answered(request, ModeOutcome(second), at=7))
    assert {"n1": expected} == found(modes, request)

    (change,) = modes.changes("j")
    if expected != "pending":
        assert (9, {"segment": 1, "offset": 7}) == (change.ended_ms, change.end)
    assert ({"offset": 5}, 50, REALTIME) == (change.begin, change.asked_ms, change.asked)


@BOTH
def test_nodes_differ(connection: NoteCopy, store: Store) -> None:
    """Each log has an outcome and a mode of its own."""
    modes = JobModes(connection)
    request = ask(modes)
    for split in "ab":
        on = answered(request, ModeOutcome.SUCCEEDED)
        keep(store, split, n1=on, n2=answered(request, ModeOutcome.REFUSED, "tells_nothing"))

    assert {"n1": "succeeded", "n2": "refused tells_nothing"} == found(modes, request)
    assert [("n1", REALTIME), ("n2", LOG)] == [(m.node, m.mode) for m in modes.modes("j")]


@BOTH
def test_owners_differ(connection: NoteCopy, store: Store) -> None:
    """A log has a row for each mode, with the number of splits."""
    assert [("", LOG, "", 2)] == [
        (m.node, m.mode, m.asked, m.splits) for m in JobModes(connection).modes("j")
    ]
    keep(store, "a", n1=answered(1, ModeOutcome.SUCCEEDED, at=7))
    shown = JobModes(connection).modes("j")

    assert [("n1", LOG, 1, 2), ("n1", REALTIME, 1, 2)] == [
        (m.node, m.mode, m.splits, m.of_splits) for m in shown
    ]
    assert [None, 7] == [m.since_ms for m in shown]


@BOTH
def test_an_answer_stays_when_the_next_request_comes(connection: NoteCopy, store: Store) -> None:
    """A request about another log changes nothing; one without an answer is superseded."""
    modes = JobModes(connection)
    first = ask(modes)
    for split in "ab":
        keep(store, split, n1=answered(first, ModeOutcome.SUCCEEDED), n2=LogMode(mode=LOG))
    assert {"n1": "succeeded", "n2": "pending"} == found(modes, first)
    other = ask(modes, LOG, "n3")
    assert {"n1": "succeeded", "n2": "pending"} == found(modes, first)
    second = ask(modes, LOG, "n2")
    third = ask(modes, LOG)

    assert {"n1": "succeeded", "n2": f"superseded request {second}"} == found(modes, first)
    assert {"n3": f"superseded request {third}"} == found(modes, other)
    assert {"n2": f"superseded request {third}"} == found(modes, second)
    assert {"n1": "pending", "n2": "pending"} == found(modes, third)


@BOTH
def test_a_log_that_is_not_read_is_no_node(connection: NoteCopy, store: Store) -> None:
    """It is not among the modes, nor among the logs of other requests."""
    modes = JobModes(connection)
    request = ask(modes, REALTIME, "nx")
    refused = answered(request, ModeOutcome.REFUSED, NO_SUCH_LOG)
    for split in "ab":
        keep(store, split, n1=LogMode(mode=LOG), nx=refused)
    every = ask(modes)

    assert {"nx": f"refused {NO_SUCH_LOG}"} == found(modes, request)
    assert {"n1": "pending"} == found(modes, every)
    assert ["n1"] == [mode.node for mode in modes.modes("j")]


@BOTH
def test_numbers_grow_over_forks(connection: NoteCopy, store: Store) -> None:
    """A request has a higher number than those that the splits know."""
    for split in "ab":
        keep(store, split, n1=answered(7, ModeOutcome.SUCCEEDED))

    assert 8 == ask(JobModes(connection))
    assert 9 == ask(JobModes(connection))


def test_a_source_without_modes(service: ControlService) -> None:
    """Asking it is an error that names the capability; nothing is asked for."""
    *made, asked = [parsed.statement for parsed in parse_script(MADE + ASKED)]
    for statement in made:
        service.execute(statement)
    with pytest.raises(NotOfferedError, match="does not offer Realtime"):
        service.execute(asked)

    assert [] == list(service.commands.mode_changes("j"))


def test_a_viewer_may_not_ask(service: ControlService) -> None:
    """It needs the role of an operator, also if the source does not offer it."""
    for role, error in ((Role.VIEWER, UnauthorizedError), (Role.OPERATOR, NotFoundError)):
        token = CALLER.set(Caller(role=role))
        with pytest.raises(error):
            service.commands.set_mode("flow.s.t", LOG)
        CALLER.reset(token)


def test_the_least_place() -> None:
    """That of the split that is most behind, by the parts of the place in their order."""
    described = [("n1", {"segment": 2, "offset": 1}), ("n1", {"segment": 1, "offset": 9})]

    assert {"n1": {"segment": 1, "offset": 9}} == least_places(described)
