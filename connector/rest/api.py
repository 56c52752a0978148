"""Our own paths, `/api/v1`: sinks, sources, plugins, and their OpenAPI description."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace.connector.control.commands import Commands
from headrace.connector.control.entries import SinkEntry, SourceEntry
from headrace.connector.control.modes import ModeChange, NodeMode
from headrace.connector.control.offsets import Offset, OffsetsChange
from headrace.connector.control.plugins.listing import find_plugin, installed
from headrace.connector.control.status import ConnectorStatus, SplitStatus
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.language.parser import MODES
from headrace.connector.language.statements import AlterSink, CreateSink
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import RefusedError, answer, warning_headers
from headrace.connector.rest.operations import BODY, Operation, document, served
from headrace.connector.rest.runs import RunDoor
from headrace.connector.rest.schema import an, array, mapping, shown, text
from headrace.connector.rest.services import ServiceDoor
from headrace.connector.rest.statements import StatementDoor
from headrace.plugins.config.forms import json_schema
from headrace.plugins.stores.kept_modes import ALL_LOGS

OFFSETS_MAX: Final = 10_000

_CONFIG: Final = mapping("Options; all values are strings.", text())
_CHANGES: Final = mapping(
    "Options to change; null takes one away.", {"type": ["string", "null"], "maxLength": 8_192}
)
_INTEGER: Final = {"type": "integer"}
_OPTIONAL: Final = {"type": ["integer", "null"]}
_SINK: Final = an(
    "A data sink.",
    ("name", "plugin", "create_statement", "config"),
    name=text(),
    plugin=text(),
    create_statement=text(),
    config=_CONFIG,
)
_STATE: Final = text("What is seen.", enum=[state.value for state in Observed])
_DESIRED: Final = text("What is wanted.", enum=[state.value for state in Desired])
_SOURCE: Final = an(
    "A data source and how it fares.",
    ("name", "sink", "create_statement", "config", "job", "desired", "state", "generation"),
    name=text(),
    sink=text(),
    create_statement=text(),
    config=_CONFIG,
    job=text("The job that runs it."),
    desired=_DESIRED,
    state=_STATE,
    generation=_INTEGER,
    worker=text(),
    reason=text(),
    attempt=_INTEGER,
    next_attempt_ms=_OPTIONAL,
    splits=array("Its splits.", shown(SplitStatus, "A split.")),
)
_OFFSET: Final = an(
    "The position of a part of a split; null restarts it, `at` names a place to be found.",
    ("partition",),
    partition=mapping("Which part.", text()),
    offset={
        "type": ["object", "null"],
        "additionalProperties": {"type": ["string", "integer"], "maxLength": 64},
    },
)
_OFFSETS: Final = an("Positions.", ("offsets",), offsets=array("All parts.", _OFFSET))
_MOVED: Final = an(
    "What a change came to, or would come to.",
    ("before", "after", "applied"),
    before=array("Before.", _OFFSET),
    after=array("After.", _OFFSET),
    applied={"type": "boolean"},
)
_PLUGIN: Final = an(
    "An installed plugin.",
    ("group", "name", "class", "version"),
    **{"group": text(), "name": text(), "class": text(), "version": text()},
)
_MODE: Final = text("How logs are read.", enum=list(MODES))
_NODE_MODE: Final = shown(
    NodeMode, "How the log of a node, or of all, is read, as owners of splits kept it last."
)
_MODE_CHANGE: Final = shown(
    ModeChange, "What became of a request for a mode, for the log of a node, or of all."
)
_MODES: Final = an(
    "How the logs of its job are read.",
    ("modes",),
    modes=array("By node.", _NODE_MODE),
)
_MODE_CHANGES: Final = an(
    "What became of requests.",
    ("changes",),
    changes=array("Newest first.", _MODE_CHANGE),
)
_DRY_RUN: Final = {"dry_run": {"type": "string", "enum": ["true", "false"]}}


class ApiDoor:
    """The handlers of `/api/v1`."""

    def __init__(self, doorway: Doorway) -> None:
        """Build the table of operations."""
        self._doorway = doorway
        doors = (ServiceDoor(doorway), StatementDoor(doorway), RunDoor(doorway))
        others = [operation for door in doors for operation in door.operations]
        self.operations = [*self._sinks(), *self._sources(), *self._others(), *others]

    def routes(self) -> Sequence[tuple[str, str, Any]]:
        """Return method, path and handler of each route."""
        description = document(self.operations)

        async def describe(request: web.Request) -> web.Response:
            del request
            return answer(description)

        return [
            *served(self.operations),
            ("GET", "/api/v1/openapi.json", describe),
            ("GET", "/openapi.json", describe),
        ]

    # Sinks.

    def _sinks(self) -> Sequence[Operation]:
        path, one = "/api/v1/sinks", "/api/v1/sinks/{name}"
        new = an(
            "A sink to be made.",
            ("name", "uri"),
            name=text(minLength=1),
            uri=text("As in CREATE DATA_SINK."),
            options=_CONFIG,
        )
        change = an("What to change.", uri=text("A new URI."), options=_CHANGES)
        sinks = an("All.", ("sinks",), sinks=array("By name.", _SINK))
        return [
            Operation("GET", path, self.list_sinks, answer=sinks),
            Operation("POST", path, self.create_sink, new, _SINK, 201),
            Operation("GET", one, self.show_sink, answer=_SINK),
            Operation("PATCH", one, self.alter_sink, change, _SINK),
            Operation("DELETE", one, self.drop_sink, status=204),
        ]

    async def list_sinks(self, request: web.Request) -> web.Response:
        """List the data sinks."""
        del request
        found = await self._doorway.call(lambda c: c.sinks())
        return answer({"sinks": [_sink(entry) for entry in found]})

    async def create_sink(self, request: web.Request) -> web.Response:
        """Create a data sink."""
        given = request[BODY]
        options = tuple(given.get("options", {}).items())
        statement = CreateSink(name=given["name"], uri=given["uri"], options=options)

        def create(commands: Commands) -> SinkEntry:
            commands.create_sink(statement)
            return commands.sink(statement.name)

        return answer(_sink(await self._doorway.call(create)), 201)

    async def show_sink(self, request: web.Request) -> web.Response:
        """Show a data sink."""
        name = request.match_info["name"]
        return answer(_sink(await self._doorway.call(lambda c: c.sink(name))))

    async def alter_sink(self, request: web.Request) -> web.Response:
        """Change a data sink; its jobs take the change."""
        name, given = request.match_info["name"], request[BODY]
        options = tuple(given.get("options", {}).items())
        statement = AlterSink(name=name, uri=given.get("uri"), options=options)

        def alter(commands: Commands) -> SinkEntry:
            commands.alter_sink(statement)
            return commands.sink(name)

        return answer(_sink(await self._doorway.call(alter)))

    async def drop_sink(self, request: web.Request) -> web.Response:
        """Delete a data sink."""
        name = request.match_info["name"]
        await self._doorway.call(lambda c: c.drop_sink(name))
        return web.Response(status=204)

    # Sources.

    def _sources(self) -> Sequence[Operation]:
        path, one = "/api/v1/sources", "/api/v1/sources/{name}"
        new = an("A source to be made.", ("config",), config=_CONFIG, state=_DESIRED)
        change = an("What to change.", ("config",), config=_CHANGES)
        sources = an("All.", ("sources",), sources=array("By name.", _SOURCE))
        many = array("Parts.", _OFFSET, minItems=1, maxItems=OFFSETS_MAX)
        wanted = an("Where to go.", ("offsets",), offsets=many)
        failed = {"only_failed": {"type": "string", "enum": ["true", "false"]}}
        steered = [
            Operation(
                "POST",
                f"{one}/{verb}",
                partial(self.steer, verb),
                answer=_SOURCE,
                status=202,
                query=failed if verb == "restart" else {},
                summary=f"Let a data source {verb}.",
            )
            for verb in ("pause", "resume", "stop", "restart")
        ]
        offsets, mode = f"{one}/offsets", f"{one}/mode"
        asked = an("What to ask for.", ("mode",), mode=_MODE, node=text("One log, not all."))
        return [
            Operation("GET", path, self.list_sources, answer=sources),
            Operation("POST", path, self.create_source, new, _SOURCE, 201),
            Operation("GET", one, self.show_source, answer=_SOURCE),
            Operation("PATCH", one, self.change, change, _SOURCE),
            Operation("DELETE", one, self.drop_source, status=204),
            *steered,
            Operation("GET", offsets, self.show_offsets, answer=_OFFSETS),
            Operation("PATCH", offsets, self.alter, wanted, _MOVED, query=_DRY_RUN),
            Operation("DELETE", offsets, self.reset_offsets, answer=_MOVED, query=_DRY_RUN),
            Operation("GET", mode, self.show_mode, answer=_MODES),
            Operation("PUT", mode, self.set_mode, asked, _MODE_CHANGES, 202),
            Operation("GET", f"{mode}/changes", self.mode_changes, answer=_MODE_CHANGES),
        ]

    async def list_sources(self, request: web.Request) -> web.Response:
        """List the data sources with their status."""
        del request
        sources, statuses = await self._doorway.call(lambda c: (c.sources(), c.statuses()))
        return answer({"sources": [_source(s, statuses[s.name]) for s in sources]})

    async def create_source(self, request: web.Request) -> web.Response:
        """Create a data source."""
        given = request[BODY]
        config, state = given["config"], Desired(given.get("state", "RUNNING"))

        def create(commands: Commands) -> tuple[SourceEntry, ConnectorStatus]:
            commands.create_source(config, state=state)
            return _shown(commands, config["name"])

        source, status = await self._doorway.call(create)
        warned = warning_headers(await self._doorway.table_warnings(source))
        return answer(_source(source, status), 201, warned)

    async def show_source(self, request: web.Request) -> web.Response:
        """Show a data source with its status."""
        name = request.match_info["name"]
        return answer(_source(*await self._doorway.call(lambda c: _shown(c, name))))

    async def change(self, request: web.Request) -> web.Response:
        """Change a data source; its job takes the change."""
        name, changes = request.match_info["name"], request[BODY]["config"]

        def alter(commands: Commands) -> tuple[SourceEntry, ConnectorStatus]:
            commands.alter_source(name, changes)
            return _shown(commands, name)

        source, status = await self._doorway.call(alter)
        warned = warning_headers(await self._doorway.table_warnings(source))
        return answer(_source(source, status), headers=warned)

    async def drop_source(self, request: web.Request) -> web.Response:
        """Delete a data source; positions stay."""
        name = request.match_info["name"]
        await self._doorway.call(lambda c: c.drop_source(name))
        return web.Response(status=204)

    async def steer(self, verb: str, request: web.Request) -> web.Response:
        """POST /sources/{name}/pause, resume, stop, restart."""
        name = request.match_info["name"]
        failed = request.query.get("only_failed") == "true"

        def steer(commands: Commands) -> tuple[SourceEntry, ConnectorStatus]:
            if verb == "restart":
                commands.restart(name, only_failed=failed)
            else:
                getattr(commands, verb)(name)
            return _shown(commands, name)

        return answer(_source(*await self._doorway.call(steer)), 202)

    async def show_offsets(self, request: web.Request) -> web.Response:
        """Show the committed positions."""
        name = request.match_info["name"]
        found = await self._doorway.call(lambda c: c.offsets(name))
        return answer({"offsets": msgspec.to_builtins(found)})

    async def alter(self, request: web.Request) -> web.Response:
        """Move positions of a stopped source."""
        name, dry_run = request.match_info["name"], _is_dry(request)
        wanted = [Offset(p["partition"], p.get("offset")) for p in request[BODY]["offsets"]]
        moved = await self._doorway.ask(
            lambda s: s.running.alter_offsets(name, wanted, dry_run=dry_run)
        )
        return answer(_moved(moved, dry_run=dry_run))

    async def reset_offsets(self, request: web.Request) -> web.Response:
        """Reset the positions of a stopped source."""
        name, dry_run = request.match_info["name"], _is_dry(request)
        moved = await self._doorway.call(lambda c: c.reset_offsets(name, dry_run=dry_run))
        return answer(_moved(moved, dry_run=dry_run))

    async def show_mode(self, request: web.Request) -> web.Response:
        """Show the modes of the logs of a data source's job."""
        name = request.match_info["name"]
        found = await self._doorway.call(lambda c: c.modes(c.status(name).job))
        return answer({"modes": msgspec.to_builtins(found)})

    async def set_mode(self, request: web.Request) -> web.Response:
        """Request a mode of a data source's job; the response does not wait for the outcome."""
        name, given = request.match_info["name"], request[BODY]

        def ask(commands: Commands) -> Sequence[ModeChange]:
            number = commands.set_mode(name, given["mode"], node=given.get("node", ALL_LOGS))
            return commands.mode_changes(commands.status(name).job, request=number)

        changes = await self._doorway.call(ask)
        return answer({"changes": msgspec.to_builtins(changes)}, 202)

    async def mode_changes(self, request: web.Request) -> web.Response:
        """Show the outcomes of the last requests for a mode."""
        name = request.match_info["name"]
        changes = await self._doorway.call(lambda c: c.mode_changes(c.status(name).job))
        return answer({"changes": msgspec.to_builtins(changes)})

    # Plugins.

    def _others(self) -> Sequence[Operation]:
        plugins = an("All.", ("plugins",), plugins=array("By group and name.", _PLUGIN))
        schema = {"type": "object", "description": "A JSON Schema."}
        one = "/api/v1/plugins/{plugin}/schema"
        return [
            Operation("GET", "/api/v1/plugins", self.list_plugins, answer=plugins),
            Operation("GET", one, self.plugin_schema, answer=schema),
        ]

    async def list_plugins(self, request: web.Request) -> web.Response:
        """List the installed plugins."""
        del request
        found = await self._doorway.call(lambda _: installed())
        shown = [
            {"group": p.group, "name": p.name, "class": p.class_name, "version": p.version}
            for p in found
        ]
        return answer({"plugins": shown})

    async def plugin_schema(self, request: web.Request) -> web.Response:
        """Show the options of a plugin."""
        name = request.match_info["plugin"]
        found = await self._doorway.call(lambda _: find_plugin(name))
        if found is None or found.config_class is None:
            raise RefusedError(404, f"there is no plugin {name[:80]!r} with options")
        return answer(json_schema(found.config_class, title=found.class_name))


def _shown(commands: Commands, name: str) -> tuple[SourceEntry, ConnectorStatus]:
    return commands.source(name), commands.status(name)


def _sink(entry: SinkEntry) -> Mapping[str, object]:
    return {
        "name": entry.name,
        "plugin": entry.plugin,
        "create_statement": entry.statement,
        "config": dict(entry.config),
    }


def _source(entry: SourceEntry, status: ConnectorStatus) -> Mapping[str, object]:
    return {
        "name": entry.name,
        "sink": entry.sink,
        "create_statement": entry.statement,
        "config": dict(entry.config),
        "job": status.job,
        "desired": status.desired,
        "state": status.state,
        "generation": status.generation,
        "worker": status.worker,
        "reason": status.reason,
        "attempt": status.attempt,
        "next_attempt_ms": status.next_attempt_ms,
        "splits": msgspec.to_builtins(status.splits),
    }


def _moved(change: OffsetsChange, *, dry_run: bool) -> Mapping[str, object]:
    return {**msgspec.to_builtins(change), "applied": not dry_run}


def _is_dry(request: web.Request) -> bool:
    return request.query.get("dry_run", "false") == "true"
