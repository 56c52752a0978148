"""Executes signals: requests of snapshots, in the form of Debezium's messages.

The key of a message is the name of a job, so that several jobs can read one topic.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.control.commands import Commands
from headrace.connector.control.entries import SourceEntry
from headrace.connector.control.errors import BadRunError, StatementError
from headrace.connector.control.runs.parts import Part, part_of
from headrace.connector.foundation.states import Desired
from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.statements import SnapshotSource
from headrace.connector.stores.asked_runs import OVER, Order, RunKind
from headrace.plugins import Signal

EXECUTE: Final = "execute-snapshot"
STEERS: Final[Mapping[str, Desired]] = {
    "pause-snapshot": Desired.PAUSED,
    "resume-snapshot": Desired.RUNNING,
    "stop-snapshot": Desired.STOPPED,
}
_INCREMENTAL: Final = "incremental"
_BYTES_MAX: Final = 1_000_000
_EXAMPLE: Final = (
    '{"type": "execute-snapshot", "data": {"data-collections": ["shop.orders"]}}, and the name '
    "of the job as the key"
)


class BadSignalError(StatementError):
    """A message of the topic of signals cannot be followed."""

    code = "bad_signal"


class _Condition(msgspec.Struct, rename="kebab"):
    data_collection: str
    filter: str


class _Data(msgspec.Struct, rename="kebab"):
    data_collections: list[str] = []
    type: str = _INCREMENTAL
    additional_conditions: list[_Condition] = []


class _Request(msgspec.Struct):
    type: str
    data: _Data | None = None


class _Wanted(msgspec.Struct, frozen=True):
    """A requested snapshot."""

    source: SourceEntry
    part: Part
    name: str


def follow_signal(commands: Commands, mine: Collection[str], signal: Signal) -> Sequence[str]:
    """Execute *signal* for the data sources *mine*; return the names of the snapshots.

    A repeated signal requests the same snapshots, which are not taken twice.

    Raises:
        BadSignalError: it is not a signal, or names an unknown object; nothing was done.
        BadRunError: a sink takes no snapshots.

    """
    request = _request(signal.value)
    data = request.data or _Data()
    sources = {_name(each): each for each in map(commands.source, mine)}
    chosen = [_source(sources, name) for name in data.data_collections]
    if request.type == EXECUTE:
        wanted = _wanted(data, chosen, signal.origin)
        return [
            commands.snapshot_source(each.source.config, Order(**each.part), name=each.name)
            for each in wanted
        ]
    return _steer(commands, chosen or sources.values(), STEERS[request.type])


def _request(value: bytes | None) -> _Request:
    if value is None or len(value) > _BYTES_MAX:
        said = "nothing" if value is None else f"{len(value)} bytes"
        raise BadSignalError("value", f"expected a signal in JSON, found {said}", _EXAMPLE)
    try:
        request = msgspec.json.decode(value, type=_Request)
    except msgspec.MsgspecError as error:  # It says where, without values.
        raise BadSignalError("value", f"expected a signal in JSON: {error}", _EXAMPLE) from error
    if request.type != EXECUTE and request.type not in STEERS:
        names = ", ".join((EXECUTE, *STEERS))
        said = f"expected {names}, found {request.type[:48]!r}"
        raise BadSignalError("type", said, _EXAMPLE)
    return request


def _wanted(data: _Data, sources: Sequence[SourceEntry], origin: str) -> Sequence[_Wanted]:
    if data.type.lower() != _INCREMENTAL:
        said = f"expected {_INCREMENTAL}, found {data.type[:48]!r}"
        raise BadSignalError("data.type", said, "live changes flow beside every snapshot")
    if not sources:
        raise BadSignalError("data-collections", "is required", _EXAMPLE)
    parts = {each.data_collection: _part(each) for each in data.additional_conditions}
    if unknown := sorted(parts.keys() - set(data.data_collections)):
        said = f"{unknown[0][:48]!r} is not in data-collections"
        raise BadSignalError("additional-conditions", said)
    whole = Part(tokens=(), key=None)
    return [
        _Wanted(each, parts.get(_name(each), whole), _snapshot_name(origin, each))
        for each in sources
    ]


def _part(condition: _Condition) -> Part:
    """Return the part of a table that a filter selects: it is the WHERE of a statement."""
    try:
        parsed = parse_statement(f"SNAPSHOT DATA_SOURCE s ON TABLE k.t WHERE {condition.filter}")
        assert isinstance(parsed, SnapshotSource)  # noqa: S101 (how it begins says so)
        return part_of(parsed.where)
    except (StatementSyntaxError, BadRunError) as error:
        hint = "TOKEN() > n AND TOKEN() <= m, or each column of the partition key = a value"
        said = f"expected what follows WHERE in SNAPSHOT DATA_SOURCE: {error.message}"
        raise BadSignalError("additional-conditions.filter", said, hint) from error


def _source(sources: Mapping[str, SourceEntry], name: str) -> SourceEntry:
    if name not in sources:
        names = ", ".join(sorted(sources)[:5]) or "none"
        said = f"the job has no data source on table {name[:96]!r}"
        raise BadSignalError("data-collections", said, f"it has: {names}")
    return sources[name]


def _steer(commands: Commands, sources: Collection[SourceEntry], wanted: Desired) -> Sequence[str]:
    """Pause, stop or continue the snapshots of *sources* that are not over."""
    names = [
        snapshot.name
        for source in sources
        for snapshot, seen in commands.runs(source.name, RunKind.SNAPSHOT)
        if snapshot.state(seen) not in OVER
    ]
    for name in names:
        commands.steer_run(name, wanted)
    return names


def _name(source: SourceEntry) -> str:
    return f"{source.table.keyspace}.{source.table.name}"


def _snapshot_name(origin: str, source: SourceEntry) -> str:
    text = f"{origin} {source.name}"
    return f"signal-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
