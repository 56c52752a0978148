"""A ring that is read through agents: the same as from directories, for about one copy's bytes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headrace.sources.cassandra.agent import client
from headrace.sources.cassandra.forge.segments import segment, write_log, write_segment
from headrace.sources.cassandra.forge.wrapping import PLAIN, Wrapping, compression
from headrace.sources.cassandra.reading import pump
from headrace.sources.cassandra.source import CassandraSource
from helpers.logs.forged import OTHER, SCHEMA, insert
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.recordings.corpora import recording
from helpers.servers.agents import TOKEN, serving
from helpers.settings.seeds import soaked

PER_BYTE, PER_MUTATION = 1.3, 60  # The bound, at three copies.
MUTATIONS, VALUE_BYTES = 3_000, 40


def read(made: CassandraSource) -> tuple[Counter[tuple[object, object]], Mapping[str, int]]:
    """Return the changes by their names, and how many entries of each log were read."""
    found: Counter[tuple[object, object]] = Counter()
    ends = {}
    for batch in batches(open_all(made).values()):
        for record in batch.records():
            document = record.document()
            found[document["mutation"], document["index"]] += 1
        ends[batch.split] = batch.end.books()
    books: Counter[str] = Counter()
    for each in ends.values():
        books.update({k: v for k, v in each.items() if k.endswith(".read")})
    return found, books


@contextmanager
def far(folders: Mapping[str, Path], options: Mapping[str, object]) -> Iterator[CassandraSource]:
    """Provide a source that reads logs through agents."""
    with ExitStack() as stack:
        urls = {n: stack.enter_context(serving(path)).url for n, path in folders.items()}
        nodes = {node: {"url": url} for node, url in urls.items()}
        made = source({**options, "nodes": nodes, "agent_token": TOKEN})
        try:
            yield made
        finally:
            made.close()


@pytest.mark.soak
@pytest.mark.parametrize("name", ["4.1-ring", "6.0-v9-ring", *soaked("5.0-ring")])
def test_a_recorded_ring_is_read_through_agents(name: str) -> None:
    """Changes and entries are those of the directories, whichever copy went out."""
    folders = {f"node{n}": recording(name) / "segments" / f"node{n}" for n in (1, 2, 3)}
    options = {"schema": str(recording(name) / "schema.cql"), "consistency": "ALL", "splits": 3}
    near = source({**options, "nodes": {n: str(path) for n, path in folders.items()}})
    expected = read(near)
    near.close()

    with far(folders, options) as made:
        assert expected == read(made)


@pytest.mark.parametrize("wrapping", [PLAIN, compression("LZ4Compressor")], ids=["plain", "lz4"])
def test_an_agent_tells_how_far_sections_reach(tmp_path: Path, wrapping: Wrapping) -> None:
    """A segment that was cut at a sync marker is damaged for those who read it from afar, too."""
    made = segment([[insert(b"a")], [insert(b"b")]], wrapping=wrapping)
    options = forged_nodes(tmp_path, {"n1": ()})
    cut = made.content[: made.file_ends[0]]
    write_segment(tmp_path / "n1", cut, index=f"{made.durable}\nCOMPLETED")
    with serving(tmp_path / "n1") as served:
        options |= {"nodes": {"n1": {"url": served.url}}, "agent_token": TOKEN}
        reading = source({**options, "consistency": "ONE", "gaps": "expire"})
        found = list(batches(open_all(reading).values()))
        reading.close()

    (item,) = [item for batch in found for item in batch.quarantined()]
    said = f"the sync markers end; the index file has {made.durable - made.section_ends[0]} "
    assert said in item.message


@pytest.fixture
def ring(tmp_path: Path) -> Mapping[str, Path]:
    """Return the logs of three nodes: each mutation on all, and as many of a table without CDC."""
    (tmp_path / "schema.cql").write_text(SCHEMA)
    for turn, node in enumerate(("n1", "n2", "n3")):
        raws = [insert(b"key %06d" % n, bytes(VALUE_BYTES)) for n in range(MUTATIONS)]
        for at in range(turn, MUTATIONS - 7, 7):  # No two nodes have quite the same order.
            raws[at], raws[at + 2] = raws[at + 2], raws[at]
        others = [insert(b"other %d" % n, bytes(900), table=OTHER) for n in range(MUTATIONS)]
        mixed = [each for pair in zip(raws, others, strict=True) for each in pair]
        write_log(tmp_path / node, mixed, first_id=100 * turn + 1)
    return {node: tmp_path / node for node in ("n1", "n2", "n3")}


@pytest.mark.soak
@pytest.mark.parametrize("level", ["ONE", "ALL", *soaked("QUORUM")])
def test_a_mutation_crosses_the_network_about_once(
    ring: Mapping[str, Path], tmp_path: Path, level: str
) -> None:
    """At three copies: once its bytes, and twice a digest; of other tables hardly anything."""
    options = {"schema": str(tmp_path / "schema.cql"), "consistency": level, "splits": 3}
    size = len(insert(b"key 000000", bytes(VALUE_BYTES)))
    with far(ring, options) as made:
        found, _ = read(made)
        each = made.crossed_bytes / MUTATIONS

    assert MUTATIONS == sum(found.values())
    assert size < each <= PER_BYTE * size + PER_MUTATION


def test_each_agent_sends_about_as_much(
    ring: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No log is the first to be asked for all mutations, though all begin at the same one."""
    monkeypatch.setattr(client, "_WANTED_BYTES", 400_000)
    monkeypatch.setattr(client, "_SPAN_BYTES_MIN", 50_000)
    monkeypatch.setattr(pump, "CHUNK_BYTES", 50_000)
    options = {"schema": str(tmp_path / "schema.cql"), "consistency": "QUORUM", "splits": 3}
    with ExitStack() as stack:
        served = {node: stack.enter_context(serving(path)) for node, path in ring.items()}
        nodes = {node: {"url": each.url} for node, each in served.items()}
        made = source({**options, "nodes": nodes, "agent_token": TOKEN})
        stack.callback(made.close)
        found, _ = read(made)
        sent = [each.server.sent_bytes for each in served.values()]

    assert MUTATIONS == sum(found.values())
    assert max(sent) < 1.5 * min(sent)


def test_what_a_process_does_not_own_is_not_sent(ring: Mapping[str, Path], tmp_path: Path) -> None:
    """One split of three crosses for a third; what is taken over later comes when it is owned."""
    options = {"schema": str(tmp_path / "schema.cql"), "consistency": "ALL", "splits": 3}
    with far(ring, options) as made:
        first, *others = made.plan()
        readers = [made.open(first, None)]
        count = sum(len(list(batch.records())) for batch in batches(readers))
        third = made.crossed_bytes
        readers += [made.open(split, None) for split in others]
        count += sum(len(list(batch.records())) for batch in batches(readers))
        every = made.crossed_bytes

    assert MUTATIONS == count
    assert third < every / 2
