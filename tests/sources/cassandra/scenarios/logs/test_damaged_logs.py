"""Damage (I10): a loss where no log may show what was there, and none where another log does.

The logs are recorded, three copies of each row at QUORUM.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, chdir
from pathlib import Path

import pytest

from helpers.logs.gap_jobs import NODES, GapJob, Json
from helpers.recordings.corpora import recording
from helpers.servers.agents import TOKEN, serving

NAMES = ("mutation", "index", "of", "copies", "node", "segment", "position", "agreement")
RING = "6.0-v9-ring"
Spoil = Callable[[Path], None]


def cut(log: Path) -> None:
    """Cut off the second half of what is durable."""
    durable = int(log.with_name(f"{log.stem}_cdc.idx").read_text().split()[0])
    log.write_bytes(log.read_bytes()[: durable // 2])


def other_bytes(log: Path) -> None:
    """Put the bytes of another file in its place."""
    log.write_bytes(bytes(range(256)) * (log.stat().st_size // 256))


def flip(log: Path) -> None:
    """Change one byte of an entry."""
    content = bytearray(log.read_bytes())
    content[40_000] ^= 1
    log.write_bytes(content)


DAMAGE: Mapping[str, Spoil] = {"cut": cut, "other bytes": other_bytes, "flip": flip}


class RecordedJob(GapJob):
    """A job over copies of a recorded ring."""

    def __init__(self, folder: Path) -> None:
        """Copy the logs."""
        super().__init__(folder)
        shutil.copy(recording(RING) / "schema.cql", folder)
        for node in NODES:
            self.restore(node)

    def restore(self, node: str) -> None:
        """Put intact segments of a node in place."""
        whole = recording(RING) / "segments" / node.replace("n", "node")
        shutil.copytree(whole, self.folder / node, dirs_exist_ok=True)

    def first_log(self, node: str) -> Path:
        """Return the oldest segment of a node."""
        return min((self.folder / node).glob("*.log"))

    def spoil(self, damage: str, *nodes: str) -> None:
        """Damage the oldest segment of nodes."""
        for node in nodes:
            DAMAGE[damage](self.first_log(node))

    def changes(self) -> list[str]:
        """Return what was delivered, sorted, without names: another copy has another name."""
        found = [each for each in self.documents() if "control" not in each]
        return sorted(json.dumps({k: v for k, v in c.items() if k not in NAMES}) for c in found)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the changes that the intact logs have."""
    folder = tmp_path_factory.mktemp("whole")
    with chdir(folder):
        job = RecordedJob(folder)
        assert 0 == job.run()
        assert [0, 0] == [job.call("gaps"), job.call("verify")]
        return job.changes()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedJob:
    """Return a job that has read nothing yet."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").mkdir()
    return RecordedJob(tmp_path / "job")


def listed(job: GapJob, capsys: pytest.CaptureFixture[str], status: int) -> Sequence[Json]:
    """Return the damage that `headrace gaps` lists, which ends with *status*."""
    capsys.readouterr()
    assert status == job.call("gaps", "--json")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"damaged"} >= {each["kind"] for each in found}
    return found


def states(found: Sequence[Json]) -> Mapping[str, set[str]]:
    """Return the states of the damage of each node."""
    nodes = {each["gap"].partition(":")[0] for each in found}
    return {n: {f["state"] for f in found if f["gap"].startswith(f"{n}:")} for n in nodes}


def all_passed() -> Mapping[str, set[str]]:
    """Return the states when the damage of all logs is passed."""
    return {node: {"passed"} for node in NODES}


def accept_all(job: GapJob) -> int:
    """Accept gaps until the job ends; return how often it stopped."""
    for stops in range(5):
        if (status := job.run()) == 0:
            return stops
        assert 4 == status
        assert 0 == job.call("accept", "--all")
    raise AssertionError("it stops for ever")


@pytest.mark.parametrize("damage", ["cut", "other bytes"])
def test_what_no_log_has_stops_the_job_until_it_is_accepted(
    job: RecordedJob,
    whole: Sequence[object],
    damage: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Damage of all logs is listed with node, segment and bytes; run and verify say so."""
    job.spoil(damage, *NODES)
    capsys.readouterr()

    assert 4 == job.run()
    out, err = capsys.readouterr()
    said = r"1 gap is open \([\d,]+ damaged bytes\)"
    assert re.search(said, out)
    assert "error [log_gap]: node n" in err
    assert 4 == job.call("verify")
    assert re.search(said, capsys.readouterr().out)
    first = listed(job, capsys, 4)
    (stopped,) = [each for each in first if each["state"] == "open"]
    node, segment, _ = stopped["gap"].split(":")
    assert segment in job.first_log(node).name
    assert 4 == job.run()  # Nothing is met, counted or reported twice.
    assert [each["gap"] for each in first] == [each["gap"] for each in listed(job, capsys, 4)]

    assert 0 == job.call("accept", "--all")
    assert 1 == accept_all(job)  # The third log's damage is another loss.
    found = listed(job, capsys, 0)
    assert all_passed() == states(found)
    for name in NODES:
        durable = int(
            job.first_log(name)
            .with_name(f"{job.first_log(name).stem}_cdc.idx")
            .read_text()
            .split()[0]
        )
        size = sum(f["bytes"] for f in found if f["gap"].startswith(f"{name}:"))
        assert durable // 2 <= size <= max(durable, 1 << 20)
    assert set(job.changes()) < set(whole)
    assert len(job.changes()) == len(set(job.changes()))
    reported = [(n["name"], n["split"], n["state"]) for n in job.notices()]
    assert len(reported) == len(set(reported))
    assert 0 == job.call("verify")
    assert "parts of logs are lost" in capsys.readouterr().out


def test_what_the_other_logs_have_is_no_loss(
    job: RecordedJob, whole: Sequence[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """One log's damage is listed as covered; all is delivered, and no status says otherwise."""
    job.spoil("flip", NODES[0])

    assert 0 == job.run()

    assert whole == job.changes()
    assert {NODES[0]: {"covered"}} == states(listed(job, capsys, 0))
    assert 0 == job.call("verify")
    assert "; 0 lost" in capsys.readouterr().out
    assert [] == job.notices()
    assert 0 == job.run()
    assert 1 == len(listed(job, capsys, 0))


@pytest.mark.parametrize("damage", ["cut", "other bytes"])
def test_copies_that_only_the_damage_had_are_waited_for(
    job: RecordedJob, whole: Sequence[object], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some mutations reached two nodes; with one log damaged the job knows one copy of them."""
    job.spoil(damage, NODES[0])

    assert 0 == job.run()

    assert "5 mutations wait for another copy" in capsys.readouterr().out
    assert {NODES[0]: {"covered"}} == states(listed(job, capsys, 0))
    assert 5 == len(whole) - len(job.changes())


def test_copies_that_only_the_damage_had_are_assumed(
    job: RecordedJob, whole: Sequence[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the option `gaps: assume` the damaged log counts for what the job has one copy of."""
    job.change(gaps="assume")
    job.spoil("cut", NODES[0])

    assert 0 == job.run()

    assert set(whole) == set(job.changes())
    assert {NODES[0]: {"covered"}} == states(listed(job, capsys, 0))


@pytest.mark.parametrize("policy", ["expire", "assume"])
def test_a_policy_passes_damage(
    job: RecordedJob, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job does not stop; the damage of all logs is reported, also what was met first."""
    job.change(gaps=policy)
    job.spoil("cut", *NODES)
    capsys.readouterr()

    assert 0 == job.run()

    assert re.search(r"\d+ parts of logs are lost \(\d+", capsys.readouterr().out)
    assert all_passed() == states(listed(job, capsys, 0))
    reported = {(n["node"], n["state"], n["policy"]) for n in job.notices()}
    assert {(node, "passed", policy) for node in NODES} == reported
    assert all(n["bytes"] > 0 for n in job.notices())
    books = job.books()
    assert all(books[f"gaps.{node}"] >= 2 for node in NODES)  # One for each split.


def test_an_intact_file_mends_it(
    job: RecordedJob, whole: Sequence[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """The job continues, and nothing needs to be accepted."""
    job.spoil("flip", *NODES[:2])
    assert 4 == job.run()
    (stopped,) = [each for each in listed(job, capsys, 4) if each["state"] == "open"]

    job.restore(stopped["gap"].partition(":")[0])

    assert 0 == job.run()
    assert whole == job.changes()
    assert "mended" in {each["state"] for each in listed(job, capsys, 0)}
    assert 0 == job.call("verify")


def test_another_policy_lets_a_stopped_job_pass(
    job: RecordedJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stopped it is passed, not mended."""
    job.spoil("cut", *NODES)
    assert 4 == job.run()

    job.change(gaps="expire")

    assert 0 == job.run()
    assert all_passed() == states(listed(job, capsys, 0))


def test_one_copy_is_all_there_is_at_level_one(
    job: RecordedJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mutation that one log has may be published; so damage of one log may hold the only one."""
    job.change(consistency="ONE")
    job.spoil("flip", NODES[1])

    assert 4 == job.run()
    (found,) = listed(job, capsys, 4)
    assert found["gap"].startswith(f"{NODES[1]}:")
    assert 0 < found["bytes"] < 30_000  # The rest of a section.
    assert 1 == accept_all(job)


def test_agents_report_it_as_directories_do(
    job: RecordedJob, whole: Sequence[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """What one log lost is covered by the others; what two lost stops the job."""
    (job.folder / "token").write_text(TOKEN)
    job.spoil("flip", NODES[0])
    with ExitStack() as stack:
        served = {node: stack.enter_context(serving(job.folder / node)) for node in NODES}
        job.change(
            nodes={node: {"url": each.url} for node, each in served.items()},
            agent_token=f"${{file:{job.folder}/token}}",
        )
        assert 0 == job.run()
        assert whole == job.changes()
        assert {NODES[0]: {"covered"}} == states(listed(job, capsys, 0))

        again = RecordedJob(_made(job.folder.parent / "again"))
        again.spoil("cut", *NODES)
        served = {node: stack.enter_context(serving(again.folder / node)) for node in NODES}
        again.change(
            nodes={node: {"url": each.url} for node, each in served.items()},
            agent_token=f"${{file:{job.folder}/token}}",
        )
        assert 2 == accept_all(again)
        assert all_passed() == states(listed(again, capsys, 0))
        assert set(again.changes()) < set(whole)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_torn_end_of_a_live_log_is_no_damage(
    job: RecordedJob, whole: Sequence[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """A segment that the node still writes may be shorter than its index says: it is waited for."""
    for node in NODES:
        log = max((job.folder / node).glob("*.idx"))
        log.write_text(log.read_text().split()[0])
        content = log.with_name(log.name.replace("_cdc.idx", ".log"))
        content.write_bytes(content.read_bytes()[: int(log.read_text()) - 100])

    assert 0 == job.run()
    assert [] == listed(job, capsys, 0)
    for node in NODES:
        job.restore(node)
    assert 0 == job.run()
    assert whole == job.changes()
