"""Kafka Connect's paths: a connector is a data source, its tasks are the splits of its job.

The words of answers are those that Connect's clients look for. Where Connect answers 500 to a bad
request, this answers 400.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from aiohttp import web

from headrace import __version__
from headrace.connector.control.commands import Commands
from headrace.connector.control.connector_config import CLASS_KEY, NAME_KEY
from headrace.connector.control.entries import SourceEntry
from headrace.connector.control.errors import AlreadyExistsError, NotFoundError, NotStoppedError
from headrace.connector.control.offsets import Offset
from headrace.connector.control.plugin_list import find_plugin, installed
from headrace.connector.control.status import ConnectorStatus, SplitStatus
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import (
    Json,
    RefusedError,
    an_object,
    answer,
    kind,
    only,
    read_json,
)
from headrace.connector.states import Desired, Observed

KAFKA_VERSION: Final = "4.3.0"  # What clients may expect of the contract.
OFFSETS_MAX: Final = 10_000

# Clients know no others.
_STATES: Final = {Observed.STALLED: "RUNNING"}
_INITIAL: Final = ("RUNNING", "PAUSED", "STOPPED")
_TROUBLE: Final = (Observed.FAILED, Observed.RESTARTING)
_BLANK: Final = "".join(map(chr, range(0x21)))  # What Java's trim takes away.


class ConnectDoor:
    """The handlers of `/connectors`."""

    def __init__(self, doorway: Doorway, worker_id: Callable[[], str]) -> None:
        """*worker_id* returns `host:port`, shown where no worker owns anything."""
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
        sources, statuses = await self._doorway.call(lambda c: (c.sources(), c.statuses()))
        if not expand:
            return answer([source.name for source in sources])
        shown: dict[str, dict[str, object]] = {}
        for source in sources:
            status = statuses[source.name]
            parts = {"status": self._status(status), "info": _info(source, status)}
            shown[source.name] = {name: parts[name] for name in expand if name in parts}
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
        whole = _named(config, name)

        def create(commands: Commands) -> SourceEntry:
            check_connector(commands, whole)
            commands.create_source(whole, state=Desired(state))
            return commands.source(name)

        try:
            entry = await self._doorway.call(create)
        except AlreadyExistsError:
            raise RefusedError(409, f"Connector {name} already exists") from None
        return answer(_info(entry, None), 201, _location(request, name))

    async def put_config(self, request: web.Request) -> web.Response:
        """PUT /connectors/{name}/config."""
        name = request.match_info["name"]
        whole = _named(config_of(await read_json(request)), name)

        def put(commands: Commands) -> tuple[SourceEntry, ConnectorStatus, bool]:
            check_connector(commands, whole)
            created = commands.put_source(name, whole)
            return commands.source(name), commands.status(name), created

        entry, status, created = await self._doorway.call(put)
        if created:
            return answer(_info(entry, None), 201, _location(request, name))
        return answer(_info(entry, status))

    async def patch_config(self, request: web.Request) -> web.Response:
        """PATCH /connectors/{name}/config: null takes a key away."""
        name = request.match_info["name"]
        patch = config_of(await read_json(request), nulls=True)

        def change(commands: Commands) -> tuple[SourceEntry, ConnectorStatus]:
            before = _source(commands, name)
            merged = {k: v for k, v in {**before.config, **patch}.items() if v is not None}
            whole = _named(merged, name)
            check_connector(commands, whole)
            return commands.replace_source(name, whole), commands.status(name)

        return answer(_info(*await self._doorway.call(change)))

    async def info(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}."""
        return answer(_info(*await self._found(request)))

    async def config(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/config: what was given, nothing added, nothing resolved."""
        entry, _ = await self._found(request)
        return answer(dict(entry.config))

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /connectors/{name}; what its job committed stays."""
        name = request.match_info["name"]

        def drop(commands: Commands) -> None:
            _source(commands, name)
            commands.drop_source(name)

        await self._doorway.call(drop)
        return web.Response(status=204)

    async def status(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/status."""
        name = request.match_info["name"]
        _, status = await self._found(request, f"No status found for connector {name}")
        return answer(self._status(status))

    async def restart(self, request: web.Request) -> web.Response:
        """POST /connectors/{name}/restart: the job, or what of it failed."""
        name = request.match_info["name"]
        tasks, failed = (_is_true(request, key) for key in ("includeTasks", "onlyFailed"))

        def restart(commands: Commands) -> tuple[ConnectorStatus, Sequence[str]]:
            _source(commands, name, f"Unknown connector: {name}")
            return commands.status(name), commands.restart(name, only_failed=failed)

        status, splits = await self._doorway.call(restart)
        if not (tasks or failed):
            return web.Response(status=204)
        shown = self._status(status)
        if not failed or status.job_state in _TROUBLE:
            shown["connector"]["state"] = "RESTARTING"
        for split, task in zip(status.splits, shown["tasks"], strict=False):
            if tasks and (not failed or split.split in splits):
                task["state"] = "RESTARTING"
        return answer(shown, 202)

    async def steer(self, state: Desired, status: int, request: web.Request) -> web.Response:
        """PUT /connectors/{name}/pause, resume, stop."""
        name = request.match_info["name"]

        def steer(commands: Commands) -> None:
            _source(commands, name, f"Unknown connector {name}")
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
                        "task.class": _task_class(entry),
                        "split": split.split,
                    },
                }
                for split in _tasks(status)
            ]
        )

    async def task_status(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/tasks/{task}/status."""
        name, number = request.match_info["name"], int(request.match_info["task"])
        _, status = await self._found(request, f"No status found for connector {name}")
        for split in _tasks(status):
            if split.task == number:
                return answer(self._task(split))
        raise RefusedError(404, f"No status found for task {name}-{number}")

    async def task_restart(self, request: web.Request) -> web.Response:
        """POST /connectors/{name}/tasks/{task}/restart."""
        name, number = request.match_info["name"], int(request.match_info["task"])

        def restart(commands: Commands) -> None:
            _source(commands, name, f"Unknown connector: {name}")
            if number not in [split.task for split in _tasks(commands.status(name))]:
                raise RefusedError(404, f"Unknown task: {name}-{number}")
            commands.restart_split(name, number)

        await self._doorway.call(restart)
        return web.Response(status=204)

    async def topics(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/topics: where it writes now, once it has run."""
        name = request.match_info["name"]

        def topics(commands: Commands) -> list[str]:
            try:
                entry, status = commands.source(name), commands.status(name)
            except NotFoundError:
                return []
            topic = commands.sink(entry.sink).config.get("topic")
            return [topic] if topic and status.splits else []

        return answer({name: {"topics": await self._doorway.call(topics)}})

    async def reset_topics(self, request: web.Request) -> web.Response:
        """PUT /connectors/{name}/topics/reset: former topics are never listed, so none are left."""
        del request
        return web.Response(status=202)

    async def offsets(self, request: web.Request) -> web.Response:
        """GET /connectors/{name}/offsets."""
        name = request.match_info["name"]

        def offsets(commands: Commands) -> Sequence[Offset]:
            _source(commands, name)
            return commands.offsets(name)

        found = await self._doorway.call(offsets)
        return answer(
            {"offsets": [{"partition": dict(o.partition), "offset": o.offset} for o in found]}
        )

    async def alter_offsets(self, request: web.Request) -> web.Response:
        """PATCH /connectors/{name}/offsets: a null offset lets that part begin anew."""
        name = request.match_info["name"]
        wanted = offsets_of(await read_json(request))

        def alter(commands: Commands) -> None:
            _source(commands, name)
            commands.alter_offsets(name, wanted)

        await self._move(name, alter)
        return answer({"message": "The offsets for this connector have been altered successfully"})

    async def reset_offsets(self, request: web.Request) -> web.Response:
        """DELETE /connectors/{name}/offsets."""
        name = request.match_info["name"]

        def reset(commands: Commands) -> None:
            _source(commands, name)
            commands.reset_offsets(name)

        await self._move(name, reset)
        return answer({"message": "The offsets for this connector have been reset successfully"})

    async def _move(self, name: str, verb: Any) -> None:  # noqa: ANN401 (a function of Commands)
        try:
            await self._doorway.call(verb)
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
    ) -> tuple[SourceEntry, ConnectorStatus]:
        name = request.match_info["name"]
        return await self._doorway.call(lambda c: (_source(c, name, missing), c.status(name)))

    def _status(self, status: ConnectorStatus) -> dict[str, Any]:  # Any: JSON.
        return {
            "name": status.name,
            "connector": {
                "state": _connector_state(status),
                "worker_id": status.worker or self._worker_id(),
                "version": __version__,
            }
            | _trace(status.job_state, status),
            "tasks": [self._task(split) for split in _tasks(status)],
            "type": "source",
        }

    def _task(self, split: SplitStatus) -> dict[str, object]:
        return {
            "id": split.task,
            "state": _STATES.get(split.state, split.state.value),
            "worker_id": split.worker or self._worker_id(),
            "version": __version__,
        } | _trace(split.state, split)


def config_of(given: object, *, nulls: bool = False) -> dict[str, Any]:  # Any: a text, or None.
    """Return a connector config whose values are texts, as Connect makes them.

    Raises:
        RefusedError: it is no object, or a value is not a text, number or boolean.

    """
    config = an_object(given, "a connector config")
    for key, value in config.items():
        if value is None:
            if not nulls:
                raise invalid(["Null value can not be supplied as the configuration value."])
        elif isinstance(value, bool):
            config[key] = str(value).lower()
        elif isinstance(value, str | int):
            config[key] = str(value)
        else:
            raise RefusedError(
                400, f"the value of {key[:80]!r} must be a text, found {kind(value)}"
            )
    return config


def offsets_of(given: object) -> Sequence[Offset]:
    """Return the offsets that a request gives. Raises RefusedError."""
    asked = an_object(given, "a request to alter offsets")
    only(asked, "offsets")
    offsets = asked.get("offsets") or []
    if not isinstance(offsets, list):
        raise RefusedError(400, f"offsets must be an array, found {kind(offsets)}")
    if not offsets:
        raise RefusedError(
            400, "Partitions / offsets need to be provided for an alter offsets request"
        )
    if len(offsets) > OFFSETS_MAX:
        raise RefusedError(400, f"more than {OFFSETS_MAX} offsets")
    made = []
    for item in offsets:
        part = an_object(item, "an offset")
        only(part, "partition", "offset")
        if part.get("partition") is None:
            raise RefusedError(400, "Partition objects cannot be null")
        partition = an_object(part["partition"], "a partition")
        offset = part.get("offset")
        if offset is not None:
            offset = an_object(offset, "an offset")
        for value in (*partition.values(), *(offset or {}).values()):
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise RefusedError(400, f"expected texts and numbers, found {kind(value)}")
        made.append(Offset({k: str(v) for k, v in partition.items()}, offset))
    return made


def check_connector(commands: Commands, config: Mapping[str, str]) -> None:
    """Refuse a config with all that is wrong with it, in Connect's words."""
    if not config.get(CLASS_KEY):
        raise RefusedError(
            400, f"Connector config {{name={config[NAME_KEY]}}} contains no connector type"
        )
    if find_plugin(config[CLASS_KEY]) is None:
        available = ", ".join(p.class_name for p in installed() if p.group == "sources")
        raise RefusedError(
            400,
            "Failed to find any class that implements Connector and which name matches "
            f"{config[CLASS_KEY][:200]}, available connectors are: {available}",
        )
    errors = [error for option in commands.check_source(config) for error in option.errors]
    if errors:
        raise invalid(errors)


def invalid(errors: Sequence[str]) -> RefusedError:
    """Return Connect's answer to a config with *errors*."""
    listed = "\n".join(errors)
    return RefusedError(
        400,
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n"
        f"{listed}\nYou can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`",
    )


def _named(config: Mapping[str, str], name: str) -> dict[str, str]:
    """Return *config* with its name, as the last key if it had none."""
    given = config.get(NAME_KEY, name)
    if given != name:
        raise RefusedError(
            400,
            f"Connector name configuration ({given}) doesn't match connector name in the URL "
            f"({name})",
        )
    return {**config, NAME_KEY: name}


def _source(commands: Commands, name: str, missing: str = "") -> SourceEntry:
    try:
        return commands.source(name)
    except NotFoundError:
        raise RefusedError(404, missing or f"Connector {name} not found") from None


def _info(entry: SourceEntry, status: ConnectorStatus | None) -> Json:
    tasks = _tasks(status) if status else ()
    return {
        "name": entry.name,
        "config": dict(entry.config),
        "tasks": [{"connector": entry.name, "task": split.task} for split in tasks],
        "type": "source",
    }


def _tasks(status: ConnectorStatus) -> Sequence[SplitStatus]:
    return () if status.state is Observed.STOPPED else status.splits


def _connector_state(status: ConnectorStatus) -> str:
    """Return the state of the connector apart from its tasks, as Connect tells them apart."""
    if status.state in (Observed.STOPPED, Observed.PAUSED):
        return status.state.value
    if status.job_state in _TROUBLE:
        return status.job_state.value
    return "RUNNING" if any(split.worker for split in status.splits) else "UNASSIGNED"


def _trace(state: Observed, cause: ConnectorStatus | SplitStatus) -> dict[str, str]:
    """Return what failed; of what is tried again, also when."""
    if state not in _TROUBLE or not cause.reason:
        return {}
    again = f" (attempt {cause.attempt}" if cause.attempt else ""
    if again and cause.next_attempt_ms:
        again += f", next at {cause.next_attempt_ms} ms since 1970"
    return {"trace": cause.reason + (again + ")" if again else "")}


def _task_class(entry: SourceEntry) -> str:
    return entry.config[CLASS_KEY].removesuffix("Connector") + "Task"


def _location(request: web.Request, name: str) -> Mapping[str, str]:
    url = request.url.origin() / "connectors" / name
    return {"Location": str(url)}


def _is_true(request: web.Request, key: str) -> bool:
    return request.query.get(key, "").lower() == "true"
