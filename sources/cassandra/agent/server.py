"""The agent of a node: serves the segments in its `cdc_raw`, keeps those needed, deletes others.

Responses are streamed as fast as the reader accepts them and the rate limit allows; an opened file
stays readable after its removal. Used on the event loop's thread; files are read on others.
"""

import asyncio
import contextlib
import hmac
import os
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
import structlog
from aiohttp import hdrs, web

from headrace.plugins import HeadraceError, MissingRequirementError
from headrace.plugins.metrics import Measure, encoded, families
from headrace.plugins.serving import Hosts, arrived
from headrace.sources.cassandra.agent.changes import Changes
from headrace.sources.cassandra.agent.framing_sessions import FramingSessions, Wanted
from headrace.sources.cassandra.agent.metrics import agent_measures
from headrace.sources.cassandra.agent.protocol import (
    COPIES_PATH,
    COPY_BYTES_MAX,
    END_HEADER,
    ENTRIES_PATH,
    HOLD_PATH,
    MARK_HEADER,
    MESSAGING_HEADER,
    MUTATIONS_PATH,
    NEEDS_BYTES_MAX,
    NEEDS_PATH,
    RANGE_BYTES_MAX,
    SEEN_HEADER,
    SEGMENTS_PATH,
    SPAN_BYTES_MAX,
    SPLITS_MAX,
    VERSION,
    VERSION_CODE,
    WAIT_HEADER,
    WAIT_SECONDS,
    Entries,
    Listed,
    Listing,
    Need,
    Needs,
    Notes,
    Place,
    Refusal,
)
from headrace.sources.cassandra.agent.rooms import Rooms
from headrace.sources.cassandra.agent.stretches import Gathering
from headrace.sources.cassandra.commitlog.manifest import file_of, number_in
from headrace.sources.cassandra.commitlog.segment import parse_name
from headrace.sources.cassandra.errors import NotAFileError, SegmentError, SegmentKeyError
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs.directory import NO_LIMIT, LogDirectory, SegmentInfo
from headrace.sources.cassandra.logs.folder_watch import Inotify
from headrace.sources.cassandra.logs.index_files import ReportedFlaws
from headrace.sources.cassandra.logs.pins import noted_in
from headrace.sources.cassandra.logs.regular import open_regular
from headrace.sources.cassandra.logs.repair_streams import FILE, Stream, streams_in
from headrace.sources.cassandra.logs.reread import Copies
from headrace.sources.cassandra.retention.disposal import TICK_MS, SegmentRetention
from headrace.sources.cassandra.retention.hold import Hold
from headrace.sources.cassandra.state.cdc_state import Marker

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PIECE_BYTES: Final = 256 * 1024
SLOW_SECONDS_MAX: Final = 30.0  # A reader that accepts no data for this long is disconnected.
OPEN_MAX: Final = 64
IDLE_SECONDS: Final = 60.0  # After that, the open file of a removed segment is closed.
REQUESTS_MAX: Final = 64
WAITING_MAX: Final = 1024  # Requests waiting for a new listing: one for each job's worker.
_WAIT: Final = re.compile(r"wait=(\d{1,3})")
_RANGE: Final = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")


class _RefusedError(Exception):
    """A request that is rejected with a reason."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.refusal = Refusal(code, message)


class _File(msgspec.Struct):
    """An open segment; `mark` distinguishes files of one name, `used` is the time of the last use.

    `info` is the last listing of it: since then it may only have grown.
    """

    descriptor: int
    mark: str
    used: float
    info: SegmentInfo | None = None


class Pace:
    """Limits the rate of sending. A piece may be sent at once, and the next waits for it."""

    def __init__(self, bytes_per_second: int | None) -> None:
        """Set the rate; None is unlimited."""
        self._rate = bytes_per_second
        self._free = 0.0

    def pause(self, count: int, now: float) -> float:
        """Return for how many seconds *count* bytes must wait at *now*."""
        if self._rate is None:
            return 0.0
        begin = max(self._free, now)
        self._free = begin + count / self._rate
        return begin - now


class AgentServer:
    """The server of one agent. `sent_bytes` counts the bytes of segments sent."""

    def __init__(  # noqa: PLR0913 (each is a separate concern)
        self,
        log: LogDirectory,
        retention: SegmentRetention,
        inotify: Inotify,
        *,
        token: str | None,
        rate_bytes: int | None,
        hosts: Iterable[str] = (),
        events: structlog.stdlib.BoundLogger,
    ) -> None:
        """Without a *token*, anyone who can connect may read. *inotify* watches the log.

        *hosts* are the names by which readers may call it, besides addresses.
        """
        self._log = log
        self._retention = retention
        self._inotify = inotify
        self._changes = Changes(log, inotify)
        self._waiting = 0
        self._copies = Copies({"": log}, b"", Keys(KeyOptions()))
        self._framing = FramingSessions()
        self._rooms = Rooms()
        self._token = None if token is None else token.encode()
        self._hosts = Hosts(hosts)
        self._pace = Pace(rate_bytes)
        self._events = events
        self._flaws = ReportedFlaws()
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._one_by_one = ThreadPoolExecutor(1, "log")  # Listing and holding are single-threaded.
        self._under_way = 0
        self._streams: list[Stream] = []
        self.sent_bytes = 0
        self._requests: Counter[int] = Counter()

    def application(self) -> web.Application:
        """Return the web application."""
        chain = [self._counted, self._refusals]
        app = web.Application(middlewares=chain, client_max_size=NEEDS_BYTES_MAX)
        app.router.add_get(SEGMENTS_PATH, self._segments)
        app.router.add_get(SEGMENTS_PATH + "/{name}", self._range, allow_head=False)
        app.router.add_post(ENTRIES_PATH + "/{name}", self._entries)
        app.router.add_post(MUTATIONS_PATH + "/{name}", self._mutations)
        app.router.add_post(COPIES_PATH, self._copy)
        app.router.add_get(HOLD_PATH, self._hold)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get(NEEDS_PATH, self._noted)
        app.router.add_put(NEEDS_PATH, self._need)
        app.router.add_post(NEEDS_PATH, self._needs)
        app.router.add_delete(NEEDS_PATH, self._needs)
        app.on_shutdown.append(self._end_waiting)
        app.router.add_route("*", r"/v{version:\d+}/{rest:.*}", self._other_version)
        return app

    async def keep(self) -> None:
        """Maintain the node's files until it is cancelled."""
        while True:
            await self._alone(self._look_after)
            await asyncio.sleep(TICK_MS / 1000)

    def _look_after(self) -> None:
        self._retention.tick()
        self._copies.close()
        self._framing.forget_gone()
        for name, file in list(self._files.items()):  # Removed files would still use the disk.
            is_idle = time.monotonic() > file.used + IDLE_SECONDS
            if is_idle and os.fstat(file.descriptor).st_nlink == 0:
                os.close(self._files.pop(name).descriptor)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()
        self._one_by_one.shutdown()
        self._framing.close()
        self._copies.close()
        self._inotify.close()

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count the request by the status of its response."""
        try:
            response = await handler(request)
        except web.HTTPException as error:
            self._requests[error.status] += 1
            raise
        self._requests[response.status] += 1
        return response

    @web.middleware
    async def _refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._under_way += 1
        try:
            self._let_in(request)
            return await handler(request)
        except _RefusedError as refused:
            return _json(refused.refusal, refused.status)
        except HeadraceError as error:
            status = 409 if isinstance(error, MissingRequirementError) else 500
            return _json(Refusal(error.code, str(error)), status)
        finally:
            self._under_way -= 1

    def _let_in(self, request: web.Request) -> None:
        if stranger := self._hosts.refusal(request):
            raise _RefusedError(stranger[0], "agent_refused", stranger[1])
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if self._token is not None and not hmac.compare_digest(given, b"Bearer " + self._token):
            raise _RefusedError(401, "agent_refused", "the token is missing, or another one")
        if self._under_way > REQUESTS_MAX:
            raise _RefusedError(503, "agent_busy", f"{REQUESTS_MAX} requests are under way")

    async def _segments(self, request: web.Request) -> web.Response:
        """Respond with a listing; to a waiting request, when a new one exists, or with none.

        Until the latter ends, a reader need not ask again.
        """
        seen = request.headers.get(SEEN_HEADER, "")
        waits = _WAIT.fullmatch(request.headers.get(WAIT_HEADER, ""))
        if seen and waits:
            seconds = min(int(waits[1]), WAIT_SECONDS)
            if await self._waited(seen, seconds) == seen:
                return web.Response(status=304, headers={MARK_HEADER: seen})
        listing, mark = await self._alone(self._listing)
        return _json(listing, headers={MARK_HEADER: mark})

    async def _waited(self, seen: str, seconds: float) -> str:
        """Return the mark of the listing when it is not *seen*, or after *seconds*."""
        if self._waiting >= WAITING_MAX:
            raise _RefusedError(503, "agent_busy", f"{WAITING_MAX} requests wait")

        async def now() -> str:
            return await self._alone(lambda: self._changes.note(self._segments_now()))

        self._waiting += 1
        self._under_way -= 1  # It uses no resources of the others.
        try:
            return await self._changes.wait(seen, seconds, now)
        finally:
            self._waiting -= 1
            self._under_way += 1

    async def _end_waiting(self, app: web.Application) -> None:
        del app
        self._changes.end()

    def _listing(self) -> tuple[Listing, str]:
        found = self._segments_now()
        listed, mark = [self._listed(each) for each in found], self._changes.note(found)
        self._flaws.tell(self._log.flaws, self._events)
        # Read after the listing: a stream is reported before any of it is logged.
        with contextlib.suppress(OSError, msgspec.MsgspecError):  # It is being replaced.
            self._streams = list(streams_in(self._retention.notes / FILE))
        return Listing(listed, self._streams), mark

    def _segments_now(self) -> Sequence[SegmentInfo]:
        """List the segments, and update the open ones."""
        found = self._log.segments()
        for info in found:
            if (file := self._files.get(info.name)) is not None:
                file.info = info
        return found

    def _listed(self, info: SegmentInfo) -> Listed:
        size, modified_ms = self._log.size_of(info), self._log.modified_ms(info)
        said = info.name, info.limit, info.missing, size, modified_ms, info.unwatched, info.indexed
        return Listed(file_of(info.segment_id), *said, info.durable_ms)

    async def _range(self, request: web.Request) -> web.StreamResponse:
        name = _segment_name(request)
        first, last = _asked(request.headers.get("Range", ""))
        file = await self._alone(lambda: self._expected(request, name))
        size = os.fstat(file.descriptor).st_size
        if first >= size:
            raise _RefusedError(416, "behind_end", f"{name} ends at {size}")
        return await self._stream(request, file, first, min(last + 1, size))

    async def _stream(
        self, request: web.Request, file: _File, begin: int, end: int
    ) -> web.StreamResponse:
        descriptor = os.dup(file.descriptor)  # It may be closed for others meanwhile.
        try:
            response = web.StreamResponse(status=206, headers={"ETag": file.mark})
            response.content_type = "application/octet-stream"
            response.content_length = end - begin
            await response.prepare(request)
            while begin < end:
                count = min(PIECE_BYTES, end - begin)
                await asyncio.sleep(self._pace.pause(count, time.monotonic()))
                piece = await asyncio.to_thread(os.pread, descriptor, count, begin)
                if not piece or not await self._took(request, response, piece):
                    _break(request)  # It was shortened, or the client does not accept it.
                    return response
                begin += len(piece)
                self.sent_bytes += len(piece)
        finally:
            os.close(descriptor)
        return response

    async def _took(self, request: web.Request, response: web.StreamResponse, piece: bytes) -> bool:
        try:
            async with asyncio.timeout(SLOW_SECONDS_MAX):
                await response.write(piece)
        except TimeoutError:
            self._events.warning("slow_reader", peer=request.remote, path=request.path)
            return False
        except ConnectionError:
            return False
        return True

    async def _need(self, request: web.Request) -> web.Response:
        need = _body(await _arrived(request), Need)
        marker = Marker(number_in(need.generation, need.segment), need.offset)
        pending = {**need.copies, **{number: [] for number in need.segments}}

        def note() -> int:
            notes = self._retention.notes
            hold = Hold(notes, need.job, store=need.store, retention=self._retention)
            hold.register(need.split, marker, pending, need.listed)
            return hold.dispose()

        return _json({"disposed": await self._alone(note)})

    async def _needs(self, request: web.Request) -> web.Response:
        needs = _body(await _arrived(request), Needs)
        if len(needs.splits) > SPLITS_MAX:
            raise _RefusedError(400, "bad_request", f"more than {SPLITS_MAX} splits")
        notes = self._retention.notes
        hold = Hold(notes, needs.job, store=needs.store, retention=self._retention)

        def note() -> None:
            self._retention.check()
            hold.register_all(needs.splits)

        withdrawn = request.method == hdrs.METH_DELETE
        await self._alone((lambda: hold.withdraw(needs.splits)) if withdrawn else note)
        return _json({})

    async def _noted(self, request: web.Request) -> web.Response:
        job = request.query.get("job", "")
        return _json(Notes(await self._alone(lambda: noted_in(self._retention.notes, job))))

    async def _hold(self, request: web.Request) -> web.Response:
        del request
        return _json(await self._alone(self._retention.figures))

    async def _metrics(self, request: web.Request) -> web.Response:
        """Respond with the metrics for Prometheus."""
        accept = request.headers.get(hdrs.ACCEPT, "")

        def text() -> tuple[bytes, str]:
            return encoded(families(self._measures()), accept)

        body, media_type = await self._alone(text)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: media_type})

    def measures(self) -> Sequence[Measure]:
        """Return the current metrics. Any thread but the server's may call it; blocks."""
        return self._one_by_one.submit(self._measures).result()

    def _measures(self) -> Sequence[Measure]:
        return agent_measures(self._retention.figures(), self.sent_bytes, self._requests)

    async def _copy(self, request: web.Request) -> web.StreamResponse:
        """Respond with a mutation; the client compares its digest."""
        asked = _body(await _arrived(request), Place, msgspec.msgpack.decode)
        if asked.length > COPY_BYTES_MAX:
            raise _RefusedError(416, "bad_place", f"expected at most {COPY_BYTES_MAX} bytes")
        number = self._log.manifest.number(asked.segment) or asked.segment
        try:
            found = await self._alone(
                lambda: self._copies.at("", number, asked.position, asked.length)
            )
        except (SegmentError, SegmentKeyError) as error:  # For example, an encrypted one.
            raise _RefusedError(409, error.code, str(error)) from error
        if found is None:
            raise _copy_gone(f"segment {asked.segment}", asked.position)
        return await self._sent(request, found.raw, {MESSAGING_HEADER: str(found.messaging)})

    async def _mutations(self, request: web.Request) -> web.StreamResponse:
        """Respond with mutations of a segment, in sequence; the client compares digests."""
        name = _segment_name(request)
        try:
            gathering = Gathering(await _arrived(request), COPY_BYTES_MAX, self._rooms.take)
        except ValueError as error:
            raise _RefusedError(416, "bad_place", str(error)) from error

        def gather() -> _File:
            file = self._expected(request, name)
            if not self._framing.mutations(file.mark, file.descriptor, gathering):
                raise _copy_gone(name, gathering.next()[1])
            return file

        file = await self._alone(gather)
        sent = await self._sent(request, gathering.content, {hdrs.ETAG: file.mark})
        self._rooms.give_back(gathering.room)
        return sent

    async def _entries(self, request: web.Request) -> web.StreamResponse:
        """Respond with the selected entries of a segment."""
        name = _segment_name(request)
        asked = _body(await _arrived(request), Entries, msgspec.msgpack.decode)
        if not 0 < asked.bytes <= SPAN_BYTES_MAX or asked.begin < 0:
            raise _RefusedError(416, "bad_range", f"expected 1 to {SPAN_BYTES_MAX} bytes")
        wanted = Wanted(asked.key, asked.full, asked.ranges, asked.passed, asked.kept)

        def frame() -> tuple[bytes, dict[str, str]]:
            file, end = self._expected(request, name), asked.begin + asked.bytes
            info = self._info_of(file, name, asked.begin)
            content, is_end = self._framing.entries(
                info, file.mark, file.descriptor, begin=asked.begin, end=end, wanted=wanted
            )
            return content, {hdrs.ETAG: file.mark} | ({END_HEADER: "true"} if is_end else {})

        try:
            content, headers = await self._alone(frame)
        except (SegmentError, SegmentKeyError) as error:  # Then its bytes are requested.
            raise _RefusedError(409, error.code, str(error)) from error
        return await self._sent(request, content, headers)

    async def _sent(
        self, request: web.Request, content: bytes | memoryview, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Respond with *content*, as fast as the reader accepts it and the rate allows."""
        response = web.StreamResponse(headers=headers)
        response.content_type = "application/octet-stream"
        response.content_length = len(content)
        await response.prepare(request)
        for begin in range(0, len(content), PIECE_BYTES):
            piece = bytes(content[begin : begin + PIECE_BYTES])  # A transport may keep it.
            if pause := self._pace.pause(len(piece), time.monotonic()):
                await asyncio.sleep(pause)
            if not await self._took(request, response, piece):
                _break(request)
                break
            self.sent_bytes += len(piece)
        return response

    def _info_of(self, file: _File, name: str, begin: int) -> SegmentInfo:
        """Return the info of an open segment, updated if it has nothing from *begin* on."""
        info = file.info
        if info is not None and (info.final or begin < info.limit):
            return info
        listed = self._segments_now()
        info = next((each for each in listed if each.name == name), None)
        if info is None:  # The file is still open; it is final if there is a later one.
            parsed = parse_name(name)
            number = None if parsed is None else self._log.manifest.number(parsed[1])
            if number is None or not any(each.segment_id > number for each in listed):
                raise _RefusedError(404, "segment_gone", f"there is no {name}")
            info = SegmentInfo(number, name, NO_LIMIT)
        file.info = info
        return info

    async def _other_version(self, request: web.Request) -> web.Response:
        asked = request.match_info["version"]
        said = f"this agent has version {VERSION} of the protocol, version {asked} was asked for"
        raise _RefusedError(404, VERSION_CODE, said)

    async def _alone(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._one_by_one, work)

    def _expected(self, request: web.Request, name: str) -> _File:
        """Return the open file of *name*, if its mark is the one in the request."""
        file = self._file(name)
        if request.headers.get("If-Match", file.mark) != file.mark:
            raise _RefusedError(412, "segment_changed", f"{name} is another file now")
        return file

    def _file(self, name: str) -> _File:
        """Return the open file of *name*: the one with this name now, or the last one."""
        known = self._files.get(name)
        try:
            path = self._log.find(name)
            found = path.lstat()
        except FileNotFoundError:
            if known is None:
                raise _RefusedError(404, "segment_gone", f"there is no {name}") from None
            found = None
        if known is not None and (found is None or known.mark == _mark(found)):
            known.used = time.monotonic()
            self._files.move_to_end(name)
            return known
        try:
            descriptor = open_regular(path)
        except NotAFileError as error:
            raise _RefusedError(404, error.code, str(error)) from None
        if known is not None:
            os.close(known.descriptor)
        self._files[name] = file = _File(descriptor, _mark(os.fstat(descriptor)), time.monotonic())
        self._files.move_to_end(name)
        if len(self._files) > OPEN_MAX:
            os.close(self._files.popitem(last=False)[1].descriptor)
        return file


def _segment_name(request: web.Request) -> str:
    name = request.match_info["name"]
    if parse_name(name) is None:  # No other files are ever opened.
        raise _RefusedError(400, "bad_segment", "expected CommitLog-<version>-<id>.log")
    return name


def _copy_gone(place: str, position: int) -> _RefusedError:
    return _RefusedError(404, "copy_gone", f"{place} has no copy at {position}")


def _asked(text: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise _RefusedError(400, "bad_range", "expected Range: bytes=FIRST-LAST")
    first, last = int(match[1]), int(match[2])
    if last < first or last - first >= RANGE_BYTES_MAX:
        said = f"expected 1 to {RANGE_BYTES_MAX} bytes, found {last - first + 1}"
        raise _RefusedError(416, "bad_range", said)
    return first, last


async def _arrived(request: web.Request) -> bytes:
    try:
        return await arrived(request, NEEDS_BYTES_MAX)
    except TimeoutError:
        raise _RefusedError(408, "bad_request", "the body did not arrive in time") from None
    except web.HTTPRequestEntityTooLarge:
        message = f"the body has more than {NEEDS_BYTES_MAX} bytes"
        raise _RefusedError(413, "bad_request", message) from None


def _body(content: bytes, kind: type[T], decode: Callable[..., T] = msgspec.json.decode) -> T:
    try:
        return decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise _RefusedError(400, "bad_request", str(error)) from error


def _json(
    document: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(document),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def _mark(found: os.stat_result) -> str:
    return f'"{found.st_dev:x}-{found.st_ino:x}"'


def _break(request: web.Request) -> None:
    """Show the reader that the response is incomplete."""
    if request.transport is not None:
        request.transport.abort()
