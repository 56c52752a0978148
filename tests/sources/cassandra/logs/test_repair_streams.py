"""What may be a stream's is compared before it is published, and left out if that is wanted."""

from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from headrace.plugins import Batch, ConfigError, Demand
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.logs.pins import FOLDER
from headrace.sources.cassandra.logs.repair_streams import FILE, NEVER, Stream, Streams, streams_in
from headrace.sources.cassandra.schema.contact import NodeSettings
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import Schema
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.forged import NOW_US, OTHER, SCHEMA, insert, mutation, update
from helpers.logs.log_job import report
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.servers.agents import TOKEN, serving

LATER = SEGMENT_ID + 1
BEGAN_US = NOW_US + 1_000
OLD = [insert(b"old", b"%d" % i, at_us=i) for i in range(5)]
NEW = [insert(b"new", b"%d" % i, at_us=2_000 + i) for i in range(5)]
NODES = ("n1", "n2", "n3")


def run(options: dict[str, object]) -> tuple[int, Counter[str]]:
    """Read until nothing comes, also with time; return how much is published, and the books."""
    clock = DrivenClock()
    made = source({**options, "splits": 1}, clock)
    readers = list(open_all(made).values())
    published, books = 0, Counter[str]()
    for _ in range(20):
        for batch in batches(readers):
            published += sum(1 for _ in batch.records())
            assert isinstance(batch.end, CdcState)
            books = Counter(batch.end.books())
        clock.advance(5_000)
    made.close()
    return published, books


@pytest.mark.parametrize(
    ("level", "streamed", "published", "filtered"),
    [("ONE", "publish", 10, 0), ("ONE", "suppress", 5, 5), ("QUORUM", "suppress", 5, 5)],
)
def test_what_is_not_known_is_published_or_left_out(
    tmp_path: Path, level: str, streamed: str, published: int, filtered: int
) -> None:
    """What was written after the stream started is not a stream's, whichever policy."""
    options = forged_nodes(tmp_path, {node: [*OLD, *NEW] for node in NODES})
    for node in NODES:
        report(tmp_path / node, Stream("forged", SEGMENT_ID, BEGAN_US, LATER))

    found, books = run({**options, "consistency": level, "streamed": streamed})

    assert (published, filtered) == (found, books["mutations.filtered"])
    assert 10 == found + filtered + books["mutations.pending"]


@pytest.mark.parametrize(
    ("tables", "filtered"), [((), 10), (("t",), 5), (("other",), 5), (("x",), 0)]
)
def test_a_stream_is_of_the_tables_that_it_names(
    tmp_path: Path, tables: tuple[str, ...], filtered: int
) -> None:
    """What is logged meanwhile of others is not a stream's; one that names none is of all."""
    others = [insert(b"old", b"%d" % i, at_us=i, table=OTHER) for i in range(5)]
    schema = SCHEMA.replace("cdc = false", "cdc = true")
    options = forged_nodes(tmp_path, {node: [*OLD, *others] for node in NODES}, schema)
    for node in NODES:
        report(tmp_path / node, Stream("forged", SEGMENT_ID, BEGAN_US, tables=tables))

    found, books = run({**options, "streamed": "suppress"})

    assert (10 - filtered, filtered) == (found, books["mutations.filtered"])


def test_a_copy_that_was_written_here_makes_it_no_streams(tmp_path: Path) -> None:
    """The same bytes in the log of a node that received nothing were written as they are."""
    options = forged_nodes(tmp_path, dict.fromkeys(NODES, OLD))
    report(tmp_path / "n1", Stream("forged", SEGMENT_ID, BEGAN_US))

    found, books = run({**options, "consistency": "ONE", "streamed": "suppress"})

    assert (5, 0) == (found, books["mutations.filtered"])


def test_what_only_a_stream_brought_is_left_out_also_when_it_expires(tmp_path: Path) -> None:
    """`expired: publish` is for what was written here; `streamed: suppress` has the last word."""
    options = forged_nodes(tmp_path, {"n1": [*OLD, *NEW], "n2": [], "n3": []})
    report(tmp_path / "n1", Stream("forged", SEGMENT_ID, BEGAN_US))
    ages = {"expiry_seconds": 60, "dedup_window_seconds": 60}

    found, books = run({**options, **ages, "expired": "publish", "streamed": "suppress"})

    assert (5, 5) == (found, books["mutations.filtered"])
    assert (5, 0) == (books["mutations.expired_published"], books["mutations.pending"])


def test_nothing_is_compared_before_the_logs_were_read_to_their_ends(tmp_path: Path) -> None:
    """While a log cannot be read, what it holds may say that a stream's copy was written here."""
    options = forged_nodes(tmp_path, dict.fromkeys(NODES[:2], OLD)) | {"consistency": "ONE"}
    report(tmp_path / "n1", Stream("forged", SEGMENT_ID, BEGAN_US))
    with serving(tmp_path / "n2") as served:
        nodes = {"n1": str(tmp_path / "n1"), "n2": {"url": served.url}}
    options |= {"nodes": nodes, "agent_token": TOKEN, "streamed": "suppress"}

    found, books = run(options)

    assert (0, 5, 0) == (found, books["mutations.pending"], books["mutations.filtered"])


def test_an_agent_tells_of_its_nodes_streams(tmp_path: Path) -> None:
    """With what it lists: what is logged in a stream elsewhere waits for the comparison, too."""
    options = forged_nodes(tmp_path, {node: [*OLD, *NEW] for node in NODES})
    with ExitStack() as stack:
        served = [stack.enter_context(serving(tmp_path / node)) for node in NODES]
        for node in NODES:
            report(tmp_path / node, Stream("forged", SEGMENT_ID, BEGAN_US))
        nodes = {node: {"url": each.url} for node, each in zip(NODES, served, strict=True)}
        far = {"nodes": nodes, "agent_token": TOKEN}
        found, books = run({**options, **far, "consistency": "ONE", "streamed": "suppress"})

    assert (5, 5) == (found, books["mutations.filtered"])


def test_what_a_stream_repeats_is_recognised_before_it_is_published(tmp_path: Path) -> None:
    """At ONE, other bytes for what was published wait for the comparison and then go nowhere."""
    options = forged_nodes(tmp_path, dict.fromkeys(NODES, OLD))
    again = [mutation(*(update(b"old", b"%d" % i, at_us=i) for i in (0, 1)))]
    write_segment(tmp_path / "n1", segment([again], segment_id=LATER).content, segment_id=LATER)
    report(tmp_path / "n1", Stream("forged", LATER, BEGAN_US))

    found, books = run({**options, "consistency": "ONE", "streamed": "publish"})

    assert (5, 1) == (found, books["mutations.reencoded"])
    assert 0 == books["mutations.pending"]


def test_a_report_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """What cannot be read changes nothing; a missing file says that there are no streams."""
    read = partial(streams_in, tmp_path / FOLDER / FILE)
    parsed, head = parse_schema(SCHEMA), (insert(b"k")[:40], 12)
    streams = Streams(read, "n1", context(), parsed.tables.get)
    streams.look()
    assert NEVER == streams.written_before(7, *head)

    report(tmp_path, Stream("forged", 5, 11, 7), Stream("forged", 6, 22))
    streams.look()
    assert [NEVER, 11, 22, 22] == [streams.written_before(n, *head) for n in (4, 5, 6, 8)]
    assert NEVER == streams.written_before(6, bytes(40), 12)

    (tmp_path / FOLDER / FILE).write_text("[{")
    streams.look()
    assert 2 == len(streams.streams)
    (tmp_path / FOLDER / FILE).unlink()
    streams.look()
    assert [] == list(streams.streams)


def test_a_report_is_read_when_its_log_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read till the next listing was logged before this one, and reported before that."""
    read: list[Path] = []

    def streams_in(file: Path) -> list[Stream]:
        read.append(file)
        return []

    monkeypatch.setattr("headrace.sources.cassandra.reading.stream_watch.streams_in", streams_in)
    options = forged_nodes(tmp_path, dict.fromkeys(NODES, OLD))
    (reader,) = open_all(source({**options, "consistency": "ONE", "splits": 1})).values()

    found = [reader.read(Demand(records_max=1)) for _ in range(3)]
    assert all(isinstance(each, Batch) and each.more for each in found)
    assert len(NODES) == len(read)

    assert 2 == sum(1 for batch in batches([reader]) for _ in batch.records())
    new = segment([[insert(b"new", b"1")]], segment_id=SEGMENT_ID + 1)
    write_segment(tmp_path / NODES[0], new.content, segment_id=SEGMENT_ID + 1)
    assert 1 == sum(1 for batch in batches([reader]) for _ in batch.records())
    assert len(NODES) < len(read)


def test_a_cluster_that_logs_repairs_asks_for_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With cdc_on_repair_enabled a job says what becomes of what is older than its memory."""
    reported = Schema({}, {}), NodeSettings(repair_is_logged=True)
    monkeypatch.setattr("headrace.sources.cassandra.schema.live.read_live", lambda _: reported)
    options = forged_nodes(tmp_path, dict.fromkeys(NODES, OLD)) | {"contact_points": "127.0.0.1:1"}

    with pytest.raises(ConfigError, match="cdc_on_repair_enabled") as caught:
        source(options).plan()
    assert "streamed" == caught.value.problems[0].key
