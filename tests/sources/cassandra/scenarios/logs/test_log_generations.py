"""Log generations: a node that was set up again, or whose clock was set back, is read further."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.connector.commands.cli import main
from headrace.plugins.errors import ConfigError
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.commitlog.manifest import RUN_GAP_MAX, file_of, number_in
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import segment, write_segment
from headrace.sources.cassandra.logs.directory import NO_LIMIT, LogDirectory
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from helpers.logs.forged import SCHEMA, insert
from helpers.logs.gap_jobs import NODES, GapJob, place
from helpers.logs.holding import DELETE, Node, hold_on, retention_of
from helpers.logs.node_logs import batches, open_all, source
from helpers.servers.agents import TOKEN, serving

if TYPE_CHECKING:
    from headrace.plugins import Position

BACK = -50 * RUN_GAP_MAX  # Ids go back by this.
RESET = NODES[:1]
OTHERS = NODES[1:]
OLD, NEW = 100 * RUN_GAP_MAX, 7  # Ids.


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job at ALL that has read a segment of each log."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path, consistency="ALL")
    made.log(0, range(3))
    assert 0 == made.run()
    return made


def set_up_again(job: GapJob) -> None:
    """Remove all files of a node, also headrace's notes, and restart it with lower ids."""
    shutil.rmtree(job.folder / "n1")
    (job.folder / "n1").mkdir()
    job.log(BACK, range(3, 6), nodes=RESET)
    job.log(1, range(3, 6), nodes=OTHERS)


def test_a_clock_that_was_set_back_loses_nothing(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lower ids beside those that were read are new; so are the next ones, and higher ones.

    This stays so when the ring is divided into other splits.
    """
    job.log(BACK, range(3, 6), nodes=RESET)
    job.log(1, range(3, 6), nodes=OTHERS)
    assert 0 == job.run()
    assert list(range(6)) == job.rows()
    assert "log_generation_started" in capsys.readouterr().err

    job.change(splits=3)
    job.log(BACK + 1, range(6, 9), nodes=RESET)
    job.log(2, range(6, 9), nodes=OTHERS)
    assert 0 == job.run()
    assert list(range(9)) == job.rows()

    job.log(-BACK, range(9, 12), nodes=RESET)
    job.log(3, range(9, 12), nodes=OTHERS)
    assert 0 == job.run()
    assert list(range(12)) == job.rows()
    assert [] == job.notices()
    assert 12 == job.books()["entries.n1.read"]
    assert "log_generation_started" not in capsys.readouterr().err


@pytest.mark.parametrize("expired", ["drop", "publish"])
def test_what_goes_out_names_the_segments_files(tmp_path: Path, expired: str) -> None:
    """An origin has the id of the file's name in every log generation, record by record too.

    A copy is recognised by its number.
    """
    write(tmp_path / "n1", OLD, range(3))
    level = "ONE" if expired == "drop" else "TWO"
    options = alone(
        tmp_path, consistency=level, expired=expired, expiry_seconds=60, dedup_window_seconds=60
    )
    options["nodes"] = {name: str(tmp_path / name) for name in ("n1", "n2")}
    write(tmp_path / "n2", OLD, range(1))
    _, states = read(options)
    write(tmp_path / "n1", NEW, range(3, 6))

    clock = DrivenClock()
    made = source(options, clock)
    readers = open_all(made, dict(states))
    found = [r.document() for b in batches(readers.values()) for r in b.records()]
    for _ in range(10):
        clock.advance(9_000)
        found += [r.document() for b in batches(readers.values()) for r in b.records()]
    made.close()

    reported = [(each["node"], each["segment"]) for each in found if each["segment"] != OLD]
    assert [("n1", NEW)] * 3 == reported


def test_a_node_that_was_set_up_again_is_read_from_its_beginning(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unread parts of its old log are a gap (I10); what other nodes logged agrees as before."""
    set_up_again(job)
    capsys.readouterr()

    assert 4 == job.run()
    assert "error [log_gap]: node n1" in capsys.readouterr().err
    assert 4 == job.call("gaps")
    assert "open\t-\tpossible" in capsys.readouterr().out
    assert 0 == job.call("accept", "--all")
    assert 0 == job.run()
    assert list(range(6)) == job.rows()
    assert {**place(BACK, 0), "incarnation": 1} == job.notices()[0]["to"]

    job.log(BACK + 1, range(6, 9), nodes=RESET)
    job.log(2, range(6, 9), nodes=OTHERS)
    assert 0 == job.run()
    assert list(range(9)) == job.rows()
    assert 0 == job.call("verify")


def test_what_another_job_read_of_a_new_log_is_not_read(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job uses its own list of segments, not the notes that a later job left in the log (I10)."""
    set_up_again(job)
    other = job.folder / "other.yaml"
    sink = {"plugin": "files", "path": "later.jsonl"}
    later = {"job": "later", "state": "later.db", "sink": sink}
    other.write_text(json.dumps(later | {"source": {"plugin": "cassandra", **job.source}}))
    assert 0 == main(["run", "--until-idle", str(other)])
    capsys.readouterr()

    assert 4 == job.run()
    assert "error [log_gap]: node n1" in capsys.readouterr().err
    assert 0 == job.call("accept", "--all")
    assert 0 == job.run()
    assert list(range(6)) == job.rows()


@pytest.mark.parametrize("policy", ["expire", "assume"])
def test_a_policy_reads_the_new_log_by_itself(job: GapJob, policy: str) -> None:
    """The gap is reported, and the new log counts."""
    job.change(gaps=policy)
    set_up_again(job)

    assert 0 == job.run()

    assert list(range(6)) == job.rows()
    assert {("passed", policy)} == {(n["state"], n["policy"]) for n in job.notices()}


def test_what_was_unread_of_the_old_log_is_a_gap(job: GapJob) -> None:
    """A live segment that was read in part is gone: the marker's place is in the error."""
    made = segment([[insert(b"k", b"v")]], segment_id=OLD)
    for node in NODES:
        shutil.rmtree(job.folder / node)
        index = str(made.section_ends[0])
        write_segment(job.folder / node, made.content, segment_id=OLD, index=index)
    options = {**job.source, "splits": 1}
    state = read(options)[1]["1-of-1"]
    set_up_again(job)

    _, states = read({**options, "gaps": "expire"}, {"1-of-1": state})

    (gap,) = states["1-of-1"].met_gaps
    assert ("n1", OLD, "marker") == (gap.node, gap.begin.segment_id, gap.kind)


def test_a_live_segment_is_not_final_beside_higher_ids(tmp_path: Path) -> None:
    """I6: completed segments of an older log generation do not make a live segment final.

    When the node writes a new generation, the last segment of the old one, which a crash left open,
    is final. A segment that was copied back is not.
    """
    for number, index in ((OLD, "1\nCOMPLETED"), (OLD + 1, "512")):
        write_segment(tmp_path, b"", segment_id=number, index=index)
    log = LogDirectory(tmp_path)
    assert [(OLD, NO_LIMIT), (OLD + 1, 512)] == listed(log)

    write_segment(tmp_path, b"", segment_id=NEW, index="1\nCOMPLETED")
    assert [(OLD, NO_LIMIT), (OLD + 1, 512), (NEW, NO_LIMIT)] == listed(log)
    write_segment(tmp_path, b"", segment_id=NEW + 1, index="300")

    after = [(OLD, NO_LIMIT), (OLD + 1, NO_LIMIT), (NEW, NO_LIMIT), (NEW + 1, 300)]
    assert after == listed(log)


def test_a_segment_that_the_node_let_go_is_final_also_when_ids_are_lower(tmp_path: Path) -> None:
    """It is final when the node's commit log has a segment of the next generation instead."""
    raw, commitlog = tmp_path / "cdc_raw", tmp_path / "commitlog"
    write_segment(raw, b"", segment_id=OLD, index="512")
    write_segment(commitlog, b"", segment_id=NEW)
    log = LogDirectory(raw, commitlog)
    assert [(OLD, 512)] == listed(log)

    write_segment(raw, b"", segment_id=NEW, index="1\nCOMPLETED")

    assert [(OLD, NO_LIMIT), (NEW, NO_LIMIT)] == listed(log)


def test_nothing_of_a_new_generation_goes_before_it_was_read(tmp_path: Path) -> None:
    """I5: a pin has what its split knows; disposal keeps all other segments, also after a start."""
    node = Node(tmp_path)
    for number in (OLD, OLD + 1):
        node.write(number, [b"a"])
    log = LogDirectory(node.raw)
    hold = hold_on(retention_of(log, DELETE), "orders")
    log.segments()
    hold.register("0", Marker(OLD + 1, END_OFFSET), {}, log.manifest.stored)
    for number in (NEW, NEW + 1):
        node.write(number, [b"b"])

    again = LogDirectory(node.raw)
    retention = retention_of(again, DELETE)
    assert (2, [NEW, NEW + 1]) == (retention.dispose(), ids(again))
    assert number_in(1, NEW) == again.manifest.number(NEW)

    log.segments()
    hold.register("0", Marker(number_in(1, NEW), END_OFFSET), {}, log.manifest.stored)
    assert (1, [NEW + 1]) == (retention.dispose(), ids(again))


def test_an_agents_log_has_generations(tmp_path: Path) -> None:
    """The reader distinguishes log generations also when agent and directory have no notes."""
    folder, options = tmp_path / "n1", alone(tmp_path, agent_token=TOKEN, splits=2)
    write(folder, OLD, range(3))
    with serving(folder, disposal="delete") as served:
        nodes = {"n1": {"url": served.url}}
        rows, states = read(options | {"nodes": nodes})
        write(folder, NEW, range(3, 6))
        more, states = read(options | {"nodes": nodes}, states)
    assert ([0, 1, 2], [3, 4, 5]) == (rows, more)
    with serving(folder, disposal="delete") as served:  # It knows the log by the notes in it.
        write(folder, NEW + 1, range(6, 9))
        rows, states = read(options | {"nodes": {"n1": {"url": served.url}}}, states)
    assert [6, 7, 8] == rows
    shutil.rmtree(folder)
    write(folder, 1, range(9, 12))
    with serving(folder, disposal="delete") as served:
        rows, states = read(options | {"nodes": {"n1": {"url": served.url}}}, states)
    assert [9, 10, 11] == rows
    assert {number_in(2, 1)} == {state.markers["n1"].segment_id for state in states.values()}


@pytest.mark.parametrize(("ids", "rows"), [((OLD - 1, OLD), []), ((NEW, NEW + 1), [0, 1])])
def test_a_state_without_manifests_takes_what_is_there_for_read(
    tmp_path: Path, ids: Sequence[int], rows: Sequence[int]
) -> None:
    """With the state of an older release a log is new only if all ids are below its marker."""
    for turn, number in enumerate(ids):
        write(tmp_path / "n1", number, range(turn, turn + 1))
    old = CdcState(0, 0, ("n1",), ("forged",), {"n1": Marker(OLD, END_OFFSET)}, {})

    found, states = read(alone(tmp_path), {"1-of-1": old})

    assert list(rows) == found
    assert not states or states["1-of-1"].manifests


def test_offsets_have_the_generation() -> None:
    """A position that was shown can be set; without a generation the newest with that id counts."""
    marker = Marker(number_in(2, 7), 40)
    manifests = {"n1": ((0, (5, 4)), (2, (7, 0)))}
    state = CdcState(0, 0, ("n1",), (), {"n1": marker}, {}, manifests=manifests)
    ((partition, offset),) = state.describe()
    assert {"segment_id": 7, "position": 40, "incarnation": 2} == offset

    elsewhere = replace(state, markers={})
    assert marker == elsewhere.moved(partition, offset).markers["n1"]
    for segment_id, number in ((7, number_in(2, 7)), (5, 5), (99, number_in(2, 99))):
        given = {"segment_id": segment_id, "position": 1}
        assert Marker(number, 1) == state.moved(partition, given).markers["n1"]
    with pytest.raises(ConfigError, match="segment"):
        state.moved(partition, {"segment_id": 1 << 60, "position": 1})


def alone(folder: Path, **more: object) -> dict[str, object]:
    """Return the options of a job over one node below *folder*, with `gaps: expire`."""
    (folder / "schema.cql").write_text(SCHEMA)
    return {
        "nodes": {"n1": str(folder / "n1")},
        "schema": str(folder / "schema.cql"),
        "splits": 1,
        "consistency": "ONE",
        "gaps": "expire",
        **more,
    }


def listed(log: LogDirectory) -> list[tuple[int, int]]:
    """Return the ids in the order of reading, each with its limit."""
    return [(file_of(info.segment_id), info.limit) for info in log.segments()]


def ids(log: LogDirectory) -> list[int]:
    """Return the ids in the order of reading."""
    return [segment_id for segment_id, _ in listed(log)]


def write(folder: Path, segment_id: int, rows: range) -> None:
    """Write a final segment of rows."""
    raws = [insert(b"k%d" % n, b"%c" % n) for n in rows]
    made = segment([raws], segment_id=segment_id)
    write_segment(folder, made.content, segment_id=segment_id, index="1\nCOMPLETED")


def read(
    options: Mapping[str, object], states: Mapping[str, CdcState] | None = None
) -> tuple[list[int], dict[str, CdcState]]:
    """Read everything after *states*; return the rows' values, and the new states."""
    resume: dict[str, Position] = dict(states or {})
    ends = dict(states or {})
    made = source(options, DrivenClock())
    readers = open_all(made, resume)
    rows = []
    for batch in batches(readers.values()):
        assert isinstance(batch.end, CdcState)
        ends[batch.split] = CdcState.decode(batch.end.encode())
        readers[batch.split].release(batch.end)
        rows += [int(r.document()["columns"]["v"]["value"], 16) for r in batch.records()]
    made.close()
    return sorted(rows), ends
