"""Streams of the pages: news only, bounded, continued where they ended, over when the server is."""

import base64
import contextlib
import http.client
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Self

import pytest

from headrace.connector.control.access.permission import Role
from headrace.connector.control.commands import Commands
from headrace.connector.rest.auth import Authenticator, hash_password
from headrace.connector.rest.console import streams
from headrace.connector.rest.console.streams import mark_of
from headrace.connector.rest.server import RestServer
from headrace.connector.rest.users import User
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.serving import STOP_SECONDS_MAX
from headrace.plugins.testing.doubles import context
from helpers.jobs.children import SECONDS_MAX
from helpers.servers.console_state import a_ring, ask
from helpers.servers.rest_server import Client, answers_here, eventually, serving

EVENTS = "/console/sources.events"
EVENTS_LEFT_MAX = 50


class Stream:
    """A stream as a browser reads it."""

    def __init__(self, port: int, path: str = EVENTS, **headers: str) -> None:
        """Ask for it."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        self._connection.request("GET", path, headers={"Accept": "text/event-stream", **given})
        self.answer = self._connection.getresponse()

    def __iter__(self) -> Iterator[dict[str, str]]:
        """Yield each event that has come whole, until the stream ends."""
        event: dict[str, str] = {}
        while line := self.answer.readline().decode():
            if line == "\n":
                yield event
                event = {}
            else:
                name, _, text = line.rstrip("\n").partition(":")
                event[name] = text.strip()

    def next(self, kind: str) -> dict[str, str]:
        """Return the next event, which has to be of a kind: `id`, or `event`."""
        event = next(each for each in self if "retry" not in each)
        assert kind in event, event
        return event

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it as a page that is left does."""
        self.answer.close()
        self._connection.close()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a state, at which streams look often."""
    answers_here(monkeypatch, ask)
    monkeypatch.setattr(streams, "EVERY_SECONDS", 0.02)
    monkeypatch.setattr("headrace.connector.rest.console.door.STATE_SECONDS", 0.02)
    return a_ring(tmp_path, splits=2, broken=False)


@pytest.fixture
def port(state: Path) -> Iterator[int]:
    """Return the port of a server of that state."""
    with serving(RestServer(state, log=context().log)) as address:
        yield address.port


def test_only_news_are_sent(port: int, state: Path) -> None:
    """What the page shows already sends nothing; what changes is an event with another mark."""
    page = Client(port)("GET", "/console/sources", None, Accept="application/xhtml+xml")
    found = re.search(r'data-mark="(\w+)"', page.body.decode())
    assert found is not None
    with Stream(port, f"{EVENTS}?mark={found[1]}") as stream:
        stream.next("event")  # Nothing was new in the looks before.
        with contextlib.closing(open_notes(state)) as notes:
            Commands(notes).stop("cdc.shop.orders")
        mark = next(event["id"] for event in stream if "id" in event)
    assert found[1] != mark


def test_a_stream_is_continued(port: int) -> None:
    """A browser that connects again gets only what it has not seen, not what its page had."""
    with Stream(port) as first:
        mark = first.next("id")["id"]
    with Stream(port, f"{EVENTS}?mark=older", Last_Event_ID=mark) as again:
        assert "id" not in again.next("event")


def test_streams_are_bounded(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused; when a page was left there is soon room again. A HEAD takes none."""
    monkeypatch.setattr(streams, "EVERY_SECONDS", SECONDS_MAX * 2)
    monkeypatch.setattr(streams, "STREAMS_MAX", 1)
    with Stream(port) as first, Stream(port) as refused:
        first.next("id")
        assert (503, "10") == (refused.answer.status, refused.answer.headers["Retry-After"])
        assert 200 == Client(port)("HEAD", EVENTS).status
    for _ in eventually():
        with Stream(port) as last:
            if last.answer.status == http.HTTPStatus.OK:
                last.next("id")
                return
    pytest.fail("there is no room")


def test_a_stream_ends(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many looks it ends, and a browser connects again."""
    monkeypatch.setattr(streams, "LOOKS_MAX", 3)
    with Stream(port) as stream:
        assert [["retry"], ["data", "id"]] == [sorted(event) for event in stream]


def test_streams_end_with_the_server(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is closed ends them at once, and does not wait for their next look."""
    monkeypatch.setattr(streams, "EVERY_SECONDS", SECONDS_MAX * 2)
    with contextlib.ExitStack() as stack:
        with serving(RestServer(state, log=context().log)) as address:
            stream = stack.enter_context(Stream(address.port))
            stream.next("id")
            begun = time.monotonic()
        assert [] == list(stream)
    assert STOP_SECONDS_MAX > time.monotonic() - begun


def test_streams_need_a_login(state: Path) -> None:
    """Without the right to see the page there is no stream of it."""
    users = {"eve": User(hash_password("eve"), Role.VIEWER)}
    server = RestServer(state, log=context().log, authenticator=Authenticator(users=users))
    with serving(server) as address, Stream(address.port) as stream:
        assert 401 == stream.answer.status


@pytest.mark.parametrize("now", [None, User(hash_password("eve"), Role.NONE)])
def test_a_stream_ends_with_the_permission(
    state: Path, monkeypatch: pytest.MonkeyPatch, now: User | None
) -> None:
    """A user who was removed, or lost the role, gets no more events, long before its last look."""
    monkeypatch.setattr(streams, "LOOKS_MAX", 10**9)
    users = {"eve": User(hash_password("eve"), Role.VIEWER)}
    server = RestServer(state, log=context().log, authenticator=Authenticator(users=users))
    login = base64.b64encode(b"eve:eve").decode()
    with serving(server) as address, Stream(address.port, Authorization=f"Basic {login}") as stream:
        stream.next("id")
        stream.next("event")  # She may, and looks are made.
        users.pop("eve")
        users |= {} if now is None else {"eve": now}
        left = [*islice(stream, EVENTS_LEFT_MAX)]  # Of a look that was under way.
    assert len(left) < EVENTS_LEFT_MAX


def test_a_page_that_is_not_there(port: int) -> None:
    """It has no stream."""
    with Stream(port, "/console/nothing.events") as stream:
        assert 404 == stream.answer.status


def test_an_age_that_looks_the_same_is_no_news() -> None:
    """A number that grows all the time is news when the page shows another one."""
    marks = [
        mark_of({"time": time_, "sources": [{"lag_seconds": age}]})
        for time_, age in (("1", 7_200.0), ("2", 7_205.0), ("3", 8_400.0))
    ]
    assert [True, False] == [marks[0] == mark for mark in marks[1:]]
