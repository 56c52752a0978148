"""Shards that are delivered in one pass over the logs, beside shards that each read all logs."""

import gc
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.replay.delivery import ShardReport, Target, Work
from headrace.connector.replay.framing import one_pass
from headrace.connector.replay.framing.framed_shards import PART_BYTES
from headrace.connector.replay.framing.one_pass import deliver_together, passes_of
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.sending import Sending
from headrace.connector.replay.shards import SourceSpec
from headrace.plugins import Batch, EncodedRecords, HeadraceError
from helpers.recordings.batches import source_of
from helpers.recordings.corpora import recording
from helpers.recordings.segment_reads import note_reads
from helpers.recordings.shards import ring
from helpers.settings.filled import filled

READ = ("number", "changes", "delivered", "rejected", "quarantined")
ORIGIN = ("copies", "node", "segment", "position")


def works_of(
    spec: SourceSpec, folder: Path, shards: int, selection: Selection | None = None
) -> Sequence[Work]:
    """Return the works of a replay into a file."""
    target = Target(directory=str(folder), sink={"plugin": "files", "path": "out.jsonl"})
    plan = planned(spec, selection or Selection(), shards=shards).shards
    return [Work(shard, target, "r", 1) for shard in plan]


def sent(folder: Path) -> list[dict[str, Any]]:
    """Return what was sent since the last call, without the copies that it was made from."""
    file = folder / "out.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.unlink()
    found = [{k: v for k, v in row.items() if k not in ORIGIN} for row in rows]
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


def read(reports: Sequence[ShardReport]) -> list[tuple[object, ...]]:
    """Return what reports say of the shards, besides times and which copies came first."""
    return [
        (
            *(getattr(report, name) for name in READ),
            {name: count for name, count in report.books.items() if name.startswith("mutations.")},
        )
        for report in reports
    ]


@pytest.mark.parametrize("shards", [2, 16])
@pytest.mark.parametrize("name", ["4.1-ring", "5.0-ring"])
def test_a_ring(name: str, shards: int, tmp_path: Path) -> None:
    """Shards of a ring with a late replica deliver the same, and report the same."""
    works = works_of(ring(name), tmp_path, shards)
    alone = [work() for work in works]
    expected = sent(tmp_path)
    together = deliver_together(works)

    assert [""] * shards == [report.problem for report in together]
    assert read(alone) == read(together)
    assert expected == sent(tmp_path)
    assert expected


@pytest.fixture
def _collector() -> Iterator[None]:
    """Have the collector as in a process of a user, and then as in the tests."""
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, *before[1:])
    yield
    gc.freeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_collector")
def test_garbage_of_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a pass runs there are few collections, without what was there before; not after it."""
    before = gc.get_freeze_count(), gc.get_threshold()
    found: list[int] = []
    finish = Sending.finish

    def noted(sending: Sending) -> None:
        found.append(gc.get_freeze_count())
        found.append(gc.get_threshold()[0] // 10_000)
        finish(sending)

    monkeypatch.setattr(Sending, "finish", noted)
    deliver_together(works_of(ring("5.0-ring"), tmp_path, 2))

    assert all(filled(found))
    assert before == (gc.get_freeze_count(), gc.get_threshold())


@pytest.mark.parametrize("name", ["5.0-schema", "4.0-random"])
def test_a_node(name: str, tmp_path: Path) -> None:
    """So do shards of one log, whose schema changes in it."""
    spec = SourceSpec(given=source_of(name), directory=str(recording(name)))
    works = works_of(spec, tmp_path, 4)
    alone = [work() for work in works]
    expected = sent(tmp_path)

    assert read(alone) == read(deliver_together(works))
    assert expected == sent(tmp_path)


def test_each_byte_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many shards there are, a pass reads no more of the segments than their bytes."""
    works = works_of(ring("5.0-ring"), tmp_path, 32)
    sizes = note_reads(monkeypatch)
    deliver_together(works)

    logs = (recording("5.0-ring") / "segments").rglob("*.log")
    assert sent(tmp_path)
    assert sum(sizes) <= 1.1 * sum(path.stat().st_size for path in logs)


def test_a_shard_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be opened or sent of one shard leaves the others as they are."""
    works = list(works_of(ring("5.0-ring"), tmp_path, 4))
    alone = [work() for work in works]
    sent(tmp_path)
    works[1] = replace(works[1], shard=replace(works[1].shard, split="9-of-9"))
    take = Sending.take

    def refused(self: Sending, encoded: EncodedRecords, batch: Batch) -> None:
        if batch.split == works[2].shard.split:
            raise HeadraceError("no", place="here")
        take(self, encoded, batch)

    monkeypatch.setattr(Sending, "take", refused)
    together = deliver_together(works)

    assert ["", "config", "error", ""] == [r.problem.partition(":")[0] for r in together]
    assert [read(alone)[n] for n in (0, 3)] == [read(together)[n] for n in (0, 3)]


def test_what_is_outstanding_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N05: between two rounds all shards of a pass together have at most so many outstanding."""
    monkeypatch.setattr(one_pass, "OUTSTANDING_RECORDS_MAX", 0)
    finished: list[int] = []
    finish = Sending.finish

    def counted(self: Sending) -> None:
        finished.append(self.outstanding)
        finish(self)

    monkeypatch.setattr(Sending, "finish", counted)
    works = works_of(ring("5.0-ring"), tmp_path, 4)
    deliver_together(works)

    assert any(finished)
    assert [0] * 4 == finished[-4:]  # Before the shards end.


def test_what_is_not_for_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One shard, files, a rate, parts of logs, and more passes than readers that pay, are not."""
    works = works_of(ring("5.0-ring"), tmp_path, 8)
    files = Target(directory=str(tmp_path), path="out")
    slow = replace(works[0].target, rate=9)
    later = replace(works[1].shard, resume=works[1].shard.until)

    assert [[1, 4, 7], [2, 5, 8], [3, 6]] == [
        [work.shard.number for work in each] for each in passes_of(works, 3)
    ]
    assert [] == [
        *passes_of(works[:1], 1),
        *passes_of([replace(work, target=files) for work in works], 1),
        *passes_of([replace(work, target=slow) for work in works], 1),
        *passes_of([works[0], replace(works[1], shard=later)], 1),
        *passes_of(works, 8),
    ]
    monkeypatch.setattr(one_pass, "PASS_BYTES", PART_BYTES)
    assert 3 == len(passes_of(works, 1))  # Three logs have three parts.
