"""Logs that cannot be read: a job waits, then split time continues without them (line 8)."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plugins import ConfigError, Split
from headrace.sources.cassandra.errors import LogUnreadableError, NotCdcDirectoryError
from headrace.sources.cassandra.reading import topology_versions
from headrace.sources.cassandra.state.cdc_state import CdcState
from headrace.sources.cassandra.state.gaps import LogGapError
from headrace.sources.cassandra.state.unavailable_logs import (
    Absence,
    Absences,
    LogUnavailablePolicy,
    together,
)
from helpers.logs.forged import SCHEMA, insert
from helpers.logs.log_job import EXPIRY_S, NO_RING, NODES, REST_S, Job, shown
from helpers.model.ring import KEYS, TOKENS, Version
from helpers.model.world import World
from helpers.servers.agents import TOKEN, serving
from helpers.settings.filled import filled

AGED_S: Final = 30  # Line 32: the time of a state may be that old where nothing else changed.
AFTER_S: Final = 200
_UNTIL: Final = f"nothing expires before absent_after_seconds ({AFTER_S}) are over"
POLICY: Final = LogUnavailablePolicy(100, 1_000, ("named",))


def job_in(folder: Path, **options: object) -> Job:
    """Return a job that waits AFTER_S for a log."""
    given = {"absent_after_seconds": AFTER_S, "complete_seconds": 30, **options}
    return Job(folder, NODES, SCHEMA, NO_RING, **given)


def hide(job: Job, node: str) -> Path:
    """Move the directory of a node away; return its new place."""
    kept = job.folder / f"{node}.away"
    (job.folder / node).rename(kept)
    return kept


def show(job: Job, node: str) -> None:
    """Move the directory of a node back."""
    (job.folder / f"{node}.away").rename(job.folder / node)


def log_hidden(job: Job, node: str, *mutations: bytes) -> None:
    """Let a node log mutations while its log cannot be read."""
    show(job, node)
    job.log(node, *mutations)
    hide(job, node)


def times(job: Job) -> set[int]:
    """Return the split times, in seconds."""
    return {state.split_time_ms // 1_000 for state in states(job)}


def states(job: Job) -> list[CdcState]:
    """Return the newest states of the splits."""
    return list(job.positions.values())


def measured(job: Job, name: str) -> Mapping[str, object]:
    """Return the samples of a metric, by node."""
    (found,) = (each for each in job.source.measures() if each.name == name)
    return {labels["node"]: value for labels, value in found.samples}


def test_time_continues_without_a_log_after_its_wait(tmp_path: Path) -> None:
    """What the other logs agree on is published meanwhile; what misses the copy expires later."""
    job = job_in(tmp_path)
    job.log("a", insert(b"alone"))
    job.read()
    hide(job, "c")
    job.log("a", insert(b"both"))
    job.log("b", insert(b"both"))

    assert shown(b"both") == job.wait(AFTER_S)
    assert (1, 0) == (job.books()["mutations.pending"], job.books()["mutations.expired"])
    assert {"a": 0, "b": 0, "c": 1} == measured(job, "headrace_log_unreachable")

    job.wait(EXPIRY_S + 20)
    assert (0, 1) == (job.books()["mutations.pending"], job.books()["mutations.expired"])
    assert {"a": 0, "b": 0, "c": 1} == measured(job, "headrace_log_absent")


def test_a_log_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    """The warning names the log, the reason, the affected keyspaces, and the end of the wait.

    What the other logs contain is published as before.
    """
    job = job_in(tmp_path)
    job.log("a", insert(b"both"))
    job.read()
    assert {} == job.source.unreadable()
    hide(job, "c")
    job.wait(20)
    (why,) = job.source.unreadable().values()
    assert why.message.startswith("log_unreadable: the log of c cannot be read (")
    assert ["QUORUM can be met without it in forged", _UNTIL] == why.hint.split("; ")

    parts = job.source.backlog(Split("1-of-2"), job.positions["1-of-2"])
    left = {part.partition["node"]: (part.size_bytes, part.problem[:14]) for part in parts}
    assert {"a": (0, ""), "b": (0, ""), "c": (0, "log_unreadable")} == left
    job.wait(AFTER_S)
    (why,) = job.source.unreadable().values()
    assert "it is taken for absent" in why.hint
    hide(job, "b")
    job.wait(20)
    assert {"b", "c"} == set(job.source.unreadable())
    assert ["changes wait for it in forged (QUORUM)"] * 2 == [
        why.hint.partition("; ")[0] for why in job.source.unreadable().values()
    ]
    show(job, "b")
    show(job, "c")
    job.read()
    assert {} == job.source.unreadable()


def test_a_log_that_is_named_is_not_waited_for(tmp_path: Path) -> None:
    """With the option `absent` a job starts without a directory, and time passes at once."""
    job = job_in(tmp_path)
    job.log("a", insert(b"alone"))
    job.read()
    hide(job, "c")
    with pytest.raises(NotCdcDirectoryError, match="absent"):
        job.restart()

    job.restart(absent=["c"])
    job.wait(EXPIRY_S - 20)
    assert min(times(job)) >= EXPIRY_S - 30
    show(job, "c")
    job.log("c", insert(b"alone"))
    assert shown(b"alone") == job.read()


def test_only_a_node_of_the_job_can_be_named(tmp_path: Path) -> None:
    """A name that is not under `nodes` is a configuration error."""
    with pytest.raises(ConfigError, match="absent: nobody is not under nodes"):
        job_in(tmp_path, absent=["nobody"])


def test_what_waits_is_remembered_no_shorter_than_the_rest(tmp_path: Path) -> None:
    """W >= M (line 5): otherwise a late copy would start a second record beside a pending one."""
    with pytest.raises(ConfigError, match="expiry_seconds: is less than dedup_window_seconds"):
        job_in(tmp_path, expiry_seconds=59, dedup_window_seconds=60)


def test_a_log_that_returns_in_time_counts(tmp_path: Path) -> None:
    """Its copies are late copies of remembered records: nothing is published twice."""
    job = job_in(tmp_path, consistency="ONE")
    hide(job, "c")
    job.log("a", insert(b"k"))
    job.log("b", insert(b"k"))
    assert shown(b"k") == job.read()
    log_hidden(job, "c", insert(b"k"), insert(b"new"))
    assert [] == job.wait(AFTER_S + EXPIRY_S - 20)

    show(job, "c")
    assert shown(b"new") == job.read()
    assert (1, 2) == (job.books()["entries.c.surplus"], job.books()["entries.c.read"])
    job.wait(20)
    assert [{}, {}] == [state.absences for state in states(job)]


def test_records_without_an_absent_replica_are_incomplete(tmp_path: Path) -> None:
    """Unavailable logs stay expected (line 4): the record is dropped after M, not after C."""
    job = job_in(tmp_path, consistency="ONE", absent=["c"])
    hide(job, "c")
    for node in ("a", "b"):
        job.log(node, insert(b"k"))
    job.read()
    job.wait(EXPIRY_S - 10)
    job.log("a", insert(b"k"))

    assert [] == job.read()
    assert 1 == job.books()["entries.a.repeat"]


@pytest.mark.parametrize("policy", ["expire", "assume", "fail"])
def test_a_log_that_returns_too_late_is_a_gap(tmp_path: Path, policy: str) -> None:
    """Records of its copies may be dropped, so what it logged until then is not read."""
    job = job_in(tmp_path, consistency="ONE", gaps=policy)
    for node in ("a", "c"):
        job.log(node, insert(b"before"))
    job.read()
    hide(job, "c")
    job.log("a", insert(b"k"))
    assert shown(b"k") == job.read()
    log_hidden(job, "c", insert(b"k"))
    job.wait(AFTER_S + EXPIRY_S + 40)
    show(job, "c")

    if policy == "fail":
        with pytest.raises(LogGapError, match="for so long that copies may be of mutations") as met:
            job.wait(10)
        for split, at in filled(job.positions.items()):
            assert [("returned", "open")] == [(gap.kind, gap.state) for gap in at.gaps()]
            job.shelf.put(split, at.without_gaps([met.value.gap.name], "expire"))
        job.restart()
    assert [] == job.wait(10)
    job.log("c", insert(b"after"))
    assert shown(b"after") == job.read()
    assert 2 == job.books()["entries.c.read"]
    for state in filled(states(job)):
        assert [("returned", "passed")] == [(gap.kind, gap.state) for gap in state.gaps()]
        assert {} == state.absences


def test_what_returns_too_late_can_be_published_again(tmp_path: Path) -> None:
    """With `returned: publish` all of it is read, which may cause declared duplicates (line 36)."""
    job = job_in(tmp_path, consistency="ONE", returned="publish")
    hide(job, "c")
    job.log("a", insert(b"k"))
    assert shown(b"k") == job.read()
    log_hidden(job, "c", insert(b"k"))
    job.wait(AFTER_S + EXPIRY_S + 40)
    show(job, "c")

    assert shown(b"k") == job.read()


def test_an_agent_that_does_not_answer_is_absent_in_time(tmp_path: Path) -> None:
    """The same for an agent, over a restart: the time that passed is part of the state."""
    job = job_in(tmp_path)
    with serving(tmp_path / "c") as served:
        nodes = {"a": str(tmp_path / "a"), "b": str(tmp_path / "b"), "c": {"url": served.url}}
        job.restart(nodes=nodes, agent_token=TOKEN)
        job.log("a", insert(b"alone"))
        job.read()
    job.wait(AFTER_S - 60)
    assert {0} == times(job)
    job.restart()
    waited = [state.absences["c"].unread_ms // 1_000 for state in states(job)]
    assert all(AFTER_S - 120 <= seconds < AFTER_S for seconds in waited)
    job.wait(120)
    assert 1 == job.books()["mutations.pending"]
    job.wait(EXPIRY_S)
    assert 1 == job.books()["mutations.expired"]


def test_without_any_agent_no_time_passes(tmp_path: Path) -> None:
    """The job retries them without an error; nothing expires, however long they do not answer."""
    job = job_in(tmp_path)
    with ExitStack() as agents:
        served = {node: agents.enter_context(serving(tmp_path / node)) for node in NODES}
        urls = {node: {"url": each.url} for node, each in served.items()}
        job.restart(nodes=urls, agent_token=TOKEN)
        job.log("a", insert(b"alone"))
        job.read()
    job.wait(AFTER_S + EXPIRY_S + 20)

    assert {0} == times(job)
    assert (1, 0) == (job.books()["mutations.pending"], job.books()["mutations.expired"])


def test_no_time_passes_for_a_split_without_a_readable_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each split reads the logs of its own replicas, the other splits continue."""
    monkeypatch.setattr(topology_versions, "LOG_SLOTS_MAX", 2)  # As in a ring of many nodes.
    ends = {"a": -1, "b": (1 << 62) - 1, "c": (1 << 63) - 1}
    ring = {node: {"tokens": [token]} for node, token in ends.items()}
    schema = SCHEMA.replace("'replication_factor': '3'", "'replication_factor': '1'")
    job = Job(tmp_path, NODES, schema, ring, splits=4, absent_after_seconds=AFTER_S)
    job.read()
    hide(job, "b")
    job.wait(AFTER_S + EXPIRY_S)

    reads = {split: state.hosts for split, state in job.positions.items()}
    assert {"1-of-4": ("a",), "2-of-4": ("a",), "3-of-4": ("b",), "4-of-4": ("c",)} == reads
    passed_s = [job.positions[split].split_time_ms // 1_000 for split in sorted(reads)]
    assert 0 == passed_s.pop(2)
    assert all(AFTER_S + EXPIRY_S - AGED_S <= each <= AFTER_S + EXPIRY_S for each in passed_s)


def test_time_without_attempts_is_no_part_of_a_wait(tmp_path: Path) -> None:
    """Of a time in which the machine slept, the first ten seconds count."""
    job = job_in(tmp_path)
    job.read()
    hide(job, "c")
    job.read()
    job.clock.advance(10 * AFTER_S * 1_000)
    job.wait(60)

    waited_ms = {state.absences["c"].unread_ms for state in filled(states(job))}
    assert all(10_000 <= each <= 10_000 + 60_000 for each in waited_ms)
    assert {"a": 0, "b": 0, "c": 0} == measured(job, "headrace_log_absent")


def test_nothing_to_read_at_all_is_an_error(tmp_path: Path) -> None:
    """A job without any readable directory is an error, and no time passes."""
    job = job_in(tmp_path)
    job.log("a", insert(b"k"))
    job.read()
    for node in ("a", "b", "c"):
        hide(job, node)
    with pytest.raises(LogUnreadableError):
        job.read()
    job.clock.advance(AFTER_S * 2_000)
    with pytest.raises(LogUnreadableError):
        job.read()
    for node in ("a", "b", "c"):
        show(job, node)
    job.wait(AGED_S + 5)

    assert times(job) <= {AGED_S, AGED_S + 5}


def test_a_missing_directory_is_not_created(tmp_path: Path) -> None:
    """When a disk is gone a job does not create a directory that looks like an empty log."""
    job = job_in(tmp_path, disposal="delete")
    job.log("a", insert(b"k"))
    job.read()
    hide(job, "c")
    job.log("a", insert(b"l"))
    job.log("b", insert(b"l"))
    job.wait(20)

    assert not (tmp_path / "c").exists()
    assert (tmp_path / "c.away").exists()


def test_beside_a_log_that_cannot_be_listed_segments_are_released(tmp_path: Path) -> None:
    """The job continues, and disposes of nothing of that log: what is there is not known."""
    holds = {node: {"hold": str(tmp_path / f"{node}.hold")} for node in NODES}
    options = {"disposal": "delete", "hold.min_free": "0B"}
    job = Job(tmp_path, NODES, SCHEMA, holds, **options)
    for node in NODES:
        job.log(node, insert(b"k"))
    assert shown(b"k") == job.read()
    job.wait(REST_S)
    (tmp_path / "c.hold" / ".watched.json").write_text("{")
    for node in NODES:
        job.log(node, insert(b"l"))
    assert shown(b"l") == job.wait(20)

    assert ["c"] == list(job.source.unreadable())
    left = {node: {path.name for path in tmp_path.glob(f"{node}*/*.log")} for node in NODES}
    assert {"a": 1, "b": 1, "c": 2} == {node: len(names) for node, names in left.items()}


def test_a_version_waits_for_its_absent_log(tmp_path: Path) -> None:
    """The absent node may have logged mutations of it, so the version is not retired (line 9)."""
    job = job_in(tmp_path, consistency="ONE", max_hint_window_seconds=20)
    job.log("a", insert(b"at one"))
    assert shown(b"at one") == job.read()
    hide(job, "c")
    job.restart(consistency="QUORUM", absent=["c"])
    job.wait(EXPIRY_S - 20)
    job.log("a", insert(b"still at one"))
    assert shown(b"still at one") == job.read()

    show(job, "c")
    job.wait(10)
    job.log("a", insert(b"at quorum"))
    assert [] == job.wait(10)


def test_how_far_each_log_was_read() -> None:
    """It is stored as split time, until the log is read to its end again."""
    found = Absences(POLICY, {})
    found.missed("n", 0, split_time_ms=50)

    assert {"n"} == found.unread_since(50) == found.unread_since(80)
    assert set() == found.unread_since(49)
    found.read("n")
    assert set() == found.unread_since(80)


def test_a_wait() -> None:
    """The wait is counted while the log cannot be read, and restarts when it was readable."""
    found = Absences(POLICY, {"old": Absence(99, 7)})
    assert not found.is_absent("old")
    found.missed("old", 1, split_time_ms=9)
    assert found.is_absent("old")
    assert found.is_absent("named")
    assert Absence(100, 7) == found.stored["old"]

    found.found("old")
    assert not found.is_absent("old")
    assert (False, True) == (found.is_late("old", 1_007), found.is_late("old", 1_008))
    found.read("old")
    assert not found.is_late("old", 1 << 40)


ABSENCES = st.dictionaries(
    st.sampled_from("abc"), st.builds(Absence, st.integers(0, 9), st.integers(0, 9)), max_size=3
)
REPORTED = st.lists(st.tuples(ABSENCES, st.integers(0, 5)), min_size=1, max_size=4)


@settings(max_examples=200)
@given(REPORTED)
def test_what_several_splits_know_is_one_in_any_order(
    reported: list[tuple[dict[str, Absence], int]],
) -> None:
    """Merging is commutative and idempotent; it ends no wait sooner, or later, than its inputs."""
    made = together(reported)

    assert made == together(reported[::-1]) == together([*reported, *reported])
    assert made == together([(together(reported[:1]), 0), *reported[1:]])
    for node, each in made.items():
        for absences, shift in reported:
            assert each.unread_ms <= absences.get(node, Absence(0, 0)).unread_ms
            assert (
                node not in absences or each.split_time_ms <= absences[node].split_time_ms + shift
            )


def test_a_worker_continues_without_a_directory(tmp_path: Path) -> None:
    """The same through pipeline, ledger and store, over a crash: nothing is lost, time passes."""
    ring = Version(tuple(TOKENS.items()), (("", 3),), "QUORUM")
    world = World(tmp_path, ring, absent_after_seconds=100, gaps="expire")
    world.start()
    world.ring.write(KEYS[0], 2, world.ring.replicas(KEYS[0])[:1])
    rest(world, 10)
    gone = world.ring.replicas(KEYS[0])[2]
    folder = world.ring.nodes[gone].folder
    folder.rename(tmp_path / "away")
    world.options["absent"] = (gone,)
    for _ in range(2):
        world.ring.write(KEYS[0], 2, world.ring.replicas(KEYS[0])[:2])
        rest(world, 60 + AGED_S, but=gone)
        for process in list(world.running.values()):
            process.kill(arrives=False)
        world.start()
    assert any(line.split_time_ms > 50_000 for line in world.checks.committed)
    assert any(event["event"] == "log_absent" for event in world.events)

    (tmp_path / "away").rename(folder)
    world.options["absent"] = ()
    rest(world, 20)
    world.finish()
    world.close()


def rest(world: World, seconds: int, but: str = "") -> None:
    """Let all nodes but one sync, and time pass, while the job runs."""
    for name, log in world.ring.nodes.items():
        if name != but:
            log.sync(world.clock.monotonic_ms())
    for _ in range(0, seconds, REST_S):
        world.calm(1)
        world.checks.verify()
        world.clock.advance(REST_S * 1_000)
