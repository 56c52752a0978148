"""A split's reader: what its state holds, what it lets go, and who may resume from it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.plugins import Batch, CloseReason, ConfigError, Demand, Position
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.reading.pump import Pump
from headrace.sources.cassandra.reading.record_expiry import SWEEP_MS, Memory
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from helpers.logs.forged import insert
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.recordings.corpora import recording

ROWS = [insert(b"%d" % n, b"%c" % n) for n in range(20)]


def read(
    options: Mapping[str, object], resume: Mapping[str, Position] | None = None
) -> tuple[list[str], dict[str, Position]]:
    """Return the published values, and where each split is, as it is stored and read back."""
    made = source(options)
    values = []
    at: dict[str, Position] = dict(resume or {})
    for found in batches(open_all(made, resume).values()):
        values += [r.document()["columns"]["v"]["value"] for r in found.records()]
        at[found.split] = made.decode_position(found.end.encode())
    made.close()
    return sorted(values), at


def add(folder: Path, node: str, raws: list[bytes], later: int = 0) -> None:
    """Write the second segment of a node, or a *later* one."""
    number = SEGMENT_ID + 1 + later
    write_segment(folder / node, segment([raws], segment_id=number).content, segment_id=number)


def expected(raws: list[bytes]) -> list[str]:
    """Return the values of these of ROWS."""
    return [f"0x{ROWS.index(raw):02x}" for raw in raws]


def total(at: Mapping[str, Position], counter: str) -> int:
    """Return a counter over all splits."""
    return sum(position.books().get(counter, 0) for position in at.values())


@pytest.mark.parametrize("linger_ms", [-1, 1 << 30])
def test_what_is_compared_at_the_ends_of_the_logs_is_in_the_state(linger_ms: int) -> None:
    """Also if a pass of its own finds these ends: copies in other bytes do not wait any more."""
    folder = recording("5.0-ring")
    logs = {name: str(folder / "segments" / name) for name in ("node1", "node2", "node3")}
    given = {"nodes": logs, "schema": str(folder / "schema.cql"), "consistency": "QUORUM"}
    made = source(given)
    demand = Demand(linger_ms=linger_ms)  # -1: each pass ends after a chunk.
    at = {found.split: found.end for found in batches(open_all(made).values(), demand)}
    made.close()

    assert (0, 23) == (total(at, "mutations.pending"), total(at, "mutations.reencoded"))


def test_a_pending_mutation_waits_in_the_state(tmp_path: Path) -> None:
    """Its second copy may come in a later run: then it is published, and only then."""
    options = forged_nodes(tmp_path, {"n1": ROWS[:9], "n2": [], "n3": []})
    nothing, at = read(options)
    assert [] == nothing
    assert (9, 0) == (total(at, "mutations.pending"), total(at, "mutations.agreed"))

    add(tmp_path, "n3", ROWS[4:12])
    found, at = read(options, at)

    assert expected(ROWS[4:9]) == found
    assert (7, 5) == (total(at, "mutations.pending"), total(at, "mutations.agreed"))
    assert ([], at) == read(options, at)


def test_a_pass_that_changes_nothing_asks_no_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A split looks at its records again when a log grew, or when it is time, and only then."""
    looks: list[bool] = []
    keep = Memory.keep

    def seen(
        memory: Memory, agreed: AgreedMutations, *, caught_up: bool, any_absent: bool
    ) -> object:
        looks.append(caught_up)
        return keep(memory, agreed, caught_up=caught_up, any_absent=any_absent)

    monkeypatch.setattr(Memory, "keep", seen)
    clock = DrivenClock()
    options = forged_nodes(tmp_path, {"n1": ROWS[:9], "n2": [], "n3": []}) | {"splits": 2}
    readers = open_all(source(options, clock)).values()
    demand = Demand(linger_ms=1 << 30, commit_due=False)
    assert [] != list(batches(readers, demand))
    looks.clear()

    assert [] == list(batches([*readers, *readers], demand))
    assert [] == looks
    clock.advance(SWEEP_MS)
    assert [] == list(batches(readers, demand))
    assert [True, True] == looks
    add(tmp_path, "n2", ROWS[:9])
    assert [] != list(batches(readers, demand))
    assert 2 * len(readers) == len(looks)


@pytest.mark.parametrize("is_short", [True, False])
def test_what_is_read_between_two_positions_is_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_short: bool
) -> None:
    """Of many syncs, each change is published once, and the state is as if each had a position."""
    options = forged_nodes(tmp_path, {"n1": [], "n2": [], "n3": []}) | {"splits": 1}
    made = segment([ROWS[at : at + 4] for at in range(0, 20, 4)])
    paths = [write_segment(tmp_path / node, made.content, index="0") for node in ("n1", "n2", "n3")]
    clock = DrivenClock()
    readers = open_all(source(options, clock)).values()
    asked: list[int] = []
    markers = Pump.markers

    def noted(pump: Pump, number: int) -> dict[str, Marker]:
        asked.append(number)
        return markers(pump, number)

    found = [*batches(readers)]
    monkeypatch.setattr(Pump, "markers", noted)
    later = Demand(linger_ms=1 << 30, commit_due=False, end_may_wait=is_short)
    for end in made.section_ends:
        for path in paths:
            path.with_name(f"{path.stem}_cdc.idx").write_text(f"{end}")
            found += batches(readers, later)
    assert is_short or all(batch.has_end for batch in found)
    between = len(asked)
    found += batches(readers)

    values = [r.document()["columns"]["v"]["value"] for b in found for r in b.records()]
    assert sorted(values) == sorted(expected(ROWS))
    state = found[-1].end
    assert isinstance(state, CdcState)
    assert {made.section_ends[-1]} == {marker.offset for marker in state.markers.values()}
    assert len(ROWS) == total({"": state}, "mutations.agreed")
    assert is_short == (between <= 1)  # The first read after another log is there asks for all.


def test_a_state_that_is_stored_is_not_held(tmp_path: Path) -> None:
    """After a release no rows are left of what was stored, also not of what was loaded before.

    A state that was made in between names them; what it alone has, it gives.
    """
    options = forged_nodes(tmp_path, {"n1": ROWS[:9], "n2": [], "n3": []}) | {"splits": 1}
    _, at = read(options)
    made = source(options)
    readers = open_all(made, at)
    (reader,) = readers.values()
    states: list[CdcState] = []
    for rows in (ROWS[9:12], ROWS[12:]):
        add(tmp_path, "n2", rows, len(states))
        (batch,) = batches([reader])
        assert isinstance(batch.end, CdcState)
        states.append(batch.end)
    first, later = states
    stored = first.encode()
    assert 80 * len(ROWS[9:12]) <= first.size_bytes < later.size_bytes
    assert not stored.kept
    reader.release(first)

    names = {chunk.name for chunk in first.chunks}
    assert {0} == {chunk.size_bytes for chunk in first.chunks}
    assert names == later.encode().kept
    assert {chunk.name for chunk in later.chunks} - names < later.encode().chunks.keys()
    assert names < set(stored.names)
    made.close()


def test_nodes_may_be_listed_in_another_order(tmp_path: Path) -> None:
    """A state names its nodes: their numbers in one run mean nothing in the next."""
    logs = {"n1": ROWS[:9], "n2": [], "n3": []}
    options = forged_nodes(tmp_path, logs)
    _, at = read(options)
    add(tmp_path, "n1", ROWS[:9])  # Again on the same node: no second copy.
    add(tmp_path, "n2", ROWS[:3])
    nodes = options["nodes"]
    assert isinstance(nodes, dict)

    found, _ = read(options | {"nodes": {n: nodes[n] for n in ("n3", "n2", "n1")}}, at)

    assert expected(ROWS[:3]) == found


def test_a_node_that_the_state_knows_cannot_be_left_out(tmp_path: Path) -> None:
    """Copies were counted for it; the error names it."""
    options = forged_nodes(tmp_path, {"n1": ROWS[:9], "n2": [], "n3": [], "n4": []})
    schema = (tmp_path / "schema.cql").read_text().replace("'3'", "'4'")
    (tmp_path / "schema.cql").write_text(schema)
    _, at = read(options | {"consistency": "TWO"})
    nodes = options["nodes"]
    assert isinstance(nodes, dict)
    del nodes["n2"]

    with pytest.raises(ConfigError, match="n2"):
        read(options | {"consistency": "TWO"}, at)


def test_the_books_of_every_node_balance(tmp_path: Path) -> None:
    """What was read of a log is what was first, counted, surplus and repeated (I3)."""
    logs = {"n1": ROWS[:9] + ROWS[:2], "n2": ROWS[3:], "n3": ROWS[5:7]}
    _, at = read(forged_nodes(tmp_path, logs))

    for node, raws in logs.items():
        fates = ("first", "counted", "surplus", "repeat")
        assert len(raws) == total(at, f"entries.{node}.read")
        assert len(raws) == sum(total(at, f"entries.{node}.{fate}") for fate in fates)
    assert len(ROWS) == total(at, "mutations.first")
    assert 6 == total(at, "mutations.agreed")


def test_a_split_reads_nothing_of_another(tmp_path: Path) -> None:
    """Together the splits publish everything once, for any number of them."""
    options = forged_nodes(tmp_path, {"n1": ROWS, "n2": ROWS, "n3": ROWS})

    for splits in (1, 2, 7, 64):
        found, at = read(options | {"splits": splits})
        assert expected(ROWS) == found
        assert 3 * len(ROWS) == sum(total(at, f"entries.n{n}.read") for n in (1, 2, 3))


def test_released_segments_go_but_for_those_of_pending_copies(tmp_path: Path) -> None:
    """What was committed is disposed of; a copy that still waits keeps its segment (I5)."""
    logs = {"n1": ROWS[:3], "n2": ROWS[:2], "n3": ROWS[:2]}
    options = forged_nodes(tmp_path, logs) | {"disposal": "delete", "splits": 1}
    newest = SEGMENT_ID + 9  # The newest one of a log stays in any case.
    for node in logs:
        content = segment([[]], segment_id=newest).content
        write_segment(tmp_path / node, content, segment_id=newest)
    made = source(options)
    (reader,) = open_all(made).values()
    for found in batches([reader]):
        reader.release(found.end)
    left = [path for path in tmp_path.glob("*/*.log") if str(newest) not in path.name]
    assert ["n1"] == sorted(path.parent.name for path in left)

    for number, raws in ((newest + 1, ROWS[2:3]), (newest + 2, [])):
        content = segment([raws], segment_id=number).content
        write_segment(tmp_path / "n2", content, segment_id=number)
    for found in batches([reader]):
        assert isinstance(found, Batch)
        reader.release(found.end)

    left = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/*.log"))
    names = {"n1": newest, "n2": newest + 2, "n3": newest}
    assert [Path(node, f"CommitLog-7-{number}.log") for node, number in names.items()] == left
    reader.close(CloseReason.FINISHED)
    reader.close(CloseReason.FINISHED)


def test_a_state_grows_by_what_changed(tmp_path: Path) -> None:
    """A later state has the chunks of the one before it, and one more (line 29)."""
    options = forged_nodes(tmp_path, {"n1": ROWS[:9], "n2": [], "n3": []}) | {"splits": 1}
    _, before = read(options)
    add(tmp_path, "n2", ROWS[:9])
    _, after = read(options, before)

    (old,) = (state.chunks for state in before.values() if isinstance(state, CdcState))
    (new,) = (state.chunks for state in after.values() if isinstance(state, CdcState))
    assert old == new[: len(old)]
    assert len(old) + 1 == len(new)
