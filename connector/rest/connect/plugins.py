"""Kafka Connect's paths about the worker: plugins and their forms, loggers, version."""

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from headrace import __version__
from headrace.connector.control.commands import Commands
from headrace.connector.control.entries import CLASS_KEY, NAME_KEY, SourceEntry
from headrace.connector.control.plugins.listing import PluginInfo, find_plugin, installed
from headrace.connector.obs.logging import LEVELS, threshold
from headrace.connector.rest.bodies import read_json
from headrace.connector.rest.connect.connectors import KAFKA_VERSION
from headrace.connector.rest.connect.requests import config_of
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import RefusedError, an_object, answer, only, warning_headers
from headrace.plugins.config.forms import CheckedOption, Definition

_TYPES: Final = {"sources": "source", "sinks": "sink", "codecs": "converter"}
_CONNECTORS: Final = ("sources", "sinks")
_ROOT: Final = "root"
_LEVELS: Final = {"FATAL": "error", "WARN": "warning", "TRACE": "debug", "OFF": "error"}


class PluginDoor:
    """The handlers of `/`, `/connector-plugins` and `/admin/loggers`."""

    def __init__(self, doorway: Doorway, cluster_id: str) -> None:
        """*cluster_id* is the one that the root path returns."""
        self._doorway = doorway
        self._cluster_id = cluster_id
        self._changed_ms: dict[str, int] = {}

    def routes(self) -> Sequence[tuple[str, str, Any]]:
        """Return method, path and handler of each route."""
        plugin, logger = "/connector-plugins/{plugin}", "/admin/loggers/{logger}"
        return [
            ("GET", "/connector-plugins", self.list),
            ("GET", f"{plugin}/config", self.form),
            ("PUT", f"{plugin}/config/validate", self.validate),
            ("GET", "/admin/loggers", self.loggers),
            ("GET", logger, self.logger),
            ("PUT", logger, self.set_logger),
        ]

    async def root(self, request: web.Request) -> web.Response:
        """GET /: a version that Connect's clients can read; ours is in `commit`."""
        del request
        return answer(
            {
                "version": KAFKA_VERSION,
                "commit": f"headrace-{__version__}",
                "kafka_cluster_id": self._cluster_id,
            }
        )

    async def list(self, request: web.Request) -> web.Response:
        """GET /connector-plugins."""
        everything = request.query.get("connectorsOnly", "true").lower() == "false"
        found = await self._doorway.call(lambda _: installed())
        return answer(
            [
                {
                    "class": plugin.class_name,
                    "type": _TYPES[plugin.group],
                    "version": plugin.version,
                }
                for plugin in found
                if everything or plugin.group in _CONNECTORS
            ]
        )

    async def form(self, request: web.Request) -> web.Response:
        """GET /connector-plugins/{plugin}/config."""
        plugin = await self._plugin(request)
        return answer([_definition(definition) for definition in plugin.definitions()])

    async def validate(self, request: web.Request) -> web.Response:
        """PUT /connector-plugins/{plugin}/config/validate: 200 also for an invalid config."""
        config = config_of(await read_json(request))
        plugin = await self._plugin(request)
        if CLASS_KEY not in config:
            raise RefusedError(
                400,
                f"Connector config {{name={config.get(NAME_KEY)}}} contains no connector type",
            )

        def check(commands: Commands) -> tuple[Sequence[CheckedOption], SourceEntry | None]:
            named = find_plugin(config[CLASS_KEY])
            if named != plugin:
                raise RefusedError(
                    400,
                    f"Included connector type {config[CLASS_KEY][:200]} does not match request "
                    f"type {plugin.class_name}",
                )
            if plugin.group == "sources":
                return commands.check_source(config), commands.source_to_ask_about(config)
            return plugin.check(config), None

        options, source = await self._doorway.call(check)
        warned = warning_headers(await self._doorway.table_warnings(source))
        groups = [option.definition.group for option in options if option.definition]
        return answer(
            {
                "name": plugin.class_name,
                "error_count": sum(len(option.errors) for option in options),
                "groups": list(dict.fromkeys(group for group in groups if group)),
                "configs": [_checked(option) for option in options],
            },
            headers=warned,
        )

    async def loggers(self, request: web.Request) -> web.Response:
        """GET /admin/loggers."""
        del request
        return answer({name: self._level(name) for name in _names()})

    async def logger(self, request: web.Request) -> web.Response:
        """GET /admin/loggers/{logger}."""
        name = request.match_info["logger"]
        if name not in _names():
            raise RefusedError(404, f"Logger {name} not found.")
        return answer(self._level(name))

    async def set_logger(self, request: web.Request) -> web.Response:
        """PUT /admin/loggers/{logger}: `root` is our own log, of all processes of the state."""
        name = request.match_info["logger"]
        asked = an_object(await read_json(request), "a level")
        only(asked, "level")
        level = asked.get("level")
        if level is None:
            raise RefusedError(400, "Desired 'level' parameter was not specified in request.")
        level = _LEVELS.get(str(level).upper(), str(level).lower())
        if level not in LEVELS:
            raise RefusedError(404, f"invalid log level '{str(asked['level'])[:48]}'.")
        scope = request.query.get("scope", "worker").lower()
        if scope not in ("worker", "cluster"):
            return answer([])
        if name == _ROOT:
            await self._doorway.call(lambda commands: commands.set_log_level(level))
        else:
            logging.getLogger(name).setLevel(level.upper())
        self._changed_ms[name] = time.time_ns() // 1_000_000
        if scope == "cluster":
            return web.Response(status=204)
        names = [n for n in _names() if n == name or n.startswith(f"{name}.")]
        return answer(_names() if name == _ROOT else names)

    def _level(self, name: str) -> dict[str, str | int | None]:
        level = threshold().upper()
        if name != _ROOT:
            level = logging.getLevelName(logging.getLogger(name).getEffectiveLevel())
        level = {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(level, level)
        return {"level": level, "last_modified": self._changed_ms.get(name)}

    async def _plugin(self, request: web.Request) -> PluginInfo:
        name = request.match_info["plugin"]
        found = await self._doorway.call(lambda _: find_plugin(name))
        if found is None:
            raise RefusedError(404, f"Unknown plugin {name}.")
        return found


def _names() -> list[str]:
    """Return the loggers that have a level of their own, and the root."""
    known = logging.Logger.manager.loggerDict.items()
    return [
        _ROOT,
        *sorted(name for name, found in known if isinstance(found, logging.Logger) and found.level),
    ]


def _definition(definition: Definition) -> dict[str, object]:
    return {
        "name": definition.key,
        "type": definition.kind,
        "required": definition.required,
        "default_value": definition.default,
        "importance": definition.importance,
        "documentation": definition.doc,
        "group": definition.group or None,
        "order": definition.order,  # For older clients.
        "order_in_group": definition.order,
        "width": "MEDIUM",
        "display_name": definition.key,
        "dependents": [],
    }


def _checked(option: CheckedOption) -> dict[str, object]:
    return {
        "definition": _definition(option.definition) if option.definition else None,
        "value": {
            "name": option.key,
            "value": option.value,
            "recommended_values": list(option.definition.choices) if option.definition else [],
            "errors": list(option.errors),
            "visible": True,
        },
    }
