"""Directories that nodes write to, as recorded: nothing too early, nothing missing in the end."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plugins import Batch, Demand, Reader
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.batch import MutationBatch
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.segment import HEADER_BYTES_MAX, parse_descriptor
from headrace.sources.cassandra.forge.segments import Forged, segment, write_segment
from headrace.sources.cassandra.log import LogEntries, read_mutations
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.state.gaps import LogGapError
from helpers.logs.forged import SCHEMA, insert
from helpers.logs.node_logs import open_all, source
from helpers.logs.sample_log import segments
from helpers.recordings.corpora import recording
from helpers.recordings.timeline import FINAL, Content, Timeline, as_it_is, segment_of
from helpers.settings.filled import filled
from helpers.settings.native_modules import long

Place = tuple[int, int]
FILES = ["4.0-files", "5.0-v8-direct-files", "5.0-lz4-files"]
CRASHES = ["4.0-crash", "4.1-crash", "5.0-crash", "5.0-lz4-crash", "5.0-v8-direct-crash"]
READS_MAX = 200


def nodes(folder: Path, schema: Path, **more: object) -> dict[str, object]:
    """Return the options of one node whose folders are in *folder*."""
    node = {"path": str(folder / "cdc_raw"), **more}
    return {"nodes": {"n1": node}, "schema": str(schema), "consistency": "ONE", "splits": 2}


def taken(readers: Mapping[str, Reader], clock: DrivenClock) -> list[Place]:
    """Return where the mutations stand that can be read now, each once."""
    found: list[Place] = []
    demand = Demand(linger_ms=1 << 30, commit_due=False)  # Time alone is worth no batch.
    for _ in range(READS_MAX):
        clock.advance(100)
        came = [reader.read(demand) for reader in readers.values()]
        batches = [each for each in came if isinstance(each, Batch)]
        for batch in batches:
            assert not any(n for name, n in batch.end.books().items() if name.endswith("damaged"))
            found += places(batch)
        if not batches:
            return found
    raise AssertionError("it goes on for ever")


def places(batch: Batch) -> list[Place]:
    """Return where the mutations of a batch stand, without decoding them."""
    assert isinstance(batch, MutationBatch)
    agreed = batch._agreed  # noqa: SLF001 (decoding them all would take minutes)
    meta = memoryview(agreed.meta)[: agreed.count * constants.AGREED_WIDTH].tolist()
    listed = [
        meta[at : at + constants.AGREED_WIDTH] for at in range(0, len(meta), constants.AGREED_WIDTH)
    ]
    return [
        (fields[constants.AGREED_SEGMENT], fields[constants.AGREED_POSITION]) for fields in listed
    ]


def written(logs: Iterable[Path], schema: Path) -> set[Place]:
    """Return where the CDC mutations stand in final segments."""
    known = parse_schema(schema.read_text())
    found = set()
    for path in logs:
        with path.open("rb") as stream:
            for mutation in read_mutations(stream, known):
                tables = [update.table.cdc for update in mutation.updates]
                if any(tables):
                    found.add((mutation.segment_id, mutation.position))
    return found


def recorded(folder: Path, *, noise: bool) -> Content:
    """Return a recording's bytes; what is not durable yet is as it came to be, or is *noise*."""
    final = {path.name: path.read_bytes() for path in segments(folder)}

    def content(name: str, durable: int, size: int) -> bytes:
        raw = final.get(name, bytes(20))
        compressed = b"compressionClass" in raw[:100]
        if noise and not compressed and durable != FINAL:
            after = random.Random(durable).randbytes(len(raw))  # noqa: S311 (noise, the same each time)
            raw = raw[:durable] + after[durable:]
        return raw[:size]

    return content


@pytest.mark.parametrize(
    ("name", "noise"),
    [*product(FILES, [False, True]), *(long(*each) for each in product(CRASHES, [True]))],
)
def test_a_recorded_node_is_followed(tmp_path: Path, name: str, *, noise: bool) -> None:
    """Up to the index at each moment and no further, and all of it in the end, nothing twice."""
    folder = recording(name)
    final = folder / ("stopped" if name in FILES else "killed") / "cdc_raw"
    content = recorded(final, noise=noise)
    timeline = Timeline(folder / "files.jsonl", tmp_path, content, as_it_is)
    # With and without what the node's own directory tells.
    known = noise == (name in FILES)
    commitlog = {"commitlog": str(tmp_path / "commitlog")} if known else {}
    options = nodes(tmp_path, folder / "schema.cql", **commitlog)
    clock = DrivenClock()
    readers = open_all(source(options, clock))
    seen: list[Place] = []

    for _ in timeline.steps():
        came = taken(readers, clock)
        assert all(at <= timeline.durable[segment_id] for segment_id, at in came)
        seen += came

    indexed = [path for path in segments(final) if segment_of(path.name) in timeline.durable]
    expected = written(indexed, folder / "schema.cql")
    assert len(expected) > 1_000
    assert expected == set(seen)
    assert len(expected) == len(seen)


def forged_logs(ids: Iterable[int]) -> dict[int, Forged]:
    """Return a segment of ten sections for each id."""
    return {
        i: segment(
            [[insert(b"%d.%d.%d" % (i, s, n), b"v") for n in range(3)] for s in range(10)],
            segment_id=i,
        )
        for i in ids
    }


def no_room(folder: Path, name: str = "5.0-noblock-space") -> tuple[Timeline, dict[int, Forged]]:
    """Return a node without room, which deletes its oldest segments, with forged bytes.

    The other one refuses writes instead, until its consumer deletes what it has read.
    """
    events = recording(name) / "files.jsonl"
    ids = set()
    for line in events.read_text().splitlines():
        if "cdc_raw/" in line and ".log" in line:
            ids.add(segment_of(line.split("cdc_raw/")[1].split('"')[0]))
    made = forged_logs(ids)

    def text(name: str, recorded_text: str) -> str:
        """Scale an offset to the forged segment's sections."""
        number, _, completed = recorded_text.partition("\n")
        ends = made[segment_of(name.replace("_cdc.idx", ".log"))].section_ends
        scaled = ends[min(int(number) * 10 // (1 << 20), 9)]
        return f"{scaled}\n{completed}" if completed else str(scaled)

    def content(name: str, _durable: int, _size: int) -> bytes:
        return made[segment_of(name)].content

    return Timeline(events, folder, content, text), made


def forged_schema(folder: Path) -> Path:
    """Write the schema of forged logs."""
    path = folder / "schema.cql"
    path.write_text(SCHEMA)
    return path


@pytest.mark.parametrize("name", ["5.0-noblock-space", "4.1-space"])
def test_a_node_without_room_is_followed(tmp_path: Path, name: str) -> None:
    """Segments that vanish after they were read are not a gap."""
    timeline, made = no_room(tmp_path, name)
    clock = DrivenClock()
    readers = open_all(source(nodes(tmp_path, forged_schema(tmp_path)), clock))
    seen: list[Place] = []

    for _ in timeline.steps():
        seen += taken(readers, clock)

    expected = durable(timeline, made)
    assert len(expected) > 50
    assert Counter(expected) == Counter(seen)


def durable(timeline: Timeline, made: Mapping[int, Forged]) -> list[Place]:
    """Return where all entries stand that were ever durable."""
    return [(i, at) for i, upto in timeline.durable.items() for at in made[i].ends if at <= upto]


@pytest.mark.parametrize("pause", [2, 3, 5, 9, 17])
def test_who_lags_behind_a_node_without_room_is_reported(tmp_path: Path, pause: int) -> None:
    """G08: of what was ever seen nothing is passed over without a word: it is a gap (I10)."""
    timeline, made = no_room(tmp_path)
    clock = DrivenClock()
    readers = open_all(source(nodes(tmp_path, forged_schema(tmp_path)), clock))
    seen: set[Place] = set()
    listed: set[int] = set()
    gaps: list[LogGapError] = []

    for number, _ in enumerate(timeline.steps()):
        there = {segment_of(path.name) for path in segments(tmp_path / "cdc_raw")}
        if number % pause == 0 or there == {max(made)}:
            listed |= there & timeline.listed
            with suppress_gap(gaps):
                seen |= set(taken(readers, clock))
    with suppress_gap(gaps):
        seen |= set(taken(readers, clock))

    missing = {place for place in durable(timeline, made) if place[0] in listed} - seen
    assert bool(missing) == bool(gaps)
    assert all(gap.place.startswith("node n1: segment ") for gap in gaps)


@contextmanager
def suppress_gap(gaps: list[LogGapError]) -> Iterator[None]:
    """Keep a gap that stops the reading."""
    try:
        yield
    except LogGapError as error:
        gaps.append(error)


ROWS = [insert(b"key %d" % n, b"v" * n) for n in range(9)]


@settings(max_examples=3, deadline=None)
@given(
    layout=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    grows=st.booleans(),
    indexes=st.lists(st.sampled_from(["", "half", "less", "words", "torn"]), max_size=3),
)
def test_byte_by_byte_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, layout: list[int], *, grows: bool, indexes: list[str]
) -> None:
    """A file that grows, or fills up, a byte at a time, under an index that is rewritten anyhow."""
    folder = tmp_path_factory.mktemp("node")
    rows = iter(ROWS)
    made = segment([[row for row, _ in zip(rows, range(count), strict=False)] for count in layout])
    (folder / "cdc_raw").mkdir()
    clock = DrivenClock()
    readers = open_all(source(nodes(folder, forged_schema(folder)), clock))
    seen: list[Place] = []
    durable = 0
    for length in range(20, len(made.content) + 1):
        content = made.content[:length]
        content += b"" if grows else bytes(len(made.content) - length)
        durable = max([0, *[end for end in made.section_ends if end <= length]])
        texts = [_spoilt(kind, durable) for kind in indexes] + [str(durable)]
        for text in texts if durable in {length, 0} else texts[-1:]:
            write_segment(folder / "cdc_raw", content, index=text)
            came = taken(readers, clock)
            assert all(at <= durable for _, at in came)
            seen += came
    write_segment(folder / "cdc_raw", made.content, index="9\nCOMPLETED")
    seen += taken(readers, clock)

    assert list(made.ends) == sorted(at for _, at in seen)


def _spoilt(kind: str, offset: int) -> str:
    """Return an index as it is seen amid its writing, or never should be."""
    half = str(offset)[: len(str(offset)) // 2]
    return {
        "": "",
        "half": half,
        "less": str(offset // 3),
        "words": "nothing",
        "torn": f"{offset}\nCOMPL",
    }[kind]


def positions(framer: Framer) -> Iterator[int]:
    """Return where the entries end that are left."""
    while framer.next_entry() == constants.ENTRY:
        yield framer.at


@pytest.mark.parametrize("name", ["4.0-files", "5.0-v8-direct-files"])
def test_resuming_at_any_entry_gives_the_rest(name: str) -> None:
    """G03: from each boundary of a real segment comes the next entry, from many all the rest."""
    path = segments(recording(name) / "stopped" / "cdc_raw")[0]
    content = path.read_bytes()
    header = parse_descriptor(content[:HEADER_BYTES_MAX], place=name)
    with path.open("rb") as stream:
        entries = LogEntries(stream)
        ends = [entries.position for _ in entries]

    def read_into(offset: int, buffer: memoryview) -> int:
        part = content[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    framer = Framer()
    for index in filled(range(len(ends))):
        framer.open(
            read_into,
            segment_id=header.segment_id,
            header_bytes=header.header_bytes,
            messaging=header.messaging,
            resume=ends[index],
            place=name,
        )
        count = None if index % 97 == 0 else 1
        assert ends[index + 1 :][:count] == list(islice(positions(framer), count))


@pytest.fixture
def one_node(tmp_path: Path) -> dict[str, object]:
    """Make one node's folders, empty."""
    for name in ("cdc_raw", "commitlog"):
        (tmp_path / name).mkdir()
    return nodes(tmp_path, forged_schema(tmp_path), commitlog=str(tmp_path / "commitlog"))


def put(folder: Path, number: int, index: str | None, *, live: bool = True) -> Forged:
    """Write a segment with three rows, two of them synced early; say where it stands."""
    rows = [insert(b"key %d %d" % (number, n), b"v") for n in range(3)]
    made = segment([rows[:2], rows[2:]], segment_id=number)
    write_segment(folder / "cdc_raw", made.content, segment_id=number, index=index)
    log = folder / "commitlog" / f"CommitLog-7-{number}.log"
    if live:
        log.touch()
    else:
        log.unlink(missing_ok=True)
    return made


def test_a_segment_that_never_completes_is_read_once_the_node_let_it_go(
    tmp_path: Path, one_node: dict[str, object]
) -> None:
    """Replay met nothing of CDC and left its index; the next run's segments are there."""
    clock = DrivenClock()
    readers = open_all(source(one_node, clock))
    made = put(tmp_path, 100, None)
    put(tmp_path, 100, str(made.section_ends[0]))
    assert [(100, at) for at in made.ends[:2]] == sorted(taken(readers, clock))

    put(tmp_path, 100, str(made.section_ends[0]), live=False)
    assert [] == taken(readers, clock)
    put(tmp_path, 900, None)

    assert [(100, made.ends[2])] == taken(readers, clock)


def test_a_replayed_segment_is_read_on(tmp_path: Path, one_node: dict[str, object]) -> None:
    """Its index becomes the file's length; what replay found after the offset is there."""
    clock = DrivenClock()
    readers = open_all(source(one_node, clock))
    made = put(tmp_path, 100, None)
    put(tmp_path, 100, str(made.section_ends[0]))
    seen = taken(readers, clock)
    put(tmp_path, 100, f"{len(made.content)}\nCOMPLETED", live=False)

    seen += taken(readers, clock)

    assert list(made.ends) == sorted(at for _, at in seen)


def test_a_segment_that_appears_again_is_not_read_again(
    tmp_path: Path, one_node: dict[str, object]
) -> None:
    """We disposed of it before the node had flushed its tables, and replay linked it again."""
    clock = DrivenClock()
    made = source({**one_node, "disposal": "delete"}, clock)
    readers = open_all(made)
    put(tmp_path, 100, "1\nCOMPLETED")
    put(tmp_path, 101, "1\nCOMPLETED")
    seen = taken(readers, clock)
    for path in (tmp_path / "cdc_raw").glob("CommitLog-7-100*"):
        path.unlink()
    assert [] == taken(readers, clock)

    put(tmp_path, 100, "1\nCOMPLETED", live=False)

    assert [] == taken(readers, clock)
    assert 6 == len(seen)


def test_many_segments_between_two_looks_are_all_found(
    tmp_path: Path, one_node: dict[str, object]
) -> None:
    """G11: nothing is reported by events that could be lost: each look lists what there is."""
    clock = DrivenClock()
    readers = open_all(source(one_node, clock))
    put(tmp_path, 100, "1\nCOMPLETED")
    seen = taken(readers, clock)
    for number in range(101, 301):
        put(tmp_path, number, "1\nCOMPLETED")

    seen += taken(readers, clock)

    assert 3 * 201 == len(seen)
    assert set(range(100, 301)) == {segment for segment, _ in seen}


def test_an_index_may_come_before_its_log(tmp_path: Path, one_node: dict[str, object]) -> None:
    """G02: where something copies both: while nothing later is there, it is waited for."""
    clock = DrivenClock()
    readers = open_all(source(one_node, clock))
    put(tmp_path, 100, "1\nCOMPLETED")
    taken(readers, clock)
    made = put(tmp_path, 101, "1\nCOMPLETED")
    log = tmp_path / "cdc_raw" / "CommitLog-7-101.log"
    log.unlink()
    assert [] == taken(readers, clock)

    log.write_bytes(made.content)

    assert [(101, at) for at in made.ends] == sorted(taken(readers, clock))


def test_an_index_without_a_log_is_a_gap(tmp_path: Path, one_node: dict[str, object]) -> None:
    """It held CDC data and something later is there, so nothing more is to come (I10)."""
    clock = DrivenClock()
    readers = open_all(source(one_node, clock))
    put(tmp_path, 100, "1\nCOMPLETED")
    taken(readers, clock)
    for number in (101, 102):
        put(tmp_path, number, "1\nCOMPLETED")
    (tmp_path / "cdc_raw" / "CommitLog-7-101.log").unlink()

    with pytest.raises(LogGapError, match="segment 101"):
        taken(readers, clock)


def test_an_index_left_over_from_before_is_passed_over(
    tmp_path: Path, one_node: dict[str, object]
) -> None:
    """Where a job begins there is nothing that it could have missed."""
    put(tmp_path, 100, "1\nCOMPLETED")
    (tmp_path / "cdc_raw" / "CommitLog-7-100.log").unlink()
    made = put(tmp_path, 101, "1\nCOMPLETED")

    found = taken(open_all(source(one_node)), DrivenClock())

    assert [(101, at) for at in made.ends] == sorted(found)
