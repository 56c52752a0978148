"""Kafka Connect's paths: connectors are data sources and sinks, tasks are the splits of jobs.

A request about a sink applies to all sources that write into it. Responses have the words that
Connect's clients look for. If Connect responds 500 to a bad request, this responds 400.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from aiohttp import web

from headrace import __version__
from headrace.connector.control.commands import Commands
from headrace.connector.control.entries import CLASS_KEY, NAME_KEY, SinkEntry, SourceEntry
from headrace.connector.control.errors import AlreadyExistsError, NotFoundError, NotStoppedError
from headrace.connector.control.offsets import Offset
from headrace.connector.control.plugins.listing import find_plugin, installed
from headrace.connector.control.service import ControlService
from headrace.connector.control.status import ConnectorStatus, SplitStatus, unread_text
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.rest.bodies import read_json
from headrace.connector.rest.connect.requests import config_of, invalid, named, offsets_of
from headrace.connector.rest.doorway import Doorway, Entry
from headrace.connector.rest.exchange import (
    Json,
    RefusedError,
    an_object,
    answer,
    kind,
    only,
    warning_headers,
)

KAFKA_VERSION: Final = "4.3.0"  # The version of the contract for clients.

_KINDS: Final[Mapping[str, type[Entry]]] = {"sources": SourceEntry, "sinks": SinkEntry}
# Clients do not know others.
_STATES: Final = {Observed.STALLED: "RUNNING"}
_INITIAL: Final = ("RUNNING", "PAUSED", "STOPPED")
_TROUBLE: Final = (Observed.FAILED, Observed.RESTARTING)
_TRACED: Final = (*_TROUBLE, Observed.STALLED)
_BLANK: Final = "".join(map(chr, range(0x21)))  # The characters that Java's trim removes.


class ConnectDoor:
    """The handlers of `/connectors`."""

    def __init__(self, doorway: Doorway, worker_id: Callable[[], str]) -> None:
        """*worker_id* returns `host:port`, shown for tasks without an owner."""
        self._doorway = doorway
        self._worker_id = worker_id

    def routes(self) -> Sequence[tuple[str, str, Any]]:
        """Return method, path and handler of each route."""
        one, task = "/connectors/{name}", r"/connectors/{name}/tasks/{task:\d{1,9}}"
        return [
            ("GET", "/connectors", self.list),
            ("POST", "/connectors", self.create),
            ("GET", one, self.info),
            ("DELETE", one, self.delete),
            ("GET", f"{one}/config", self.config),
            ("PUT", f"{one}/config", self.put_config),
            ("PATCH", f"{one}/config", self.patch_config),
            ("GET", f"{one}/status", self.status),
            ("POST", f"{one}/restart", self.restart),
            ("PUT", f"{one}/pause", partial(self.steer, Desired.PAUSED, 202)),
            ("PUT", f"{one}/resume", partial(self.steer, Desired.RUNNING, 202)),
            ("PUT", f"{one}/stop", partial(self.steer, Desired.STOPPED, 204)),
            ("GET", f"{one}/tasks", self.tasks),
            ("GET", f"{task}/status", self.task_status),
            ("POST", f"{task}/restart", self.task_restart),
            ("GET", f"{one}/topics", self.topics),
            ("PUT", f"{one}/topics/reset", self.reset_topics),
            ("GET", f"{one}/offsets", self.offsets),
            ("PATCH", f"{one}/offsets", self.alter_offsets),
            ("DELETE", f"{one}/offsets", self.reset_offsets),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """GET /connectors."""
        expand = request.query.getall("expand", [])
        found = await self._doorway.call(everything)
        if not expand:
            return answer([entry.name for entry, _ in found])
        shown: dict[str, dict[str, object]] = {}
        for entry, status in found:
            parts = {"status": self._status(entry, status), "info": _info(entry, status)}
            shown[entry.name] = {name: parts[name] for name in expand if name in parts}
        return answer(shown)

    async def create(self, request: web.Request) -> web.Response:
        """POST /connectors."""
        asked = an_object(await read_json(request), "a request for a connector")
        only(asked, NAME_KEY, "config", "initial_state")
        config = config_of(asked.get("config"))
        name = asked.get(NAME_KEY)
        if not isinstance(name, str | None):
            raise RefusedError(400, f"name must be a text, found {kind(name)}")
        name = (name or "").strip(_BLANK)
        if not name:
            raise invalid(["Invalid value  for configuration name: String may not be empty"])
        state = str(asked.get("initial_state") or "RUNNING").upper()
        if state not in _INITIAL:
            raise RefusedError(400, f"initial_state must be one of {', '.join(_INITIAL)}")
        whole = named(config, name)

        def create(commands: Commands) -> Entry:
            if check_connector(commands, whole) is SinkEntry:
                if state != Desired.RUNNING:
                    raise RefusedError(400, "a data sink has no state: its sources have")
                commands.put_sink(whole, replaces=False)
            else:
                commands.create_source(whole, state=Desired(state))
            return _entry(commands, name)

        try:
            entry = await self._doorway.call(create)
        except AlreadyExistsError:
            raise RefusedError(409, f"Connector {name} already exists") from None
        warned = warning_headers(await self._doorway.table_warnings(entry))
        return answer(_info(entry, None), 201, {**_location(request, name), **warned})

    async def put_config(self, request: web.Request) -> web.Response:
        """PUT /connectors/{name}/config."""
        name = request.match_info["name"]
        whole = named(config_of(await read_json(request)), name)

        def put(commands: Commands) -> tuple[Entry, ConnectorStatus, bool]:
            created = _put(commands, whole)
            return (*_both(commands, name), created)

        entry, status, created = await self._doorway.call(put)
        warned = warning_headers(await self._doorway.table_warnings(entry))
        if created:
            return answer(_info(entry, None), 201, {**_location(request, name), **warned})
        return answer(_info(entry, status), headers=warned)

    async def patch_config(self, request: web.Request) -> web.Response:
        """PATCH /connectors/{name}/config: null removes a key."""
        name = request.match_info["name"]
        patch = config_of(await read_json(request), nulls=True)

        def change(commands: Commands) -> tuple[Entry, ConnectorStatus]:
            before = _entry(commands, name)
            merged = {k: v for k, v in {**before.config, **patch}.items() if v is not None}
            _put(commands, named(merged, name))
            return _both(commands, name)

        entry, status = await self._doorway.call(change)
        warned = warning_headers(await self._doorway.table_warnings(entry))
        return answer(_info(entry, status), headers=warned)

    async def info(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}."""
        return answer(_info(*await self._found(request)))

    async def config(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/config: the config as given, without defaults, unresolved."""
        entry, _ = await self._found(request)
        return answer(dict(entry.config))

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /connectors/{name}; the committed positions of its job stay."""
        name = request.match_info["name"]

        def drop(commands: Commands) -> None:
            if isinstance(_entry(commands, name), SinkEntry):
                commands.drop_sink(name)
            else:
                commands.drop_source(name)

        await self._doorway.call(drop)
        return web.Response(status=204)

    async def status(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/status."""
        name = request.match_info["name"]
        found = await self._found(request, f"No status found for connector {name}")
        return answer(self._status(*found))

    async def restart(self, request: web.Request) -> web.Response:
        """POST /connectors/{name}/restart: the job, or its failed splits."""
        name = request.match_info["name"]
        tasks, failed = (
            request.query.get(key, "").lower() == "true" for key in ("includeTasks", "onlyFailed")
        )

        def restart(commands: Commands) -> tuple[Entry, ConnectorStatus, Sequence[int]]:
            found = _both(commands, name, f"Unknown connector: {name}")
            return (*found, commands.restart(name, only_failed=failed))

        entry, status, splits = await self._doorway.call(restart)
        if not (tasks or failed):
            return web.Response(status=204)
        shown = self._status(entry, status)
        if not failed or status.job_state in _TROUBLE:
            shown["connector"]["state"] = "RESTARTING"
        for split, task in zip(status.splits, shown["tasks"], strict=False):
            if tasks and split.task in splits:
                task["state"] = "RESTARTING"
        return answer(shown, 202)

    async def steer(self, state: Desired, status: int, request: web.Request) -> web.Response:
        """PUT /connectors/{name}/pause, resume, stop."""
        name = request.match_info["name"]

        def steer(commands: Commands) -> None:
            _entry(commands, name, f"Unknown connector {name}")
            verbs = {
                Desired.PAUSED: commands.pause,
                Desired.RUNNING: commands.resume,
                Desired.STOPPED: commands.stop,
            }
            verbs[state](name)

        await self._doorway.call(steer)
        return web.Response(status=status)

    async def tasks(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/tasks."""
        entry, status = await self._found(request)
        return answer(
            [
                {
                    "id": {"connector": entry.name, "task": split.task},
                    "config": {
                        **entry.config,
                        "task.class": entry.config[CLASS_KEY].removesuffix("Connector") + "Task",
                        "split": split.split,
                    },
                }
                for split in tasks_of(status)
            ]
        )

    async def task_status(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/tasks/{task}/status."""
        name, number = request.match_info["name"], int(request.match_info["task"])
        _, status = await self._found(request, f"No status found for connector {name}")
        for split in tasks_of(status):
            if split.task == number:
                return answer(self._task(split))
        raise RefusedError(404, f"No status found for task {name}-{number}")

    async def task_restart(self, request: web.Request) -> web.Response:
        """POST /connectors/{name}/tasks/{task}/restart."""
        name, number = request.match_info["name"], int(request.match_info["task"])

        def restart(commands: Commands) -> None:
            _, status = _both(commands, name, f"Unknown connector: {name}")
            if number not in [split.task for split in tasks_of(status)]:
                raise RefusedError(404, f"Unknown task: {name}-{number}")
            commands.restart_split(name, number)

        await self._doorway.call(restart)
        return web.Response(status=204)

    async def topics(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/topics: its current topics, once it has run."""
        name = request.match_info["name"]

        def topics(commands: Commands) -> list[str]:
            try:
                entry, status = _both(commands, name)
            except RefusedError:
                return []
            sink = entry if isinstance(entry, SinkEntry) else commands.sink(entry.sink)
            topic = sink.config.get("topic")
            return [topic] if topic and status.splits else []

        return answer({name: {"topics": await self._doorway.call(topics)}})

    async def reset_topics(self, request: web.Request) -> web.Response:
        """PUT /connectors/{name}/topics/reset: does nothing, as former topics are never listed."""
        del request
        return web.Response(status=202)

    async def offsets(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/offsets."""
        name = request.match_info["name"]

        def offsets(commands: Commands) -> Sequence[Offset]:
            if isinstance(_entry(commands, name), SinkEntry):
                return []
            return commands.offsets(name)

        found = await self._doorway.call(offsets)
        return answer(
            {"offsets": [{"partition": dict(o.partition), "offset": o.offset} for o in found]}
        )

    async def alter_offsets(self, request: web.Request) -> web.Response:
        """PATCH /connectors/{name}/offsets: a null offset restarts that part."""
        name = request.match_info["name"]
        wanted = offsets_of(await read_json(request))

        def alter(service: ControlService) -> None:
            _with_offsets(service.commands, name)
            service.running.alter_offsets(name, wanted)

        await self._move(name, alter)
        return answer({"message": "The offsets for this connector have been altered successfully"})

    async def reset_offsets(self, request: web.Request) -> web.Response:
        """DELETE /connectors/{name}/offsets."""
        name = request.match_info["name"]

        def reset(service: ControlService) -> None:
            _with_offsets(service.commands, name)
            service.commands.reset_offsets(name)

        await self._move(name, reset)
        return answer({"message": "The offsets for this connector have been reset successfully"})

    async def _move(self, name: str, verb: Callable[[ControlService], None]) -> None:
        try:
            await self._doorway.ask(verb)
        except NotStoppedError as error:
            raise RefusedError(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified. "
                "This can be done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{name}/stop' endpoint"
                + ("" if "not STOPPED" in error.message else f" ({error.problems[0].message})"),
            ) from None

    async def _found(
        self, request: web.Request, missing: str = ""
    ) -> tuple[Entry, ConnectorStatus]:
        name = request.match_info["name"]
        return await self._doorway.call(lambda c: _both(c, name, missing))

    def _status(self, entry: Entry, status: ConnectorStatus) -> dict[str, Any]:  # Any: JSON.
        return {
            "name": status.name,
            "connector": {
                "state": connector_state(status),
                "worker_id": status.worker or self._worker_id(),
                "version": __version__,
            }
            | (_trace(status.job_state, status) or _unread(status)),
            "tasks": [self._task(split) for split in tasks_of(status)],
            "type": connector_type(entry),
        }

    def _task(self, split: SplitStatus) -> dict[str, object]:
        return {
            "id": split.task,
            "state": task_state(split),
            "worker_id": split.worker or self._worker_id(),
            "version": __version__,
        } | _trace(split.state, split)


def check_connector(commands: Commands, config: Mapping[str, str]) -> type[Entry]:
    """Return the kind of connector in a config; refuse wrong configs in Connect's words.

    Raises:
        RefusedError: it has every mistake.

    """
    if not config.get(CLASS_KEY):
        raise RefusedError(
            400, f"Connector config {{name={config[NAME_KEY]}}} contains no connector type"
        )
    plugin = find_plugin(config[CLASS_KEY])
    if plugin is None or plugin.group not in _KINDS:
        available = ", ".join(p.class_name for p in installed() if p.group in _KINDS)
        raise RefusedError(
            400,
            "Failed to find any class that implements Connector and which name matches "
            f"{config[CLASS_KEY][:200]}, available connectors are: {available}",
        )
    of_source = plugin.group == "sources"
    checked = commands.check_source(config) if of_source else plugin.check(config)
    errors = [error for option in checked for error in option.errors]
    if not (errors or of_source):
        errors = [f"{p.key}: {p.message}" for p in commands.check_sink(config)]
    if errors:
        raise invalid(errors)
    return _KINDS[plugin.group]


def _put(commands: Commands, config: Mapping[str, str]) -> bool:
    """Create or change a connector; return whether it was created."""
    kind, name = check_connector(commands, config), config[NAME_KEY]
    for entry, _ in everything(commands):
        if entry.name == name and not isinstance(entry, kind):
            raise invalid([f"Connector {name} is a {connector_type(entry)}, and stays one"])
    if kind is SinkEntry:
        return commands.put_sink(config)
    return commands.put_source(name, config)


def everything(commands: Commands) -> Sequence[tuple[Entry, ConnectorStatus]]:
    """Return all connectors: sources, then sinks, so that all can be deleted one by one."""
    statuses = commands.statuses()
    sources = [(source, statuses[source.name]) for source in commands.sources()]
    return [*sources, *((sink, commands.sink_status(sink.name)) for sink in commands.sinks())]


def _entry(commands: Commands, name: str, missing: str = "") -> Entry:
    try:
        return commands.source(name)
    except NotFoundError:
        pass
    try:
        return commands.sink(name)
    except NotFoundError:
        raise RefusedError(404, missing or f"Connector {name} not found") from None


def _both(commands: Commands, name: str, missing: str = "") -> tuple[Entry, ConnectorStatus]:
    entry = _entry(commands, name, missing)
    if isinstance(entry, SinkEntry):
        return entry, commands.sink_status(name)
    return entry, commands.status(name)


def _with_offsets(commands: Commands, name: str) -> None:
    if isinstance(_entry(commands, name), SinkEntry):
        raise RefusedError(400, "a data sink has no offsets: they are those of its sources")


def connector_type(entry: Entry) -> str:
    """Return `sink` or `source`."""
    return "sink" if isinstance(entry, SinkEntry) else "source"


def _info(entry: Entry, status: ConnectorStatus | None) -> Json:
    tasks = tasks_of(status) if status else ()
    return {
        "name": entry.name,
        "config": dict(entry.config),
        "tasks": [{"connector": entry.name, "task": split.task} for split in tasks],
        "type": connector_type(entry),
    }


def task_state(split: SplitStatus) -> str:
    """Return the state of a task in Connect's words."""
    return _STATES.get(split.state, split.state.value)


def tasks_of(status: ConnectorStatus) -> Sequence[SplitStatus]:
    """Return the tasks of a connector: one that is stopped has none."""
    return () if status.state is Observed.STOPPED else status.splits


def connector_state(status: ConnectorStatus) -> str:
    """Return the state of the connector without its tasks, as Connect distinguishes them."""
    if status.state in (Observed.STOPPED, Observed.PAUSED):
        return status.state.value
    if status.job_state in _TROUBLE:
        return status.job_state.value
    return "RUNNING" if any(split.worker for split in status.splits) else "UNASSIGNED"


def _trace(state: Observed, cause: ConnectorStatus | SplitStatus) -> dict[str, str]:
    """Return what failed or is blocked, the time of a retry, and a hint."""
    if state not in _TRACED or not cause.reason:
        return {}
    again = f" (attempt {cause.attempt}" if cause.attempt else ""
    if again and cause.next_attempt_ms:
        again += f", next at {cause.next_attempt_ms} ms since 1970"
    hint = f"\nhint: {cause.hint}" if cause.hint and cause.hint not in cause.reason else ""
    return {"trace": cause.reason + (again + ")" if again else "") + hint}


def _unread(status: ConnectorStatus) -> dict[str, str]:
    """Return the parts of a running source that cannot be read."""
    text = unread_text(status.unread) if status.state is not Observed.STOPPED else ""
    return {"trace": text} if text else {}


def _location(request: web.Request, name: str) -> Mapping[str, str]:
    url = request.url.origin() / "connectors" / name
    return {"Location": str(url)}
