"""What an agent does with readers that it cannot serve now: each has a name; others continue."""

import http.client
import socket
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from headrace.sources.cassandra.agent import server
from headrace.sources.cassandra.agent.client import AgentRefusedError, AgentVersionError, RemoteLog
from headrace.sources.cassandra.agent.protocol import (
    ENTRIES_PATH,
    MUTATIONS_PATH,
    NEEDS_PATH,
    SEGMENTS_PATH,
    Entries,
)
from headrace.sources.cassandra.errors import AgentUnavailableError
from headrace.sources.cassandra.forge.segments import write_segment
from helpers.jobs.children import until
from helpers.servers.agents import TOKEN, serving

NAME = "CommitLog-7-1.log"
SEGMENT = f"{SEGMENTS_PATH}/{NAME}"
SEGMENT_BYTES = 4_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory of one final segment."""
    write_segment(tmp_path, bytes(SEGMENT_BYTES), segment_id=1)
    return tmp_path


def test_a_reader_that_takes_nothing_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`slow_reader` is logged and the connection closed; meanwhile another one is answered."""
    monkeypatch.setattr(server, "SLOW_SECONDS_MAX", 0.5)
    request = (
        f"GET {SEGMENT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Range: bytes=0-{SEGMENT_BYTES - 1}\r\n\r\n"
    )
    with capture_logs() as events, serving(folder) as served, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.settimeout(60)
        slow.connect(("127.0.0.1", served.port))
        slow.sendall(request.encode())

        assert 1 == len(RemoteLog(served.agent()).segments())
        until(lambda: bool(events), "it is waited for")
        assert [("slow_reader", SEGMENT)] == [(each["event"], each["path"]) for each in events]
        came = b""
        while piece := _taken(slow):
            came += piece
        assert len(came) < SEGMENT_BYTES


def _taken(reader: socket.socket) -> bytes:
    try:
        return reader.recv(65_536)
    except ConnectionResetError:
        return b""


def test_too_many_at_once_are_asked_to_come_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`agent_busy` is one of the errors after which a reader comes again by itself."""
    with serving(folder) as served:
        with monkeypatch.context() as patch:
            patch.setattr(server, "REQUESTS_MAX", 0)
            with pytest.raises(AgentUnavailableError, match="agent_busy: 0 requests"):
                RemoteLog(served.agent()).segments()

        assert 1 == len(RemoteLog(served.agent()).segments())


def test_another_file_of_the_name_is_refused(folder: Path) -> None:
    """`segment_changed`: a reader with the file's mark gets none of another one's bytes."""
    with serving(folder) as served:
        agent = served.agent()
        wanted = {"Range": "bytes=0-9", "If-Match": '"another"'}

        assert 206 == agent.ask("GET", SEGMENT, headers={"Range": "bytes=0-9"}).status
        status, content, _ = agent.ask("GET", SEGMENT, headers=wanted)

        assert (412, True) == (status, b'"segment_changed"' in content)
        asked = msgspec.msgpack.encode(
            Entries(20, 9, bytes(16), full=True, ranges=[], passed=frozenset(), kept=None)
        )
        for path, body in ((ENTRIES_PATH, asked), (MUTATIONS_PATH, b"")):
            status, content, _ = agent.ask("POST", f"{path}/{NAME}", body, wanted)
            assert (412, True) == (status, b'"segment_changed"' in content)


def test_a_reader_of_another_version_is_reported(folder: Path) -> None:
    """`agent_version`, whichever of the two is older; it needs the token as for all else."""
    with serving(folder) as served:
        agent = served.agent()
        status, content, _ = agent.ask("GET", "/v1/segments")
        assert (404, True) == (status, b'"agent_version"' in content)
        assert b"has version 2 of the protocol, version 1 was asked for" in content
        for path in ("/v1/segments", "/v3/anything/else", "/of/another/server"):
            with pytest.raises(AgentVersionError, match="expected one of version 2") as caught:
                agent.ask_for(dict, "GET", path)
            assert ("agent_version", 3) == (caught.value.code, caught.value.exit_status)
        with pytest.raises(AgentRefusedError, match="the token is missing"):
            served.agent(None).ask("GET", "/v1/segments")


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (f"{ENTRIES_PATH}/CommitLog-7-1.log", b"..", 400, b"bad_request"),
        (f"{ENTRIES_PATH}/x", b"..", 400, b"bad_segment"),
        (f"{MUTATIONS_PATH}/x", b"", 400, b"bad_segment"),
        (f"{MUTATIONS_PATH}/CommitLog-7-1.log", b"1234567", 416, b"bad_place"),
        (f"{MUTATIONS_PATH}/CommitLog-7-1.log", bytes([9, 0, 0, 0] * 2), 416, b"bad_place"),
        (
            f"{MUTATIONS_PATH}/CommitLog-7-1.log",
            b"\xff" * 4 + bytes([9, 0, 0, 0]),
            404,
            b"copy_gone",
        ),
        (f"{MUTATIONS_PATH}/CommitLog-7-1.log", b"\xff" * 4 + b"\xf0" * 4, 416, b"bad_place"),
        (f"{MUTATIONS_PATH}/CommitLog-7-9.log", b"", 404, b"segment_gone"),
    ],
)
def test_what_cannot_be_answered_is_named(
    folder: Path, path: str, body: bytes, status: int, code: bytes
) -> None:
    """Malformed bodies, places that are none, and what does not exist."""
    with serving(folder) as served:
        found, content, _ = served.agent().ask("POST", path, body)

    assert (status, True) == (found, code in content)


def answer_to(port: int, text: str) -> tuple[int, str]:
    """Return status and text of the answer to a request as it is written."""
    with socket.create_connection(("127.0.0.1", port), 30) as peer:
        peer.sendall(text.encode("latin-1"))
        response = http.client.HTTPResponse(peer)
        response.begin()
        return response.status, f"{response.headers}{response.read().decode()}"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: localhost", 200),
        ("Host: agent.example:9142", 200),
        ("Host: 10.0.0.1", 200),
        ("Host: evil.example", 421),
        ("Host: localhost:99999999", 400),
        ("Host: localhost\r\nOrigin: http://evil.example", 403),
        ("Host: localhost\r\nOrigin: http://localhost:99999999", 400),
    ],
)
def test_only_its_own_names_are_answered(folder: Path, headers: str, status: int) -> None:
    """A page that lets its name point to the agent gets nothing, and versions are hidden."""
    with serving(folder, hosts="agent.example") as served:
        request = f"GET {SEGMENTS_PATH} HTTP/1.1\r\n{headers}\r\n"
        found, text = answer_to(served.port, f"{request}Authorization: Bearer {TOKEN}\r\n\r\n")

        assert status == found
        assert "Server: headrace" in text
        assert "aiohttp" not in text


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer x", "Bearer \xff", "\xff\xfe"])
def test_who_has_no_token_is_refused_at_once(folder: Path, token: str) -> None:
    """With anything else than the token the answer is 401, before the body has arrived."""
    with serving(folder) as served:
        head = "Host: localhost\r\nContent-Length: 9000\r\nAuthorization: "
        request = f"PUT {NEEDS_PATH} HTTP/1.1\r\n{head}{token}\r\n\r\n{{"

        assert 401 == answer_to(served.port, request)[0]


def test_a_body_that_does_not_arrive_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader has a bounded time for its body."""
    monkeypatch.setattr("headrace.plugins.serving.ARRIVAL_SECONDS_MAX", 0.2)
    with serving(folder) as served:
        head = f"Host: localhost\r\nContent-Length: 9\r\nAuthorization: Bearer {TOKEN}"
        status, text = answer_to(served.port, f"PUT {NEEDS_PATH} HTTP/1.1\r\n{head}\r\n\r\n{{")

    assert 408 == status
    assert "did not arrive in time" in text


def test_a_body_that_is_too_long_is_refused(folder: Path) -> None:
    """The bound of a body holds for its announced length."""
    with serving(folder) as served:
        head = f"Host: localhost\r\nContent-Length: 999999999\r\nAuthorization: Bearer {TOKEN}"
        status, text = answer_to(served.port, f"PUT {NEEDS_PATH} HTTP/1.1\r\n{head}\r\n\r\n{{")

    assert 413 == status
    assert "bad_request" in text
