"""The streams that nodes receive whose logs are read: told to who reads these. For one thread."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from headrace.plugins import Context
from headrace.sources.cassandra.directory import LogDirectory
from headrace.sources.cassandra.needs import FOLDER
from headrace.sources.cassandra.pump import Pump
from headrace.sources.cassandra.schema import TableSchema
from headrace.sources.cassandra.streams import FILE, Stream, Streams, streams_in

if TYPE_CHECKING:
    from headrace.sources.cassandra.remote import RemoteLog

Log: TypeAlias = "LogDirectory | RemoteLog"


def follower(pump: Pump, logs: Mapping[str, Log], context: Context) -> Callable[[str], None]:
    """Return what looks at the streams of a node whose log *pump* reads, and tells it.

    It is called behind each listing: streams are told of before they are logged.
    """
    known: dict[str, Streams] = {}

    def follow(node: str) -> None:
        if node not in known:
            known[node] = _streams_of(node, logs[node], pump, context)
        known[node].look()
        pump.intake.receive(pump.hosts[node], known[node] if known[node].streams else None)

    return follow


def _streams_of(node: str, log: Log, pump: Pump, context: Context) -> Streams:
    def told() -> Sequence[Stream]:
        if isinstance(log, LogDirectory):
            return streams_in(log.path / FOLDER / FILE)
        return log.told.streams

    def table_of(table_id: UUID) -> TableSchema | None:
        return pump.tables_of(node).epoch.schema.tables.get(table_id)

    return Streams(told, node, context, table_of)
