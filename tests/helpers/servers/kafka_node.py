"""A broker with as much of Kafka's protocol as shows what a client asks for.

Unlike librdkafka's mock brokers it lets clients log in, creates topics, and aborts transactions. It
stores no messages: the test gives those of a partition.
"""

import contextlib
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from helpers.servers.loopback import LoopbackServer

_VERSIONS: Final = {  # The highest of each request; from version 9 on they have other forms.
    0: 7,
    1: 4,
    2: 2,
    3: 4,
    10: 1,
    17: 1,
    18: 0,
    19: 4,
    22: 1,
    24: 0,
    26: 1,
    32: 1,
    36: 0,
}
_OK, _UNKNOWN_TOPIC, _UNSUPPORTED, _WRONG_PASSWORD = 0, 3, 35, 58
_HEADER: Final = struct.Struct(">hhi")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20  # The attributes of a batch of records.


@dataclass(frozen=True, slots=True)
class Ordered:
    """A topic as a client asked for it."""

    partitions: int
    replication: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction of one message."""

    key: bytes
    value: bytes
    is_committed: bool = True


@dataclass
class KafkaNode(LoopbackServer):
    """A broker on a free port of the loopback, while the `with` lasts."""

    users: Mapping[str, str] = field(default_factory=dict)
    transactions_error: int = 0
    """The answer to clients that start a transactional producer."""
    topic_error: int = _UNKNOWN_TOPIC
    """The answer to clients that ask for an unknown topic."""
    transactions: Sequence[Transaction] = ()
    """What is in each partition."""

    def __post_init__(self) -> None:
        """Listen."""
        self.let_in: list[str] = []
        self.ordered: dict[str, Ordered] = {}
        self.transactional_ids: list[str] = []
        self._host, self._port = self.listen()
        self.bootstrap_servers = f"{self._host}:{self._port}"

    def talk(self, client: socket.socket) -> None:
        """Answer one client until it disconnects."""
        answers: Mapping[int, Callable[[_Request], bytes]] = {
            1: self._fetch,
            2: self._ends,
            3: self._metadata,
            10: self._coordinator,
            17: lambda _: struct.pack(">hi", _OK, 1) + _text("PLAIN"),
            18: _versions,
            19: self._create,
            22: lambda _: struct.pack(">ihqh", 0, self.transactions_error, 1, 0),
            **dict.fromkeys((0, 24, 26), self._never),
            32: _configs,
            36: self._let_in,
        }
        assert answers.keys() == _VERSIONS.keys()  # Each offered version has an answer.
        with contextlib.suppress(OSError), client, client.makefile("rwb") as file:
            while size := file.read(4):
                content = file.read(*struct.unpack(">i", size))
                key, version, number = _HEADER.unpack_from(content)
                request = _Request(content, _HEADER.size, version)
                request.text()  # The client's id.
                body = struct.pack(">i", number) + answers[key](request)
                file.write(struct.pack(">i", len(body)) + body)
                file.flush()

    def _let_in(self, request: "_Request") -> bytes:
        (size,) = request.take(">i")
        _, user, password = request.rest(size).split(b"\0")
        known = self.users.get(user.decode()) == password.decode()
        if known:
            self.let_in.append(user.decode())
        return struct.pack(">h", _OK if known else _WRONG_PASSWORD) + _text("no") + bytes(4)

    def _never(self, request: "_Request") -> bytes:
        """Give the client no answer."""
        del request
        raise ConnectionAbortedError("no transaction is ever committed here")

    def _metadata(self, request: "_Request") -> bytes:
        (count,) = request.take(">i")
        names = [request.text() for _ in range(count)] if count >= 0 else list(self.ordered)
        parts = [struct.pack(">iii", 0, 1, 1), _text(self._host), struct.pack(">i", self._port)]
        parts += [_text(None), _text(None), struct.pack(">ii", 1, len(names))]
        for name in names:
            made = self.ordered.get(name)
            parts += [struct.pack(">h", _OK if made else self.topic_error), _text(name), b"\0"]
            numbers = range(max(1, made.partitions) if made else 0)
            parts.append(struct.pack(">i", len(numbers)))
            parts += [struct.pack(">hiiiiii", _OK, n, 1, 1, 1, 1, 1) for n in numbers]
        return b"".join(parts)

    def _ends(self, request: "_Request") -> bytes:
        """Say where the one partition that is asked about ends."""
        request.take(">ibi")
        name = request.text()
        _, partition, _ = request.take(">iiq")
        asked = struct.pack(">ihqq", partition, _OK, -1, 2 * len(self.transactions))
        return struct.pack(">ii", 0, 1) + _text(name) + struct.pack(">i", 1) + asked

    def _fetch(self, request: "_Request") -> bytes:
        """Give the transactions from an offset on: a message, and a marker of how it ended.

        A reader of what is committed learns which ones to leave out.
        """
        *_, is_committed, topics = request.take(">iiiibi")
        parts = [struct.pack(">ii", 0, topics)]
        for _ in range(topics):
            parts.append(_text(request.text()))
            (partitions,) = request.take(">i")
            parts.append(struct.pack(">i", partitions))
            for _ in range(partitions):
                partition, offset, _ = request.take(">iqi")
                parts.append(self._part(partition, offset, is_committed=bool(is_committed)))
        return b"".join(parts)

    def _part(self, partition: int, offset: int, *, is_committed: bool) -> bytes:
        end = 2 * len(self.transactions)
        aborted = [n for n, each in enumerate(self.transactions) if not each.is_committed]
        left_out = [struct.pack(">qq", n, 2 * n) for n in (aborted if is_committed else ())]
        found = []
        for number, each in enumerate(self.transactions):
            ended = struct.pack(">hh", 0, each.is_committed), struct.pack(">hi", 0, 0)
            found.append(_batch(2 * number, number, _TRANSACTIONAL, each.key, each.value))
            found.append(_batch(2 * number + 1, number, _TRANSACTIONAL | _CONTROL, *ended))
        records = b"".join(found[offset:])
        head = struct.pack(">ihqqi", partition, _OK, end, end, len(left_out))
        return b"".join([head, *left_out, struct.pack(">i", len(records)), records])

    def _create(self, request: "_Request") -> bytes:
        (count,) = request.take(">i")
        parts = [struct.pack(">ii", 0, count)]
        for _ in range(count):
            name = request.text()
            partitions, replication, assigned = request.take(">ihi")
            assert not assigned
            (settings,) = request.take(">i")
            config = {request.text(): request.text() for _ in range(settings)}
            self.ordered[name] = Ordered(partitions, replication, config)
            parts += [_text(name), struct.pack(">h", _OK), _text(None)]
        return b"".join(parts)

    def _coordinator(self, request: "_Request") -> bytes:
        self.transactional_ids.append(request.text())
        known = struct.pack(">ih", 0, _OK) + _text(None) + struct.pack(">i", 1)
        return known + _text(self._host) + struct.pack(">i", self._port)


@dataclass
class _Request:
    """The bytes of a request, read from the front."""

    content: bytes
    at: int
    version: int

    def take(self, form: str) -> tuple[int, ...]:
        """Read numbers."""
        found = struct.unpack_from(form, self.content, self.at)
        self.at += struct.calcsize(form)
        return found

    def rest(self, size: int) -> bytes:
        """Read bytes."""
        self.at += size
        return self.content[self.at - size : self.at]

    def text(self) -> str:
        """Read a string; null is an empty one."""
        (size,) = self.take(">h")
        return self.rest(max(0, size)).decode()


def _text(content: str | None) -> bytes:
    if content is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(content)) + content.encode()


def _versions(request: _Request) -> bytes:
    """Return the supported versions, in the oldest form: the client asks again in that form."""
    known = [struct.pack(">hhh", key, 0, highest) for key, highest in _VERSIONS.items()]
    error = _UNSUPPORTED if request.version else _OK
    return struct.pack(">hi", error, len(known)) + b"".join(known)


def _configs(request: _Request) -> bytes:
    """Describe every topic as compacted."""
    (count,) = request.take(">i")
    parts = [struct.pack(">ii", 0, count)]
    for _ in range(count):
        (kind,) = request.take(">b")
        name = request.text()
        (asked,) = request.take(">i")
        _ = [request.text() for _ in range(asked)]
        parts += [struct.pack(">h", _OK), _text(None), struct.pack(">b", kind), _text(name)]
        parts += [struct.pack(">i", 1), _text("cleanup.policy"), _text("compact")]
        parts.append(struct.pack(">bbbi", 0, 1, 0, 0))
    return b"".join(parts)


def _batch(offset: int, producer: int, attributes: int, key: bytes, value: bytes) -> bytes:
    """Return a batch of one record, in the form that has transactions. Its CRC is not checked."""
    record = b"\0\0\0" + _varint(len(key)) + key + _varint(len(value)) + value + b"\0"
    records = _varint(len(record)) + record
    behind = struct.pack(">hiqqqhii", attributes, 0, 0, 0, producer, 0, 0, 1) + records
    return struct.pack(">qiibI", offset, 9 + len(behind), 0, 2, 0) + behind


def _varint(number: int) -> bytes:
    """Return a length as records have it."""
    left, found = number << 1, bytearray()
    while left > 0x7F:  # Seven bits at a time.
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
