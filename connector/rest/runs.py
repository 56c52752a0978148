"""Runs over HTTP: the statements about them as paths of `/api/v1`. Snapshots are runs, too."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

from headrace.connector.control.commands import Commands
from headrace.connector.control.errors import BadRunError
from headrace.connector.control.runs.orders import bulk_order, snapshot_order
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.states import Desired
from headrace.connector.language.statements import TOKEN_COLUMN, Comparison, Condition
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import answer
from headrace.connector.rest.operations import BODY, Operation
from headrace.connector.rest.schema import an, array, mapping, shown, text
from headrace.connector.stores.asked_runs import AskedRun, Order, Progress, RunKind

_INTEGER: Final = {"type": "integer"}
_VALUE: Final = {"type": ["string", "integer", "boolean"], "maxLength": 8_192}
_TIME: Final = {"type": ["string", "integer"], "maxLength": 64}
_OPTIONS: Final = mapping("As in WITH of the statement.", text())


def _fields() -> dict[str, Any]:  # Any: JSON.
    """Return the schemas of the fields that `_run` returns."""
    fields = {**shown(Progress, "")["properties"], **shown(AskedRun, "")["properties"]}
    del fields["attempt"]
    order = fields.pop("order")
    # What reads OpenAPI seldom knows the items of a pair.
    pair = array("Without the first token, and with the last.", _INTEGER)
    return {**fields, **order["properties"], "tokens": array("Ranges of tokens.", pair)}


_FIELDS: Final = _fields()
_OF_SNAPSHOTS: Final = (
    *("name", "source", "tokens", "key", "wanted", "state", "done", "lost", "problem"),
    *("asked_ms", "begun_ms", "ended_ms"),
)
_SNAPSHOT: Final = an(
    "A snapshot of the table of a source, and how far it is.",
    ("name", "source", "tokens", "key", "wanted", "state", "ranges", "done", "rows", "lost"),
    **{name: _FIELDS[name] for name in _OF_SNAPSHOTS},
    ranges=_FIELDS["shards"],
    rows=_FIELDS["changes"],
)
_SNAPSHOTS: Final = an("All.", ("snapshots",), snapshots=array("Newest first.", _SNAPSHOT))
_RUN: Final = an(
    "A run that was asked for, and how far it is.",
    ("name", "source", "kind", "wanted", "state", "shards", "done", "changes", "lost"),
    **_FIELDS,
)
_RUNS: Final = an("All.", ("runs",), runs=array("Newest first.", _RUN))
_PART: Final[Mapping[str, Any]] = {  # Any: JSON.
    "after": dict(_INTEGER, description="Tokens after this one."),
    "until": dict(_INTEGER, description="Tokens up to this one."),
    "key": mapping("The columns of a partition key.", _VALUE),
    "options": _OPTIONS,
}
_ASK_SNAPSHOT: Final = an("What to read; nothing for all of the table.", **_PART)
_ORDER: Final[Mapping[str, Any]] = {  # Any: JSON.
    "kind": text("What it does.", enum=[kind.value for kind in RunKind]),
    "from": _TIME,
    "to": _TIME,
    **_PART,
}
_ASK_RUN: Final = an(
    "What a run is to do; a snapshot has a part of the table, others have times.",
    ("kind",),
    **_ORDER,
)
_VERBS: Final = {"pause": Desired.PAUSED, "resume": Desired.RUNNING, "stop": Desired.STOPPED}
_TIMES: Final = ("from", "to")
_PARTS: Final = ("after", "until", "key")
Found = tuple[AskedRun, Progress]
Shown = Callable[[AskedRun, Progress], Mapping[str, object]]


class RunDoor:
    """The handlers of runs, and of snapshots."""

    def __init__(self, doorway: Doorway) -> None:
        """Build the table of operations."""
        self._doorway = doorway
        runs, snapshots = "/api/v1/runs", "/api/v1/snapshots"
        of_source = "/api/v1/sources/{name}"
        snapshot_kind = RunKind.SNAPSHOT
        listed = partial(self.list_all, "snapshots", snapshot_kind, _snapshot)
        of_one = partial(self.list_of_source, "snapshots", snapshot_kind, _snapshot)
        all_runs = partial(self.list_all, "runs", None, _run)
        runs_of_one = partial(self.list_of_source, "runs", None, _run)
        self.operations = [
            Operation("GET", runs, all_runs, answer=_RUNS, summary="List the runs."),
            Operation("GET", f"{runs}/{{name}}", self.show, answer=_RUN),
            Operation("DELETE", f"{runs}/{{name}}", self.drop, status=204),
            Operation(
                "GET",
                f"{of_source}/runs",
                runs_of_one,
                answer=_RUNS,
                summary="List the runs of a source.",
            ),
            Operation("POST", f"{of_source}/runs", self.ask, _ASK_RUN, _RUN, 202),
            *self._steered("PUT", runs, _RUN, _run),
            Operation("GET", snapshots, listed, answer=_SNAPSHOTS, summary="List the snapshots."),
            Operation(
                "GET",
                f"{of_source}/snapshots",
                of_one,
                answer=_SNAPSHOTS,
                summary="List the snapshots of a source.",
            ),
            Operation(
                "POST", f"{of_source}/snapshots", self.ask_snapshot, _ASK_SNAPSHOT, _SNAPSHOT, 202
            ),
            *self._steered("POST", snapshots, _SNAPSHOT, _snapshot),
        ]

    def _steered(
        self, method: str, path: str, form: Mapping[str, Any], shown: Shown
    ) -> list[Operation]:
        return [
            Operation(
                method,
                f"{path}/{{name}}/{verb}",
                partial(self.steer, wanted, shown),
                answer=form,
                status=202,
                summary=f"Let a run {verb}.",
            )
            for verb, wanted in _VERBS.items()
        ]

    async def list_all(
        self, what: str, kind: RunKind | None, shown: Shown, request: web.Request
    ) -> web.Response:
        """List the runs of all sources."""
        del request
        found = await self._doorway.call(lambda c: c.runs(kind=kind))
        return answer({what: [shown(*each) for each in found]})

    async def list_of_source(
        self, what: str, kind: RunKind | None, shown: Shown, request: web.Request
    ) -> web.Response:
        """List the runs of a source."""
        name = request.match_info["name"]
        found = await self._doorway.call(lambda c: c.runs(c.source(name).name, kind))
        return answer({what: [shown(*each) for each in found]})

    async def show(self, request: web.Request) -> web.Response:
        """Show a run."""
        name = request.match_info["name"]
        return answer(_run(*await self._doorway.call(lambda c: c.run(name))))

    async def ask(self, request: web.Request) -> web.Response:
        """Request a run of a source."""
        name, given = request.match_info["name"], request[BODY]
        kind = RunKind(given["kind"])

        def ask(commands: Commands) -> Found:
            config, order = commands.source(name).config, _order(kind, given)
            match kind:
                case RunKind.SNAPSHOT:
                    made = commands.snapshot_source(config, order)
                case RunKind.REPLAY:
                    made = commands.replay_source(config, order)
                case RunKind.RECONCILE:
                    made = commands.reconcile_source(config, order)
            return commands.run(made)

        return answer(_run(*await self._doorway.call(ask)), 202)

    async def ask_snapshot(self, request: web.Request) -> web.Response:
        """Request a snapshot of the table of a source, or of a part of it."""
        name, given = request.match_info["name"], request[BODY]

        def ask(commands: Commands) -> Found:
            order = _order(RunKind.SNAPSHOT, given)
            return commands.run(commands.snapshot_source(commands.source(name).config, order))

        return answer(_snapshot(*await self._doorway.call(ask)), 202)

    async def steer(self, wanted: Desired, shown: Shown, request: web.Request) -> web.Response:
        """Pause, resume or stop a run."""
        name = request.match_info["name"]

        def steer(commands: Commands) -> Found:
            commands.steer_run(name, wanted)
            return commands.run(name)

        return answer(shown(*await self._doorway.call(steer)), 202)

    async def drop(self, request: web.Request) -> web.Response:
        """Delete a run that is over or failed."""
        name = request.match_info["name"]
        await self._doorway.call(lambda c: c.drop_run(name))
        return web.Response(status=204)


def _order(kind: RunKind, given: Mapping[str, Any]) -> Order:
    """Return the order of a request. Raises as `bulk_order`, and for fields of another kind."""
    options = given.get("options", {})
    strange = _TIMES if kind is RunKind.SNAPSHOT else _PARTS
    if wrong := [field for field in strange if field in given]:
        raise BadRunError(wrong[0], f"is not of a {kind.value}")
    if kind is not RunKind.SNAPSHOT:
        now_ms = SystemClock().wall_ms()
        return bulk_order(kind, given.get("from"), given.get("to"), options, now_ms)
    bounds = (("after", Comparison.AFTER), ("until", Comparison.AT_MOST))
    where = [
        Condition(TOKEN_COLUMN, comparison, (given[side],))
        for side, comparison in bounds
        if side in given
    ]
    where += [
        Condition(column, Comparison.EQUAL, (value,))
        for column, value in given.get("key", {}).items()
    ]
    return snapshot_order(where, options)


def _run(run: AskedRun, seen: Progress) -> Mapping[str, object]:
    both = {**dataclasses.asdict(seen), **dataclasses.asdict(run)}
    order = both.pop("order")
    del both["attempt"]
    return {**both, **order, "state": run.state(seen)}


def _snapshot(run: AskedRun, seen: Progress) -> Mapping[str, object]:
    both = _run(run, seen)
    shown = {name: both[name] for name in _SNAPSHOT["properties"] if name in both}
    return {**shown, "ranges": seen.shards, "rows": seen.changes}
