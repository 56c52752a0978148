"""A node with as much of Cassandra's native protocol as a driver needs to connect.

It records the statements with their levels. The test gives the answers, or tables that have them.
"""

import contextlib
import re
import socket
import ssl
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from helpers.servers.loopback import LoopbackServer

TEXT: Final = b"\x00\x0d"
INT, BIGINT, BLOB, BOOLEAN = b"\x00\x09", b"\x00\x02", b"\x00\x03", b"\x00\x04"
SMALLINT, VARINT = b"\x00\x13", b"\x00\x0e"
TIMESTAMP: Final = b"\x00\x0b"
TEXT_MAP: Final = b"\x00\x21" + TEXT + TEXT
VOID: Final = struct.pack(">i", 1)
_NULL: Final = struct.pack(">i", -1)
_UUID: Final = b"\x00\x0c"
_ID: Final = uuid.UUID(int=1).bytes
_INET: Final = b"\x00\x10"
_TEXT_SET: Final = b"\x00\x22" + TEXT

_HEADER: Final = struct.Struct(">BBhBi")
_READY, _AUTHENTICATE, _SUPPORTED, _RESULT, _AUTH_SUCCESS = 2, 3, 6, 8, 16
_AUTHENTICATOR: Final = "org.apache.cassandra.auth.PasswordAuthenticator"
_LOCAL: Final = re.compile(r"SELECT (.*) FROM system\.local ")
_SLOW_SECONDS: Final = 2.0
_SERIAL: Final = 8
_HAS_VALUES, _HAS_PAGES, _HAS_STATE = 1, 4, 8  # Flags of a request.


Bound = tuple[str, Sequence[bytes | None]]
"""A prepared statement, and the values of its question marks."""


class Asked(NamedTuple):
    """Which page of a result is asked for: how many rows, and the state of the last page."""

    size: int = 5_000
    state: bytes = b""


class InvalidError(Exception):
    """Cassandra refuses such a request."""


class UnansweredError(Exception):
    """A write with conditions is not answered in time: what became of it is not known."""


class Tables(Protocol):
    """What answers statements by the rows that others wrote. Calls come from several threads."""

    def kinds(self, statement: str) -> Sequence[bytes] | None:
        """Return the types of the question marks of a statement; None of another table's."""

    def execute(self, statements: Sequence[Bound], page: Asked) -> bytes | None:
        """Execute a statement, or a batch, and return its result; None of another table's.

        Raises InvalidError and UnansweredError.
        """


@dataclass
class CqlNode(LoopbackServer):
    """A node on a free port of the loopback, while the `with` lasts."""

    datacenter: str = "dc1"
    users: Mapping[str, str] = field(default_factory=dict)
    """Names and passwords; without any, no authentication is required."""
    tls: ssl.SSLContext | None = None
    answers: Mapping[str, bytes] = field(default_factory=dict)
    """Results of statements, by their beginnings; all others are invalid."""
    slow: str = "nothing"
    """Statements that start so are answered two seconds late."""
    binds: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    """The types of the bound values of statements, by their beginnings; otherwise text."""
    tables: Tables | None = None
    """What answers before `answers` do."""

    def __post_init__(self) -> None:
        """Listen."""
        self.levels: dict[str, int] = {}
        """Each statement, with its level as the protocol numbers it."""
        self.page_rows: dict[str, int] = {}
        """How many rows at a time each statement asked for."""
        self.executed: list[str] = []
        """The prepared ones, one by one."""
        host, port = self.listen()
        self.point = f"{host}:{port}"

    def talk(self, client: socket.socket) -> None:
        """Answer one client until it disconnects."""
        with contextlib.suppress(OSError, EOFError), client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Else answers wait.
            talk = self.tls.wrap_socket(client, server_side=True) if self.tls else client
            with talk, talk.makefile("rwb") as file:
                while header := file.read(_HEADER.size):
                    version, _, stream, kind, size = _HEADER.unpack(header)
                    answered, body = self._answer(kind, file.read(size))
                    file.write(_HEADER.pack(version | 0x80, 0, stream, answered, len(body)) + body)
                    file.flush()

    def _answer(self, kind: int, body: bytes) -> tuple[int, bytes]:
        answered, answer = _READY, b""
        match kind:
            case 5:  # OPTIONS
                answered, answer = _SUPPORTED, _OPTIONS
            case 1 if self.users:  # STARTUP
                answered, answer = _AUTHENTICATE, text(_AUTHENTICATOR)
            case 15:  # AUTH_RESPONSE: its length, then \0user\0password
                _, user, password = body[4:].decode().split("\0")
                answered, answer = _AUTH_SUCCESS, struct.pack(">i", -1)
                if self.users.get(user) != password:
                    answered, answer = _error(0x0100, f"{user} is not known so")
            case 7:  # QUERY
                statement, level, page_rows = _statement(body)
                self.page_rows[statement] = page_rows
                answered, answer = self._result(statement, level)
            case 9:  # PREPARE
                (size,) = struct.unpack_from(">i", body)
                answered, answer = _RESULT, self._prepared(body[4 : 4 + size].decode())
            case 10:  # EXECUTE, by the id that `_prepared` gave.
                request = _Request(body)
                statement = request.statement()
                (level, flags) = request.take(">HB")
                values = request.values() if flags & _HAS_VALUES else ()
                self.executed.append(statement)
                answered, answer = self._result(statement, level, values, request.page(flags))
            case 13:  # BATCH, of prepared statements.
                answered, answer = self._stored(_batch(_Request(body)))
        return answered, answer

    def _stored(
        self,
        statements: Sequence[Bound],
        page: Asked = Asked(),  # noqa: B008 (it is immutable)
    ) -> tuple[int, bytes]:
        """Return what the tables answer; of a request for others an error."""
        try:
            found = None if self.tables is None else self.tables.execute(statements, page)
        except InvalidError as error:
            return _error(0x2200, str(error))
        except UnansweredError as error:
            answered, answer = _error(0x1100, str(error))
            return answered, answer + struct.pack(">Hii", _SERIAL, 1, 2) + text("CAS")
        if found is None:
            return _error(0x2200, f"no answer to: {statements[0][0]}")
        return _RESULT, found

    def _prepared(self, statement: str) -> bytes:
        """Return the metadata of a statement, which is its own id."""
        of_tables = None if self.tables is None else self.tables.kinds(statement)
        kinds = of_tables or [TEXT] * statement.count("?")
        kinds = next((k for s, k in self.binds.items() if statement.startswith(s)), kinds)
        parts = [struct.pack(">i", 4), text(statement), struct.pack(">iii", 1, len(kinds), 0)]
        parts += [text("ks"), text("t"), *(text(f"c{n}") + kind for n, kind in enumerate(kinds))]
        return b"".join([*parts, struct.pack(">ii", 4, 0)])  # Rows bring their own columns.

    def _result(
        self,
        statement: str,
        level: int,
        values: Sequence[bytes | None] = (),
        page: Asked = Asked(),  # noqa: B008 (it is immutable)
    ) -> tuple[int, bytes]:
        self.levels[statement] = level
        if self.tables is not None and self.tables.kinds(statement) is not None:
            return self._stored([(statement, values)], page)
        if statement.startswith(self.slow):
            self.over.wait(_SLOW_SECONDS)
        answers = {
            "SELECT * FROM system.peers": rows({"peer": _INET}),
            "SELECT value FROM system_views.settings": rows({"value": TEXT}),
            "USE ": struct.pack(">i", 3) + text(statement.removeprefix("USE ")),
        } | dict(self.answers)
        if asked := _LOCAL.match(statement):
            return _RESULT, _local(self.datacenter, asked[1])
        if "FROM system_schema." in statement:  # After the answers of the test.
            answers.setdefault(statement, rows({"keyspace_name": TEXT}))
        for start, answer in answers.items():
            if statement.startswith(start):
                return _RESULT, answer
        return _error(0x2200, f"no answer to: {statement}")


def rows(columns: Mapping[str, bytes], *found: Sequence[bytes | None], state: bytes = b"") -> bytes:
    """Return the result of a query: the types of its columns, and rows of values; None is null.

    With a *state* there are more: the request for the next page has it.
    """
    parts = [struct.pack(">iii", 2, 3 if state else 1, len(columns))]
    parts += [pieces(state)] if state else []
    parts += [text("ks"), text("t")]
    parts += [text(name) + kind for name, kind in columns.items()]
    parts.append(struct.pack(">i", len(found)))
    parts += [_NULL if value is None else pieces(value) for row in found for value in row]
    return b"".join(parts)


def text(content: str) -> bytes:
    """Return a string with its length, as the protocol has it."""
    return struct.pack(">H", len(content)) + content.encode()


def pieces(*contents: bytes) -> bytes:
    """Return a set of values, or keys and values alternately for a map."""
    return b"".join(struct.pack(">i", len(each)) + each for each in contents)


def _list(*texts: str) -> bytes:
    return struct.pack(">H", len(texts)) + b"".join(map(text, texts))


_OPTIONS: Final = b"".join(
    (struct.pack(">H", 2), text("CQL_VERSION"), _list("3.4.7"), text("COMPRESSION"), _list())
)


def _local(datacenter: str, wanted: str) -> bytes:
    """Return the node's own row: the *wanted* columns, or `*`."""
    known = {
        "key": (TEXT, b"local"),
        "cluster_name": (TEXT, b"one"),
        "data_center": (TEXT, datacenter.encode()),
        "rack": (TEXT, b"r1"),
        "partitioner": (TEXT, b"org.apache.cassandra.dht.Murmur3Partitioner"),
        "release_version": (TEXT, b"5.0.2"),
        "tokens": (_TEXT_SET, struct.pack(">i", 1) + pieces(b"0")),
        "host_id": (_UUID, _ID),
        "schema_version": (_UUID, _ID),
        "rpc_address": (_INET, socket.inet_aton("127.0.0.1")),
    }
    columns = known if wanted == "*" else {name: known[name] for name in wanted.split(", ")}
    kinds = {name: kind for name, (kind, _) in columns.items()}
    return rows(kinds, [value for _, value in columns.values()])


class _Request:
    """The bytes of a request, read from the front."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, form: str) -> tuple[int, ...]:
        """Read numbers."""
        found = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return found

    def statement(self) -> str:
        """Read the id of a prepared statement."""
        (size,) = self.take(">H")
        return self._rest(size).decode()

    def values(self) -> Sequence[bytes | None]:
        """Read bound values."""
        (count,) = self.take(">H")
        found: list[bytes | None] = []
        for _ in range(count):
            (size,) = self.take(">i")
            found.append(None if size < 0 else self._rest(size))
        return found

    def page(self, flags: int) -> Asked:
        """Read which page is asked for."""
        (size,) = self.take(">i") if flags & _HAS_PAGES else (Asked().size,)
        return Asked(size, self._rest(*self.take(">i")) if flags & _HAS_STATE else b"")

    def _rest(self, size: int) -> bytes:
        self._at += size
        return self._content[self._at - size : self._at]


def _batch(request: _Request) -> Sequence[Bound]:
    _, count = request.take(">BH")
    found: list[Bound] = []
    for _ in range(count):
        (is_prepared,) = request.take(">B")
        assert is_prepared
        found.append((request.statement(), request.values()))
    return found


def _statement(body: bytes) -> tuple[str, int, int]:
    """Return a statement without values, its level, and how many rows a page may have."""
    (size,) = struct.unpack_from(">i", body)
    level, flags = struct.unpack_from(">HB", body, 4 + size)
    (rows,) = struct.unpack_from(">i", body, 7 + size) if flags & _HAS_PAGES else (0,)
    return body[4 : 4 + size].decode(), level, rows


def _error(code: int, message: str) -> tuple[int, bytes]:
    return 0, struct.pack(">i", code) + text(message)
