"""An answer is read whole, to where it is wanted, however it comes; all else is refused."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from headrace.sources.cassandra.agent.connection import BrokenAnswerError, Connection, head_in
from headrace.sources.cassandra.agent.protocol import ANSWER_BYTES_MAX

CONTENT = bytes(range(256)) * 300
HEAD = b'HTTP/1.1 200 OK\r\nETag: "1-2"\r\nCONTENT-LENGTH: %d\r\nX:\r\n\r\n' % len(CONTENT)


@contextmanager
def answering(*pieces: bytes) -> Iterator[Connection]:
    """Provide a connection to what answers a request of four bytes with *pieces*, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                assert b"ask!" == peer.recv(4, socket.MSG_WAITALL)
                for piece in pieces:
                    peer.sendall(piece)

        thread = Thread(target=answer)
        thread.start()
        host, port = server.getsockname()
        connection = Connection(host, port, None)
        try:
            yield connection
        finally:
            connection.close()
            thread.join()


@pytest.mark.parametrize(
    "at", [1, 15, 16, len(HEAD) - 1, len(HEAD), len(HEAD) + 1, len(HEAD) + 70_000]
)
def test_an_answer_comes_in_any_pieces(at: int) -> None:
    """Its content is in the memory that is given for it; names of fields are in any case."""
    whole, room = HEAD + CONTENT, bytearray(len(CONTENT) + 9)
    with answering(whole[:at], whole[at:]) as connection:
        answer = connection.exchange(b"ask!", lambda count: memoryview(room)[:count])

    assert CONTENT == bytes(room)[: len(CONTENT)] == answer.content
    assert bytes(9) == bytes(room)[len(CONTENT) :]
    assert (200, '"1-2"', "", "") == (
        answer.status,
        *map(answer.head.field, ("etag", "X", "Content-Range")),
    )
    assert not answer.head.is_last


def test_a_refusal_is_not_taken_for_what_is_wanted() -> None:
    """It goes into no memory that is for content."""
    said = b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nConnection: Close\r\n\r\nno!"
    with answering(said) as connection:
        answer = connection.exchange(b"ask!", lambda _: pytest.fail("it was asked for"))

    assert (404, b"no!", True) == (answer.status, answer.content, answer.head.is_last)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_some_answers_have_no_content(status: bytes) -> None:
    """The length that they give is that of something else."""
    with answering(b"HTTP/1.1 %s\r\nContent-Length: 7\r\n\r\n" % status) as connection:
        assert b"" == connection.exchange(b"ask!", None).content


@pytest.mark.parametrize("count", [0, 10, len(HEAD), len(HEAD) + 1, len(HEAD + CONTENT) - 1])
def test_an_answer_that_is_cut_is_none(count: int) -> None:
    """Its connection ends before."""
    with answering((HEAD + CONTENT)[:count]) as connection, pytest.raises(ConnectionResetError):
        connection.exchange(b"ask!", None)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 OK\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (ANSWER_BYTES_MAX + 1),
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy",
        b"x" * (1 << 17),
    ],
)
def test_what_is_no_answer_is_refused(said: bytes) -> None:
    """Also one that does not say how long it is, or that is longer than any."""
    with answering(said) as connection, pytest.raises(BrokenAnswerError):
        connection.exchange(b"ask!", None)


def test_a_head_is_read_when_all_of_it_is_there() -> None:
    """Before, nothing is known of it."""
    assert [None] * len(HEAD) == [head_in(HEAD[:count]) for count in range(len(HEAD))]
    assert (len(HEAD), len(CONTENT)) == (
        (found := head_in(HEAD + CONTENT)) and (found.head_bytes, found.content_bytes)
    )
