"""One exchange: strict parsing of a request, a JSON response, errors worded as in Connect.

Every response but empty ones is JSON, also the 404 and the 405 of the router. A body is bounded
before it is parsed.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from aiohttp import hdrs, web

from headrace.connector.control.access.permission import UnauthorizedError
from headrace.connector.language.rendering import StatementWarning
from headrace.connector.obs import structlog
from headrace.plugins import ConfigError, HeadraceError

DEPTH_MAX: Final = 32
CONSOLE: Final = "/console"
WARNING_CHARS_MAX: Final = 1_000
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_JSON: Final = frozenset({"*/*", "application/*", "application/json", "application/jsonl", ""})
_PHRASES: Final = {
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    411: "Length Required",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Json = Mapping[str, Any]  # Any: what JSON can hold.


class RefusedError(HeadraceError):
    """A request that is answered with an error; *status* is HTTP's, *more* is added to the body."""

    code: ClassVar[str] = "refused"

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """Keep the message and the parts of the response."""
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.more = dict(more or {})


def answer(
    document: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return *document* as JSON."""
    body = json.dumps(document, ensure_ascii=False).encode(errors="backslashreplace")
    return web.Response(
        body=body, status=status, headers=dict(headers or {}), content_type="application/json"
    )


def warning_headers(warnings: Sequence[StatementWarning]) -> Mapping[str, str]:
    """Return `Warning` headers, like Kubernetes: in a body they could break Connect's clients."""
    if not warnings:
        return {}
    lines = [f"[{w.code}] {w.message}" + (f"; hint: {w.hint}" if w.hint else "") for w in warnings]
    return {hdrs.WARNING: ", ".join(f'299 headrace "{_quoted(text)}"' for text in lines)}


def _quoted(text: str) -> str:
    """Return *text* as a quoted string for a header: ASCII, in one line, and not long."""
    line = " ".join(text.replace("…", "...").split())[:WARNING_CHARS_MAX]
    shown = "".join(c if " " <= c <= "~" else "?" for c in line)
    return shown.replace("\\", "\\\\").replace('"', '\\"')


def refusal(
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, object] | None = None,
) -> web.Response:
    """Return an error as Kafka Connect's clients expect it."""
    return answer({"error_code": status, "message": message, **(more or {})}, status, headers)


def parse_json(body: bytes) -> Any:  # noqa: ANN401 (what JSON can hold)
    """Return the JSON in *body*; floats stay strings.

    Raises:
        RefusedError: it is not JSON, or JSON that can be read in two ways, or too deep.

    """
    try:
        text = body.decode()
        document = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=str,
        )
    except RefusedError:
        raise
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"the body is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise RefusedError(400, f"the body is nested more than {DEPTH_MAX} deep") from None
    except json.JSONDecodeError as error:
        where = f"line: {error.lineno}, column: {error.colno}"
        raise RefusedError(400, f"the body is not JSON: {error.msg} ({where})") from None
    except ValueError:
        raise RefusedError(400, "the body holds a number of too many digits") from None
    if _depth(document) > DEPTH_MAX:
        raise RefusedError(400, f"the body is nested more than {DEPTH_MAX} deep")
    if _has_surrogate(text):
        raise RefusedError(400, "the body holds half of a character (a lone surrogate)")
    return document


def an_object(document: object, what: str) -> dict[str, Any]:  # Any: what JSON can hold.
    """Return *document* if it is an object. Raises RefusedError."""
    if not isinstance(document, dict):
        raise RefusedError(400, f"{what} must be an object, found {kind(document)}")
    return document


def only(document: Json, *names: str) -> None:
    """Raise RefusedError for unknown fields."""
    unknown = [name for name in document if name not in names]
    if unknown:
        known = ", ".join(names)
        raise RefusedError(400, f'Unrecognized field "{unknown[0][:80]}" (known: {known})')


def kind(value: object) -> str:
    """Return the name of the JSON type of *value*."""
    names = {dict: "an object", list: "an array", bool: "a boolean", int: "a number", str: "a text"}
    return "null" if value is None else names.get(type(value), "a value")


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Make every response JSON, errors too; log our own bugs."""
    try:
        response = await handler(request)
    except RefusedError as error:
        response = refusal(error.status, error.message, error.headers, error.more)
    except web.HTTPException as error:
        phrase = _PHRASES.get(error.status, error.reason)
        kept = {k: v for k, v in error.headers.items() if k == hdrs.ALLOW}
        response = refusal(error.status, f"HTTP {error.status} {phrase}", kept)
    except UnauthorizedError as error:
        response = refusal(403, f"Unauthorized: {error.message}")
    except ConfigError as error:
        response = refusal(400, "\n".join(lines_of(error)))
    except HeadraceError as error:
        response = refusal(503 if error.restartable else 500, f"{error.code}: {error.message}")
    except (ConnectionError, TimeoutError):
        raise
    except Exception:  # noqa: BLE001 (the last one to see it)
        structlog.get_logger().exception("internal_error", path=request.path)
        response = refusal(500, "internal error: it is in the log")
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


@web.middleware
async def acceptable(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse clients that do not accept JSON, except for the console."""
    is_page = wants_page(request) if request.path == "/" else request.path.startswith(CONSOLE)
    if not is_page and not _JSON & _accepted(request):
        raise RefusedError(406, "HTTP 406 Not Acceptable")
    return await handler(request)


def wants_page(request: web.Request) -> bool:
    """Return whether the client is a browser: other clients may accept HTML, but not XHTML."""
    accepted = _accepted(request)
    return "application/xhtml+xml" in accepted and "application/json" not in accepted


def _accepted(request: web.Request) -> set[str]:
    accepted = request.headers.get(hdrs.ACCEPT, "*/*").split(",")
    return {part.partition(";")[0].strip() for part in accepted}


def lines_of(error: ConfigError) -> Sequence[str]:
    """Return every problem of *error* on a line, with its hint."""
    return [
        f"{p.key + ': ' if p.key else ''}{p.message}{f' ({p.hint})' if p.hint else ''}"
        for p in error.problems
    ]


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    made: dict[str, object] = {}
    for name, value in pairs:
        if name in made:
            raise RefusedError(400, f"the body gives {name[:80]!r} twice")
        made[name] = value
    return made


def _no_constant(text: str) -> None:
    raise RefusedError(400, f"the body holds {text}, which is not JSON")


def _depth(document: object) -> int:
    """Count levels without recursion: the parser's own bound is deeper than ours."""
    level, depth = [document], 0
    while level:
        depth += 1
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if depth > DEPTH_MAX:
            break
    return depth


def _has_surrogate(text: str) -> bool:
    if "\\u" not in text:
        return False
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
