"""Memory and log lines stay bounded, while a node is down and however many changes come."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import structlog
import yaml
from structlog.testing import LogCapture

from headrace.connector.hosting.host import Host
from headrace.plugins import Quarantined, Reader, parse_config
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.reader import CassandraReader
from headrace.sources.cassandra.reading import pump
from headrace.sources.cassandra.reading.cursor import CHUNK_BYTES
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.forged import insert
from helpers.logs.node_logs import batches, forged_nodes, open_all

RECORDS_MAX = 1_000
# Many times RECORDS_MAX, as an hour at 10,000 a second is many times a job's 200,000 records.
COUNT = 6_000
CHUNK_RECORDS = CHUNK_BYTES // 60  # Read of one log before the next.


@cache
def rows() -> Sequence[bytes]:
    """Return mutations, which are made when a test wants them: not by each worker that collects."""
    return [insert(b"key %d" % i, b"value") for i in range(COUNT)]


def logger(capture: LogCapture) -> structlog.stdlib.BoundLogger:
    """Return a logger whose lines *capture* gets."""
    made: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        None, processors=[capture], wrapper_class=structlog.stdlib.BoundLogger
    ).bind()
    return made


class Job:
    """A job of one split over three nodes."""

    def __init__(self, folder: Path) -> None:
        """Start with empty logs."""
        self.folder = folder
        self.end: CdcState | None = None
        options = forged_nodes(folder, {"n1": [], "n2": [], "n3": []})
        self.log = LogCapture()
        self.clock = DrivenClock()
        self.options = {**options, "splits": 1, "records_max": RECORDS_MAX}
        self.readers = self.opened()
        self.books: Counter[str] = Counter()
        self.most = 0
        self.published: Counter[str] = Counter()
        self.aside: list[Quarantined] = []
        self.segments = dict.fromkeys(("n1", "n2", "n3"), SEGMENT_ID)

    def add(self, node: str, raws: Sequence[bytes]) -> None:
        """Let a node log mutations, in a new segment."""
        self.segments[node] += 1
        number = self.segments[node]
        content = segment([raws], segment_id=number).content
        write_segment(self.folder / node, content, segment_id=number)

    def read(self) -> None:
        """Read all logs, and let ten seconds pass."""
        for _ in range(2):
            for batch in batches(self.readers):
                self.published.update(str(record.key) for record in batch.records())
                self.aside += batch.quarantined()
                assert isinstance(batch.end, CdcState)
                self.end = batch.end
                self.books = Counter(batch.end.books())
                (reader,) = self.readers
                assert isinstance(reader, CassandraReader)
                self.most = max(self.most, reader._agreement.live)  # noqa: SLF001 (what is bounded)
            self.clock.advance(5_000)

    def opened(self) -> list[Reader]:
        """Return the split's reader in a new source, where all was read to."""
        lent = replace(context(self.clock), log=logger(self.log))
        made = CassandraSource(parse_config(CassandraConfig, self.options), lent)
        at = {} if self.end is None else {"1-of-1": self.end}
        return list(open_all(made, at).values())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job whose third node is down while the others log COUNT mutations."""
    made = Job(tmp_path)
    for at in range(0, COUNT, RECORDS_MAX):
        for node in ("n1", "n2"):
            made.add(node, rows()[at : at + RECORDS_MAX])
        made.read()
    return made


def test_a_node_that_is_down_takes_no_more_memory_than_is_allowed(job: Job) -> None:
    """All is published once, the oldest records are dropped first, and a warning is logged."""
    assert {1} == set(job.published.values())
    assert COUNT == len(job.published)
    assert COUNT - RECORDS_MAX <= job.books["memory_shortened"]
    assert job.most <= RECORDS_MAX + CHUNK_RECORDS
    assert {"dedup_window_full"} == {entry["event"] for entry in job.log.entries}


def test_what_it_logs_afterwards_is_never_published_again(job: Job) -> None:
    """Late copies are recognised, wait alone, or are quarantined with their bytes (line 25)."""
    job.add("n3", rows())
    job.read()

    assert {1} == set(job.published.values())
    books = job.books
    late = books["mutations.first"] - COUNT
    assert late == books["mutations.overflow"] + books["mutations.pending"]
    assert COUNT == late + books["entries.n3.surplus"]
    assert {rows().index(item.content) for item in job.aside} <= set(range(COUNT))
    assert len(job.aside) == books["mutations.overflow"]
    assert job.most <= RECORDS_MAX + CHUNK_RECORDS


def test_a_log_that_is_ahead_waits_for_the_others_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read on when the others have come as far: no mutation gives way, none is dropped."""
    monkeypatch.setattr(pump, "CHUNK_BYTES", RECORDS_MAX * 60 // 10)
    made, ahead = Job(tmp_path), RECORDS_MAX * 2 // 5
    for node in made.segments:
        made.add(node, rows()[:RECORDS_MAX])
    made.add("n1", rows()[RECORDS_MAX : RECORDS_MAX + ahead])
    made.read()
    made.readers = made.opened()
    made.add("n1", rows()[RECORDS_MAX + ahead :])
    for node in ("n2", "n3"):
        made.add(node, rows()[RECORDS_MAX:])
    made.read()

    assert COUNT == len(made.published)
    assert 0 == made.books["mutations.overflow"]
    assert 0 == made.books["mutations.pending"]
    assert {1} == set(made.published.values())


def test_log_lines_do_not_grow_with_changes(tmp_path: Path) -> None:
    """A run logs as many lines for thousands of changes as for two, and no value of any of them."""
    lines = {}
    for count in (2, COUNT):
        log, folder = LogCapture(), tmp_path / f"{count}"
        rows = [insert(b"secret key %d" % i, b"secret value") for i in range(count)]
        options = forged_nodes(folder, dict.fromkeys(("n1", "n2", "n3"), rows))
        source = {"plugin": "cassandra", "splits": 1, **options}
        sink = {"plugin": "files", "path": str(folder / "out.jsonl")}
        job = {"job": "quiet", "state": "state.db", "source": source, "sink": sink}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        _, report = Host(folder / "job.yaml", log=logger(log)).run(until_idle=True)
        assert report is not None
        assert count == report.changes
        lines[count] = log.entries

    assert [e["event"] for e in lines[2]] == [e["event"] for e in lines[COUNT]]
    assert "started" in {entry["event"] for entry in lines[COUNT]}
    shown = repr(lines)
    assert not [each for each in (b"secret", b"secret".hex().encode()) if each.decode() in shown]
