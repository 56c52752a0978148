"""What a job's store has of Spark's commits: dead letters, disposal, drivers that are killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from headrace.connector.hosting.host import Host
from headrace.connector.replay.stream.checkpoint import checkpoint_of
from headrace.connector.runtime.failures.tolerance import BudgetSpentError
from headrace.connector.stores import KeptLoss
from headrace.connector.stores.open_control_store import open_notes
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers import FOLDER
from helpers.jobs.deliveries import consume
from helpers.logs.gap_jobs import NODES, GapJob
from helpers.settings.seeds import soaked
from helpers.streams.by_hand import ByHand, HandQuery, engine_by_hand, run_by_hand

FAILING = {"transforms": "t", "transforms.t.type": "ValueToKey", "transforms.t.fields": "nobody"}
CHILD = (
    f"import sys; sys.path.append({FOLDER!r}); from pathlib import Path;"
    "from helpers.streams.by_hand import run_by_hand; run_by_hand(Path(sys.argv[1]))"
)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job in two splits over three segments of each node."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path)
    for number in range(1, 4):
        made.log(number, range(3 * number, 3 * number + 3))
    return made


def losses(job: GapJob) -> list[KeptLoss]:
    """Return the dead letters in the job's store."""
    with contextlib.closing(open_notes(job.folder / "state.db")) as notes:
        return list(notes.store("orders").losses())


def left_in_checkpoint(job: GapJob) -> list[Path]:
    """Return what the checkpoint has of dead letters."""
    return list(checkpoint_of(job.folder / "state.db", "orders").lost.glob("*"))


def left_in_logs(job: GapJob) -> list[Path]:
    """Return the segments that are still there."""
    found = [path for node in NODES for path in (job.folder / node).glob("*.log")]
    return sorted(path.relative_to(job.folder) for path in found)


@pytest.mark.soak
@pytest.mark.parametrize(
    "step",
    ["stream_committed:1", "committed:2", "stream_copied:2", *soaked("stream_committed:3")],
)
def test_a_driver_that_is_killed(job: GapJob, step: str) -> None:
    """At whichever step after Spark's commit: nothing is lost or repeated, the books balance."""
    command = [sys.executable, "-c", CHILD, str(job.path)]
    environment = {**os.environ, "HEADRACE_CRASH_AT": step}
    child = subprocess.run(command, env=environment, check=False, capture_output=True)  # noqa: S603 (ours)
    assert -signal.SIGKILL == child.returncode, child.stderr.decode()

    run_by_hand(job.path)

    assert [*range(3, 12)] == job.rows()
    totals = job.verified("--sink")["total"]["tables"]
    assert 9 == sum(each["delivered"] for each in totals.values())


@pytest.mark.soak
@pytest.mark.parametrize("step", ["committed:2", *soaked("stream_copied:2")])
def test_dead_letters_are_in_the_store(job: GapJob, step: str) -> None:
    """`headrace dlq` and the books have them, once, though the driver was killed in between."""
    job.deliver({"plugin": "files", "path": "out.jsonl", **FAILING}, {})
    command = [sys.executable, "-c", CHILD, str(job.path)]
    environment = {**os.environ, "HEADRACE_CRASH_AT": step}
    child = subprocess.run(command, env=environment, check=False, capture_output=True)  # noqa: S603 (ours)
    assert -signal.SIGKILL == child.returncode, child.stderr.decode()
    run_by_hand(job.path)

    assert 9 == len(losses(job))
    assert {"quarantined"} == {each.loss.kind for each in losses(job)}
    totals = job.verified()["total"]["tables"]
    assert 9 == sum(each["quarantined"] for each in totals.values())
    assert [] == left_in_checkpoint(job)


def test_a_repeated_batch_has_its_dead_letters_once(job: GapJob) -> None:
    """A task that is repeated replaces what its former attempt could not deliver."""
    job.deliver({"plugin": "files", "path": "out.jsonl", **FAILING}, {})
    stream = ByHand(job.path, job.folder / "state.db.spark" / "orders", batch_bytes=1 << 40)
    end = stream.next_end()
    stream.deliver(end)
    job.deliver({"plugin": "files", "path": "out.jsonl"}, {})
    stream.deliver(end)

    assert [] == left_in_checkpoint(job)


def test_an_attempt_that_ends_late(job: GapJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an overtaken attempt could not deliver is not counted again once its batch is copied."""
    job.deliver({"plugin": "files", "path": "out.jsonl", **FAILING}, {})
    late = checkpoint_of(job.folder / "state.db", "orders")

    def seen(query: HandQuery) -> None:
        step = query.step

        def after_copies() -> bool:
            if query.batches == 2:
                of_first = [each.loss for each in losses(job)][:1]
                late.set_aside(0, 0, of_first)
            return step()

        monkeypatch.setattr(query, "step", after_copies)

    log = structlog.stdlib.get_logger()
    _, report = Host(job.path, log=log, engine=engine_by_hand(seen=seen)).run(until_idle=True)

    assert report is not None
    assert (9, 9) == (report.dead_lettered, len(losses(job)))
    assert [] == left_in_checkpoint(job)


def test_the_topic_of_dead_letters(job: GapJob) -> None:
    """The driver sends them there, with the headers that a worker writes."""
    broker = EmbeddedBroker()
    topic = {"topic": "t", "errors.deadletterqueue.topic.name": "dead", "format": "json"}
    servers = {"plugin": "kafka", "bootstrap.servers": broker.bootstrap_servers}
    job.deliver({**servers, **topic, **FAILING}, {})
    run_by_hand(job.path)
    found = consume(broker.bootstrap_servers, "dead")

    assert 9 == len(found)
    headers = [dict(message.headers() or ()) for message in found]
    assert {b"orders"} == {each["__connect.errors.connector.name"] for each in headers}
    assert all(kept.sent for kept in losses(job))


def test_a_budget_that_is_spent(job: GapJob) -> None:
    """More dead letters than allowed stop the job; they are kept, and the status says why."""
    options = {"errors.budget.records": 2}
    job.deliver({"plugin": "files", "path": "out.jsonl", **FAILING, **options}, {})

    with pytest.raises(BudgetSpentError, match="records were dead-lettered within 60 s"):
        run_by_hand(job.path)
    assert 2 < len(losses(job))
    with contextlib.closing(open_notes(job.folder / "state.db")) as notes:
        assert "error_budget_spent" in notes.store("orders").problem()


def test_segments_are_disposed_of(job: GapJob) -> None:
    """With `disposal: delete` those segments go that a worker disposes of, and no others."""
    job.change(disposal="delete")
    job.log(4, range(12, 15), nodes=NODES[:1])  # Only one copy: it waits for another.
    job.log(5, range(15, 18))
    run_by_hand(job.path, batch_bytes=1 << 40)
    of_spark = left_in_logs(job)
    (job.folder / "worker").mkdir()
    worker = GapJob(job.folder / "worker", disposal="delete")
    for number in range(1, 4):
        worker.log(number, range(3 * number, 3 * number + 3))
    worker.log(4, range(12, 15), nodes=NODES[:1])
    worker.log(5, range(15, 18))
    assert 0 == worker.run()

    assert left_in_logs(worker) == of_spark
    assert 4 == len(of_spark)
    assert [*range(3, 12), *range(15, 18)] == job.rows()
    job.log(6, range(12, 15), nodes=NODES[1:])
    run_by_hand(job.path)
    assert [*range(3, 18)] == job.rows()


def test_nothing_is_disposed_of_before_the_commit(job: GapJob) -> None:
    """Tasks delete nothing of a batch that Spark has not committed."""
    job.change(disposal="delete")
    stream = ByHand(job.path, job.folder / "state.db.spark" / "orders", batch_bytes=1 << 40)
    stream.deliver(stream.next_end())

    assert 9 == len(left_in_logs(job))


def test_the_checkpoint_of_a_program(job: GapJob) -> None:
    """One that Spark's API made is continued: the store gets what it has, nothing comes again."""
    stream = ByHand(job.path, job.folder / "state.db.spark" / "orders")
    stream.run()
    job.log(4, range(12, 15))
    assert 3 == run_by_hand(job.path)

    assert [*range(3, 15)] == job.rows()
    assert 12 == sum(t["delivered"] for t in job.verified("--sink")["total"]["tables"].values())


def test_a_checkpoint_that_is_removed(job: GapJob) -> None:
    """The stream continues from the store."""
    run_by_hand(job.path)
    checkpoint = checkpoint_of(job.folder / "state.db", "orders")
    for path in sorted(checkpoint.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with contextlib.closing(open_notes(job.folder / "state.db")) as notes:
        assert "forged.t" in {schema.table for schema in notes.store("orders").schemas()}
    job.log(4, range(12, 15))
    assert 3 == run_by_hand(job.path)

    assert [*range(3, 15)] == job.rows()


@pytest.mark.parametrize("splits", [1, 4])
def test_other_splits(job: GapJob, splits: int) -> None:
    """After the option `splits` changes the stream continues with these; the books balance."""
    run_by_hand(job.path)
    job.change(splits=splits)
    job.log(4, range(12, 15))
    assert 3 == run_by_hand(job.path)

    assert [*range(3, 15)] == job.rows()
    assert 12 == sum(t["delivered"] for t in job.verified("--sink")["total"]["tables"].values())


def test_where_a_checkpoint_begins_is_needed(job: GapJob) -> None:
    """A file that is damaged is named."""
    run_by_hand(job.path)
    path = checkpoint_of(job.folder / "state.db", "orders").folder / "begun"
    document = json.loads(path.read_bytes())
    assert {"1-of-2": 0, "2-of-2": 0} == document["seqs"]
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(Exception, match="where the first batch starts cannot be read"):
        run_by_hand(job.path)
