"""Which jobs have a process, and what becomes of one that ends otherwise than asked."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from headrace.connector.control.service import ControlService
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.hosting.supervisor import Supervisor
from headrace.connector.language.parser import parse_script
from headrace.connector.runtime.splits.watch import AWAIT_PAUSE_MS_MAX, RestartPolicy
from headrace.connector.stores import StateLostError
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.target_state import WHOLE_JOB, Route
from headrace.plugins.testing.doubles import DrivenClock


class Child:
    """A process that does what the test says."""

    def __init__(self, job: str) -> None:
        """Live."""
        self.job = job
        self.status: int | None = None
        self.asked = 0

    def poll(self) -> int | None:
        """Return what the test said."""
        return self.status

    def terminate(self) -> None:
        """Count."""
        self.asked += 1

    def kill(self) -> None:
        """Die."""
        self.status = -9

    def metrics_port(self) -> int:
        """Serve no metrics."""
        return 0

    def wait(self, timeout: float | None = None) -> int:
        """Be dead."""
        del timeout
        return self.status or 0


class Stage:
    """A supervisor that the test drives."""

    def __init__(self, path: Path, connection: NoteCopy, *, pumps: int = 1) -> None:
        """Begin with the jobs `j` and `k`."""
        self.connection = connection
        self.board = connection.board
        self.children: list[Child] = []
        self.clock = DrivenClock()
        self.problems: dict[str, str] = {}
        self.supervisor = Supervisor(
            path,
            self.start,
            log=structlog.stdlib.get_logger(),
            policy=RestartPolicy(restarts_max=2, pause_ms=100),
            pumps=pumps,
            clock=self.clock,
        )
        with connection.transaction():
            for name in "jk":
                self.board.add_route(Route(f"{name}.x", name, "s", Desired.RUNNING))

    def start(self, job: str) -> Child:
        """Start a child."""
        self.children.append(Child(job))
        return self.children[-1]

    def look(self) -> list[str]:
        """Let the supervisor look; return the jobs that live, as often as they do."""
        for job, problem in self.problems.items():
            store = self.connection.store(job)
            store.job_key()
            store.report(problem)
        self.supervisor.look(self.connection)
        return sorted(child.job for child in self.children if child.status is None)

    def want(self, source: str, state: Desired) -> None:
        """Ask for a state."""
        with self.connection.transaction():
            self.board.want(source, state)

    def seen(self) -> tuple[Observed, str, int]:
        """Return what is shown of job j."""
        row = self.connection.store("j").seen()[WHOLE_JOB]
        return row.state, row.reason, row.attempt


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Return a stage over a new state file."""
    with contextlib.closing(open_notes(tmp_path / "state.db")) as connection:
        yield Stage(tmp_path / "state.db", connection)


def test_one_process_for_each_job(stage: Stage) -> None:
    """Every job that is to run has one process, also a paused one; a stopped one has none."""
    stage.want("k.x", Desired.PAUSED)
    assert ["j", "k"] == stage.look() == stage.look()
    stage.want("j.x", Desired.STOPPED)
    stage.look()
    stage.look()

    assert {"j": 1, "k": 0} == {child.job: child.asked for child in stage.children}
    stage.children[0 if stage.children[0].job == "j" else 1].status = 0
    assert ["k"] == stage.look()
    stage.want("j.x", Desired.RUNNING)
    assert ["j", "k"] == stage.look()


def test_a_job_that_is_dropped(stage: Stage) -> None:
    """A job without sources loses its process."""
    stage.look()
    with stage.connection.transaction():
        stage.board.remove_route("j.x")
    stage.look()

    assert 1 == sum(child.asked for child in stage.children if child.job == "j")


def test_nothing_to_run(stage: Stage) -> None:
    """While there is no job, one warning for each thing that is missing has the statement."""
    with capture_logs() as logs:
        stage.look()
        assert {"job_started"} == {each["event"] for each in logs}
        with stage.connection.transaction():
            for route in ("j.x", "k.x"):
                stage.board.remove_route(route)
        stage.look()
        stage.look()

    said = [each for each in logs if each["event"] == "nothing_to_run"]
    assert ["sink", "source"] == [each["missing"] for each in said]
    assert ["DATA_SINK", "DATA_SOURCE"] == [each["hint"].split()[1] for each in said]


def crash(stage: Stage, status: int, problem: str = "") -> list[str]:
    """Let the process of j end, and look."""
    (child,) = (c for c in stage.children if c.job == "j" and c.status is None)
    child.status = status
    stage.problems = {"j": problem}
    return stage.look()


def test_a_process_that_dies(stage: Stage) -> None:
    """It is restarted after a pause, with cause and attempt in the status; later no more."""
    stage.look()
    assert ["k"] == crash(stage, -9)
    assert (Observed.RESTARTING, "its process ended with status -9", 1) == stage.seen()
    stage.clock.advance(100)
    assert ["j", "k"] == stage.look()
    crash(stage, 1, "state: damaged")
    stage.clock.advance(100)
    assert ["k"] == stage.look()
    stage.clock.advance(100)
    assert ["j", "k"] == stage.look()
    crash(stage, 1, "state: damaged")
    stage.clock.advance(1_000_000)

    assert ["k"] == stage.look()
    assert (Observed.FAILED, "state: damaged", 2) == stage.seen()


def test_what_is_away_may_come_back(stage: Stage) -> None:
    """A process that misses something is restarted until it is available, and says what it is."""
    stage.look()
    for attempt in range(1, 20):
        crash(stage, 3, "kafka_unreachable: h:1")
        assert (Observed.RESTARTING, "kafka_unreachable: h:1", attempt) == stage.seen()
        stage.clock.advance(AWAIT_PAUSE_MS_MAX)
        assert ["j", "k"] == stage.look()
    stage.problems = {"j": ""}
    stage.look()

    assert (Observed.UNASSIGNED, "") == stage.seen()[:2]


def test_trouble_is_over(stage: Stage) -> None:
    """What failed and runs again is shown as failed no longer."""
    stage.look()
    crash(stage, 1, "x: y")
    stage.clock.advance(100)
    stage.look()
    assert Observed.RESTARTING is stage.seen()[0]
    stage.problems = {"j": ""}
    stage.look()

    assert (Observed.UNASSIGNED, "", 1) == stage.seen()


def test_a_mistake_waits_for_somebody(stage: Stage) -> None:
    """A configuration that cannot be used is retried when it changes, or when a user asks."""
    stage.look()
    crash(stage, 2, "config: topic: is required")
    stage.clock.advance(1_000_000)
    assert ["k"] == stage.look()
    assert Observed.FAILED is stage.seen()[0]
    with stage.connection.transaction():
        stage.board.ask_restart("j", [WHOLE_JOB])

    assert ["j", "k"] == stage.look()


@pytest.mark.parametrize("status", [0, 2])
def test_a_job_whose_source_is_dropped_and_made_again(stage: Stage, status: int) -> None:
    """Its process may have ended by itself, because there was no source: another one runs."""
    stage.look()
    route = Route("j.x", "j", "s", Desired.RUNNING)
    with stage.connection.transaction():
        stage.board.remove_route("j.x")
    next(child for child in stage.children if child.job == "j").status = status
    with stage.connection.transaction():
        stage.board.add_route(route)

    assert ["j", "k"] == stage.look()
    stage.children[-1].status = status  # Now it is so.
    assert ["k"] == stage.look() == stage.look()


def test_a_process_that_ends_after_its_source_was_made_again(stage: Stage) -> None:
    """The look at which it still lives has seen the change; it is started again all the same."""
    stage.look()
    with stage.connection.transaction():
        stage.board.remove_route("j.x")
        stage.board.add_route(Route("j.x", "j", "s", Desired.RUNNING))
    assert ["j", "k"] == stage.look()
    next(child for child in stage.children if child.job == "j").status = 0

    assert ["j", "k"] == stage.look()


def test_a_job_that_ends_by_itself(stage: Stage) -> None:
    """What has nothing more to read is not started again."""
    stage.look()
    crash(stage, 0)
    stage.clock.advance(1_000_000)

    assert ["k"] == stage.look()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Stage]:
    """Return a stage with two pumps for each job."""
    with contextlib.closing(open_notes(tmp_path / "state.db")) as connection:
        yield Stage(tmp_path / "state.db", connection, pumps=2)


def test_one_driver_on_spark(pair: Stage) -> None:
    """A job whose source is to run on Spark has one process; another engine changes how many."""
    service = ControlService(pair.connection)
    on = "DATA_SOURCE cdc ON TABLE ks.a"

    def execute(text: str) -> None:
        for parsed in parse_script(text):
            service.execute(parsed.statement)

    execute("CREATE DATA_SINK s WITH 'file://l.jsonl'")
    execute(f"CREATE {on} WITH s AND job = 'l' AND engine = 'spark'")
    assert ["j", "j", "k", "k", "l"] == pair.look()
    execute(f"ALTER {on} WITH engine = 'worker'")
    assert ["j", "j", "k", "k", "l", "l"] == pair.look()
    execute(f"ALTER {on} WITH engine = 'spark'")
    pair.look()
    assert [0, 1] == [child.asked for child in pair.children if child.job == "l"]


def test_pumps(pair: Stage) -> None:
    """Each job has several; one that dies is restarted after a pause of its own.

    Nothing is shown of it while another one has its splits.
    """
    assert ["j", "j", "k", "k"] == pair.look()
    first, second = (child for child in pair.children if child.job == "j")
    for pause_ms in (100, 200):
        first.status = -9
        assert ["j", "k", "k"] == pair.look()
        pair.clock.advance(pause_ms - 1)
        assert ["j", "k", "k"] == pair.look()
        pair.clock.advance(1)
        assert ["j", "j", "k", "k"] == pair.look()
        first = pair.children[-1]
    assert {} == pair.connection.store("j").seen()
    first.status = second.status = -9
    assert ["k", "k"] == pair.look()
    assert (Observed.RESTARTING, "its process ended with status -9", 1) == pair.seen()
    pair.clock.advance(100)

    assert ["j", "k", "k"] == pair.look()


def test_all_are_killed_at_once(pair: Stage) -> None:
    """They are not asked to stop first."""
    pair.look()
    pair.supervisor.kill()

    assert [(-9, 0)] * 4 == [(child.status, child.asked) for child in pair.children]


def test_a_state_file_that_goes_ends_it(tmp_path: Path) -> None:
    """Restarted children would not find what they had committed."""
    path = tmp_path / "state.db"
    with contextlib.closing(open_notes(path)) as connection:
        stage = Stage(path, connection)
        stage.supervisor.look(connection)
        path.rename(tmp_path / "moved.db")

        with pytest.raises(StateLostError, match="nothing is there any more"):
            stage.supervisor.look(connection)
    assert 2 == len(stage.children)
