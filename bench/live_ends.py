"""What stands around the worker of `bench.live`: `python -m bench.live_ends NAME ARGUMENTS`.

Each is a process of its own that prints `ready`, so that none waits for another: one writes rows,
one sees when segments become durable, one receives messages.
"""

import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.errors import ProbeFailedError
from headrace.sources.cassandra.commitlog.segment import parse_name

_PACE_SECONDS: Final = 0.001
_POLL_SECONDS: Final = 0.001
_SECONDS_MAX: Final = 600
_STREAMS: Final = 32_768
_IN_FLIGHT_MAX: Final = 2_000
_HEADER: Final = struct.Struct(">BBhBi")  # Of a frame: version, flags, stream, opcode, length.
_VERSION: Final = 4
_ERROR, _STARTUP, _READY, _RESULT, _EXECUTE = 0, 1, 2, 8, 10
_ONE: Final = 1  # The consistency.
_VALUES_AND_TIMESTAMP: Final = 0x21
_KEEP: Final = 4  # The newest index files; older ones are final.


def write(port: int, rate: int, seconds: float, statement: str, values: Sequence[str]) -> None:
    """Execute a prepared statement, *rate* times a second, each time with another first value.

    In Cassandra's own protocol, because a driver in Python would take a core of the machine that
    is measured. *statement* and *values* are hexadecimal. Each row's timestamp says when it was
    sent. Prints the first and the last timestamp.
    """
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(_frame(_STARTUP, 0, _map({"CQL_VERSION": "3.0.0"})))
    answers = _Answers(connection)
    answers.wait(1)
    head = bytes.fromhex(statement)
    first, *rest = [bytes.fromhex(value) for value in values]
    begin = struct.pack(">h", len(head)) + head
    begin += struct.pack(">hBh", _ONE, _VALUES_AND_TIMESTAMP, len(values))
    begin += struct.pack(">i", len(first))
    tail = b"".join(struct.pack(">i", len(value)) + value for value in rest)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    total, sent = round(rate * seconds), 0
    began, began_us = time.monotonic(), _now_us()
    while sent < total:
        due = min(total, int((time.monotonic() - began) * rate) + 1)
        frames = []
        for number in range(sent, due):
            key = os.urandom(len(first))
            body = begin + key + tail + struct.pack(">q", _now_us())
            frames.append(_frame(_EXECUTE, number % _STREAMS, body))
        connection.sendall(b"".join(frames))
        sent = due
        answers.wait(sent + 1 - _IN_FLIGHT_MAX)
        time.sleep(max(_PACE_SECONDS / 10, began + sent / rate - time.monotonic()))
    answers.wait(total + 1)
    found = {"rows": total, "began_us": began_us, "ended_us": _now_us()}
    sys.stdout.write(json.dumps(found) + "\n")


class _Answers:
    """Counts the answers of a node. Raises ProbeFailedError for an error."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._buffer, self._count = connection, b"", 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ)

    def wait(self, count: int) -> None:
        """Take what came; wait until there are *count*."""
        deadline = time.monotonic() + _SECONDS_MAX
        while self._selector.select(1.0 if self._count < count else 0.0) or self._count < count:
            if time.monotonic() > deadline:
                raise ProbeFailedError(f"{self._count} answers of {count} in {_SECONDS_MAX} s")
            if self._selector.select(0.0):
                self._buffer += self._connection.recv(1 << 20)
                self._take()

    def _take(self) -> None:
        at, buffer = 0, self._buffer
        while len(buffer) >= at + _HEADER.size:
            _, _, _, opcode, length = _HEADER.unpack_from(buffer, at)
            end = at + _HEADER.size + length
            if len(buffer) < end:
                break
            if opcode not in {_READY, _RESULT}:
                raise ProbeFailedError(f"opcode {opcode}: {buffer[at + _HEADER.size : end]!r}")
            at = end
            self._count += 1
        self._buffer = buffer[at:]


def _frame(opcode: int, stream: int, body: bytes) -> bytes:
    return _HEADER.pack(_VERSION, 0, stream, opcode, len(body)) + body


def _map(given: Mapping[str, str]) -> bytes:
    texts = [text.encode() for pair in given.items() for text in pair]
    return struct.pack(">h", len(given)) + b"".join(
        struct.pack(">h", len(text)) + text for text in texts
    )


def _now_us() -> int:
    return time.time_ns() // 1_000


def watch(folder: str, out: str) -> None:
    """Write into *out* when which offset of a segment in *folder* became durable, until SIGTERM.

    A line has the time in ns, the segment's id, and the offset in its index file.
    """
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    known: dict[str, int] = {}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with Path(out).open("w", buffering=1) as file:  # By lines.
        while not stopped:
            names = sorted(name for name in os.listdir(folder) if name.endswith("_cdc.idx"))  # noqa: PTH208 (a thousand times a second)
            for name in names[-_KEEP:]:
                offset = _offset(f"{folder}/{name}")
                if offset > known.get(name, -1):
                    known[name] = offset
                    segment = parse_name(name.replace("_cdc.idx", ".log"))
                    assert segment  # noqa: S101 (Cassandra names it)
                    file.write(f"{time.time_ns()} {segment[1]} {offset}\n")
            time.sleep(_POLL_SECONDS)


def _offset(path: str) -> int:
    """Return the offset in an index file; -1 while it is being written, or is gone."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (as often)
            return int(file.read(64).split()[0])
    except (OSError, IndexError, ValueError):
        return -1


class Message(msgspec.Struct, array_like=True):
    """A message as it was received."""

    received_ns: int
    appended_ms: int
    value: bytes


class Messages(msgspec.Struct):
    """All that was received, and the schema's id, which is the same for all."""

    schema_id: bytes
    messages: list[Message]


def consume(servers: str, topic: str, out: str) -> None:
    """Receive all messages of *topic*, and write them into *out* at SIGTERM."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "live", "log_level": 0})
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    found: deque[Message] = deque()
    schema_id = b""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not stopped:
        message = consumer.poll(0.5)
        if message is None:
            continue
        now = time.time_ns()
        if message.error():
            raise ProbeFailedError(str(message.error()))
        if not schema_id:
            header = dict(message.headers() or ())["schemaId"]
            assert isinstance(header, bytes)  # noqa: S101 (as it is written)
            schema_id = header
        found.append(Message(now, message.timestamp()[1], message.value() or b""))
    consumer.close()
    Path(out).write_bytes(msgspec.msgpack.encode(Messages(schema_id, list(found))))


_ENDS: Final[Mapping[str, Callable[..., Any]]] = {
    end.__name__: end for end in (write, watch, consume)
}

if __name__ == "__main__":
    _ENDS[sys.argv[1]](**json.loads(sys.argv[2]))
