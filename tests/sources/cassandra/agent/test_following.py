"""A log that is followed: its agent answers a waiting request as soon as there is more."""

import select
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from headrace.sources.cassandra.agent import following
from headrace.sources.cassandra.agent.changes import Changes
from headrace.sources.cassandra.agent.client import Agent, RemoteLog
from headrace.sources.cassandra.agent.following import LATE_MS, RETRY_MS
from headrace.sources.cassandra.agent.protocol import AgentAccess
from headrace.sources.cassandra.agent.server import AgentServer
from headrace.sources.cassandra.errors import AgentUnavailableError
from headrace.sources.cassandra.logs.descriptors import Descriptors
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.logs.folder_watch import Inotify
from helpers.logs.live_log import LiveLog
from helpers.servers.agents import CLOCK, TOKEN, Served, agent_at, serving
from helpers.servers.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS_MAX = 20.0
SHORT_SECONDS = 0.4


class Followed:
    """A log that its agent follows, as a worker waits for it."""

    def __init__(self, agent: Agent) -> None:
        """Follow it from now on."""
        self.log, self.descriptors = RemoteLog(agent), Descriptors()
        self.log.follow(self.descriptors)

    def comes(self, seconds: float = SECONDS_MAX) -> bool:
        """Wait until the agent reports more; return whether it does."""
        poll, until = select.poll(), time.monotonic() + seconds
        assert self.descriptors.descriptor is not None
        poll.register(self.descriptors.descriptor, select.POLLIN)
        while not self.log.is_written():
            if time.monotonic() >= until:
                return False
            poll.poll(50)
        return True

    def close(self) -> None:
        """Give everything back."""
        self.log.close()
        self.descriptors.close()


@contextmanager
def followed(agent: Agent) -> Iterator[Followed]:
    """Follow the log of an agent that can be reached, and list it."""
    with closing(Followed(agent)) as made:
        made.log.segments()
        assert made.log.is_reported
        yield made


@pytest.fixture
def log(tmp_path: Path) -> LiveLog:
    """Return a log that a node writes to."""
    return LiveLog(tmp_path / "raw")


def until(condition: "Callable[[], bool]") -> None:
    """Wait for *condition*."""
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("over", ["tcp", "tls"])
def test_an_agent_tells_of_each_sync(log: LiveLog, tmp_path: Path, over: str) -> None:
    """Its answer is the listing that the directory has; without a sync there is none."""
    options: dict[str, object] = {}
    access = AgentAccess(TOKEN)
    if over == "tls":
        authority = Authority(tmp_path, "authority")
        certificate, key = authority.issue("agent")
        options = {"tls_certificate": str(certificate), "tls_key": str(key)}
        access = AgentAccess(TOKEN, str(authority.file))
    with (
        serving(log.folder, 0, **options) as served,
        followed(Agent(served.url, access, CLOCK.monotonic_ms)) as far,
    ):
        for number in range(5):
            assert far.log.is_still()
            assert not far.log.is_written()
            log.append(2)
            log.sync(rolls=number == 3)
            assert far.comes()
            assert not far.log.is_still()
            while LogDirectory(log.folder).segments() != far.log.segments():
                assert far.comes()  # Of two changes the first may be answered alone.
        listed = far.log.segments()
        assert not far.comes(0.05)
        assert listed is far.log.segments()


def test_nothing_is_asked_for_while_it_waits(log: LiveLog) -> None:
    """A listing that the agent would have replaced needs no request."""
    with serving(log.folder) as served, followed(served.agent()) as far:
        crossed = far.log.agent.crossed_bytes
        assert far.log.segments() is far.log.segments()
        assert crossed == far.log.agent.crossed_bytes


@pytest.mark.parametrize("fault", ["no event", "no answer"])
def test_a_waiter_that_never_wakes_is_found(
    log: LiveLog, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """What the tests above wait for does not come by itself."""
    if fault == "no event":
        monkeypatch.setattr(Changes, "_wake", lambda _: None)
    else:
        monkeypatch.setattr(following.Following, "_answer", lambda _: None)
    with serving(log.folder) as served, followed(served.agent()) as far:
        until(lambda: served.server._changes._watched is not None)  # noqa: SLF001 (it waits)
        log.append(1)
        log.sync()
        assert not far.comes(SHORT_SECONDS)


def test_it_is_reported_without_inotify(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent looks at its directory then."""
    monkeypatch.setattr(Inotify, "watch", lambda *_: None)
    with serving(log.folder) as served, followed(served.agent()) as far:
        log.append(1)
        log.sync()
        assert far.comes()
        assert LogDirectory(log.folder).segments() == far.log.segments()


def test_a_wait_ends_and_begins_again(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an answer without news the next request waits."""
    monkeypatch.setattr(following, "WAIT_SECONDS", 0)
    with serving(log.folder) as served, followed(served.agent()) as far:
        assert not far.comes(0.05)
        assert far.log.is_still()
        monkeypatch.undo()
        log.append(1)
        log.sync()
        assert far.comes()


def test_it_waits_again_after_a_restart(log: LiveLog) -> None:
    """While the agent is away its log cannot be reached; then it is followed again."""
    with serving(log.folder) as served, closing(Followed(agent_at(served.url))) as far:
        far.log.segments()
        far.log.is_written()
        port = served.port
        served.close()
        until(lambda: not far.log.is_still())
        with pytest.raises(AgentUnavailableError):
            far.log.segments()
        log.append(1)
        log.sync()
        with serving(log.folder, port):
            CLOCK.advance(2 * RETRY_MS)
            assert LogDirectory(log.folder).segments() == far.log.segments()
            assert far.log.is_still()
            log.append(1)
            log.sync()
            assert far.comes()
            far.close()


def test_an_answer_that_is_late_is_not_waited_for(log: LiveLog) -> None:
    """The log is listed by an ordinary request then, which has a bound of its own."""
    with serving(log.folder) as served, followed(served.agent()) as far:
        CLOCK.advance(LATE_MS)
        assert not far.log.is_still()
        log.append(1)
        log.sync()
        assert LogDirectory(log.folder).segments() == far.log.segments()


def test_an_agent_ends_at_once(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait do not delay its end: they are answered."""
    monkeypatch.setattr("helpers.servers.agents.STOP_SECONDS", SECONDS_MAX)
    with serving(log.folder) as served, followed(served.agent()) as far:
        until(lambda: waiting(served) == 1)
        began = time.monotonic()
        served.close()
        assert time.monotonic() - began < SECONDS_MAX / 10
        assert not far.log.is_written()


def test_a_log_that_is_left_waits_for_nothing(log: LiveLog) -> None:
    """It has one request at most, none after it was left, and is listed by requests again."""
    with serving(log.folder) as served, followed(served.agent()) as far:
        for _ in range(3):
            far.log.is_written()
            far.log.segments()
        until(lambda: waiting(served) == 1)
        far.log.follow(None)
        crossed = far.log.agent.crossed_bytes
        assert not far.log.is_still()
        far.log.segments()
        assert crossed < far.log.agent.crossed_bytes
        log.append(1)
        log.sync()  # Which ends what waited.
        until(lambda: waiting(served) == 0)


def test_too_many_do_not_wait(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others than the waiting request are answered as before; it is tried again later."""
    monkeypatch.setattr("headrace.sources.cassandra.agent.server.WAITING_MAX", 0)
    with serving(log.folder) as served, followed(served.agent()) as far:
        until(lambda: not far.log.is_still())
        assert 1 == len(far.log.segments())
        monkeypatch.undo()
        CLOCK.advance(RETRY_MS)
        far.log.segments()
        log.append(1)
        log.sync()
        assert far.comes()


def test_a_stranger_does_not_wait(log: LiveLog) -> None:
    """The request is authenticated as each other one is."""
    with serving(log.folder) as served, followed(served.agent()) as far:
        mark = far.log._following.mark  # type: ignore[union-attr]  # noqa: SLF001 (what it sends)
        stranger = agent_at(served.url, "another token")
        for agent, status in ((served.agent(), b" 304 "), (stranger, b" 401 ")):
            connection = agent.connected()
            head = {"If-None-Match": mark, "Prefer": "wait=0"}
            connection.sock.sendall(agent.head("GET", "/v2/segments", head))
            assert status in connection.sock.recv(1024).partition(b"\r\n")[0] + b" "
            connection.close()


def test_an_older_agent_is_known(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One without marks is asked for its listing each time, and no request waits."""

    async def segments(server: AgentServer, request: web.Request) -> web.Response:
        answer = await really(server, request)
        answer.headers.popall("ETag")
        return answer

    really = AgentServer._segments  # noqa: SLF001 (what older ones do)
    monkeypatch.setattr(AgentServer, "_segments", segments)
    with serving(log.folder) as served, closing(Followed(served.agent())) as far:
        for _ in range(2):
            assert 1 == len(far.log.segments())
            assert (False, False) == (far.log.is_reported, far.log.is_written())
            assert not far.log.is_still()


def waiting(served: Served) -> int:
    """Return how many requests wait at an agent."""
    return served.server._waiting  # noqa: SLF001 (not shown elsewhere)
