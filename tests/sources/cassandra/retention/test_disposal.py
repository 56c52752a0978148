"""Segments are held so that no one loses them, and go so that no disk is filled (I5)."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from tempfile import gettempdir

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from headrace.plugins import Batch, parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.commitlog.segment import index_name
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.logs.directory import LogDirectory, sizes_in
from headrace.sources.cassandra.logs.pins import HoldDeniedError, HoldError, Pending
from headrace.sources.cassandra.retention import disposal as keeper_module
from headrace.sources.cassandra.retention.disposal import TICK_MS, Disposal
from helpers.logs.holding import DELETE, Node, hold, hold_on, job, name, past, retention_of
from helpers.logs.node_logs import batches, open_all, source
from helpers.settings.native_modules import ROOT
from helpers.settings.scratch import MEMORY_DISK

NOTHING: Pending = {}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node that wrote nothing yet."""
    return Node(tmp_path / "n1")


def size_of(node: Node, number: int) -> int:
    """Return the bytes of a segment."""
    return node.log.find(name(number)).stat().st_size


def files(number: int) -> list[str]:
    """Return the names of a segment and its index."""
    return [name(number), index_name(name(number))]


def keys_of(found: Batch) -> Iterator[str]:
    """Yield the keys of a batch's rows."""
    for record in found.records():
        yield str(record.document()["key"])


def test_a_segment_is_held_when_it_is_seen(node: Node) -> None:
    """What is live, and the newest with CDC data, keep Cassandra's link of the very file."""
    retention = retention_of(node.log, DELETE)
    retention.check()
    node.write(1, [b"a"], index="20")
    node.write(2, index=None)
    retention.take()

    assert [1, 2] == node.held()
    assert (node.raw / name(1)).samefile(node.hold / name(1))
    assert {name(1), name(2), index_name(name(1))} == set(node.in_raw())
    assert [1] == node.listed()

    node.complete(1)
    retention.take()

    assert [*files(1), name(2)] == node.in_raw()
    assert [(1, True)] == [(info.segment_id, info.final) for info in node.log.segments()]

    node.complete(2)
    retention.take()

    assert files(2) == node.in_raw()


def test_what_has_no_cdc_data_loses_our_link(node: Node) -> None:
    """Cassandra takes such a segment out of `cdc_raw` itself, and so its room is free."""
    retention = retention_of(node.log, DELETE)
    retention.check()
    node.write(1, index=None)
    retention.take()
    assert [1] == node.held()

    node.discard(1)
    retention.take()

    assert [] == node.held()


@pytest.mark.parametrize("seen_live", [True, False])
def test_what_the_node_trims_is_read_all_the_same(node: Node, *, seen_live: bool) -> None:
    """`cdc_block_writes: false`: the oldest files leave `cdc_raw` unread, and nothing is lost."""
    made = source(job([node]))
    if seen_live:
        node.write(1, [b"a"], index="20")
        node.write(2, [b"b"], index="20")
    else:
        node.write(1, [b"a"])
        node.write(2, [b"b"])
    readers = open_all(made)
    retention = retention_of(node.log, DELETE)
    retention.take()
    node.trim(1, 2)
    node.write(3, [b"c"])

    found = [key for batch in batches(readers.values()) for key in keys_of(batch)]

    assert 3 == len(found)
    made.close()


def test_a_job_reads_on_from_the_hold_and_lets_it_go(node: Node) -> None:
    """A worker without an agent links, reads, and disposes of what it committed."""
    clock = DrivenClock()
    made = source(job([node]), clock)
    node.write(1, [b"a", b"b"])
    node.write(2, [b"c"])
    (reader,) = open_all(made).values()
    found = list(batches([reader]))
    assert files(2) == node.in_raw()
    assert [1, 2] == node.held()

    reader.release(found[-1].end)

    assert 3 == sum(len(list(batch.records())) for batch in found)
    assert [2] == node.held()
    made.close()


def test_a_job_that_keeps_touches_nothing(node: Node) -> None:
    """With `disposal: keep` the agent alone links and deletes; what it holds is read."""
    node.write(1, [b"a"])
    agents = retention_of(node.log, DELETE)
    agents.check()
    agents.take()
    node.write(2, [b"b"])
    made = source(job([node], disposal="keep"))

    found = [key for batch in batches(open_all(made).values()) for key in keys_of(batch)]

    assert 2 == len(found)
    assert [1] == node.held()
    assert [*files(1), *files(2)] == node.in_raw()
    made.close()


def test_a_replay_links_anew_what_was_let_go(node: Node) -> None:
    """A segment that the restarted node puts back is held, and goes again."""
    mine = hold(node)
    retention = retention_of(node.log, DELETE)
    for number in (1, 2):
        node.write(number, [b"a"])
    retention.take()
    mine.register("0", past(2), NOTHING)
    assert 1 == mine.dispose()

    node.replay(1)
    node.replay(2)
    retention.take()
    assert [1, 2] == node.held()
    assert files(2) == node.in_raw()

    assert 1 == mine.dispose()
    assert [2] == node.held()


@pytest.mark.parametrize("left", list(product((True, False), repeat=4)))
def test_all_that_a_crash_leaves_is_tidied(node: Node, left: tuple[bool, bool, bool, bool]) -> None:
    """Whichever of the four links of a segment are there, it is listed once, and all of it goes."""
    mine = hold(node)
    for number in (1, 2):
        node.write(number, [b"a"])
    retention_of(node.log, DELETE).take()
    node.replay(1)
    paths = [
        place / each for place in (node.raw, node.hold) for each in (name(1), index_name(name(1)))
    ]
    for path, stays in zip(paths, left, strict=True):
        if not stays:
            path.unlink()
    has_index = left[1] or left[3]
    assert ([1, 2] if has_index else [2]) == node.listed()

    retention_of(node.log, DELETE).take()
    mine.register("0", past(2), NOTHING)
    mine.dispose()

    node.discard(1)  # What never had an index leaves `cdc_raw` by the node's hand.
    retention_of(node.log, DELETE).take()
    assert [False] * 4 == [path.exists() for path in paths]


def test_an_orphan_index_goes_when_all_are_past_it(node: Node) -> None:
    """G02, G09: an index without its log is a gap, and not a reason to keep it."""
    mine = hold(node)
    (node.raw / index_name(name(1))).write_text("1\nCOMPLETED")
    node.write(2, [b"a"])
    assert [True, False] == [info.missing for info in node.log.segments()]

    mine.register("0", past(2), NOTHING)

    assert 1 == mine.dispose()
    assert [2] == node.listed()


def test_nothing_goes_before_its_time(node: Node) -> None:
    """Retention is by the time of the last write, and comes after everybody's needs."""
    clock = DrivenClock()
    retention = retention_of(node.log, replace(DELETE, retention_ms=60_000), clock)
    retention.check()
    mine = hold_on(retention, "orders")
    for number, age_s in ((1, 90), (2, 30), (3, 0)):
        node.write(number, [b"a"])
        at = clock.wall_ms() / 1000 - age_s
        os.utime(node.raw / name(number), (at, at))
    mine.register("0", past(3), NOTHING)
    mine.tick()
    assert [2, 3] == node.listed()

    clock.advance(30_000)
    mine.tick()

    assert [3] == node.listed()


def test_at_its_bound_the_hold_leaves_segments_to_the_node(node: Node) -> None:
    """G10: what is not held counts in `cdc_raw`, with a warning; when there is room it is held."""
    node.write(1, [b"a"])
    size = size_of(node, 1)
    disposal = replace(DELETE, bytes_max=2 * size)
    mine, retention = hold(node, disposal), retention_of(node.log, disposal)
    for number in (2, 3, 4):
        node.write(number, [b"a"])
    with capture_logs() as events:
        retention.take()
        retention.take()

    assert [1, 2] == node.held()
    assert {each for n in (3, 4) for each in (name(n), index_name(name(n)))} == set(node.in_raw())
    assert [1, 2, 3, 4] == node.listed()
    assert ["hold_full"] == [each["event"] for each in events]
    assert (True, 0, 2 * size) == (
        retention.figures().full,
        retention.figures().room_bytes,
        retention.figures().held_bytes,
    )

    mine.register("0", past(1), NOTHING)
    mine.dispose()
    retention.take()

    assert [2, 3] == node.held()
    assert [name(4), index_name(name(4))] == sorted(node.in_raw())


def test_the_oldest_are_dropped_where_that_is_wanted(node: Node) -> None:
    """G09: the newest are held, what goes is reported, and who needed it meets a gap (I10)."""
    node.write(1, [b"a"])
    size = size_of(node, 1)
    options = {"hold.bytes_max": 3 * size, "hold.full": "drop_oldest", "gaps": "expire"}
    made = source(job([node], **options), clock := DrivenClock())
    (reader,) = open_all(made).values()
    assert 1 == len(list(batches([reader])))
    for number in (2, 3, 4, 5):
        node.write(number, [b"%d" % number])
    node.discard(1, 2, 3, 4, 5)
    retention = retention_of(node.log, replace(DELETE, bytes_max=3 * size, drop_oldest=True))
    with capture_logs() as events:
        retention.take()

    assert ([3, 4, 5], 3 * size) == (node.held(), retention.figures().held_bytes)
    assert [1, 2] == [each["segment"] for each in events if each["event"] == "hold_dropped"]
    clock.advance(TICK_MS)
    found = list(batches([reader]))
    assert 3 == sum(len(list(batch.records())) for batch in found)
    made.close()


def test_what_the_node_still_has_a_link_of_is_not_dropped(node: Node) -> None:
    """That would free no byte of the disk, and a job would lose the segment for nothing."""
    hold(node)
    node.write(1, [b"a"])
    size = size_of(node, 1)
    node.write(2, [b"b"])
    retention = retention_of(node.log, replace(DELETE, bytes_max=2 * size, drop_oldest=True))
    retention.take()
    node.write(3, [b"c"])
    retention.take()
    assert [1, 2] == node.held()

    node.discard(1)
    retention.take()
    assert [2, 3] == node.held()


def test_free_room_is_left_to_the_node(node: Node) -> None:
    """Below `min_free` nothing is held, and what the node still has is given back to it."""
    hold(node)
    node.write(1, [b"a"])
    node.write(2, [b"b"], index="20")
    retention_of(node.log, DELETE).take()
    node.write(3, [b"c"])
    disk = os.statvfs(node.hold)
    never = disk.f_blocks * disk.f_frsize
    retention_of(node.log, replace(DELETE, min_free=never)).take()

    assert [1] == node.held()
    assert [1, 2, 3] == node.listed()


def test_before_a_job_is_registered_nothing_goes(node: Node) -> None:
    """No one has said yet what is needed."""
    retention = retention_of(node.log, DELETE)
    retention.check()
    for number in (1, 2, 3):
        node.write(number, [b"a"])
    retention.tick()

    assert 0 == retention.dispose()
    assert [1, 2, 3] == node.held()


def test_retention_gives_way_to_room(node: Node) -> None:
    """What no one needs goes before its time rather than leave a new segment unheld."""
    node.write(1, [b"a"])
    size = size_of(node, 1)
    disposal = replace(DELETE, bytes_max=2 * size, retention_ms=1 << 40)
    mine, retention = hold(node, disposal), retention_of(node.log, disposal)
    node.write(2, [b"a"])
    retention.take()
    mine.register("0", past(2), NOTHING)
    assert 0 == mine.dispose()

    node.write(3, [b"a"])
    retention.take()

    assert [2, 3] == node.held()


def test_what_is_left_of_the_room_is_reported_in_seconds(node: Node) -> None:
    """By how much was written recently; before it is known nothing is claimed."""
    node.write(1, [b"a"])
    size = size_of(node, 1)
    retention = retention_of(node.log, replace(DELETE, bytes_max=8 * size))
    retention.check()
    retention.take()
    assert None is retention.figures().retention_seconds

    for number in (2, 3):
        node.write(number, [b"a"])
        os.utime(node.raw / name(number), (number * 10, number * 10))
    os.utime(node.hold / name(1), (10, 10))
    retention = retention_of(node.log, replace(DELETE, bytes_max=8 * size))
    retention.take()

    assert 5 * size == retention.figures().room_bytes
    assert 50.0 == pytest.approx(retention.figures().retention_seconds)


def test_a_tick_looks_at_each_folder_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many segments come and go in it, and what is counted is what is there then."""
    looked: list[Path] = []

    def sizes(path: Path) -> dict[str, int]:
        looked.append(path)
        return sizes_in(path)

    monkeypatch.setattr(keeper_module, "sizes_in", sizes)
    for number in (1, 2, 3):
        node.write(number, [b"a"])
    retention = retention_of(node.log, replace(DELETE, bytes_max=1 << 30))
    retention.check()

    retention.tick()
    assert sorted([node.raw, node.hold]) == sorted(looked)
    assert (files(3), [1, 2, 3]) == (node.in_raw(), node.held())

    node.write(4, [b"a"], index="1")
    figures = retention.figures()
    in_raw = [node.raw / each for each in node.in_raw()]
    assert sum(path.stat().st_size for path in in_raw) == figures.cdc_raw_bytes
    assert 3 == figures.held_segments


def test_a_hold_that_fills_is_reported(node: Node) -> None:
    """G10: once a minute from four fifths on, before anything is left out."""
    node.write(1, [b"a"])
    clock = DrivenClock()
    most = int(1.1 * size_of(node, 1))
    retention = retention_of(node.log, replace(DELETE, bytes_max=most), clock)
    retention.check()
    with capture_logs() as events:
        for _ in range(3):
            retention.take()
        clock.advance(60_000)
        retention.take()

    assert ["hold_filling"] * 2 == [each["event"] for each in events]


def test_a_hold_elsewhere_is_refused(node: Node) -> None:
    """Links do not lead to other file systems; the mistake is found before anything is read."""
    elsewhere = ROOT if Path(gettempdir()) == MEMORY_DISK else MEMORY_DISK  # Nothing is written.
    log = LogDirectory(node.raw, hold=elsewhere)

    with pytest.raises(HoldDeniedError, match="linked there") as caught:
        retention_of(log, DELETE).check()

    assert 3 == caught.value.exit_status


def test_only_files_of_segments_are_touched(node: Node, tmp_path: Path) -> None:
    """Neither what links lead to nor what lies beside them is held, followed or removed."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (node.raw / name(1)).symlink_to(secret)
    (node.raw / index_name(name(1))).write_text("1\nCOMPLETED")
    (node.raw / "CommitLog-7-2.log.bak").write_bytes(b"x")
    node.write(3, [b"a"])
    mine = hold(node)
    mine.register("0", past(9), NOTHING)
    mine.tick()

    assert secret.read_bytes() == b"secret"
    assert "CommitLog-7-2.log.bak" in node.in_raw()


def test_a_full_disk_stops_nothing_that_makes_room(tmp_path: Path) -> None:
    """A note that cannot be written is reported and stays as it was; segments still go."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mounted)]
    if subprocess.run(command, capture_output=True, check=False).returncode:  # noqa: S603
        pytest.skip("only root can make a small disk")
    try:
        node = Node(mounted / "n1")
        mine = hold(node)
        for number in (1, 2):
            node.write(number, [b"a"])
        retention = retention_of(node.log, DELETE)
        retention.take()
        node.discard(1, 2)
        mine.register("0", past(2), NOTHING)
        with pytest.raises(OSError, match="No space"), (mounted / "filler").open("wb") as filler:
            filler.write(bytes(1 << 20))
        with pytest.raises(HoldError, match="No space"):
            mine.register("0", past(3), dict.fromkeys(range(10000), ()))

        assert 1 == mine.dispose()
        assert [2] == node.held()
    finally:
        subprocess.run(["umount", str(mounted)], check=True)  # noqa: S603, S607


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({"hold.min_free": "1000TiB"}, []),
        ({"hold.min_free": "0B"}, [2]),
        ({"hold.retention_seconds": 10_000_000_000}, [1, 2]),
        ({"hold.bytes_max": 1}, []),
    ],
)
def test_a_job_has_the_bounds_that_it_says(
    node: Node, options: Mapping[str, object], held: Sequence[int]
) -> None:
    """Room that stays free and an age that segments become are kept by the worker itself."""
    for number in (1, 2):
        node.write(number, [b"a"])
    made = source(job([node], **options))
    (reader,) = open_all(made).values()
    for batch in batches([reader]):
        reader.release(batch.end)

    assert held == node.held()
    made.close()


@pytest.mark.parametrize(("full", "held"), [("stop_holding", [1]), ("drop_oldest", [2])])
def test_a_job_does_at_the_bound_as_it_says(node: Node, full: str, held: Sequence[int]) -> None:
    """Nothing more is held, or the oldest gives way."""
    node.write(1, [b"a"])
    most = int(1.5 * size_of(node, 1))
    options = {"hold.bytes_max": most, "hold.full": full}
    made = source(job([node], **options), clock := DrivenClock())
    (reader,) = open_all(made).values()
    assert 1 == len(list(batches([reader])))
    node.discard(1)
    node.write(2, [b"b"])
    clock.advance(TICK_MS)
    assert 1 == len(list(batches([reader])))

    assert held == node.held()
    made.close()


def test_options_are_in_the_units_that_people_use() -> None:
    """Sizes and durations are written as such."""
    given = {
        "nodes": {"n1": {"path": "raw", "hold": "hold"}},
        "schema": "x",
        "disposal": {"archive": "/a"},
        "hold.bytes_max": "50GiB",
        "hold.min_free": "1GiB",
        "hold.retention_seconds": "2h",
    }
    made = parse_config(CassandraConfig, given).disposal_of

    expected = Disposal(
        keep=False,
        archive=Path("/a"),
        retention_ms=7_200_000,
        bytes_max=50 << 30,
        min_free=1 << 30,
    )
    assert expected == made
