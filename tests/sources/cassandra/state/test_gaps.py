"""Gaps (I10): what was lost unread is noticed, reported, booked, and passed if accepted."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.plugins import Batch, Demand
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import SEGMENT_ID
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker, StoredGap
from headrace.sources.cassandra.state.gaps import KEPT_MAX, GapBook, LogGapError, gap_before
from helpers.logs.gap_jobs import GapJob, place
from helpers.logs.node_logs import batches, open_all, source

END = END_OFFSET
ALONE = ("n1",)
OTHERS = ("n2", "n3")


def found(
    marker: tuple[int, int], present: list[int], expected: set[int], *, away: bool = False
) -> tuple[str, tuple[int, int], tuple[int, int]] | None:
    """Return the kind, the begin and the end of the gap behind *marker*."""
    gap = gap_before("n1", Marker(*marker), present=present, expected=expected, was_away=away)
    if gap is None:
        return None
    begin, end = gap.begin, gap.end
    return gap.kind, (begin.segment_id, begin.offset), (end.segment_id, end.offset)


def test_where_reading_stood_must_still_be_there() -> None:
    """A segment that was started and is gone is a gap up to the next one, or to its own end."""
    assert found((5, 100), [5, 6], {6}) is None
    assert found((5, 100), [7], {7}) == ("marker", (5, 100), (7, 0))
    assert found((5, 100), [], set()) == ("marker", (5, 100), (5, END))
    assert found((5, 0), [6], set()) == ("marker", (5, 0), (6, 0))


def test_what_was_listed_must_be_there_when_its_turn_comes() -> None:
    """The gap begins only behind the last segment that can still be read."""
    assert found((5, END), [6, 8], {6, 7, 8}) is None
    assert found((6, END), [6, 8], {6, 7, 8}) == ("vanished", (6, END), (8, 0))
    assert found((6, END), [], {7, 9}) == ("vanished", (6, END), (9, END))
    assert found((0, 0), [8], {7, 8}) == ("vanished", (0, 0), (8, 0))


def test_ids_that_are_missing_may_be_a_gap_only_where_nobody_looked() -> None:
    """A segment that was read and is still there shows that nothing behind it was removed."""
    assert found((5, END), [8], set()) is None
    assert found((5, END), [8], set(), away=True) == ("possible", (5, END), (8, 0))
    assert found((5, END), [6], set(), away=True) is None
    assert found((5, END), [4, 8], set(), away=True) is None
    assert found((5, END), [5, 8], set(), away=True) is None
    assert found((0, 0), [8], set(), away=True) is None


def gap_at(number: int, state: str = "") -> StoredGap:
    """Return a gap that begins at the end of a segment."""
    return StoredGap("n1", Marker(number, END), Marker(number + 2, 0), "vanished", state)


def meet(book: GapBook, found: list[StoredGap], at: Marker) -> list[str]:
    """Let a split at a marker meet gaps; return the states of those with something to report."""
    reported = book.meet(found, {"n1": at}, split_time_ms=0, wall_ms=0)
    return [gap.state for gap in reported]


def test_an_open_gap_is_mended_only_when_its_log_was_read_further() -> None:
    """While the split still stands before it, what is missing was not read."""
    gap = gap_at(5)
    book = GapBook("fail", [], expiry_ms=0)

    assert ["open"] == meet(book, [gap], gap.begin)
    assert [] == meet(book, [], gap.begin)
    assert ["open"] == [each.state for each in book.gaps]
    assert ["mended"] == meet(book, [], Marker(6, 1))


@pytest.mark.parametrize("closed", ["passed", "mended"])
def test_a_gap_that_is_not_closed_is_never_forgotten_for_a_closed_one(closed: str) -> None:
    """Of more gaps than are kept, the oldest closed ones go, however old those before them are."""
    first, *others = (gap_at(3 * number) for number in range(KEPT_MAX))
    old = [replace(first, state="open"), *(replace(gap, state=closed) for gap in others)]
    book = GapBook("fail", old, expiry_ms=0)
    new = gap_at(3 * KEPT_MAX)

    assert ["open"] == meet(book, [first, new], first.begin)
    assert [old[0].begin, *(gap.begin for gap in old[2:]), new.begin] == [
        gap.begin for gap in book.gaps
    ]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job that has read one segment of each log, and knows of the next one of n1."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path)
    made.log(0, range(3))
    return made


def lose_while_stopped(job: GapJob) -> None:
    """Let a log lose a segment that no process has seen, while no process runs."""
    assert 0 == job.run()
    job.log(3, range(6, 9), nodes=ALONE)
    job.log(1, range(3, 6), nodes=OTHERS)
    job.log(2, range(6, 9), nodes=OTHERS)
    job.lose("n1", 0)


def test_a_gap_stops_the_job_until_it_is_accepted(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """G08: it is in sink, books and list; `accept` lets the job continue after it."""
    lose_while_stopped(job)
    capsys.readouterr()

    assert 4 == job.run()
    assert "error [log_gap]: node n1: segment" in capsys.readouterr().err
    assert list(range(3)) == job.rows()[:3]
    assert 4 == job.call("gaps")
    line = capsys.readouterr().out.split("\t")
    assert [f"n1:{SEGMENT_ID}:{END}", "open", "-", "possible"] == line[:4]
    assert 4 == job.run()
    assert 4 == job.call("gaps", "--json")
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "1-of-2,2-of-2" == listed["splits"]

    assert 0 == job.call("accept", listed["gap"])
    assert "accepted (expire) for 2 splits" in capsys.readouterr().out
    assert 0 == job.run()
    assert list(range(9)) == job.rows()
    assert 0 == job.call("gaps")
    assert "\tpassed\texpire\tpossible\t" in capsys.readouterr().out
    reported = [(n["state"], n["policy"], n["split"]) for n in job.notices()]
    assert sorted(reported) == [
        ("open", "", "1-of-2"),
        ("open", "", "2-of-2"),
        ("passed", "expire", "1-of-2"),
        ("passed", "expire", "2-of-2"),
    ]
    (first, *_) = job.notices()
    assert place(0, END) == first["from"]
    assert place(3, 0) == first["to"]
    assert ["forged.t", "forged.other"] == first["tables"]
    assert 0 == job.call("verify", "--books")
    books = capsys.readouterr().out
    assert "gaps: n1 2" in books
    assert "changes of headrace.control: cut 4, delivered 4" in books


@pytest.mark.parametrize("name", ["states.db", "state.db"])
def test_a_store_of_the_jobs_own_is_asked(job: GapJob, name: str) -> None:
    """As a worker would commit it: under a claim, so no other worker can have the splits."""
    job.keep_states_in({"plugin": "sqlite", "path": name})
    lose_while_stopped(job)
    assert 4 == job.run()
    assert 4 == job.call("gaps")

    assert 2 == job.call("accept", "n1:7:7")
    assert [0, 0] == [job.call("accept", "--all"), job.call("accept", f"n1:{SEGMENT_ID}:{END}")]
    assert 0 == job.run()
    assert 2 == job.call("accept", f"n1:{SEGMENT_ID}:{END}")  # It has gone on.
    assert (0, list(range(9))) == (job.call("gaps"), job.rows())
    assert 0 == job.call("verify")


def test_accepting_is_audited_and_refuses_what_is_no_gap(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit log has accepted gaps, and failed attempts."""
    lose_while_stopped(job)
    assert 4 == job.run()

    assert 2 == job.call("accept", "n1:7:7")
    assert "no open gap is 'n1:7:7'" in capsys.readouterr().err
    assert 2 == job.call("accept")
    assert 0 == job.call("accept", "--all", "--policy", "assume")
    assert 2 == job.call("accept", f"n1:{SEGMENT_ID}:{END}")

    reported = [(line["verb"], line["object"], line["outcome"]) for line in job.audit()]
    name = f"n1:{SEGMENT_ID}:{END}"
    assert [
        ("accept_gaps", "orders: n1:7:7 (expire)", "refused"),
        ("accept_gaps", f"orders: {name} (assume)", "done"),
        ("accept_gaps", f"orders: {name} (expire)", "refused"),
    ] == reported


def test_a_gap_that_is_filled_again_is_none(job: GapJob) -> None:
    """Who puts the segment back need accept nothing; what it holds is published."""
    job.log(1, range(3, 6), index="0")
    assert 0 == job.run()
    job.lose("n1", 1)
    job.log(2, range(6, 9))
    job.log(1, range(3, 6), nodes=OTHERS)
    assert 4 == job.run()

    job.log(1, range(3, 6), nodes=ALONE)

    assert 0 == job.run()
    assert list(range(9)) == job.rows()
    assert {"open", "mended"} == {notice["state"] for notice in job.notices()}
    assert 0 == job.call("gaps")


def test_what_was_listed_before_the_process_died_is_remembered(tmp_path: Path) -> None:
    """A segment that was seen and not started may not vanish while no process looks."""
    made = GapJob(tmp_path)
    for number in range(4):
        made.log(number, range(3 * number, 3 * number + 3))
    options = {**made.source, "splits": 1, "segments_per_batch_max": 1}
    (reader,) = open_all(source(options)).values()
    found = reader.read(Demand(records_max=1))
    assert isinstance(found, Batch)
    kept = CdcState.decode(found.end.encode())
    assert SEGMENT_ID + 3 in kept.unread["n1"]
    made.lose("n1", 2)

    (reader,) = open_all(source(options), {"1-of-1": kept}).values()
    with pytest.raises(LogGapError, match=f"segment {SEGMENT_ID + 2}"):
        list(batches([reader]))


@pytest.mark.parametrize("policy", ["expire", "assume"])
def test_a_policy_lets_the_job_go_on_by_itself(job: GapJob, policy: str) -> None:
    """Without stopping it reports the gap; copies of other nodes agree as before."""
    job.change(gaps=policy)
    lose_while_stopped(job)

    assert 0 == job.run()

    assert list(range(9)) == job.rows()
    assert {("passed", policy)} == {(n["state"], n["policy"]) for n in job.notices()}
    assert 0 == job.call("gaps")


def test_a_segment_kept_as_witness_is_no_gap(job: GapJob) -> None:
    """Ids that never had CDC data are missing too; what is still there tells that all is well."""
    assert 0 == job.run()
    job.log(5, range(3, 6))

    assert 0 == job.run()
    assert list(range(6)) == job.rows()
    assert [] == job.notices()
