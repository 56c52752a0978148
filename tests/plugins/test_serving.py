"""A server answers to its own names and to addresses, and to pages of its own site."""

import contextlib
import http.client
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from headrace.plugins.serving import IDLE_SECONDS_MAX, Hosts
from helpers.jobs.children import RUN, next_line

NAMES = ("agent.example", "*.pool.example", "[::5]")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", None),
        ("localhost:9142", None),
        ("127.0.0.1:1", None),
        ("[::1]:1", None),
        ("10.1.2.3", None),
        ("[2001:db8::1]:9142", None),
        ("Agent.Example:9142", None),
        ("a.pool.example", None),
        ("pool.example", 421),
        ("a.b.pool.example", 421),
        ("evil.example", 421),
        ("agent.example.evil.example", 421),
        ("10.1.2.3.evil.example:9142", 421),
        ("agent.example.", 421),
        ("", 400),
        ("a b", 400),
        ("user@agent.example", 400),
        ("agent.example:", 400),
        ("agent.example:65536", 400),
        ("agent.example:999999999999", 400),
        ("[::1", 400),
        ("::1", 400),
        ("agent.example/evil", 400),
    ],
)
def test_host(host: str, status: int | None) -> None:
    """A name that is not the server's own is refused, and one that cannot be is a bad request."""
    request = make_mocked_request("GET", "/", {"Host": host})
    refused = Hosts(NAMES).refusal(request)

    assert status == (refused and refused[0])


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, None),
        ("http://agent.example:9142", None),
        ("HTTP://AGENT.example:9142", None),
        ("https://agent.example:9142", 403),
        ("http://agent.example", 403),
        ("http://evil.example:9142", 403),
        ("null", 403),
        ("http://agent.example:99999", 400),
        ("nonsense", 400),
        ("http://", 400),
    ],
)
def test_origin(origin: str | None, status: int | None) -> None:
    """A page of another site is refused, with any headers."""
    headers = {"Host": "agent.example:9142"} | ({"Origin": origin} if origin else {})
    refused = Hosts(NAMES).refusal(make_mocked_request("GET", "/", headers))

    assert status == (refused and refused[0])


def test_all_names() -> None:
    """With `*` every name is accepted."""
    request = make_mocked_request("GET", "/", {"Host": "any.example"})

    assert Hosts(["*"]).refusal(request) is None


def test_idle_connections_do_not_fill_the_process(tmp_path: Path) -> None:
    """A server that was started with few files takes more connections than that, and answers."""
    few, many, seconds = 64, 200, IDLE_SECONDS_MAX / 3  # Later, idle ones are closed.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most == resource.RLIM_INFINITY or most > 2 * many
    limited = ["/bin/sh", "-c", f'ulimit -Sn {few}; exec "$@"', "sh"]
    registry = ["registry", "--port", "0", "--state", str(tmp_path / "r.db")]
    child = subprocess.Popen(  # noqa: S603 (headrace itself)
        [*limited, sys.executable, "-c", RUN, *registry],
        stdout=subprocess.PIPE,
        text=True,
    )
    with child, contextlib.ExitStack() as stack:
        stack.callback(child.send_signal, signal.SIGTERM)
        host, _, port = next_line(child).strip().removeprefix("http://").rpartition(":")
        for _ in range(many):
            peer = stack.enter_context(socket.create_connection((host, int(port)), seconds))
            peer.sendall(b"GET / HT")
        asked = http.client.HTTPConnection(host, int(port), timeout=seconds)
        stack.callback(asked.close)
        asked.request("GET", "/")
        assert 200 == asked.getresponse().status
