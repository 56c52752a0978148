"""Snapshots of tables by statements, over a node that answers by ranges of tokens, in process."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable

from headrace.connector.commands.cli import main
from headrace.connector.control.access.permission import CALLER, Caller, Role, UnauthorizedError
from headrace.connector.control.commands import Commands
from headrace.connector.control.errors import BadRunError, NotFoundError
from headrace.connector.control.jobs import read_job
from headrace.connector.foundation.processes import this_process
from headrace.connector.foundation.states import Desired
from headrace.connector.hosting.host import Host
from headrace.connector.hosting.run_taker import RunTaker
from headrace.connector.replay import delivery, execution
from headrace.connector.replay.delivery import ShardReport, Target, Work
from headrace.connector.replay.shards import Shard
from headrace.connector.stores import Commit
from headrace.connector.stores.asked_runs import NAMES_MAX, AskedRuns, Order, RunState
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, NumberPosition
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.forge.mutations import encode_mutation
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.jobs.children import until
from helpers.jobs.filled_tables import KILLED, RANGES, ROWS, TOKENS, Snapped, T, answering, keys
from helpers.logs.forged import NOW_US, SCHEMA, TABLE
from helpers.logs.gap_jobs import NODES, WHOLE
from helpers.servers.collector import attributes, collecting
from helpers.servers.cql_node import rows as result

ERROR = 2  # The code of a status in OTLP.
Given = Any  # What a function is given that this test passes on.
SINK = "CREATE DATA_SINK k WITH 'file://out.jsonl';"
SOURCE = f"CREATE DATA_SOURCE cdc ON TABLE {T} WITH k AND job = 'orders'"
OPTIONS = f"snapshot.ranges = {RANGES} AND snapshot.parallel = 1"
INITIAL = f"{SOURCE} AND snapshot = 'initial' AND {OPTIONS};"
ASK = f"SNAPSHOT DATA_SOURCE cdc ON TABLE {T}"
ONLY_JOB = f"orders~cdc.{T}"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Snapped]:
    """Return a job of statements whose node tells the schema that the job's file has."""
    monkeypatch.chdir(tmp_path)
    with answering(tmp_path, monkeypatch) as node:
        found = Snapped(tmp_path, node)
        found.job.from_statements()
        found.execute(SINK)
        yield found


def test_initial(made: Snapped) -> None:
    """The rows of the table are sent once, marked, beside live changes; the books balance."""
    made.execute(INITIAL)
    made.hold(T, ROWS)
    made.job.log(1, range(3))

    assert ("WAITING", "0/0") == (made.only()["state"], made.only()["ranges"])
    assert [0, 0] == [made.job.run() for _ in range(2)]

    assert {T: RANGES} == made.asked()
    assert sorted(keys(T, 3) + keys(T)) == made.sent()
    assert ROWS == sum(each["node"] == "table" for each in made.job.documents())
    shown = made.only()
    assert ("COMPLETED", "3/3", "5", "0") == tuple(
        shown[name] for name in ("state", "ranges", "rows", "lost")
    )
    verified = made.job.verified("--sink")
    assert {shown["snapshot"]: [f"cdc.{T}", ROWS]} == verified["snapshots"]
    assert (3, 0) == tuple(verified["sink"]["tables"][T][n] for n in ("found", "unknown"))


def test_it_is_traced(made: Snapped, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector gets a span of each range of a snapshot, also of a failed one, and metrics."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made.execute(INITIAL)
    made.hold(T, ROWS, refused=1)
    with collecting() as collector:
        made.job.trace(collector.url)
        assert 1 == made.job.run()
        name = made.only()["snapshot"]
        spans = [span for span in collector.spans() if span.name == "shard"]
        measured = collector.of_all("headrace_run_changes_total")

    found = [(attributes(span.attributes), span.status) for span in spans]
    assert [*range(1, RANGES + 1)] == sorted(int(str(a["headrace.shard"])) for a, _ in found)
    assert {("orders", name, 1)} == {
        tuple(a[f"headrace.{key}"] for key in ("job", "run", "attempts")) for a, _ in found
    }
    assert ROWS - 2 == sum(int(str(a["headrace.records"])) for a, _ in found)
    assert ["table_query"] == [status.message for _, status in found if status.code == ERROR]
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert ROWS - 2 == max(point.as_double or point.as_int for point in measured)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_into_a_lake(made: Snapped, mode: str) -> None:
    """Tables of a lake have the rows that the table has, and the changes of the logs."""
    folder = made.job.folder / "lake"
    made.execute(f"CREATE DATA_SINK lake WITH 'delta://{folder}' AND mode = '{mode}'")
    made.execute(INITIAL.replace("WITH k", "WITH lake"))
    made.hold(T, ROWS)
    made.job.log(1, range(3))
    assert [0, 0] == [made.job.run() for _ in range(2)]

    found = DeltaTable(folder / T).to_pyarrow_table().to_pylist()
    expected = sorted(keys(T, 3) + keys(T)) if mode == "append" else keys(T)
    assert expected == sorted((T, f"0x{row['k'].hex()}") for row in found)
    if mode == "append":
        assert ROWS == sum(row["node"] == "table" for row in found)
    shown = made.only()
    assert ("COMPLETED", "5", "0") == tuple(shown[name] for name in ("state", "rows", "lost"))
    assert 0 == made.job.call("verify")


def test_never(made: Snapped) -> None:
    """Without `snapshot`, and with `never`, no table is read."""
    made.execute(f"{SOURCE} AND snapshot = 'never';")
    made.hold(T, ROWS)

    assert 0 == made.job.run()
    assert ([], {}) == (made.shown(), made.asked())


def test_only(made: Snapped) -> None:
    """With `only` a job of its own sends the rows, and no changes; then the source is stopped."""
    made.execute(f"{SOURCE} AND snapshot = 'only' AND {OPTIONS};")
    made.hold(T, ROWS)
    made.job.log(1, range(3))

    assert 0 == made.job.run("--job", ONLY_JOB)

    assert keys(T) == made.sent()
    status = made.execute("SHOW STATUS")
    row = dict(zip(status.columns, status.rows[0], strict=True))
    assert (ONLY_JOB, "STOPPED", "") == (row["job"], row["state"], row["reason"])


def test_only_in_a_worker(made: Snapped) -> None:
    """The job waits for other snapshots, and for its source when it is paused."""
    made.execute(f"{SOURCE} AND snapshot = 'only' AND {OPTIONS};")
    made.hold(T, ROWS)
    host = Host(made.job.path, log=context().log, job=ONLY_JOB)
    thread = threading.Thread(target=lambda: host.run(until_idle=False))
    thread.start()
    try:
        until(lambda: made.only()["state"] == "COMPLETED", "it never ended")
        made.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {T}; {ASK}")
        assert ["PAUSED"] * 2 == list(made.execute("SHOW STATUS").rows[0][3:5])
        made.execute(f"RESUME DATA_SOURCE cdc ON TABLE {T}")
        until(lambda: made.shown()[0]["state"] == "COMPLETED", "it never ended")
    finally:
        host.stop()
        thread.join()

    assert sorted(keys(T) * 2) == made.sent()


def test_options_of_reading(made: Snapped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, ranges at a time, ranges and the rate are those of the source's options."""
    found: list[tuple[object, ...]] = []
    made.execute(
        f"{SOURCE} AND snapshot = 'initial' AND snapshot.ranges = {RANGES} "
        "AND snapshot.parallel = 3 AND snapshot.page.rows = 7 AND snapshot.rate = 600;"
    )
    made.hold(T, ROWS)
    deliver, at_once = delivery.deliver, execution.perform_at_once

    def delivered(shard: Shard, target: Target, **given: Given) -> ShardReport:
        found.append((shard.source.given["page_rows"], target.rate))
        return deliver(shard, target, **given)

    def performed(works: Sequence[Work], do: Given, width: int, **given: Given) -> None:
        found.append((width, len(works)))
        at_once(works, do, width, **given)

    monkeypatch.setattr(delivery, "deliver", delivered)
    monkeypatch.setattr(execution, "perform_at_once", performed)

    assert 0 == made.job.run()
    assert [(3, RANGES), *[(7, 200.0)] * RANGES] == found


def test_another_target(made: Snapped) -> None:
    """BACKFILL is a snapshot: WITH sends it into files, and the sink gets nothing."""
    made.execute(f"{SOURCE} AND {OPTIONS};")
    made.hold(T, ROWS)
    made.execute(f"BACKFILL DATA_SOURCE cdc ON TABLE {T} WITH to_folder = 'files' AND rate = 9000")

    assert 0 == made.job.run()
    assert ("COMPLETED", "5") == (made.only()["state"], made.only()["rows"])
    assert [] == made.sent()
    files = list((made.job.folder / "files" / T).glob("*.parquet"))
    assert ROWS == sum(pq.read_table(file).num_rows for file in files)
    with pytest.raises(BadRunError, match="k has no topics, so none that end in"):
        made.execute(f"{ASK} WITH suffix = '.x'")


def test_killed(made: Snapped) -> None:
    """After SIGKILL the next run continues: no range is read again that was done."""
    made.execute(INITIAL)
    made.hold(T, ROWS)
    made.node.slow = made.statement(T, 1)
    folder = made.job.folder
    command = ["run", str(made.job.path), "--until-idle"]
    with subprocess.Popen(  # noqa: S603 (ours)
        [sys.executable, "-c", KILLED, str(folder), *command],
        env=os.environ | {"TMPDIR": str(folder)},  # What it cannot remove goes with the test.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:
        until(lambda: made.node.slow in made.node.levels, "nothing was asked", child=child)
        child.send_signal(signal.SIGKILL)
    assert ("RUNNING", "1/3", "2") == tuple(made.only()[n] for n in ("state", "ranges", "rows"))
    made.node.slow = "nothing"
    made.asked()

    assert 0 == made.job.run()
    assert {T: RANGES - 1} == made.asked()
    assert keys(T) == made.sent()
    assert ("COMPLETED", "3/3", "5") == tuple(made.only()[n] for n in ("state", "ranges", "rows"))


def test_a_failure(made: Snapped, capsys: pytest.CaptureFixture[str]) -> None:
    """A range that fails is named by the run, SHOW SNAPSHOTS and STATUS; RESUME reads it alone."""
    made.execute(INITIAL)
    made.hold(T, ROWS, refused=1)

    assert 1 == made.job.run()
    assert "shard_failed" in capsys.readouterr().err
    shown = made.only()
    assert ("FAILED", "2/3") == (shown["state"], shown["ranges"])
    assert "table_query" in shown["problem"]
    reason = made.execute("SHOW STATUS").rows[0][-1]
    assert f"{shown['snapshot']}: FAILED, 2 of 3 ranges, 3 rows: shard_failed" in reason
    assert 1 == main(["status", str(made.job.folder / "state.db")])
    assert f"run {shown['snapshot']} is FAILED" in capsys.readouterr().out
    made.hold(T, ROWS)
    made.asked()
    assert 0 == made.job.run()  # It waits for a user.
    assert not made.asked()
    made.execute(f"RESUME SNAPSHOT '{shown['snapshot']}'")

    assert 0 == made.job.run()
    assert {T: 1} == made.asked()
    assert keys(T) == made.sent()


def test_no_contact_points(made: Snapped, capsys: pytest.CaptureFixture[str]) -> None:
    """Without contact points the error names the option that is missing, and where it stands."""
    made.execute(INITIAL)
    made.job.change(contact_points=None)

    assert 2 == made.job.run()
    reported = capsys.readouterr().err
    assert "source.contact_points" in reported
    assert "give the job's source contact_points" in made.only()["problem"]


def test_a_part_of_the_tokens(made: Snapped) -> None:
    """WHERE TOKEN() reads these tokens only."""
    made.execute(f"{SOURCE} AND {OPTIONS};")
    made.hold(T, ROWS)
    after, until_ = TOKENS[1]
    name = made.execute(f"{ASK} WHERE TOKEN() > {after} AND TOKEN() < {until_ + 1};").rows[0][0]

    assert 0 == made.job.run()
    assert (name, f"tokens {after}:{until_}") == (made.only()["snapshot"], made.only()["part"])
    assert [(T, f"0x{key.hex()}") for key in (b"k1", b"k4")] == made.sent()


def test_one_partition(made: Snapped) -> None:
    """WHERE with the key reads the token of that partition only; of a missing one nothing."""
    made.execute(f"{SOURCE} AND {OPTIONS};")
    token = TOKENS[1][0] + 2  # That of k1.
    made.hold(T, ROWS)
    asked = 'SELECT token("k") FROM "forged"."t" WHERE "k" = fromJson(\'"%s"\') LIMIT 1'
    query = made.statement(T, 0).replace(str(TOKENS[0][0]), str(token - 1))
    query = query.replace(str(TOKENS[0][1]), str(token))
    columns = {"token": b"\x00\x02"}
    answers = {
        asked % "0x6b31": result(columns, [token.to_bytes(8, "big", signed=True)]),
        asked % "0x00": result(columns),
        query: made.node.answers[made.statement(T, 1)],
    }
    made.node.answers = {**answers, **made.node.answers}
    made.execute(f"{ASK} WHERE k = '0x6b31'; {ASK} WHERE k = '0x00'")

    assert 0 == made.job.run()
    assert [query] == [each for each in made.node.levels if "WHERE token(" in each]
    assert {"0/0", "1/1"} == {each["ranges"] for each in made.shown()}
    assert {"COMPLETED"} == {each["state"] for each in made.shown()}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("TOKEN() > 5 AND k = 'a'", "do not go together"),
        ("TOKEN() > 5 AND TOKEN() >= 7", "bounded twice"),
        ("TOKEN() > 5 AND TOKEN() <= 5", "no token is after 5"),
        ("TOKEN() > 'a'", "expected a token"),
        ("TOKEN() < -9223372036854775808", "expected a token"),
        ("k = NOW()", "found a time"),
        ("k = 1 AND k = 2", "given twice"),
    ],
)
def test_wrong_parts(made: Snapped, where: str, said: str) -> None:
    """Conditions that make no part are refused, and ask for nothing."""
    made.execute(f"{SOURCE};")

    with pytest.raises(BadRunError, match=said):
        made.execute(f"{ASK} WHERE {where};")
    assert [] == made.shown()


def test_pause_stop_and_resume(made: Snapped) -> None:
    """Paused amid a range, a snapshot ends after its page; resumed, it reads what is left."""
    made.execute(INITIAL)
    made.hold(T, ROWS)
    made.node.slow = made.statement(T, 1)
    name = made.only()["snapshot"]
    host = made.host()
    thread = threading.Thread(target=lambda: host.run(until_idle=False))
    thread.start()
    try:
        until(lambda: made.node.slow in made.node.levels, "it never read")
        shards = next(m for m in host.measures() if m.name == "headrace_run_shards")
        assert {"PASS": 1, "STARTED": 1, "NOT_STARTED": 1} == {
            labels["state"]: count for labels, count in shards.samples if count
        }
        made.execute(f"PAUSE SNAPSHOT '{name}'")
        assert "PAUSED" == made.only()["state"]
        until(lambda: _seen(made) is RunState.WAITING, "it never halted")
        assert {T: 2} == made.asked()
        made.node.slow = "nothing"
        made.execute(f"RESUME SNAPSHOT '{name}'")
        until(lambda: made.only()["state"] == "COMPLETED", "it never ended")
    finally:
        host.stop()
        thread.join()

    assert {T: 2} == made.asked()
    assert set(keys(T)) == set(made.sent())


def _seen(made: Snapped) -> RunState:
    with closing(open_notes(made.job.folder / "state.db")) as notes:
        ((_, seen),) = AskedRuns(notes).all()
    return seen.state


def test_what_is_stopped_is_over(made: Snapped) -> None:
    """A stopped snapshot is not taken and cannot be resumed; PAUSE of it is refused, too."""
    made.execute(INITIAL)
    made.hold(T, ROWS)
    name = made.only()["snapshot"]
    made.execute(f"STOP SNAPSHOT '{name}'; STOP SNAPSHOT '{name}'")

    assert 0 == made.job.run()
    assert ("STOPPED", {}) == (made.only()["state"], made.asked())
    for verb in ("RESUME", "PAUSE"):
        with pytest.raises(BadRunError, match=f"{name} is STOPPED"):
            made.execute(f"{verb} SNAPSHOT '{name}'")
    with pytest.raises(NotFoundError, match="run 'x' does not exist"):
        made.execute("STOP SNAPSHOT 'x'")


def test_not_before_the_logs_are_followed(made: Snapped) -> None:
    """A table is not read before each split has a position, nor while the source is paused."""
    made.execute(INITIAL)
    made.hold(T, ROWS)
    taken = RunTaker(read_job(made.job.path), context().log)
    with closing(open_notes(made.job.folder / "state.db")) as notes:
        taken._look(notes)  # noqa: SLF001 (the thread calls it each second)
        notes.store("orders").register(["a"])
        taken._look(notes)  # noqa: SLF001 (the thread calls it each second)
        assert ("WAITING", {}) == (made.only()["state"], made.asked())
        followed(notes)
        made.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {T}")
        taken._look(notes)  # noqa: SLF001 (the thread calls it each second)
        assert ("WAITING", {}) == (made.only()["state"], made.asked())
        made.execute(f"RESUME DATA_SOURCE cdc ON TABLE {T}")
        taken._look(notes)  # noqa: SLF001 (the thread calls it each second)

    assert ("COMPLETED", {T: RANGES}) == (made.only()["state"], made.asked())


def followed(notes: NoteCopy) -> None:
    """Let the job have one split, with a position."""
    store = notes.store("orders")
    store.register(["a"])
    store.enroll(owner := this_process())
    token = store.claim(owner.worker, store.leases(), 1_000)["a"]
    position = NumberPosition(5).encode()
    commit = Commit(
        split="a",
        plan=1,
        token=token,
        owner=owner.worker,
        previous=0,
        seq=1,
        position=position,
        counters={},
    )
    assert not store.commit([commit])


def test_a_failure_is_tried_again(made: Snapped) -> None:
    """A worker tries again what failed after a pause, and gives up after `restarts_max` times."""
    made.execute(INITIAL)
    made.hold(T, ROWS, refused=1)
    document = yaml.safe_load(made.job.path.read_text())
    runtime = {"restarts_max": 1, "restart_pause_seconds": 0.1}
    made.job.path.write_text(yaml.safe_dump({**document, "runtime": runtime}))
    taken = RunTaker(read_job(made.job.path), context().log)
    with closing(open_notes(made.job.folder / "state.db")) as notes:
        followed(notes)
        taken._look(notes)  # noqa: SLF001 (the thread calls it each second)
        assert ("WAITING", "2/3") == (made.only()["state"], made.only()["ranges"])
        assert "table_query" in made.only()["problem"]

        def looked() -> bool:
            taken._look(notes)  # noqa: SLF001 (the thread calls it each second)
            return made.only()["state"] != "WAITING"

        until(looked, "it was never tried again")
        assert "FAILED" == made.only()["state"]
        made.execute(f"RESUME SNAPSHOT '{made.only()['snapshot']}'")
        taken._look(notes)  # noqa: SLF001 (the thread calls it each second)
        assert "WAITING" == made.only()["state"]  # It has all attempts again.
        until(looked, "it was never tried again")
        made.hold(T, ROWS)
        taken._look(notes)  # noqa: SLF001 (the thread calls it each second)
        assert "FAILED" == made.only()["state"]
        made.execute(f"RESUME SNAPSHOT '{made.only()['snapshot']}'")
        taken._look(notes)  # noqa: SLF001 (the thread calls it each second)

    assert ("COMPLETED", "") == (made.only()["state"], made.only()["problem"])


def test_who_may(made: Snapped) -> None:
    """SNAPSHOT needs the role admin, PAUSE the role operator; both are in the audit."""
    made.execute(f"{SOURCE};")
    with closing(open_notes(made.job.folder / "state.db")) as notes:
        commands = Commands(notes)
        config = commands.sources()[0].config
        name = commands.snapshot_source(config, Order())
        outcomes = []
        for role in (Role.VIEWER, Role.OPERATOR):
            token = CALLER.set(Caller(name="ann", role=role))
            try:
                for call in (
                    lambda: commands.snapshot_source(config, Order()),
                    lambda: commands.steer_run(name, Desired.PAUSED),
                ):
                    try:
                        call()
                        outcomes.append("done")
                    except UnauthorizedError:
                        outcomes.append("denied")
            finally:
                CALLER.reset(token)

    assert ["denied", "denied", "denied", "done"] == outcomes
    verbs = [line["verb"] for line in made.job.audit()]
    assert {"snapshot_source", "steer_run"} < set(verbs)


def test_a_history_is_seeded_instead(made: Snapped) -> None:
    """A source into a history takes no snapshot; the error says what does the same."""
    made.execute(f"CREATE CDC h ON {T};")

    with pytest.raises(BadRunError, match="is a history") as raised:
        made.execute(ASK)
    assert "headrace seed" in raised.value.problems[0].hint


def test_a_snapshot_of_the_beginning_stays(made: Snapped) -> None:
    """ALTER does not change `snapshot`; what is dropped takes its snapshots along."""
    made.execute(INITIAL)

    with pytest.raises(ConfigError, match="expected initial, found never"):
        made.execute(f"ALTER DATA_SOURCE cdc ON TABLE {T} WITH snapshot = 'never'")
    made.execute(f"DROP DATA_SOURCE cdc ON TABLE {T}")
    assert [] == made.shown()


def test_snapshots_that_are_over_are_bounded(made: Snapped) -> None:
    """Of a source so many are kept; the oldest that are over go first, others never."""
    made.execute(f"{SOURCE};")
    with closing(open_notes(made.job.folder / "state.db")) as notes:
        commands = Commands(notes)
        config = commands.sources()[0].config
        first = commands.snapshot_source(config, Order())
        for _ in range(NAMES_MAX + 3):
            commands.steer_run(commands.snapshot_source(config, Order()), Desired.STOPPED)
        names = [each.name for each, _ in commands.runs()]

    assert (NAMES_MAX + 1, True) == (len(names), first in names)


class Model:
    """A table of one value for each key, as Cassandra keeps it: of all writes the newest counts."""

    def __init__(self, dice: random.Random) -> None:
        """Start empty."""
        self._dice = dice
        self._at_us = NOW_US
        self.writes: list[bytes] = []
        self.values: dict[int, tuple[bytes, int, int | None]] = {}  # With its time, its end in s.

    def write(self, count: int) -> None:
        """Insert, let expire and delete rows; each write is a mutation of the logs."""
        now_s = int(time.time())
        for _ in range(count):
            self._at_us += 1
            number, ttl = self._dice.randrange(KEYS), self._dice.choice((None, None, 10**6, 5))
            row: dict[str, object] = {"clustering": [], "columns": {}}
            if self._dice.random() < 0.3:
                row["deletion"] = {"ts": self._at_us, "ldt": now_s}
                self.values.pop(number, None)
            else:
                value = bytes([self._dice.randrange(1, 256)])
                # What was written with a time to live of 5 s expired long ago.
                end_s = None if ttl is None else now_s + ttl - 60
                expiry = {} if ttl is None else {"ttl": ttl, "ldt": end_s}
                row["liveness"] = {"ts": self._at_us, **expiry}
                row["columns"] = {"v": {"ts": self._at_us, "value": value.hex(), **expiry}}
                self.values[number] = value, self._at_us, end_s
            key = (b"k%d" % number).hex()
            update = {"id": str(TABLE), "key": key, "epoch": 5, "items": [row]}
            self.writes.append(encode_mutation({"updates": [update]}, _FORGED, 12))

    def shown(self) -> dict[int, tuple[bytes, int, int | None]]:
        """Return what a SELECT shows."""
        now_s = time.time()
        return {n: each for n, each in self.values.items() if each[2] is None or each[2] > now_s}


KEYS = 24
_FORGED = parse_schema(SCHEMA)


@pytest.mark.parametrize("seed", range(5))
def test_rows_and_changes_fold_to_the_table(made: Snapped, seed: int) -> None:
    """What is read amid writes, deletions and expiry, and the logs since before it, are the table.

    Each range is read at another time. The logs have nothing of what was written before the job.
    """
    dice = random.Random(seed)  # noqa: S311 (any order)
    model = Model(dice)
    model.write(40)
    followed = len(model.writes)
    answers: dict[str, bytes] = {}
    for place, (after, _) in enumerate(TOKENS):
        model.write(15)
        found = [
            _selected(after + 1 + number, number, *each)
            for number, each in model.shown().items()
            if number % RANGES == place
        ]
        answers[made.statement(T, place)] = result(_COLUMNS, *found)
    model.write(15)
    made.hold(T, 0)
    made.node.answers = {**made.node.answers, **answers}
    content = segment([model.writes[followed:]], segment_id=SEGMENT_ID + 1).content
    for node in NODES:
        folder = made.job.folder / node
        write_segment(folder, content, segment_id=SEGMENT_ID + 1, index=WHOLE)
    made.execute(INITIAL)

    assert 0 == made.job.run()
    sent = made.job.documents()
    assert {"table", *NODES} >= {each["node"] for each in sent} > {"table"}
    expected = {
        f"0x{(b'k%d' % number).hex()}": (f"0x{value.hex()}", end_s is not None)
        for number, (value, _, end_s) in model.shown().items()
    }
    for order in (sent, sent[::-1], dice.sample(sent, len(sent))):
        assert expected == folded(order)


_COLUMNS = {"token": b"\x00\x02", "k": b"\x00\x03", "v": b"\x00\x03"}
_COLUMNS |= {"w": b"\x00\x02", "ttl": b"\x00\x09"}


def _selected(
    token: int, number: int, value: bytes, at_us: int, end_s: int | None
) -> list[bytes | None]:
    """Return a row as the node sends it: token, key, value, its write time and time to live."""
    left = None if end_s is None else (end_s - int(time.time())).to_bytes(4, "big")
    key = b"k%d" % number
    return [token.to_bytes(8, "big", signed=True), key, value, at_us.to_bytes(8, "big"), left]


def folded(documents: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, bool]]:
    """Fold change JSON by write time: each value that lives, and whether it expires."""
    deleted: dict[str, int] = {}
    cells: dict[str, tuple[int, str, float]] = {}
    for each in documents:
        key = each["key"]["k"]
        if each["op"] == "DELETE":
            deleted[key] = max(deleted.get(key, 0), each["timestamp"])
        for column in each.get("columns", {}).values():
            of_cell = column if "ttl" in column else each  # A cell may differ from its row.
            cell = column["ts"], column["value"], of_cell.get("expires", float("inf"))
            if key not in cells or cell[:2] > cells[key][:2]:
                cells[key] = cell
    now_s = time.time()
    return {
        key: (value, end_s < float("inf"))
        for key, (at_us, value, end_s) in cells.items()
        if at_us > deleted.get(key, 0) and end_s > now_s
    }
