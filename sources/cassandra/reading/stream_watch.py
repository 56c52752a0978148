"""Follows the streams received by nodes whose logs are read. For one thread."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from headrace.plugins import Context
from headrace.sources.cassandra.agreement.intake import Intake
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.logs.pins import FOLDER
from headrace.sources.cassandra.logs.repair_streams import FILE, Stream, Streams, streams_in
from headrace.sources.cassandra.reading.cursor import LogCursor
from headrace.sources.cassandra.schema.tables import TableSchema

if TYPE_CHECKING:
    from headrace.sources.cassandra.agent.client import RemoteLog

Log: TypeAlias = "LogDirectory | RemoteLog"


def follower(
    intake: Intake,
    cursors: Mapping[str, LogCursor],
    logs: Mapping[str, Log],
    context: Context,
) -> Callable[[str], None]:
    """Return a function that reads the streams of a node and passes them to *intake*.

    It is called after each listing: nodes report streams before they log them. The order of *logs*
    numbers the hosts.
    """
    known: dict[str, Streams] = {}
    hosts = {node: host for host, node in enumerate(logs)}

    def follow(node: str) -> None:
        if node not in known:
            known[node] = _streams_of(node, logs[node], cursors, context)
        known[node].look()
        intake.receive(hosts[node], known[node] if known[node].streams else None)

    return follow


def _streams_of(node: str, log: Log, cursors: Mapping[str, LogCursor], context: Context) -> Streams:
    if isinstance(log, LogDirectory):
        streams = partial(streams_in, log.path / FOLDER / FILE)
    else:
        streams = partial(_listed_streams, log)

    def table_of(table_id: UUID) -> TableSchema | None:
        return cursors[node].tables.epoch.schema.tables.get(table_id)

    return Streams(streams, node, context, table_of)


def _listed_streams(log: "RemoteLog") -> Sequence[Stream]:
    return log.listing.streams
