"""Snapshots over HTTP: what the statements about them do, under `/api/v1`."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Final

from aiohttp import web

from headrace.connector.control.commands import Commands
from headrace.connector.control.snapshots.parts import part_of
from headrace.connector.foundation.states import Desired
from headrace.connector.language.statements import TOKEN_COLUMN, Comparison, Condition
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import answer
from headrace.connector.rest.operations import BODY, Operation
from headrace.connector.rest.schema import an, array, mapping, text
from headrace.connector.stores.snapshots import Progress, Snapshot, SnapshotState

_INTEGER: Final = {"type": "integer"}
_OPTIONAL: Final = {"type": ["integer", "null"]}
_VALUE: Final = {"type": ["string", "integer", "boolean"], "maxLength": 8_192}
_SNAPSHOT: Final = an(
    "A snapshot of the table of a source, and how far it is.",
    ("name", "source", "tokens", "key", "wanted", "state", "ranges", "done", "rows", "lost"),
    name=text(),
    source=text(),
    tokens=array(
        "Ranges, without their first token and with their last.", array("Both.", _INTEGER)
    ),
    key={"type": ["object", "null"], "description": "A partition key."},
    wanted=text("What is wanted.", enum=[state.value for state in Desired]),
    state=text("How it is.", enum=[state.value for state in SnapshotState]),
    ranges=_INTEGER,
    done=_INTEGER,
    rows=_INTEGER,
    lost=_INTEGER,
    problem=text(),
    asked_ms=_INTEGER,
    begun_ms=_OPTIONAL,
    ended_ms=_OPTIONAL,
)
_SNAPSHOTS: Final = an("All.", ("snapshots",), snapshots=array("Newest first.", _SNAPSHOT))
_PART: Final = an(
    "What to read; nothing for all of the table.",
    after=dict(_INTEGER, description="Tokens after this one."),
    until=dict(_INTEGER, description="Tokens up to this one."),
    key=mapping("The columns of a partition key.", _VALUE),
)
_VERBS: Final = {"pause": Desired.PAUSED, "resume": Desired.RUNNING, "stop": Desired.STOPPED}


class SnapshotDoor:
    """The handlers of snapshots."""

    def __init__(self, doorway: Doorway) -> None:
        """Make the table of operations."""
        self._doorway = doorway
        path, of_source = "/api/v1/snapshots", "/api/v1/sources/{name}/snapshots"
        steered = [
            Operation(
                "POST",
                f"{path}/{{name}}/{verb}",
                partial(self.steer, wanted),
                answer=_SNAPSHOT,
                status=202,
                summary=f"Let a snapshot {verb}.",
            )
            for verb, wanted in _VERBS.items()
        ]
        self.operations = [
            Operation("GET", path, self.list_all, answer=_SNAPSHOTS),
            Operation("GET", of_source, self.list_of_source, answer=_SNAPSHOTS),
            Operation("POST", of_source, self.ask, _PART, _SNAPSHOT, 202),
            *steered,
        ]

    async def list_all(self, request: web.Request) -> web.Response:
        """List the snapshots of all sources."""
        del request
        found = await self._doorway.call(lambda c: c.snapshots())
        return answer({"snapshots": [_shown(*each) for each in found]})

    async def list_of_source(self, request: web.Request) -> web.Response:
        """List the snapshots of a source."""
        name = request.match_info["name"]
        found = await self._doorway.call(lambda c: c.snapshots(c.source(name).name))
        return answer({"snapshots": [_shown(*each) for each in found]})

    async def ask(self, request: web.Request) -> web.Response:
        """Ask for a snapshot of the table of a source, or of a part of it."""
        name, given = request.match_info["name"], request[BODY]
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

        def ask(commands: Commands) -> tuple[Snapshot, Progress]:
            made = commands.snapshot_source(commands.source(name).config, **part_of(where))
            return _found(commands, made)

        return answer(_shown(*await self._doorway.call(ask)), 202)

    async def steer(self, wanted: Desired, request: web.Request) -> web.Response:
        """POST /snapshots/{name}/pause, resume, stop."""
        name = request.match_info["name"]

        def steer(commands: Commands) -> tuple[Snapshot, Progress]:
            commands.steer_snapshot(name, wanted)
            return _found(commands, name)

        return answer(_shown(*await self._doorway.call(steer)), 202)


def _found(commands: Commands, name: str) -> tuple[Snapshot, Progress]:
    return next(each for each in commands.snapshots() if each[0].name == name)


def _shown(snapshot: Snapshot, seen: Progress) -> Mapping[str, object]:
    both = {**dataclasses.asdict(seen), **dataclasses.asdict(snapshot)}
    del both["attempt"]
    return {**both, "state": snapshot.state(seen)}
