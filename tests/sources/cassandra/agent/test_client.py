"""A node's log through its agent: over real sockets, with everything that can go wrong there."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from aiohttp import web

from headrace.plugins import Batch, ConfigError, Demand, Reader, parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.agent.client import (
    Agent,
    AgentRefusedError,
    RemoteHold,
    RemoteLog,
    RemoteSegment,
)
from headrace.sources.cassandra.agent.command import AgentConfig
from headrace.sources.cassandra.agent.digest_exchange import BYTES_MAX, Exchange
from headrace.sources.cassandra.agent.framing_sessions import FramingSessions
from headrace.sources.cassandra.agent.protocol import (
    COPIES_PATH,
    COPY_BYTES_MAX,
    RANGE_BYTES_MAX,
    SEGMENTS_PATH,
    AgentAccess,
)
from headrace.sources.cassandra.agent.server import AgentServer, Pace
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.errors import (
    END_OFFSET,
    AgentUnavailableError,
    AgentUntrustedError,
    LogUnreadableError,
)
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs.directory import LogDirectory, SegmentInfo
from headrace.sources.cassandra.logs.pins import FOLDER
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.cdc_state import Marker
from helpers.jobs.children import RUN, next_line, until
from helpers.logs.forged import insert
from helpers.logs.holding import Node, name
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.servers.agents import CLOCK, TOKEN, agent_at, serving
from helpers.servers.authority import Authority

NODES = ("n1", "n2", "n3")
TAU_MS = 600_000  # So much more split time is worth a commit.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory of two final segments and a live one."""
    for number in (1, 2):
        write_segment(tmp_path / "raw", bytes([number]) * 3_000_000, segment_id=number)
    write_segment(tmp_path / "raw", b"x" * 1_000, segment_id=3, index="700")
    return tmp_path / "raw"


def whole(log: RemoteLog, info: SegmentInfo, piece: int = 65_536) -> bytes:
    """Return the bytes of a segment, read as the framer reads them."""
    opened, content = log.open(info), b""
    buffer = bytearray(piece)
    while came := opened.read_into(len(content), memoryview(buffer)):
        content += buffer[:came]
    opened.close()
    return content


def test_an_agent_serves_what_the_directory_has(folder: Path) -> None:
    """Listing, times of index files, sizes and bytes are those of the directory."""
    here = LogDirectory(folder)
    with serving(folder) as served:
        log = RemoteLog(served.agent())

        assert here.segments() == log.segments()
        durable = [info.durable_ms for info in here.segments()]
        assert durable == [info.durable_ms for info in log.segments()]
        assert any(durable)
        for info in here.segments():
            assert (folder / info.name).read_bytes() == whole(log, info)
            assert here.size_of(info) == log.size_of(info)
            assert here.modified_ms(info) == log.modified_ms(info)
        assert 6_001_000 <= served.server.sent_bytes < 6_020_000
        log.end_at(1, END_OFFSET)
        assert [1] == [info.segment_id for info in log.segments()]


def test_a_live_segment_is_never_fetched_ahead(folder: Path) -> None:
    """What a live segment gets after a read is seen by the next one."""
    live = LogDirectory(folder).segments()[-1]
    with serving(folder) as served:
        opened = RemoteLog(served.agent()).open(live)
        buffer = memoryview(bytearray(100))
        assert 100 == opened.read_into(0, buffer)
        with (folder / live.name).open("r+b") as file:
            file.write(b"new")
        assert 3 == opened.read_into(0, buffer[:3])

        assert b"new" == bytes(buffer[:3])


def test_damage_behind_what_is_durable_is_not_sent(tmp_path: Path) -> None:
    """Of a live segment that cannot be framed the reader gets no byte that may still change."""
    made = segment([[insert(b"a", bytes(2_000))], [insert(b"b", bytes(2_000))]], segment_id=1)
    spoilt = bytearray(made.content)
    spoilt[made.section_ends[0] - 30] ^= 1
    limit = made.section_ends[0]
    write_segment(tmp_path, bytes(spoilt), segment_id=1, index=str(limit))
    with serving(tmp_path) as served:
        log = RemoteLog(served.agent())
        (live,) = log.segments()
        buffer = memoryview(bytearray(8_000))
        begin = made.header_bytes

        assert limit - begin == log.open(live).read_into(begin, buffer)
        assert spoilt[begin:limit] == bytes(buffer[: limit - begin])


def test_what_was_opened_stays_readable(folder: Path) -> None:
    """A segment that loses its name is read to its end; one that was never opened has vanished."""
    first, second, _ = LogDirectory(folder).segments()
    content = (folder / first.name).read_bytes()
    with serving(folder) as served:
        log = RemoteLog(served.agent())
        opened = log.open(first)
        (folder / first.name).unlink()
        (folder / second.name).unlink()
        buffer = memoryview(bytearray(10))

        assert 10 == opened.read_into(len(content) - 10, buffer)
        assert content[-10:] == bytes(buffer)
        with pytest.raises(FileNotFoundError):
            log.open(second)


def test_another_file_of_the_name_is_not_read(folder: Path) -> None:
    """Bytes of a file that took the place of the one that was opened are never taken."""
    info = LogDirectory(folder).segments()[0]
    with serving(folder) as served:
        opened = RemoteLog(served.agent()).open(info)
        (folder / info.name).rename(folder / "aside")
        (folder / info.name).write_bytes(b"other" * 1_000_000)

        with pytest.raises(LogUnreadableError, match="another file"):
            opened.read_into(2_000_000, memoryview(bytearray(10)))


@pytest.mark.parametrize(
    ("path", "span", "status", "code"),
    [
        ("/..%2f..%2fetc%2fpasswd", "bytes=0-9", 400, "bad_segment"),
        ("/%2e%2e%2fraw%2fCommitLog-7-1.log", "bytes=0-9", 400, "bad_segment"),
        ("/CommitLog-7-1_cdc.idx", "bytes=0-9", 400, "bad_segment"),
        ("/CommitLog-7-9.log", "bytes=0-9", 404, "segment_gone"),
        ("/CommitLog-7-1.log", "", 400, "bad_range"),
        ("/CommitLog-7-1.log", "bytes=9-0", 416, "bad_range"),
        ("/CommitLog-7-1.log", "bytes=-5", 400, "bad_range"),
        ("/CommitLog-7-1.log", f"bytes=0-{RANGE_BYTES_MAX}", 416, "bad_range"),
        ("/CommitLog-7-1.log", "bytes=3000000-3000009", 416, "behind_end"),
    ],
)
def test_what_is_not_served_has_a_name(
    folder: Path, path: str, span: str, status: int, code: str
) -> None:
    """Other files, and ranges that are huge or make no sense, are refused."""
    with serving(folder) as served:
        found, content, _ = served.agent().ask(
            "GET", SEGMENTS_PATH + path, headers={"Range": span} if span else {}
        )

    assert (status, True) == (found, code.encode() in content)


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    """A link of a segment's name leads nowhere."""
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "CommitLog-7-8.log").symlink_to(tmp_path / "secret")
    path, span = f"{SEGMENTS_PATH}/CommitLog-7-8.log", {"Range": "bytes=0-5"}
    with serving(folder) as served:
        answer = served.agent().ask("GET", path, headers=span)

    assert (404, True) == (answer.status, b"segment_gone" in answer.content)


@pytest.mark.parametrize("token", [None, "another"])
def test_readers_show_the_token(folder: Path, token: str | None) -> None:
    """Without the token nothing is reported, not even names."""
    with (
        serving(folder) as served,
        pytest.raises(AgentRefusedError, match="another one") as caught,
    ):
        RemoteLog(served.agent(token)).segments()

    assert ("agent_refused", 3) == (caught.value.code, caught.value.exit_status)


def test_a_token_of_several_lines_is_refused_before_it_is_sent(folder: Path) -> None:
    """It would be more fields of the request; it is not shown."""
    with serving(folder) as served, pytest.raises(AgentRefusedError, match="lines") as caught:
        agent_at(served.url, "secret\r\nX: y").ask("GET", SEGMENTS_PATH)
    assert "secret" not in str(caught.value)


def test_who_is_no_agent_is_reported_so(folder: Path) -> None:
    """An address that serves something else is a mistake of the configuration."""
    with serving(folder) as served, pytest.raises(AgentRefusedError, match="none of an agent's"):
        served.agent().ask_for(dict, "GET", "/nothing")


def test_an_agent_is_not_asked_again_at_once(folder: Path) -> None:
    """After a failure the next question fails without a connection, so that no one waits."""
    with serving(folder) as served:
        agent = served.agent()
        log = RemoteLog(agent)
        assert 3 == len(log.segments())
    for _ in range(2):
        with pytest.raises(AgentUnavailableError):
            log.segments()


def test_the_rate_is_kept() -> None:
    """The configured bytes a second leave on average; a pause is never saved up."""
    pace = Pace(1_000)

    assert [0.0, 0.5, 1.0] == [pace.pause(500, 10.0) for _ in range(3)]
    assert 0.0 == pace.pause(500, 20.0)
    assert 0.5 == pace.pause(1, 20.0)
    assert 0.0 == Pace(None).pause(10**9, 0.0)


def test_needs_are_kept_by_the_agent(folder: Path) -> None:
    """Only the agent deletes, and only what no split of a registered job needs (I5)."""
    with serving(folder, disposal="delete") as served:
        holds = [RemoteHold(served.agent(), job, "5a") for job in ("one", "two")]
        for hold in holds:
            hold.register_all(["a"])
        holds[0].register("a", Marker(2, END_OFFSET), {})
        assert 3 == len(LogDirectory(folder).segments())

        holds[1].register("a", Marker(3, 9), {2: ()})
        assert [2, 3] == [info.segment_id for info in LogDirectory(folder).segments()]


def test_an_agent_holds_what_it_serves(tmp_path: Path) -> None:
    """What Cassandra would count leaves `cdc_raw`, is read from the hold, and goes when done."""
    node = Node(tmp_path / "n1")
    for number in (1, 2):
        node.write(number, [b"a"])
    options: dict[str, object] = {"hold": str(node.hold), "hold.min_free": "0B"}
    with serving(node.raw, 0, **options) as served:
        hold = RemoteHold(served.agent(), "one", "5a")
        hold.register_all(["a"])
        until(lambda: name(1) not in node.in_raw(), "the segments are not held")
        log = RemoteLog(served.agent())
        assert [1, 2] == [info.segment_id for info in log.segments()]
        first = log.segments()[0]
        content = node.log.find(first.name).read_bytes()
        assert content.rstrip(b"\0") == whole(log, first)
        assert (2, False) == (hold.figures().held_segments, hold.figures().full)

        hold.register("a", Marker(2, END_OFFSET), {})
        assert [2] == [info.segment_id for info in log.segments()]


def test_an_agent_tells_of_its_node(folder: Path) -> None:
    """Prometheus learns how full cdc_raw and hold are, if it has the token."""
    with serving(folder) as served:
        request = urllib.request.Request(f"{served.url}/metrics")  # noqa: S310 (our own server)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=180)  # noqa: S310 (likewise)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        with urllib.request.urlopen(request, timeout=180) as answer:  # noqa: S310 (likewise)
            lines = answer.read().decode().splitlines()

    reported = dict(line.split() for line in lines if not line.startswith("#"))
    assert float(reported["headrace_cdc_raw_bytes"]) >= 6_001_000
    assert "0.0" == reported["headrace_hold_full"] == reported["headrace_hold_bytes"]


def test_one_mutation_is_fetched_by_its_place(tmp_path: Path) -> None:
    """Of a segment that is there, of one that went and left it, and of no other place."""
    node = Node(tmp_path / "n1")
    for number in (1, 2):
        node.write(number, [b"a", b"b"])
        os.utime(node.raw / f"CommitLog-7-{number}.log", (0, 0))
    raw = insert(b"b", b"b")
    end = (node.raw / "CommitLog-7-1.log").read_bytes().index(raw) + len(raw) + 4
    with serving(node.raw, disposal="delete") as served:
        log, hold = RemoteLog(served.agent()), RemoteHold(served.agent(), "one", "5a")
        assert (raw, 12) == log.fetch(1, end, len(raw))
        hold.register("a", Marker(2, END_OFFSET), {1: [(end, len(raw))]})
        assert [2] == [info.segment_id for info in log.segments()]
        assert (raw, 12) == log.fetch(1, end, len(raw))
        for segment_id, position, length in (
            (2, 3, len(raw)),
            (2, 1 << 40, len(raw)),
            (9, end, len(raw)),
            (1, end, COPY_BYTES_MAX + 1),
        ):
            assert None is log.fetch(segment_id, position, length)
        found, content, _ = served.agent().ask("POST", COPIES_PATH, b"..")
        assert (400, True) == (found, b"bad_request" in content)


def test_notes_that_went_with_the_directory_are_left_again(folder: Path) -> None:
    """I5: of a node set up again nothing goes before all splits have said what they need."""
    with serving(folder, disposal="delete") as served:
        hold = RemoteHold(served.agent(), "one", "5a")
        hold.register_all(["a", "b"])
        for split in "ab":
            hold.register(split, Marker(1, END_OFFSET), {})
        shutil.rmtree(folder / FOLDER)
        before = len(LogDirectory(folder).segments())

        hold.register("a", Marker(2, END_OFFSET), {})

        assert before == len(LogDirectory(folder).segments())


def test_needs_are_withdrawn(folder: Path) -> None:
    """A job that is gone permanently holds nothing, and a mark that is a path is refused."""
    with serving(folder) as served:
        hold = RemoteHold(served.agent(), "one", "5a")
        hold.register_all(["a", "b"])
        hold.withdraw(["a", "b"])
        with pytest.raises(AgentRefusedError, match="bad_request"):
            RemoteHold(served.agent(), "one", "../../5a").register_all(["a"])

    assert [] == list((folder / ".headrace").iterdir())


def test_an_agent_that_was_away_learns_of_needs(folder: Path) -> None:
    """A split that was registered while the agent was away is registered with its next need."""
    with serving(folder) as served:
        agent = served.agent()
    hold = RemoteHold(agent, "one", "5a")
    hold.register_all(["a", "b"])
    hold.register("a", Marker(2, END_OFFSET), {})
    with serving(folder, disposal="delete") as served:
        agent.url = served.url
        CLOCK.advance(60_000)
        hold.register("a", Marker(2, END_OFFSET), {})
        agent.close()

    notes = {path.name for path in (folder / ".headrace").iterdir()}
    assert {"one.a.5a", "one.b.5a"} == notes


ROWS = [insert(b"k%04d" % n, bytes(n)) for n in range(400)]
PLAIN = segment([ROWS[:100], ROWS[100:]], segment_id=1)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Return a directory of one final segment with entries."""
    write_segment(tmp_path / "plain", PLAIN.content, segment_id=1)
    return tmp_path / "plain"


def two_logs(url: str) -> RemoteLog:
    """Return the log of an agent, of a job that has another one: mutations come by digests."""
    exchange = Exchange()
    RemoteLog(agent_at(url), exchange)
    return RemoteLog(agent_at(url), exchange)


def framed(opened: RemoteSegment, meanwhile: Callable[[int], None]) -> list[bytes]:
    """Return the mutations of a segment as a cursor reads them; *meanwhile* others are read."""
    framer, found = Framer(), []
    open_segment(framer, opened.read_into, keys=Keys(KeyOptions()), place="segment")
    framer.supply_from(opened.supply)
    while framer.next_entry() == constants.ENTRY:
        found.append(framer.entry())
        meanwhile(len(found))
    return found


def test_mutations_are_taken_from_where_they_are_kept(plain: Path) -> None:
    """What came of one log is there for another one; each log asks once for all entries."""
    with serving(plain) as served:
        logs = [two_logs(served.url), two_logs(served.url)]
        logs[1].exchange = logs[0].exchange
        for log in logs:
            assert list(ROWS) == framed(log.open(log.segments()[0]), lambda _: None)
            log.close()
        sent = served.server.sent_bytes

    assert sent < len(PLAIN.content) + 2 * (16 + 2) * len(ROWS) + 20_000


def test_what_is_forgotten_meanwhile_is_asked_for_again(plain: Path) -> None:
    """Others may write over all that was read ahead, at any time."""
    with serving(plain) as served:
        log = two_logs(served.url)
        room = bytes(BYTES_MAX)

        def forget(count: int) -> None:
            if count % 150 == 0:
                log.exchange.add(room, 0, len(room), 1, 1)

        assert list(ROWS) == framed(log.open(log.segments()[0]), forget)
        log.close()


def test_more_than_is_kept_is_read_as_bytes(plain: Path) -> None:
    """Such as of many logs, or of mutations that are too long for the room."""
    for bytes_max in (1 << 8, 1 << 12, 1 << 20):
        with serving(plain) as served:
            exchange = Exchange(bytes_max, 1 << 10)
            RemoteLog(agent_at(served.url), exchange)
            log = RemoteLog(agent_at(served.url), exchange)
            opened = log.open(log.segments()[0])
            assert opened.supply is None
            assert list(ROWS) == framed(opened, lambda _: None)
            log.close()


def test_an_agent_may_start_again_between_requests(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it framed is gone, and reading continues at its place."""
    with serving(plain) as served:
        port, log = served.port, two_logs(served.url)
        opened = log.open(log.segments()[0])
        room, begin = memoryview(bytearray(1 << 20)), PLAIN.header_bytes
        with monkeypatch.context() as patch:
            patch.setattr(FramingSessions, "mutations", failing)
            with pytest.raises(AgentUnavailableError, match="none of an agent"):
                opened.read_into(begin, room)
    CLOCK.advance(60_000)
    with serving(plain, port=port):
        came = opened.read_into(begin, room)
        log.close()

    assert PLAIN.durable - begin == came
    assert PLAIN.content[begin : PLAIN.durable] == bytes(room[:came])


def failing(*_: object) -> bool:
    """Fail as an agent does that ends."""
    raise OSError("it ends")


def test_the_end_of_a_final_segment_is_asked_for_once(plain: Path) -> None:
    """Afterwards nothing is asked: the agent may be gone."""
    with serving(plain) as served:
        log = two_logs(served.url)
        opened = log.open(log.segments()[0])
        room = memoryview(bytearray(1 << 20))
        came = opened.read_into(PLAIN.header_bytes, room)
        log.close()

    assert PLAIN.durable == PLAIN.header_bytes + came
    assert 0 == opened.read_into(PLAIN.durable, room)
    assert 5_000 == opened.read_into(PLAIN.header_bytes, room[:5_000])


def test_a_live_segment_continues_where_it_ended(plain: Path) -> None:
    """What becomes durable later comes later, and so does the end."""
    limits = [PLAIN.ends[10], PLAIN.section_ends[0], PLAIN.ends[300]]
    room = memoryview(bytearray(1 << 20))
    write_segment(plain, PLAIN.content, segment_id=1, index=str(limits[0]))
    with serving(plain) as served:
        log, at = two_logs(served.url), PLAIN.header_bytes
        opened = log.open(log.segments()[0])
        for limit in limits:
            write_segment(plain, PLAIN.content, segment_id=1, index=str(limit))
            assert [limit] == [each.limit for each in log.segments()]
            came = opened.read_into(at, room)
            assert PLAIN.content[at : at + came] == bytes(room[:came])
            at += came
            assert 0 == opened.read_into(at, room)
            assert at <= limit
        write_segment(plain, PLAIN.content, segment_id=1)
        assert [True] == [each.final for each in log.segments()]
        came = opened.read_into(at, room)
        log.close()

    assert PLAIN.durable == at + came
    assert PLAIN.content[at : at + came] == bytes(room[:came])


def test_a_segment_that_went_between_requests_is_reported(plain: Path) -> None:
    """The agent started again, and the node has removed it: its mutations are lost."""
    with serving(plain) as served:
        port, log = served.port, two_logs(served.url)
        opened = log.open(log.segments()[0])
        log.close()
    shutil.rmtree(plain)
    plain.mkdir()
    room = memoryview(bytearray(1 << 20))
    with serving(plain, port=port):
        with pytest.raises(LogUnreadableError, match="segment_gone") as caught:
            opened.read_into(PLAIN.header_bytes, room)
        log.close()
    assert "CommitLog-7-1.log" in caught.value.place


@pytest.mark.parametrize(
    ("method", "made", "said"),
    [
        ("entries", b"<html>" * 9, "expected format 2"),
        ("entries", bytes(9), "expected format 2, found 0"),
        ("mutations", bytes(sum(map(len, ROWS))), "another mutation came for the place"),
        ("mutations", b"too little", "10 bytes of mutations came, expected"),
    ],
)
def test_what_an_agent_may_not_send_is_reported(
    plain: Path, method: str, made: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is named, nothing of it is used, and another try may be right."""
    with serving(plain) as served:
        log = two_logs(served.url)
        opened = log.open(log.segments()[0])
        room = memoryview(bytearray(1 << 20))
        with monkeypatch.context() as patch:
            patch.setattr(AgentServer, "_sent", sending(made, method))
            for _ in range(2):
                with pytest.raises(LogUnreadableError, match=f"no entries came: {said}") as caught:
                    opened.read_into(PLAIN.header_bytes, room)
                assert "CommitLog-7-1.log" in caught.value.place
        came = opened.read_into(PLAIN.header_bytes, room)
        log.close()

    assert PLAIN.content[PLAIN.header_bytes : PLAIN.durable] == bytes(room[:came])


Sending = Callable[[AgentServer, web.Request, bytes, dict[str, str]], Awaitable[web.StreamResponse]]


def sending(made: bytes, method: str) -> Sending:
    """Return what sends *made* in place of what *method* of the protocol answers."""
    really = AgentServer._sent  # noqa: SLF001 (what goes out)

    async def sent(
        server: AgentServer, request: web.Request, content: bytes, headers: dict[str, str]
    ) -> web.StreamResponse:
        is_meant = f"/{method}/" in request.path
        return await really(server, request, made if is_meant else content, headers)

    return sent


def three_nodes(folder: Path) -> dict[str, object]:
    """Write the same ten mutations into the logs of three nodes."""
    rows = [insert(b"k%d" % n, b"%c" % n) for n in range(10)]
    return forged_nodes(folder, dict.fromkeys(NODES, rows)) | {"agent_token": TOKEN, "splits": 2}


def test_a_job_reads_nodes_elsewhere(tmp_path: Path) -> None:
    """Two logs come over the network and one from the directory: each mutation once."""
    options = three_nodes(tmp_path)
    with serving(tmp_path / "n2") as second, serving(tmp_path / "n3") as third:
        nodes = {"n1": str(tmp_path / "n1"), "n2": {"url": second.url}, "n3": {"url": third.url}}
        made = source({**options, "nodes": nodes, "consistency": "ALL"})
        found = [r for each in batches(open_all(made).values()) for r in each.records()]
        made.close()

    assert 10 == len(found)
    assert 10 == len({str(record.document()) for record in found})


def test_a_node_that_is_down_holds_nobody_up(tmp_path: Path) -> None:
    """TP05: what has its copies elsewhere is published, time stops, the rest comes later."""
    options = three_nodes(tmp_path)
    late = segment([[insert(b"late", b"\7")]], segment_id=SEGMENT_ID + 1)
    for node in ("n1", "n3"):
        write_segment(tmp_path / node, late.content, segment_id=SEGMENT_ID + 1)
    with serving(tmp_path / "n3") as served:
        port = served.port
    nodes = {"n1": str(tmp_path / "n1"), "n2": str(tmp_path / "n2"), "n3": {"url": served.url}}
    clock = DrivenClock()
    made = source({**options, "nodes": nodes}, clock)
    readers = open_all(made)
    assert 10 == count(readers)
    for _ in range(3):
        clock.advance(TAU_MS)
        assert [] == list(batches(readers.values()))
        assert 0 == aged(readers)

    clock.advance(TAU_MS)
    with serving(tmp_path / "n3", port=port):
        assert 1 == count(readers)
        clock.advance(TAU_MS)
        assert [] == list(batches(readers.values()))
        assert 2 == aged(readers)
        made.close()


def aged(readers: Mapping[str, Reader]) -> int:
    """Return how many readers, asked for an end alone, have one with a new time."""
    end_only = Demand(records_max=0, bytes_max=0, linger_ms=1 << 30)
    return sum(isinstance(reader.read(end_only), Batch) for reader in readers.values())


def count(readers: Mapping[str, Reader]) -> int:
    """Return how many records can be read now."""
    return sum(len(list(each.records())) for each in batches(readers.values()))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"listen": "0.0.0.0:9142"}, "TLS and authentication"),
        ({"listen": "0.0.0.0:9142", "token": "x"}, "TLS and authentication"),
        ({"listen": "9142"}, "not host:port"),
        ({"disposal": "shred"}, "keep, delete or archive"),
        ({"disposal": "keep", "hold": "h"}, "would grow for ever"),
        ({"tls_certificate": "x.pem"}, "belongs to tls_certificate"),
        ({"tls_client_ca": "x.pem"}, "needs tls_certificate"),
    ],
)
def test_an_agent_is_safe_by_default(options: dict[str, str], said: str) -> None:
    """It is reached by others only with TLS and authentication; other mistakes are reported."""
    with pytest.raises(ConfigError, match=said):
        parse_config(AgentConfig, {"cdc_raw": "raw", **options})


def test_certificates_are_checked_on_both_sides(folder: Path, tmp_path: Path) -> None:
    """A reader with the authority's certificate is let in; no other, and to no other agent."""
    authority, stranger = (Authority(tmp_path, name) for name in ("authority", "stranger"))
    own, reader, wrong = authority.issue("agent"), authority.issue("reader"), stranger.issue("x")
    served_with: dict[str, object] = {
        "token": None,
        "tls_certificate": str(own[0]),
        "tls_key": str(own[1]),
        "tls_client_ca": str(authority.file),
    }
    ours, theirs = str(authority.file), str(stranger.file)
    let_in = [
        (AgentAccess(None, ours, *map(str, reader)), True),
        (AgentAccess(None, ours, *map(str, wrong)), False),
        (AgentAccess(None, ours), False),
        (AgentAccess(None, theirs, *map(str, reader)), False),
    ]
    with serving(folder, 0, **served_with) as served:
        for access, expected in let_in:
            agent = Agent(served.url, access, CLOCK.monotonic_ms)
            if expected:
                assert 3 == len(RemoteLog(agent).segments())
            else:
                for _ in range(2):  # The second time without a connection.
                    with pytest.raises(AgentUntrustedError, match="agent_certificate") as caught:
                        RemoteLog(agent).segments()
                    assert "agent_untrusted" == caught.value.code
            agent.close()


def test_a_job_shows_its_certificate(tmp_path: Path) -> None:
    """The options of the source say whom it trusts and who it is."""
    authority = Authority(tmp_path, "authority")
    (own, key), (reader, reader_key) = authority.issue("agent"), authority.issue("reader")
    served_with: dict[str, object] = {
        "tls_certificate": str(own),
        "tls_key": str(key),
        "tls_client_ca": str(authority.file),
    }
    options = three_nodes(tmp_path) | {
        "agent_ca": str(authority.file),
        "agent_certificate": str(reader),
        "agent_key": str(reader_key),
    }
    with serving(tmp_path / "n2", 0, **served_with) as served:
        nodes = {"n1": str(tmp_path / "n1"), "n2": {"url": served.url}, "n3": str(tmp_path / "n3")}
        made = source({**options, "nodes": nodes, "consistency": "ALL"})
        assert 10 == count(open_all(made))
        made.close()


def test_an_agent_sees_what_the_node_let_go(folder: Path, tmp_path: Path) -> None:
    """The node's commit log directory says that the newest segment is final."""
    commitlog = tmp_path / "commitlog"
    commitlog.mkdir()
    (commitlog / "CommitLog-7-4.log").touch()
    with serving(folder, commitlog=str(commitlog)) as served:
        assert [True] * 3 == [info.final for info in RemoteLog(served.agent()).segments()]


def test_an_agent_sends_no_faster_than_it_may(folder: Path) -> None:
    """What was sent is waited for before the next piece goes."""
    with serving(folder, rate_bytes=2_000) as served:
        log = RemoteLog(served.agent())
        opened = log.open(log.segments()[-1])
        begun = time.monotonic()
        assert [700, 300] == [opened.read_into(at, memoryview(bytearray(700))) for at in (0, 700)]
        opened.close()

        assert 0.3 <= time.monotonic() - begun


def test_the_command_serves_until_it_is_stopped(folder: Path, tmp_path: Path) -> None:
    """`headrace agent` says where it listens, and SIGTERM ends it with status 0."""
    (tmp_path / "token").write_text(TOKEN)
    child = subprocess.Popen(  # noqa: S603 (headrace itself)
        [
            *(sys.executable, "-c", RUN, "agent", "--cdc-raw", str(folder)),
            *("--listen", "127.0.0.1:0", "--token", f"${{file:{tmp_path}/token}}"),
            *("--rate-bytes", "100MiB"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        started = json.loads(next_line(child, "stderr", holding="agent_started"))
        assert 9142 != started["port"]
        agent = agent_at(f"http://127.0.0.1:{started['port']}")
        assert 3 == len(RemoteLog(agent).segments())
        agent.close()
        child.terminate()
        assert 0 == child.wait(180)
    finally:
        child.kill()
        child.communicate()
