"""A node's log on another machine: its segments come from the node's agent, over HTTP.

The guarantees are those of a directory: an opened segment stays the same file, or an error reports
that it is not. Blocking network I/O with time-outs; for one thread.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from headrace.plugins import MissingRequirementError
from headrace.sources.cassandra.agent.connection import OK, Answer, Connection, Room
from headrace.sources.cassandra.agent.digest_exchange import Exchange
from headrace.sources.cassandra.agent.entry_columns import ReceivedEntries
from headrace.sources.cassandra.agent.following import Following
from headrace.sources.cassandra.agent.protocol import (
    COPIES_PATH,
    END_HEADER,
    ENTRIES_PATH,
    HOLD_PATH,
    MARK_HEADER,
    MESSAGING_HEADER,
    MUTATIONS_PATH,
    NEEDS_PATH,
    RANGE_BYTES_MAX,
    SEGMENTS_PATH,
    SPAN_BYTES_MAX,
    VERSION,
    VERSION_CODE,
    AgentAccess,
    Entries,
    Listed,
    Listing,
    Need,
    Needs,
    Place,
    Refusal,
    no_answer,
    tls,
)
from headrace.sources.cassandra.agent.remade_entries import RemadeEntries
from headrace.sources.cassandra.commitlog.framer import Framer, Supply
from headrace.sources.cassandra.commitlog.manifest import Manifest, Stored, file_of
from headrace.sources.cassandra.commitlog.segment import parse_descriptor
from headrace.sources.cassandra.errors import (
    AgentUnavailableError,
    LogUnreadableError,
    SegmentError,
)
from headrace.sources.cassandra.logs import pins
from headrace.sources.cassandra.logs.descriptors import Descriptors
from headrace.sources.cassandra.logs.directory import Arcs, SegmentInfo, ended
from headrace.sources.cassandra.logs.rescued_copies import Rescued
from headrace.sources.cassandra.retention.figures import HoldFigures
from headrace.sources.cassandra.state.cdc_state import Marker

T = TypeVar("T")
_Narrowed = tuple[frozenset[bytes], frozenset[bytes] | None, Arcs]

PAUSE_MS: Final = (1_000, 30_000)  # After a failure: the first pause, and the longest.
AHEAD_BYTES: Final = 1024 * 1024  # Of a final segment, fetched at once.
MADE_BYTES_MAX: Final = 128 * 1024 * 1024  # Of plain segments, read ahead in all logs of a job.
_WANTED_BYTES: Final = 4 * 1024 * 1024  # Of a plain segment in one response, about.
_SPAN_BYTES_MIN: Final = 256 * 1024
_TOKENS: Final = 1 << 64
START_BYTES: Final = 4 * 1024  # More than a plain segment's header has.
ENTRIES_BYTES_MIN: Final = 1024  # A shorter read wants a header or a marker.
_PART, _GONE, _CHANGED, _BEHIND, _FAILED = 206, 404, 412, 416, 500
_REFUSED: Final = (401, 403)
_PORTS: Final = {"http": 80, "https": 443}


class AgentRefusedError(MissingRequirementError):
    """The agent of a node rejects our access, or is not an agent."""

    code = "agent_refused"


class AgentVersionError(AgentRefusedError):
    """The agent of a node has another version of the protocol, or is not an agent."""

    code = VERSION_CODE


class Agent:
    """One connection to an agent. After a failure it is not retried for a while.

    `crossed_bytes` counts bodies and headers in both directions, before TLS.
    """

    def __init__(self, url: str, access: AgentAccess, now_ms: Callable[[], int]) -> None:
        """Connect to nothing yet; *now_ms* is a monotonic clock."""
        self.url = url.rstrip("/")
        self.now_ms = now_ms
        self._access = access
        self.crossed_bytes = 0
        self._connection: Connection | None = None
        self._pause_ms = 0
        self._not_before_ms = 0
        self._why: Callable[[], AgentUnavailableError] | None = None

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        room: Room | None = None,
    ) -> Answer:
        """Return an answer; unless it is a refusal, its content is in the memory from *room*.

        Raises:
            AgentUnavailableError: there is no response, or one that asks to retry later.
            AgentRefusedError: our access is rejected.

        """
        if self._why is not None and self.now_ms() < self._not_before_ms:
            raise self._why()
        try:
            answer = self._exchange(method, path, body, dict(headers or {}), room)
        except OSError as error:
            raise self._failed(no_answer(error, self.url)) from error
        if answer.status >= _FAILED:
            raise self._failed(
                partial(AgentUnavailableError, _refusal(answer.content), place=self.url)
            )
        self._pause_ms = 0
        if answer.status in _REFUSED:
            hint = "give agent_token, or agent_certificate"
            raise AgentRefusedError(_refusal(answer.content), place=self.url, hint=hint)
        return answer

    def ask_for(self, kind: type[T], method: str, path: str, body: object = None) -> T:
        """Send a request and return the document in the response. Raises as `ask`."""
        content = b"" if body is None else msgspec.json.encode(body)
        return self.document(kind, self.ask(method, path, content))

    def document(self, kind: type[T], answered: Answer) -> T:
        """Return the document in a response. Raises AgentRefusedError for an error."""
        status, answer, _ = answered
        try:
            if status == OK:
                return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            raise AgentRefusedError(f"is not an agent: {error}", place=self.url) from error
        if status == _GONE and _refusal_code(answer) in {"", VERSION_CODE}:
            said = f"{_refusal(answer)}; expected one of version {VERSION} of the protocol"
            hint = "update the older one of worker and agent; or is it another server's URL?"
            raise AgentVersionError(said, place=self.url, hint=hint)
        raise AgentRefusedError(_refusal(answer), place=self.url, hint="is it an agent's URL?")

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str], room: Room | None
    ) -> Answer:
        request = self.head(method, path, headers, len(body)) + body
        was_open = self._connection is not None
        connection = self._connection = self._connection or self.connected()
        try:
            answer = connection.exchange(request, room)
        except OSError:
            self.close()
            if was_open:  # An agent closes what is idle for long.
                return self._exchange(method, path, body, headers, room)
            raise
        self.crossed_bytes += len(body) + answer.head.head_bytes + len(answer.content)
        if answer.head.is_last:
            self.close()
        return answer

    def connected(self) -> Connection:
        """Return a new connection, for requests outside of `ask`. Raises OSError."""
        parts = urlsplit(self.url)
        context = tls(self._access) if parts.scheme == "https" else None
        return Connection(parts.hostname or "", parts.port or _PORTS[parts.scheme], context)

    def head(self, method: str, path: str, headers: Mapping[str, str], count: int = 0) -> bytes:
        """Return the head of a request with a body of *count* bytes.

        Raises:
            AgentRefusedError: the token has several lines.

        """
        host = {"Host": urlsplit(self.url).netloc.rpartition("@")[2]}
        token = self._access.token
        if token is not None:
            if token.splitlines() not in ([token], []):
                hint = "is it the whole content of a file?"
                raise AgentRefusedError("agent_token has several lines", place=self.url, hint=hint)
            host["Authorization"] = f"Bearer {token}"
        length = {} if method == "GET" else {"Content-Length": str(count)}
        fields = {**host, **length, **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{a}: {b}" for a, b in fields.items()), "", ""]
        made = "\r\n".join(lines).encode()
        self.crossed_bytes += len(made)
        return made

    def _failed(self, why: Callable[[], AgentUnavailableError]) -> AgentUnavailableError:
        self._pause_ms = min(max(PAUSE_MS[0], 2 * self._pause_ms), PAUSE_MS[1])
        self._not_before_ms = self.now_ms() + self._pause_ms
        self._why = why
        self.close()
        return why()


class RemoteSegment:
    """An open segment. A final one is read ahead in part; a plain one, by entries."""

    def __init__(self, log: "RemoteLog", segment: SegmentInfo) -> None:
        """Determine its file, and whether it is plain.

        Raises:
            FileNotFoundError: it has vanished.

        """
        self._log = log
        self._segment = segment
        self._name = quote(segment.name, safe="")
        self._place = f"{log.agent.url}: {segment.name}"
        self._mark = ""
        self._ahead: bytes | memoryview = b""
        self._ahead_at = 0
        self._end: int | None = None  # Of a final segment, once known.
        self._remade: RemadeEntries | None = None
        self.bytes_read = 0
        self._messaging = self._plain_messaging(self._fetch(0, START_BYTES))
        self.by_entries = self._messaging is not None

    @staticmethod
    def _plain_messaging(start: bytes) -> int | None:
        """Return the messaging version of a plain segment; None for any other one."""
        try:
            described = parse_descriptor(start, place="")
        except SegmentError:  # Or one with a very long header: its framer will report it.
            return None
        return described.messaging if described.wrapping is None else None

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read file bytes at *offset*. Return their number; 0 at the end of the file.

        In a plain segment, entries that were not requested have other bytes of the same length.
        """
        if self._end is not None and offset >= self._end:
            return 0
        wanted = min(len(buffer), RANGE_BYTES_MAX)
        content, is_end = self._kept(offset, wanted), False
        if not content and self.by_entries and wanted >= ENTRIES_BYTES_MIN:
            self._entries(offset, wanted)
            content, is_end = self._kept(offset, wanted), not self._ahead
        if not content and not is_end:
            ahead = self._segment.final and not self.by_entries
            content = self._fetch(offset, max(wanted, AHEAD_BYTES) if ahead else wanted)
            if ahead:
                self._keep(content, offset)
        content = content[:wanted]
        buffer[: len(content)] = content
        return len(content)

    def forget(self) -> None:
        """Drop the data read ahead."""
        self._ahead = b""

    def close(self) -> None:
        """Drop the data read ahead."""
        self.forget()

    def _keep(self, content: bytes | memoryview, offset: int) -> None:
        self._ahead, self._ahead_at = content, offset

    def _kept(self, offset: int, wanted: int) -> bytes | memoryview:
        begin = offset - self._ahead_at
        content = self._ahead[begin : begin + wanted] if begin >= 0 else b""
        if content and self._remade is not None:
            content = content[: self._remade.fill(offset, offset + len(content)) - offset]
        return content

    @property
    def supply(self) -> Supply | None:
        """Return the supply of a plain segment while the data read ahead is kept."""
        return self._supply if self.by_entries and self._log.is_kept else None

    def _supply(self, framer: Framer, offset: int) -> None:
        if self._end is not None and offset >= self._end:
            return
        if self._remade is None or not self._ahead or not self._remade.has(offset):
            self._entries(offset, ENTRIES_BYTES_MIN)
        if self._remade is not None and self._ahead:
            self._remade.supply(framer)

    def _entries(self, offset: int, wanted: int) -> None:
        """Fetch the segment from *offset* on, by its entries; nothing at its end."""
        log, messaging = self._log, self._messaging or 0
        self.forget()
        asked = log.asked(offset, wanted, is_first=self._remade is None)
        remade = self._remade = self._remade or RemadeEntries(log.exchange)
        try:
            sent = self._ask(ENTRIES_PATH, msgspec.msgpack.encode(asked), log.exchange.answer)
            remade.start(ReceivedEntries(sent.content, offset, asked.bytes), messaging)
            while places := remade.places():
                self._ask(MUTATIONS_PATH, places, remade.coming_in)
                remade.take()
        except ValueError as error:
            self.forget()
            raise LogUnreadableError(f"no entries came: {error}", place=self._place) from error
        number = self._segment.segment_id
        log.exchange.keep(log.agent.url, number, messaging, *remade.placed())
        content = remade.content()
        if sent.head.field(END_HEADER):
            self._end = offset + len(content)
        self._keep(content, offset)
        if not log.is_kept:
            remade.fill(offset, offset + len(content))

    def _ask(self, path: str, body: bytes, room: Room) -> Answer:
        answer = self._answer("POST", f"{path}/{self._name}", {}, body, room)
        if answer.status != OK:
            raise self._failed(answer)
        return answer

    def _fetch(self, offset: int, count: int) -> bytes:
        headers = {"Range": f"bytes={offset}-{offset + count - 1}"}
        answer = self._answer("GET", f"{SEGMENTS_PATH}/{self._name}", headers)
        if answer.status == _BEHIND:
            return b""
        if answer.status != _PART:
            raise self._failed(answer)
        return bytes(answer.content)

    def _answer(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes = b"",
        room: Room | None = None,
    ) -> Answer:
        if self._mark:
            headers["If-Match"] = self._mark
        answer = self._log.agent.ask(method, path, body, headers, room)
        if answer.status == _GONE and not self._mark:
            raise FileNotFoundError(self._place)
        if answer.status in {OK, _PART}:
            self._mark = self._mark or answer.head.field(MARK_HEADER)
            self.bytes_read += len(answer.content)
        return answer

    def _failed(self, answer: Answer) -> LogUnreadableError:
        changed = answer.status == _CHANGED
        what = "another file has its name now" if changed else _refusal(answer.content)
        return LogUnreadableError(f"cannot be read: {what}", place=self._place)


class RemoteLog:
    """The log of a node, served by its agent; see `LogDirectory`."""

    def __init__(self, agent: Agent, exchange: Exchange | None = None) -> None:
        """Send no request yet; the logs of one job share an *exchange*."""
        self.agent = agent
        self.exchange = exchange or Exchange()
        self.exchange.readers += 1
        self._number = self.exchange.readers  # Among the logs that share it, from 1 on.
        self.manifest = Manifest()
        self.listing = Listing([])  # The last listing.
        self.listed: Sequence[SegmentInfo] | None = None
        """The listing, with our numbers for the segments."""
        self.is_reported: bool | None = None
        """Whether the agent reports new data; an older one does not."""
        self._following: Following | None = None
        self._numbers: object = None  # The numbers of the manifest at the last listing.
        self._narrowed: _Narrowed = (frozenset(), None, ())
        self._span = _WANTED_BYTES  # The size of a request: larger if less of it is needed.
        self._opened: RemoteSegment | None = None
        self._until: tuple[int, int] | None = None
        self._listed: dict[str, Listed] = {}

    def check(self) -> None:
        """Check that the agent answers, and list the segments. Raises as `segments`."""
        self.segments()

    def end_at(self, segment_id: int, offset: int) -> None:
        """List no segments after this place."""
        self._until, self.listed = (segment_id, offset), None

    def follow(self, descriptors: Descriptors | None) -> None:
        """Make the agent report more data from now on, by *descriptors*; None stops that."""
        if (descriptors is None) is not (self._following is None):
            self._leave()
            if descriptors is not None:
                self._following = Following(self.agent, descriptors, self.agent.now_ms)

    def _leave(self) -> None:
        if self._following is not None:
            self._following.close()
            self._following = None

    def is_written(self) -> bool:
        """Return whether the agent has reported a change since the last listing."""
        return self._following is not None and self._following.hear()

    def segments(self) -> Sequence[SegmentInfo]:
        """Return the segments with CDC data now, by ascending number.

        The reader determines their generations: an agent may forget them. Raises as `Agent.ask`.
        """
        is_new, stored = self._is_relisted(), self.manifest.stored
        if self.listed is not None and not is_new and self._numbers is stored:
            return self.listed
        listing = self.listing.segments
        self._listed = {each.name: each for each in listing}
        numbers = self.manifest.note({each.id for each in listing})
        found = [
            SegmentInfo(
                numbers[e.id],
                e.name,
                e.limit,
                e.missing,
                e.unwatched,
                indexed=e.indexed,
                durable_ms=e.durable_ms,
            )
            for e in listing
        ]
        found.sort(key=attrgetter("segment_id"))
        self.listed = found if self._until is None else list(ended(found, *self._until))
        self._numbers = self.manifest.stored
        return self.listed

    def _is_relisted(self) -> bool:
        """List the segments, unless the agent would report more. Return whether it did."""
        following = self._following
        if following is not None:
            following.hear()
            if (listing := following.take()) is not None:
                self.listing = listing
                return True
            if following.is_waiting:
                return False
        answer = self.agent.ask("GET", SEGMENTS_PATH)
        self.listing = self.agent.document(Listing, answer)
        mark = answer.head.field(MARK_HEADER)
        self.is_reported = bool(mark)
        if following is not None:
            following.mark = mark
            following.hear()
        return True

    def close(self) -> None:
        """Close the connections; the next request opens another."""
        self._leave()
        self.agent.close()

    def open(self, segment: SegmentInfo) -> RemoteSegment:
        """Open a listed segment. Raises FileNotFoundError when it has vanished."""
        self._opened = RemoteSegment(self, segment)
        return self._opened

    def is_still(self) -> bool:
        """Return whether the agent would report more, and did not."""
        following = self._following
        return following is not None and not following.hear() and following.is_waiting

    def narrow(self, passed: Collection[bytes], kept: Collection[bytes], arcs: Arcs) -> bool:
        """Request only these entries from now on; see `LogReader.narrow`."""
        narrowed = frozenset(passed), frozenset(kept), tuple(arcs)
        tokens = sum(last - first + 1 for first, last in arcs) or _TOKENS
        self._span = min(_WANTED_BYTES * _TOKENS // tokens, SPAN_BYTES_MAX)
        is_new = narrowed != self._narrowed
        self._narrowed = narrowed
        if is_new and self._opened is not None:
            self._opened.forget()
        return is_new and self._opened is not None and self._opened.by_entries

    @property
    def is_kept(self) -> bool:
        """Whether the exchange keeps the data that all logs read ahead, until it is read."""
        return self._wanted() * self.exchange.readers <= self.exchange.bytes_max

    def _wanted(self) -> int:
        """Return the size of mutations in a response, about, at most."""
        return min(_WANTED_BYTES, max(_SPAN_BYTES_MIN, MADE_BYTES_MAX // self.exchange.readers))

    def asked(self, begin: int, count: int, *, is_first: bool) -> Entries:
        """Return the request for a segment from *begin* on, of at least *count* bytes.

        Which log is asked first for a mutation, and so sends its bytes, changes from span to span:
        each log's *first* span in a segment has another length.
        """
        passed, kept, arcs = self._narrowed
        exchange = self.exchange
        full = exchange.readers < 2  # noqa: PLR2004 (then no replica repeats it)
        most = min(self._span, max(_SPAN_BYTES_MIN, MADE_BYTES_MAX // exchange.readers))
        if is_first:
            most = max(_SPAN_BYTES_MIN, most * self._number // exchange.readers)
        count = max(count, most)
        return Entries(begin, count, exchange.key, full, list(arcs), passed, kept)

    def fetch(self, segment_id: int, position: int, length: int) -> Rescued | None:
        """Return the mutation whose entry ends at *position*. Raises as `Agent.ask`."""
        known = self.exchange.at(self.agent.url, segment_id, position)
        if known is not None:
            return known
        body = msgspec.msgpack.encode(Place(file_of(segment_id), position, length))
        answer = self.agent.ask("POST", COPIES_PATH, body)
        if answer.status != OK or len(answer.content) != length:
            return None
        return Rescued(bytes(answer.content), int(answer.head.field(MESSAGING_HEADER) or 0))

    def size_of(self, segment: SegmentInfo) -> int:
        """Return the size of a segment's file when it was listed; 0 if it did not exist."""
        listed = self._listed.get(segment.name)
        return listed.bytes if listed else 0

    def modified_ms(self, segment: SegmentInfo) -> float:
        """Return when a segment was written to last, in ms since 1970."""
        listed = self._listed.get(segment.name)
        return listed.modified_ms if listed else 0


class RemoteHold:
    """One job's needs, stored by the node's agent, which alone deletes segments; see `Hold`."""

    def __init__(self, agent: Agent, job: str, store: str) -> None:
        """Send no request yet; *store* is the job's `store_mark`."""
        self._agent = agent
        self._job = job
        self._store = store
        self._noted: dict[str, object] = {}
        self._splits: list[str] = []

    def register_all(self, splits: Iterable[str]) -> None:
        """Write a pin that needs everything for each split of the job that has none yet.

        An unavailable agent gets it later: until then it keeps what it kept.
        """
        self._splits = list(splits)
        with contextlib.suppress(AgentUnavailableError):
            self._tell_splits()

    def register(
        self, split: str, marker: Marker, pending: pins.Pending, listed: Stored = ()
    ) -> None:
        """Pin what *split* needs from now on; see `Hold.register`.

        An unavailable agent gets it with the split's later needs. It gets all splits each time: if
        the node was set up again, their pins were removed (I5).
        """
        noted = pins.Need.of(self._job, split, marker, pending, listed)
        if self._noted.get(split) == noted.says():
            return
        place = noted.marker.segment_id, noted.marker.offset
        segments, copies, generation = list(noted.segments), noted.copies, noted.generation
        need = Need(
            self._job, self._store, split, *place, segments, copies, generation, noted.listed
        )
        with contextlib.suppress(AgentUnavailableError):
            self._tell_splits()
            self._agent.ask_for(dict, "PUT", NEEDS_PATH, need)
            self._noted[split] = noted.says()

    def withdraw(self, splits: Iterable[str]) -> None:
        """Remove the pins of *splits*; an unavailable agent keeps its segments."""
        gone = list(splits)
        self._splits = [split for split in self._splits if split not in gone]
        with contextlib.suppress(AgentUnavailableError):
            self._agent.ask_for(dict, "DELETE", NEEDS_PATH, self._needs(gone))

    def _needs(self, splits: Iterable[str]) -> Needs:
        return Needs(self._job, self._store, list(splits))

    def _tell_splits(self) -> None:
        if self._splits:
            self._agent.ask_for(dict, "POST", NEEDS_PATH, self._needs(self._splits))

    def dispose(self) -> int:
        """Return 0: the agent disposes of segments when it receives needs."""
        return 0

    def tick(self) -> None:
        """Do nothing: the agent maintains its files."""

    def figures(self) -> HoldFigures:
        """Return the held and the remaining space of the agent. Raises as `Agent.ask`."""
        return self._agent.ask_for(HoldFigures, "GET", HOLD_PATH)


def _refusal_code(content: bytes | memoryview) -> str:
    try:
        return msgspec.json.decode(content, type=Refusal).code
    except msgspec.MsgspecError:
        return ""


def _refusal(content: bytes | memoryview) -> str:
    try:
        said = msgspec.json.decode(content, type=Refusal)
    except msgspec.MsgspecError:
        return "the answer is none of an agent's"
    return f"{said.code}: {said.message}"
