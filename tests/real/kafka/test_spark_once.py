"""Exactly once on Spark: after any kill, a consumer of what is committed sees each change once.

So do the books, and a worker that continues.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from headrace.connector.commands.cli import main
from headrace.connector.control.commands import Commands
from headrace.connector.control.service import ControlService
from headrace.connector.foundation.states import Observed
from headrace.connector.language.parser import parse_script
from headrace.connector.replay.errors import StreamFailedError
from headrace.connector.replay.stream.checkpoint import checkpoint_of
from headrace.connector.stores.open_control_store import open_notes
from helpers.jobs.committed import committed
from helpers.logs.forged import TABLE, insert
from helpers.logs.gap_jobs import GapJob
from helpers.streams.by_hand import overtake_once, run_by_hand
from real.spark.spark_attempts import holding_python, speculating
from real.spark.spark_cluster import DRIVER, EXECUTOR, TASK, Moment, cluster, killing_python, past
from real.spark.spark_jobs import (
    WAIT_SECONDS_MAX,
    Names,
    by_worker,
    kafka_sink,
    living,
    ring_job,
    spark_process,
    without_origin,
)

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.usefixtures("quick_spark")]

BATCHED: Final = ("--engine", "spark", "--until-idle", "--batch-bytes", "3145728")
# A task has sent all of a split, in a transaction that is open: it stores the state.
SENT: Final = ("os.rename", r"/states/\w+/\.[^/.]+\.")
# A task has committed all of its splits, and has not said so: it removes its temporary folder.
COMMITTED: Final = ("shutil.rmtree", "headrace-framed-")
# The driver has counted the second batch, and Spark has not committed it.
COUNTED: Final = ("os.rename", r"/delivered/1$")
ROWS: Final = 600  # Of each segment of a job of statements.


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a cluster of two workers, and return the address of its master."""
    with ExitStack() as stack:
        yield cluster(stack, tmp_path_factory.mktemp("cluster"))


def once_job(folder: Path, bootstrap_servers: str) -> tuple[Path, str]:
    """Return a job over the ring that delivers exactly once, and its topic."""
    topic = f"once-{uuid4().hex}"
    sink = kafka_sink(bootstrap_servers, topic)
    states = {"offsets.storage.topic": f"{topic}-states"}
    return ring_job(folder, topic, {**sink, "exactly.once": True, **states}, splits=4), topic


def seen(bootstrap_servers: str, topic: str) -> Names:
    """Return what a consumer of committed messages sees."""
    return Names(
        (message.key(), without_origin(message.value() or b""))
        for message in committed(bootstrap_servers, topic)
    )


def check(job: Path, found: Names, capsys: pytest.CaptureFixture[str]) -> None:
    """Make sure that each change is there once, and once in the books."""
    assert {1} == set(found.values())
    assert by_worker().total() == len(found)
    capsys.readouterr()
    assert 0 == main(["verify", str(job), "--json"])
    tables = json.loads(capsys.readouterr().out)["total"]["tables"].values()
    assert len(found) == sum(table["delivered"] for table in tables)


def test_kills(
    master: str,
    spark: SparkSession,
    tmp_path: Path,
    bootstrap_servers: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A task amid a transaction, an executor after it, the driver before Spark's own commit.

    Nothing is lost and nothing comes twice; the batch that Spark repeats is not sent again.
    """
    assert spark is SparkSession.getActiveSession()
    job, topic = once_job(tmp_path, bootstrap_servers)
    moments = [Moment(TASK, *SENT), Moment(EXECUTOR, *COMMITTED), Moment(DRIVER, *COUNTED)]
    python = killing_python(tmp_path / "kills", moments)
    log = tmp_path / "killed.log"
    with spark_process(["run", str(job), *BATCHED, "--master", master], log, python) as child:
        status = child.wait(WAIT_SECONDS_MAX)
    assert (-signal.SIGKILL, len(moments)) == (status, past(python)), log.read_text()
    before = seen(bootstrap_servers, topic)
    at = checkpoint_of(tmp_path / "state.db", topic).committed()
    assert at is not None
    assert 0 == at[0]  # The second batch is in, and Spark has not committed it.
    assert {1} == set(before.values())

    assert 0 == main(["run", str(job), *BATCHED])

    found = seen(bootstrap_servers, topic)
    assert before <= found
    check(job, found, capsys)


def test_an_attempt_that_is_overtaken(
    master: str, tmp_path: Path, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first attempt sends all of a split and waits; the second one fences it and commits."""
    job, topic = once_job(tmp_path, bootstrap_servers)
    python = holding_python(tmp_path / "held", *SENT)
    speculating(master, ["run", str(job), *BATCHED], python, failures_max=4)

    assert (tmp_path / "held" / "second").exists()
    check(job, seen(bootstrap_servers, topic), capsys)


def test_an_attempt_that_is_fenced(
    tmp_path: Path,
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It fails by name when it commits, and what it sent is not seen; Spark's part is by hand."""
    job, topic = once_job(tmp_path, bootstrap_servers)
    overtake_once(monkeypatch)
    with pytest.raises(StreamFailedError, match=r"fenced: .*a later attempt, or another engine"):
        run_by_hand(job, batch_bytes=3 << 20)
    assert {1} == set(seen(bootstrap_servers, topic).values())
    run_by_hand(job, batch_bytes=3 << 20)

    check(job, seen(bootstrap_servers, topic), capsys)


def test_a_worker_and_spark_in_turns(
    spark: SparkSession, tmp_path: Path, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each continues where the other ended, by the positions in Kafka."""
    assert spark is SparkSession.getActiveSession()
    job, topic = once_job(tmp_path, bootstrap_servers)
    assert 0 == main(["run", str(job), *BATCHED])
    check(job, seen(bootstrap_servers, topic), capsys)
    assert 0 == main(["run", str(job), "--until-idle"])
    assert 0 == main(["run", str(job), *BATCHED])

    check(job, seen(bootstrap_servers, topic), capsys)


def test_statements(
    tmp_path: Path, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A consumer of what is committed sees each change once, and so do the books.

    The driver is killed while it delivers, and the worker starts it again; STOP and RESUME end the
    stream and continue it. Then workers continue without Spark.
    """
    topic = f"once-{uuid4().hex[:8]}"
    job = GapJob(tmp_path, splits=2)
    job.from_statements()
    job.leave_name()
    written = 0

    def write(segments: int) -> None:
        nonlocal written
        for number in range(written, written + segments):
            rows = range(number * ROWS, (number + 1) * ROWS)
            job.spread(number + 1, *(insert(b"k%d" % row, b"v", table=TABLE) for row in rows))
        written += segments

    def is_there() -> bool:
        return len(committed(bootstrap_servers, topic)) >= written * ROWS

    made = (
        f"CREATE DATA_SINK k WITH 'kafka://{bootstrap_servers}?topic={topic}' AND format = 'json' "
        f"AND exactly.once = true AND offsets.storage.topic = '{topic}-states';"
        "CREATE DATA_SOURCE cdc ON TABLE forged.t WITH k AND job = 'orders' AND engine = 'spark'"
    )
    with closing(open_notes(tmp_path / "state.db")) as notes:
        commands, service = Commands(notes), ControlService(notes)
        for parsed in parse_script(made):
            service.execute(parsed.statement)
        source = "cdc.forged.t"

        def is_in(state: Observed) -> bool:
            return commands.status(source).state is state

        write(3)
        options = ["--pumps", "2", "--master", "local[2]", "--batch-bytes", "120000"]
        with living(["worker", str(job.path), *options], tmp_path / "log") as wait:
            wait(lambda: is_in(Observed.RUNNING) and bool(commands.offsets(source)))
            os.kill(int(commands.status(source).worker.partition(":")[2]), signal.SIGKILL)
            wait(is_there)
            commands.stop("k")
            wait(lambda: is_in(Observed.STOPPED))
            write(1)
            commands.resume("k")
            wait(is_there)
    write(1)
    assert 0 == main(["run", str(job.path), "--job", "orders", "--until-idle"])

    found = [message.key() for message in committed(bootstrap_servers, topic)]
    assert written * ROWS == len(found) == len(set(found))
    capsys.readouterr()
    assert 0 == main(["verify", str(job.path), "--job", "orders", "--json"])
    tables = json.loads(capsys.readouterr().out)["total"]["tables"]
    assert written * ROWS == tables["forged.t"]["delivered"]
