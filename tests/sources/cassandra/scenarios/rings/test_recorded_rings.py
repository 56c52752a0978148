"""Recorded rings, read in random order while they grow, with a crash after every batch.

What is justified comes from what Cassandra's own reader found in the logs, and from the raw bytes
there: nothing of the code under test. HEADRACE_SEEDS asks for other orders than one (see
CONTRIBUTING.md).
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import pytest

from headrace.connector.runtime.books.equations import SplitBooks, differences
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from helpers.recordings.corpora import recording
from helpers.recordings.interleaved import GrowingLog, Job
from helpers.recordings.justified import KILLED, NEEDED, NODES, Logs, log_of, logs_of, union
from helpers.settings.native_modules import is_compiled
from helpers.settings.seeds import is_soak, seeds, soaked

pytestmark = pytest.mark.soak

COMPILED: Final = is_compiled("headrace.sources.cassandra.agreement.intake")
LARGE_LEVELS: Final = ("QUORUM",)  # For larger rings; the smallest ring is read at all levels.
# In one data centre each counts as one of the others does: `make soak` reads at them, too.
OTHER_LEVELS: Final = (
    ("TWO", "THREE", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM") if is_soak() else ()
)
# The interpreter needs minutes for all of them.
RINGS: Final = (*soaked("4.1-ring", "5.0-ring"), "6.0-v9-ring") if COMPILED else ("5.0-ring",)
SMALLEST: Final = "6.0-v9-ring"
CRASHES: Final = (
    "4.0-crash",
    *soaked("4.1-crash", "5.0-crash"),
    "5.0-lz4-crash",
    "5.0-v8-direct-crash",
)
# With a single copy all levels are the same; TWO and THREE are more copies than there are.
ONE_COPY: Final = ("EACH_QUORUM", "ALL", *soaked("QUORUM", "LOCAL_QUORUM", "LOCAL_ONE"))
REPAIR: Final = "5.0-repair"
SPLITS: Final = (1, 2, 3, 5)
CANONICAL_S: Final = 60  # Twice what line 19 waits before it compares.
EXPIRY_S: Final = 3600
LAST: Final = "segments/node3"


def read_of(
    names: Sequence[str], levels: Sequence[str], others: Sequence[str]
) -> Sequence[tuple[str, str]]:
    """Return names with levels; of *others* only the last name, unless seeds are given."""
    with_others = (names if is_soak() else names[-1:]) if COMPILED else ()
    return [
        (name, level)
        for name in names
        for level in (*levels, *(others if name in with_others else ()))
    ]


def job_of(name: str, level: str, seed: int, nodes: Path, known: Logs) -> Job:
    """Return a job that reads the logs of a recording below *nodes*."""
    random = Random(f"{name} {level} {seed}")  # noqa: S311 (a test's dice)
    options = {
        "nodes": {node: str(nodes / node) for node in NODES},
        "schema": str(recording(name) / "schema.cql"),
        "consistency": level,
        "splits": random.choice(SPLITS),
        "segments_per_batch_max": random.choice([1, 16]),
        "expiry_seconds": EXPIRY_S,
        "dedup_window_seconds": EXPIRY_S,
    }
    return Job(options, random, known, nodes, lambda _, nodes: len(nodes) >= NEEDED[level])


def other_splits(job: Job, seed: int) -> Sequence[int]:
    """Return the number of splits from the middle on; the first seed does not change it."""
    return job.random.sample(SPLITS, job.random.randint(0, 2)) if seed else ()


def growing(name: str, folder: Path, *last: str) -> list[GrowingLog]:
    """Return the logs of a recording, below *folder*; node 3's log is in these states, in turn."""
    states = {node: [f"segments/{node}"] for node in NODES} | {NODES[2]: last or [LAST]}
    return [
        GrowingLog(folder / node, [recording(name) / state for state in states[node]])
        for node in NODES
    ]


def check(job: Job, known: Logs, level: str) -> None:
    """Check that all that copies justify was published once, and nothing else."""
    justified = known.justified(level)
    missing = union(justified) - union(set(job.published))
    unjustified = set(job.published) - justified
    assert (0, 0, 0, 0) == tuple(map(len, (job.repeated, job.early, missing, unjustified)))
    check_books(job.books(), known, job.published.total())


def check_books(books: Mapping[str, int], known: Logs, published: int) -> None:
    """Check that the books count each entry, and each published mutation."""
    assert published == books["mutations.agreed"]
    assert known.entries == {node: books[f"entries.{node}.read"] for node in NODES}
    for node in NODES:
        fates = ("first", "counted", "surplus", "repeat")
        assert known.entries[node] == sum(books[f"entries.{node}.{fate}"] for fate in fates)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize(
    ("name", "level"), read_of(RINGS, LARGE_LEVELS, ("ONE", "ALL", *OTHER_LEVELS))
)
def test_each_justified_mutation_is_published_once(
    tmp_path: Path, name: str, level: str, seed: int
) -> None:
    """In any order, with a crash after every batch, each agreed mutation is published once.

    Read repair has written some of them again, in other bytes (line 19).
    """
    known = logs_of(name)
    logs = growing(name, tmp_path)
    job = job_of(name, level, seed, tmp_path, known)
    job.start()

    job.read_all(logs, splits=other_splits(job, seed))
    job.rest(CANONICAL_S)

    check(job, known, level)
    assert len(known.pending(level)) == job.books()["mutations.pending"]
    assert job.crashes > 10
    job.close()


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("level", ["QUORUM", *soaked("ONE")])
@pytest.mark.skipif(not COMPILED, reason="the interpreter needs minutes")
def test_the_number_of_splits_changes_in_the_middle(tmp_path: Path, level: str, seed: int) -> None:
    """8, then 3, then 16 splits, each with its own progress: each mutation is published once.

    A split of another plan starts with the records of several earlier splits, each with its own
    tokens; otherwise as above.
    """
    known = logs_of(SMALLEST)
    logs = growing(SMALLEST, tmp_path)
    job = job_of(SMALLEST, level, seed + 1, tmp_path, known)
    job.options["splits"] = 8
    job.start()

    job.read_all(logs, splits=[3, 16])
    job.wait(CANONICAL_S)

    check(job, known, level)
    books = job.books()
    assert (16, len(known.pending(level))) == (len(job.committed), books["mutations.pending"])
    assert books["mutations.opening"] == books["mutations.passed_on"]
    assert [] == differences(SplitBooks("", books, {}, BOOKKEEPING))
    job.close()


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.skipif(not COMPILED, reason="the interpreter needs minutes")
@pytest.mark.parametrize(
    ("name", "level"),
    read_of(RINGS, ["ALL"], ["ONE", *(("QUORUM", *OTHER_LEVELS) if is_soak() else ())]),
)
def test_a_node_is_killed_and_comes_back(tmp_path: Path, name: str, level: str, seed: int) -> None:
    """What it lost stays pending at ALL; its log is read from its marker, without repeats."""
    killed, whole = logs_of(name, killed=True), logs_of(name)
    logs = growing(name, tmp_path, f"{KILLED}/cdc_raw", "node3-restarted/cdc_raw", LAST)
    job = job_of(name, level, seed, tmp_path, whole)
    job.start()
    for log in logs:
        log.grow_state()
    while job.read():
        pass
    job.rest(CANONICAL_S)
    check(job, killed, level)
    assert len(killed.pending(level)) == job.books()["mutations.pending"]

    job.read_all(logs, splits=other_splits(job, seed))
    job.rest(CANONICAL_S)

    check(job, whole, level)
    assert len(whole.pending(level)) == job.books()["mutations.pending"]
    job.close()


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("level", ["QUORUM", "ALL", *soaked("ONE"), *OTHER_LEVELS])
def test_repair_publishes_each_change_once(tmp_path: Path, level: str, seed: int) -> None:
    """What nodetool repair streams in other bytes is not new, and does not wait for copies.

    A mutation that a node had missed counts as its copy; what it only merged does not, and expires
    at ALL.
    """
    known = logs_of(REPAIR)
    logs = growing(REPAIR, tmp_path)
    job = job_of(REPAIR, level, seed, tmp_path, known)
    job.start()

    job.read_all(logs, splits=other_splits(job, seed))
    job.rest(CANONICAL_S)

    check(job, known, level)
    left = known.pending(level)
    assert len(left) == job.books()["mutations.pending"]
    job.wait(EXPIRY_S)
    books = job.books()
    assert (0, len(left)) == (books["mutations.pending"], books["mutations.expired"])
    check(job, known, level)
    job.close()


def replayed(killed: Path, folder: Path) -> Path:
    """Return the directory after the node's restart, with everything completed."""
    shutil.copytree(killed, folder)
    for index in folder.glob("*_cdc.idx"):
        size = index.with_name(index.name.replace("_cdc.idx", ".log")).stat().st_size
        index.write_text(f"{size}\nCOMPLETED")
    return folder


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize(("name", "level"), read_of(CRASHES, ["ONE"], ONE_COPY))
def test_a_single_node_is_killed_and_replays(
    tmp_path: Path, name: str, level: str, seed: int
) -> None:
    """What the index had at the SIGKILL is published, then the rest, each once."""
    killed, whole = log_of(name, killed=True), log_of(name, killed=False)
    before = recording(name) / "killed" / "cdc_raw"
    log = GrowingLog(tmp_path / NODES[0], [before, replayed(before, tmp_path / "after")])
    random = Random(f"{name} {level} {seed}")  # noqa: S311 (a test's dice)
    options = {
        "nodes": {NODES[0]: str(tmp_path / NODES[0])},
        "schema": str(recording(name) / "schema.cql"),
        "consistency": level,
        "splits": random.choice(SPLITS),
    }
    job = Job(options, random, whole, tmp_path, lambda _, logged: logged == {NODES[0]})
    job.start()
    while not log.is_whole:
        log.grow_state()
        while job.read():
            pass
        if log.states_left:
            assert set(killed.nodes) == set(job.published)

    assert set(whole.nodes) == set(job.published)
    assert ([], []) == (job.repeated, job.early)
    assert whole.entries.total() == job.books()[f"entries.{NODES[0]}.read"]
    assert set(killed.nodes) <= set(whole.nodes)
    job.close()


def test_what_the_recorded_repair_asks_for() -> None:
    """By bytes 680 mutations would wait at QUORUM and 1639 at ALL; by content none and 316."""
    known = logs_of(REPAIR)

    assert {"ONE": 1299, "TWO": 1274, "QUORUM": 1274, "ALL": 983} == {
        level: len(known.justified(level)) for level in ("ONE", "TWO", "QUORUM", "ALL")
    }
    assert {"ONE": 0, "TWO": 0, "QUORUM": 0, "ALL": 316} == {
        level: len(known.pending(level)) for level in ("ONE", "TWO", "QUORUM", "ALL")
    }
    assert (2200, 1299) == (len(known.contents), len(known.nodes))
