"""The handlers of the console. Its pages only read; every change is a statement.

Each page is HTML for people; the same name with `.json` returns it as JSON. A statement that
changes something is executed only after it was confirmed, by the same service and with the same
permissions as those of `POST /api/v1/statements`.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from aiohttp import hdrs, web

from headrace.connector.control.access.permission import CALLER, Role, UnauthorizedError
from headrace.connector.control.commands import Commands
from headrace.connector.control.console.configuration import configuration_of
from headrace.connector.control.console.paging import ROWS_MAX, Document, part_of
from headrace.connector.control.console.records import (
    gaps_of,
    jobs_of,
    letters_of,
    redrive_statement,
    show_command,
    splits_of,
)
from headrace.connector.control.console.state import KeptState
from headrace.connector.control.errors import NotFoundError
from headrace.connector.control.service import ControlService
from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.rendering import ResultTable
from headrace.connector.language.statements import Show, Subject, is_question
from headrace.connector.rest.bodies import BODIES
from headrace.connector.rest.console.pages import TITLES, rendered, static_files
from headrace.connector.rest.console.streams import Admit, Streams, mark_of
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import Handler, RefusedError, answer, lines_of, wants_page
from headrace.connector.rest.logins import DOOR
from headrace.connector.rest.statements import STATEMENT_CHARS_MAX
from headrace.plugins import ConfigError, HeadraceError

if TYPE_CHECKING:
    from headrace.connector.rest.console.samples import Samples

STATE_SECONDS: Final = 5.0  # How long a state is shown before the next read.
WAIT_SECONDS: Final = 2.0  # How long a page waits for a newer state than the last one.
ERRORS_MAX: Final = 5
JOBS_MAX: Final = 20
RESULT_ROWS_MAX: Final = 200
_SHARDS_MAX: Final = 500
_KEPT: Final = "private, max-age=31536000, immutable"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_FORM: Final = "application/x-www-form-urlencoded"
_FIELDS: Final = ("statement", "token", "confirmed")
Runs = Callable[[], Sequence[Mapping[str, Any]]]  # Any: JSON.
Read = Callable[[Mapping[str, str]], Awaitable[Document]]


class ConsoleDoor:
    """See the module. Belongs to the event loop's thread."""

    def __init__(
        self, doorway: Doorway, samples: "Samples", runs: Runs, root: Handler, admit: Admit
    ) -> None:
        """*root* answers `/` for clients that do not ask for a page; *runs* may block.

        *admit* is called before each look of a stream.
        """
        self._doorway = doorway
        self._samples = samples
        self._runs = runs
        self._root = root
        self._secret = secrets.token_bytes(32)
        self.streams = Streams(admit)
        self._kept = KeptState()
        self._state: tuple[float, Document] | None = None
        self._reading: asyncio.Task[Document] | None = None
        self._pages: Mapping[str, Read] = {
            "overview": self._overview,
            "sources": self._sources,
            "splits": self._splits,
            "logs": self._logs,
            "plots": self._plots,
            "books": self._books,
            "gaps": self._gaps,
            "dead-letters": self._letters,
            "runs": self._runs_page,
            "configuration": self._configuration,
            "audit": self._audit,
            "statements": self._statements,
        }

    def routes(self) -> Sequence[tuple[str, str, Handler]]:
        """Return method, path and handler of each route."""
        return [
            ("GET", "/", self.home),
            ("GET", "/console", self.page),
            ("GET", "/console/static/{name}", self.file),
            ("GET", "/console/{page}", self.page),
            ("POST", "/console/statements", self.execute),
        ]

    async def home(self, request: web.Request) -> web.StreamResponse:
        """GET /: the overview for browsers, and Kafka Connect's response for all others."""
        return await (self.page(request) if wants_page(request) else self._root(request))

    async def file(self, request: web.Request) -> web.Response:
        """GET /console/static/…: a file of the pages."""
        found = static_files().get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        content, media_type = found
        headers = {**HEADERS, hdrs.CACHE_CONTROL: _KEPT}
        return web.Response(body=content, content_type=media_type, headers=headers)

    async def page(self, request: web.Request) -> web.StreamResponse:
        """GET /console/…: a page, its document as JSON, or the stream of its changes."""
        name = request.match_info.get("page", "overview")
        if name.endswith(".events") and (read := self._pages.get(name.removesuffix(".events"))):
            page = partial(read, request.query)
            return await self.streams.serve(request, page, HEADERS)
        if name.endswith(".json") and (read := self._pages.get(name.removesuffix(".json"))):
            return answer(await read(request.query))
        try:
            if (read := self._pages.get(name)) is None:
                raise RefusedError(404, "this page does not exist")
            document = await read(request.query)
        except HeadraceError as error:
            return self._failed(error)
        return self._shown(name, document)

    async def execute(self, request: web.Request) -> web.Response:
        """POST /console/statements: execute a statement, or ask for confirmation."""
        if request.content_type != _FORM:
            raise RefusedError(415, f"HTTP 415 Unsupported Media Type: expected {_FORM}")
        body = (await request.app[BODIES].read(request)).decode(errors="replace")
        try:
            given = parse_qs(body, max_num_fields=len(_FIELDS))
        except ValueError:
            raise RefusedError(400, f"the form has more than {len(_FIELDS)} fields") from None
        text, token, confirmed = (given.get(name, [""])[0] for name in _FIELDS)
        text = text.replace("\r\n", "\n")  # Forms end lines so.
        if not hmac.compare_digest(token.encode(), self._mark("").encode()):
            message = "the form was not made by this server for you: open the page again"
            return self._failed(RefusedError(403, message))
        document: Document = {"statement": text, "confirm": "", "error": "", "result": None}
        try:
            if len(text) > STATEMENT_CHARS_MAX:
                raise RefusedError(413, f"a statement has at most {STATEMENT_CHARS_MAX} characters")
            statement = parse_statement(text)
            is_meant = hmac.compare_digest(confirmed.encode(), self._mark(text).encode())
            if not is_question(statement) and not is_meant:
                return self._shown("statements", {**document, "confirm": self._mark(text)})
            found = await self._doorway.execute(statement)
            if not is_question(statement):
                self._state = None  # So that users see their changes.
                self.streams.wake()
        except HeadraceError as error:
            status = _status(error)
            said = _said(error)
            return self._shown("statements", {**document, "error": said}, status)
        document["result"] = {
            "columns": list(found.columns),
            "rows": [list(row) for row in found.rows[:RESULT_ROWS_MAX]],
            "count": len(found.rows),
            "footer": [list(each) for each in found.footer],
            "warnings": [str(warning) for warning in found.warnings],
        }
        return self._shown("statements", document)

    # The contents of the pages.

    async def _overview(self, query: Mapping[str, str]) -> Document:
        state = await self._known_state()
        rings = {job["job"]: job["ring"] for job in state["jobs"]}
        jobs = [{key: job[key] for key in ("job", "problem", "headline")} for job in state["jobs"]]
        job = _chosen(query, rings)
        return {
            **{key: state[key] for key in ("time", "said", "well", "missing")},
            "troubles": state["troubles"][:ROWS_MAX],
            "jobs": part_of(jobs, _page(query, "jobs"), JOBS_MAX),
            "sources": part_of(state["sources"], _page(query)),
            "errors": part_of(state["errors"], _page(query, "errors"), ERRORS_MAX),
            "job": job,
            "ring": rings.get(job),
        }

    async def _sources(self, query: Mapping[str, str]) -> Document:
        state = await self._known_state()
        page = _page(query)
        shown = {name: part_of(state[name], page) for name in ("sources", "sinks")}
        return {"time": state["time"], "missing": state["missing"], **shown}

    async def _splits(self, query: Mapping[str, str]) -> Document:
        def read(service: ControlService) -> Document:
            jobs = jobs_of(service.commands)
            job = _chosen(query, jobs)
            found = splits_of(service.notes, job, jobs[job]) if job else []
            return {
                "jobs": list(jobs)[:ROWS_MAX],
                "job": job,
                "splits": part_of(found, _page(query)),
            }

        return await self._doorway.look(read)

    async def _logs(self, query: Mapping[str, str]) -> Document:
        state = await self._known_state()
        return {"time": state["time"], "logs": part_of(state["logs"], _page(query))}

    async def _plots(self, query: Mapping[str, str]) -> Document:
        del query
        return dict(self._samples.document())

    async def _books(self, query: Mapping[str, str]) -> Document:
        state = await self._known_state()
        jobs = [{key: job[key] for key in job if key != "ring"} for job in state["jobs"]]
        return {"time": state["time"], "jobs": part_of(jobs, _page(query), JOBS_MAX)}

    async def _gaps(self, query: Mapping[str, str]) -> Document:
        def read(service: ControlService) -> Document:
            notes, commands = service.notes, service.commands
            found = [gap for job in jobs_of(commands) for gap in gaps_of(notes, commands, job)]
            return {"gaps": part_of(found, _page(query))}

        return await self._doorway.look(read)

    async def _letters(self, query: Mapping[str, str]) -> Document:
        def read(service: ControlService) -> Document:
            jobs = jobs_of(service.commands)
            job = _chosen(query, jobs)
            found = letters_of(service.notes, job) if job else []
            command = show_command(service.notes, job) if found else ""
            letters = part_of(found, _page(query))
            return {
                "jobs": list(jobs)[:ROWS_MAX],
                "job": job,
                "command": command,
                "redrive": redrive_statement(job) if found else "",
                "letters": letters,
            }

        return await self._doorway.look(read)

    async def _runs_page(self, query: Mapping[str, str]) -> Document:
        def read(service: ControlService) -> tuple[Sequence[Mapping[str, Any]], ResultTable]:
            return self._runs(), service.execute(Show(subject=Subject.RUNS))

        found, shown = await self._doorway.look(read)
        asked = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]
        runs = part_of(found, _page(query), JOBS_MAX)
        names = [run["run"] for run in found]
        name = query.get("run", names[0] if names else "")
        run = next((dict(run) for run in found if run["run"] == name), None)
        if run is not None:
            run["shards"] = part_of(run["shards"], _page(query, "shards"), _SHARDS_MAX)
        runs["rows"] = [{k: v for k, v in each.items() if k != "shards"} for each in runs["rows"]]
        asked_rows = part_of(asked, _page(query, "asked"), JOBS_MAX)
        return {"runs": runs, "run": run, "asked": asked_rows}

    async def _configuration(self, query: Mapping[str, str]) -> Document:
        def read(service: ControlService) -> Document:
            jobs = jobs_of(service.commands)
            job = _chosen(query, jobs)
            found = configuration_of(service.notes, job) if job else None
            statements = part_of(_statements(service.commands), _page(query))
            return {"jobs": list(jobs)[:ROWS_MAX], "configuration": found, "statements": statements}

        return await self._doorway.look(read)

    async def _audit(self, query: Mapping[str, str]) -> Document:
        found = await self._doorway.call(Commands.audit)
        return {"lines": part_of(found, _page(query))}

    async def _statements(self, query: Mapping[str, str]) -> Document:
        text = query.get("statement", "")[:STATEMENT_CHARS_MAX]
        return {"statement": text, "confirm": "", "error": "", "result": None}

    async def _known_state(self) -> Document:
        """Return the state; older than `STATE_SECONDS` only while a new one is being read."""
        old = self._state
        if old is not None and time.monotonic() - old[0] < STATE_SECONDS:
            return old[1]
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_state())
        try:
            seconds = None if old is None else WAIT_SECONDS
            return await asyncio.wait_for(asyncio.shield(self._reading), seconds)
        except TimeoutError:
            if old is None:
                raise
            return old[1]

    async def _read_state(self) -> Document:
        try:
            found = await self._doorway.ask(self._kept.look)
            self._state = time.monotonic(), found
        finally:
            self._reading = None
        return found

    # The display of the pages.

    def _shown(self, name: str, document: Document, status: int = 200) -> web.Response:
        caller = CALLER.get()
        more = {
            "title": TITLES.get(name, "headrace"),
            "token": self._mark(""),
            "mark": mark_of(document),
            "caller": caller.name,
            "may_steer": caller.role >= Role.OPERATOR or caller.door == DOOR,
            "may_change": caller.role >= Role.ADMIN or caller.door == DOOR,
        }
        body = rendered(name, document, **more)
        return web.Response(
            body=body, status=status, content_type="text/html", charset="utf-8", headers=HEADERS
        )

    def _failed(self, error: HeadraceError) -> web.Response:
        return self._shown("error", {"error": _said(error)}, _status(error))

    def _mark(self, text: str) -> str:
        """Return a mark of *text* and the caller that only this server can make."""
        caller = CALLER.get()
        said = json.dumps([caller.name, caller.door, text]).encode()
        return hmac.digest(self._secret, said, hashlib.sha256).hex()


def _chosen(query: Mapping[str, str], jobs: Mapping[str, object]) -> str:
    """Return the requested job, or the first one. Raises NotFoundError."""
    job = query.get("job") or next(iter(jobs), "")
    if job and job not in jobs:
        raise NotFoundError(
            "job", f"job {job[:48]!r} does not exist", f"there are: {', '.join(jobs)}"
        )
    return job


def _statements(commands: Commands) -> Sequence[str]:
    sinks = [sink.statement for sink in commands.sinks()]
    return [*sinks, *(source.statement for source in commands.sources())]


def _page(query: Mapping[str, str], key: str = "page") -> int:
    text = query.get(key, "1")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1  # noqa: PLR2004


def _status(error: HeadraceError) -> int:
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, UnauthorizedError):
        return 403
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, ConfigError | StatementSyntaxError):
        return 400
    return 503 if error.restartable else 500


def _said(error: HeadraceError) -> str:
    if isinstance(error, ConfigError):
        return "\n".join(lines_of(error))
    place = f"{error.place} " if error.place else ""
    hint = f"\nhint: {error.hint}" if error.hint else ""
    return f"{place}{error.message}{hint}"
