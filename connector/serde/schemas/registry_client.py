"""The schema store `registry`: Confluent's, or one with the same API."""

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headrace.plugins import (
    CheckResult,
    ConfigError,
    Context,
    FatalError,
    Finding,
    Problem,
    Published,
    RecordSchema,
    RetriableError,
    SchemaRefusedError,
    SchemaStore,
    option,
)
from headrace.plugins.diagnosis import Check, Diagnosis, Examined
from headrace.plugins.hosts import address_problem

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
_REFUSED: Final = (409, 422)
_NOT_FOUND: Final = 404
_RETRIED: Final = (408, 425, 429, 500, 502, 503, 504)


class RegistryUnavailableError(RetriableError):
    """The registry does not answer, or fails."""

    code = "registry_unavailable"


class RegistryForbiddenError(FatalError):
    """The registry refuses this user, or the address is not that of a registry."""

    code = "registry_forbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """Options of the schema store `registry`, each after `schema.store.`."""

    url: str = option(
        "The address of the registry: http://host:port; separate several with commas."
    )
    user: str | None = option("The user, for HTTP basic authentication.", default=None)
    password: str | None = option("The user's password.", default=None, secret=True)
    ca_location: str | None = option(
        "A file of certificates to trust instead of the system's.",
        name="ca.location",
        default=None,
    )
    timeout_ms: int = option(
        "The time limit of a request.", name="timeout.ms", default=10_000, minimum=1
    )

    def __post_init__(self) -> None:
        """Check the addresses."""
        for url in self.urls:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
                raise ConfigError([Problem("url", "is not an address", "as in http://host:8081")])

    @property
    def urls(self) -> list[str]:
        """The addresses as a list."""
        return [url.strip().rstrip("/") for url in self.url.split(",")]


class RegistrySchemaStore(SchemaStore, Diagnosis):
    """Registers schemas over HTTP."""

    config_class = RegistryConfig
    config: RegistryConfig

    def __init__(self, config: RegistryConfig, context: Context) -> None:
        """Prepare the headers of all requests."""
        super().__init__(config, context)
        self._headers = {"Content-Type": _MEDIA_TYPE, "Accept": _MEDIA_TYPE}
        if config.user is not None:
            pair = base64.b64encode(f"{config.user}:{config.password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        handlers = [urllib.request.ProxyHandler({}), _NotElsewhere(), _Http()]
        if any(url.startswith("https") for url in config.urls):
            handlers.append(_Https(ssl.create_default_context(cafile=config.ca_location)))
        self._opener = urllib.request.build_opener(*handlers)

    def publish(self, subject: str, text: str, schema: RecordSchema) -> Published:
        """Register the schema; its number is the registry's id, unique over all subjects."""
        del schema
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}"
        answer = self._ask(f"{path}/versions", {"schema": text})
        number, guid = answer.get("id"), answer.get("guid")
        if not isinstance(number, int):
            raise RegistryForbiddenError("the answer has no id", place=self.config.urls[0])
        return Published(number, uuid.UUID(guid).bytes if isinstance(guid, str) else None)

    def find(self, schema_id: bytes, number: Published) -> Mapping[str, str]:
        """Return the schema of a number or a guid; its subjects are not requested."""
        del schema_id
        if number.number is not None:
            path = f"/schemas/ids/{number.number}"
        elif number.guid is not None:
            path = f"/schemas/guids/{uuid.UUID(bytes=number.guid)}"
        else:
            return {}
        text = self._ask(path, None).get("schema")
        return {"": text} if isinstance(text, str) else {}

    def checks(self, about: Examined) -> Sequence[Check]:
        """Return whether it answers, and accepts the schemas of the job's subjects."""
        return [Check("registry", "registry", partial(self._findings, about.subjects))]

    def _findings(self, subjects: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
        place = ", ".join(self.config.urls)
        try:
            level = str(self._ask("/config", None).get("compatibilityLevel", "not known"))
            said = f"{place} answers; its compatibility is {level}"
            yield Finding("registry", CheckResult.PASSED, said)
            for subject, tables in subjects.items():
                yield from self._of_subject(subject, tables, level)
        except (RetriableError, FatalError) as error:
            hint = error.hint or "see that it runs, and that schema.store.url is its address"
            said = f"{error.place or place}: {error.message}"
            yield Finding("registry", CheckResult.FAILED, said, hint)

    def _of_subject(self, subject: str, tables: Sequence[str], level: str) -> Iterator[Finding]:
        """Yield whether schemas can be registered under *subject*, by its mode and level."""
        name = urllib.parse.quote(subject, safe="")
        mode = self._ask(f"/mode/{name}", None).get("mode") or self._ask("/mode", None).get("mode")
        own = str(self._ask(f"/config/{name}", None).get("compatibilityLevel", level))
        said = f"subject {subject} has compatibility {own}"
        if mode not in (None, "READWRITE"):
            hint = "set its mode to READWRITE, or give the job another subject"
            said = f"subject {subject} is {mode}: no schema can be registered"
            yield Finding("subject", CheckResult.FAILED, said, hint)
        elif len(tables) > 1 and own != "NONE":
            hint = "set subject.name.strategy: TopicRecordNameStrategy, or leave it out"
            said += f", and tables {', '.join(tables)} share it: their schemas are not compatible"
            yield Finding("subject", CheckResult.FAILED, said, hint)
        else:
            yield Finding("subject", CheckResult.PASSED, said)

    def _ask(self, path: str, body: dict[str, str] | None) -> dict[str, Any]:  # Any: JSON.
        """Send a request to the addresses in turn, until one answers.

        Without a *body* it is a GET; if the registry does not have the item, the answer is empty.
        """
        content = None if body is None else json.dumps(body).encode()
        last: Exception | None = None
        for url in self.config.urls:
            request = urllib.request.Request(  # noqa: S310 (http or https: see the options)
                f"{url}{path}", content, self._headers, method="GET" if body is None else "POST"
            )
            try:
                timeout = self.config.timeout_ms / 1000
                with self._opener.open(request, timeout=timeout) as answer:
                    return _object(answer.read(_ANSWER_BYTES_MAX))
            except urllib.error.HTTPError as error:
                with error:
                    last = _error_of(error, url)
                if body is None and error.code == _NOT_FOUND:
                    return {}
                if not isinstance(last, RetriableError):
                    raise last from error
            except (OSError, http.client.HTTPException) as error:
                last = RegistryUnavailableError(str(error) or type(error).__name__, place=url)
        assert last is not None  # noqa: S101 (there is at least one address)
        raise last


class _NotElsewhere(urllib.request.HTTPRedirectHandler):
    """Refuses redirection: a host that the user did not choose would receive the password."""

    def redirect_request(self, *_: object) -> None:
        """Return None, so that the redirection itself is the answer."""


class _Connection(http.client.HTTPConnection):
    """Checks the address of its peer before it sends anything."""

    def connect(self) -> None:
        """Connect. Raises OSError."""
        super().connect()
        _check_peer(self)


class _TlsConnection(http.client.HTTPSConnection):
    """A connection with the same check over TLS."""

    def connect(self) -> None:
        """Connect. Raises OSError."""
        super().connect()
        _check_peer(self)


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, trusted: ssl.SSLContext) -> None:
        super().__init__(context=trusted)
        self._trusted = trusted

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, request, context=self._trusted)


def _check_peer(connection: http.client.HTTPConnection) -> None:
    address = str(connection.sock.getpeername()[0]).partition("%")[0]
    if problem := address_problem(address):
        connection.close()
        raise ConnectionRefusedError(f"{connection.host} stands for {address}, which {problem}")


def _error_of(error: urllib.error.HTTPError, url: str) -> Exception:
    said = _object(error.read(_ANSWER_BYTES_MAX)).get("message", error.reason)
    message = f"HTTP {error.code}: {str(said)[:1000]}"
    if error.code in _REFUSED:
        return SchemaRefusedError(message, place=url)
    if error.code in _RETRIED:
        return RegistryUnavailableError(message, place=url)
    return RegistryForbiddenError(message, place=url, hint="check the address, user and password")


def _object(content: bytes) -> dict[str, Any]:  # Any: JSON.
    """Return a JSON object, or an empty one for other content, such as a proxy's text."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
