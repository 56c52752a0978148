"""Processes that die: nothing is lost, and no more comes again than what was uncommitted (I7)."""

import json
import signal
from pathlib import Path

import pytest

from helpers.jobs.children import (
    SECONDS_MAX,
    WINDOW_BYTES,
    JobFolder,
    lines_job,
    stop,
    until,
    write_lines,
)
from helpers.jobs.kill_server import STEPS, KillServer

FILES, LINES = 8, 300
# At which turn of a step to die: most come often, some a few times in a run of this job.
TURNS = dict.fromkeys(STEPS, 20) | {
    "claimed": 1,
    "loaded": 5,
    "commit_heads": 3,
    "committed": 3,
    "handed_over": 3,
}


@pytest.fixture
def lines(tmp_path: Path) -> JobFolder:
    """Return a job over eight files."""
    return lines_job(tmp_path, files=FILES, lines=LINES)


def everything(lines: int = LINES) -> set[object]:
    """Return all changes of the files."""
    return {(name, n) for name in range(FILES) for n in range(lines)}


def repeated_bytes(job: JobFolder, name: int) -> int:
    """Return how much of one file came out more than once."""
    lines = ((file, n, count - 1) for (file, n), count in _numbers(job))
    return sum(
        more * len(f'{{"file": {file}, "n": {n}}}\n') for file, n, more in lines if file == name
    )


def _numbers(job: JobFolder) -> list[tuple[tuple[int, int], int]]:
    return list(job.changes().items())  # type: ignore[arg-type]  # As lines_job identifies them.


@pytest.mark.parametrize("step", STEPS)
def test_kill_at_each_step(lines: JobFolder, server: KillServer, step: str) -> None:
    """K03: after SIGKILL at any step a restart delivers the rest, and at most a window again."""
    assert -signal.SIGKILL == server.run(lines.path, f"{step}:{TURNS[step]}"), lines.log()
    assert 0 == server.run(lines.path), lines.log()

    assert everything() == set(lines.changes())
    longest = len('{"file": 7, "n": 299}\n')
    assert all(repeated_bytes(lines, f) <= WINDOW_BYTES + longest for f in range(FILES))


def test_half_a_line_of_a_first_run_is_cut_off(lines: JobFolder, server: KillServer) -> None:
    """A file is the job's own from its first line on, also where the job had another one before."""
    for name in ("out.jsonl", "other.jsonl"):
        job = (lines.path / "job.yaml").read_text()
        (lines.path / "job.yaml").write_text(job.replace("out.jsonl", name))
        assert -signal.SIGKILL == server.run(lines.path, "submitted:1"), lines.log()
        with (lines.path / name).open("a") as file:
            file.write('{"file": 1')
        assert 0 == server.run(lines.path), lines.log()
        assert json.loads((lines.path / name).read_text().splitlines()[-1])
        write_lines(lines.path, FILES, range(LINES, 2 * LINES))


def test_terminate_is_clean(lines: JobFolder) -> None:
    """O11: SIGTERM settles, commits, gives the leases back and ends with 0; nothing comes again."""
    with lines.running() as child:
        until(lambda: len(lines.changes()) > LINES, "it never began")
        assert 0 == stop(child), lines.log()
    assert {None} == {owner for owner, _ in lines.leases().values()}
    assert 0 == lines.finish(), lines.log()

    assert everything() == set(lines.changes())
    assert {1} == set(lines.changes().values())


def test_second_terminate_ends_at_once(lines: JobFolder) -> None:
    """A user who cannot wait for the drain sends the signal again, and loses nothing."""
    with lines.running() as child:
        until(lambda: bool(lines.changes()), "it never began")
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGTERM)
        assert child.wait(SECONDS_MAX) in (0, 1)
    assert 0 == lines.finish(), lines.log()

    assert everything() == set(lines.changes())


def test_two_processes_share_and_one_inherits(lines: JobFolder) -> None:
    """Two owners share the splits; when one is killed the other has all long before a lease ends.

    Only the proof that the owner is dead makes this fast: without it, others have to see for a
    whole lease that nothing moves, and the test waits for less. Every token of the dead is then
    higher than before.
    """
    lines.lease(seconds=10 * SECONDS_MAX)
    with lines.running() as first, lines.running():
        until(lambda: lines.is_shared(owners=2, splits=FILES), "they never shared")
        before = lines.leases()
        write_lines(lines.path, FILES, range(LINES, 2 * LINES))
        first.kill()
        first.wait()
        until(lambda: lines.is_shared(owners=1, splits=FILES), "nobody inherited")
        until(lambda: everything(2 * LINES) == set(lines.changes()), "something is missing")
    after = lines.leases()

    (target,) = {owner for owner, _ in after.values()}
    left = [split for split, (owner, _) in before.items() if owner != target]
    assert left
    assert all(after[split][1] > before[split][1] for split in left)


def test_a_paused_owner_submits_nothing(lines: JobFolder) -> None:
    """An owner that was stopped past its lease wakes up, finds itself replaced, and is silent (I2).

    Its commits are refused, and what it reads afterwards reaches the sink through the other alone.
    On a busy machine the other may be late as well; then no more than a window comes again.
    """
    lines.lease(seconds=2)
    with lines.running() as first:
        until(lambda: everything() == set(lines.changes()), "it never delivered")
        until(lambda: lines.is_shared(owners=1, splits=FILES), "it never owned all")
        paused = {owner for owner, _ in lines.leases().values()}
        until(lambda: lines.pause(first), "it never ceased to write")
        with lines.running():
            until(
                lambda: (
                    paused.isdisjoint(o for o, _ in lines.leases().values())
                    and lines.is_shared(owners=1, splits=FILES)
                ),
                "nobody took over",
            )
            write_lines(lines.path, FILES, range(LINES, LINES + 50))
            first.send_signal(signal.SIGCONT)
            until(lambda: everything(LINES + 50) == set(lines.changes()), "something is missing")
            until(lambda: lines.is_shared(owners=2, splits=FILES), "the first never came back")

    late = max(0, lines.log().count('"split_taken_over"') - FILES)
    repeated = [change for change, count in lines.changes().items() if count > 1]
    again = [change for change in repeated if change not in everything()]
    assert len(again) <= late * (WINDOW_BYTES // len('{"file": 0, "n": 300}\n') + 1)


def test_log_is_sparse(lines: JobFolder) -> None:
    """A run of thousands of changes logs a few lines per split, and no value of any row."""
    assert 0 == lines.finish()
    events = [json.loads(line) for line in lines.log().splitlines()]

    splits = {"split_claimed", "split_started", "split_stopped"}
    assert len(events) <= 2 + len(splits) * FILES
    assert {"started", "stopped"} | splits == {e["event"] for e in events}
