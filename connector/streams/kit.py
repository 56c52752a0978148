"""Faust apps that read the output of a job, configured from its sink's options."""

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from typing import Any, Final, NoReturn
from weakref import WeakSet

import faust
from faust.streams import Stream
from faust.types import TP, AppT, EventT, TopicT

from headrace.connector.serde.schemas.lookup import SchemaUnknownError
from headrace.connector.streams.changes import Change, ChangeReader, headers_of
from headrace.connector.streams.connection import RAW, app_beside, table_of_bytes
from headrace.plugins import ConfigError, HeadraceError, Problem, RetriableError
from headrace.plugins.records.codecs import CHUNK_ID_HEADER

WAIT_SECONDS_MAX: Final = 60.0
_PAUSE_SECONDS: Final = 0.2
_PAUSE_SECONDS_MAX: Final = 5.0
_SETTLE_SECONDS: Final = 1.0


class Consumer:
    """The topics of a job, for Faust apps. For one process and its event loop."""

    def __init__(self, reader: ChangeReader, *, wait_seconds_max: float = WAIT_SECONDS_MAX) -> None:
        """Read the changes of *reader*.

        A schema is published in the background, so a message can arrive earlier: a stream waits up
        to *wait_seconds_max* for it, and for a schema store or claim store that does not answer.
        """
        self._reader = reader
        self._wait_seconds_max = wait_seconds_max
        self._reached: dict[TP, int] = {}  # The offset after the last processed message.
        self._streams: WeakSet[Stream[Any]] = WeakSet()

    def app(self, name: str, **settings: Any) -> faust.App:  # noqa: ANN401 (Faust's settings)
        """Return an app with the sink's brokers and credentials; *name* is its group.

        *settings* are Faust's. By default its web server listens on loopback.

        Raises:
            ConfigError: Faust has no equivalent of an option of the connection.

        """
        return app_beside(self._reader.sink, name, **settings)

    def require_whole_changes(self) -> None:
        """Refuse messages from which rows cannot be folded.

        Raises:
            ConfigError: they are not in `cep44`, lossless, with the partition key.

        """
        wanted = self._reader.sink.encoding()
        found = wanted.envelope or "cep44", wanted.types, wanted.key
        if found != ("cep44", "lossless", "partition"):
            said = f"rows are folded from cep44, lossless, partition; found {', '.join(found)}"
            hint = "these are the defaults of envelope, types and key"
            raise ConfigError([Problem("envelope", said, hint)])

    def topic_of(self, table: str) -> str:
        """Return the name of the topic of `keyspace.table`."""
        return self._reader.sink.topic_of(table)

    def topic(self, app: faust.App, *tables: str) -> TopicT:
        """Return Faust's topic of these tables: each is `keyspace.table`."""
        names = dict.fromkeys(self.topic_of(table) for table in tables)
        return app.topic(*names, **RAW)

    def partitions(self, table: str) -> int:
        """Return the partitions of a table's topic: Faust's tables need the same number.

        Raises:
            TopicMissingError: it does not exist.
            BrokerUnreachableError: no broker answers.

        """
        return len(self._reader.sink.parts([table]))

    def table_beside(self, app: faust.App, name: str, *tables: str) -> MutableMapping[bytes, bytes]:
        """Return a table of *app* for bytes, with as many partitions as the topics of *tables*.

        Raises:
            ConfigError: the topics have different numbers of partitions.
            HeadraceError: a topic does not exist, or no broker answers.

        """
        numbers = {table: self.partitions(table) for table in tables}
        if len({*numbers.values()}) != 1:
            found = ", ".join(f"{table}: {number}" for table, number in numbers.items())
            hint = "start an app for each"
            raise ConfigError([Problem("--table", f"numbers of partitions differ: {found}", hint)])
        (partitions,) = {*numbers.values()}
        return table_of_bytes(app, name, partitions)

    async def changes(self, stream: Stream[Any]) -> AsyncIterator[Change]:
        """Yield the changes of an agent's *stream*; large values are whole.

        A message is acknowledged when the next change is requested, and a value in parts when it
        was processed: if the process ends earlier, the next one reads it again. A message that
        cannot be read ends the app, so that nothing is left out.
        """
        acking = stream.noack()
        self._streams.add(stream)
        held: dict[tuple[str, int], dict[bytes, list[EventT[Any]]]] = {}
        async for event in acking.events():
            try:
                change = await self._read(event)
            except HeadraceError as error:
                await end(stream.app, error)
            message = event.message
            place = message.topic, message.partition
            chunk_id = headers_of(message.headers).get(CHUNK_ID_HEADER)
            if change is not None:
                yield change
            elif chunk_id is not None:
                held.setdefault(place, {}).setdefault(chunk_id, []).append(event)
            if change is not None or chunk_id is None:
                await acking.ack(event)
            if place in held:  # Parts of whole values, and of abandoned ones.
                waiting = self._reader.waiting(*place)
                for done in [each for each in held[place] if each not in waiting]:
                    for part in held[place].pop(done):
                        await acking.ack(part)
            self._reached[TP(*place)] = message.offset + 1

    async def behind(self, app: faust.App, ends: Mapping[TP, int]) -> Sequence[str]:
        """Return the partitions that this process has not processed up to their *ends*.

        Partitions of other processes are included.
        """
        if not any(self._is_behind(app, tp, end) for tp, end in ends.items()):
            return ()
        # A transaction ends with a mark, which streams do not receive. So what was fetched counts
        # if none of it waits to be processed, and nothing arrived for a while.
        before = dict(self._reached)
        await asyncio.sleep(_SETTLE_SECONDS)
        # Faust counts a message as unacknowledged when a stream takes it from its queue.
        channels: list[Any] = [stream.channel for stream in self._streams]  # Any: Topic's.
        is_waiting = not all(channel.queue.empty() for channel in channels)
        busy = set(ends) if is_waiting else {message.tp for message in app.consumer.unacked}
        found = []
        for tp, end in ends.items():
            if not self._is_behind(app, tp, end):
                continue
            is_still = tp not in busy and before.get(tp) == self._reached.get(tp)
            fetched = None
            if is_still and tp in app.consumer.assignment():
                fetched = await app.consumer.position(tp)
            if fetched is None or fetched < end:
                found.append(f"{tp.topic}:{tp.partition}")
        return sorted(found)

    def _is_behind(self, app: faust.App, tp: TP, end: int) -> bool:
        return tp not in app.consumer.assignment() or self._reached.get(tp, 0) < end

    async def _read(self, event: EventT[Any]) -> Change | None:
        """Read a message, with as many attempts as the time allows."""
        given = event.message
        message = self._reader.joined(
            *(given.topic, given.partition, given.key, given.value, given.headers),
            offset=given.offset,
        )
        if message is None:
            return None
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._wait_seconds_max, _PAUSE_SECONDS
        while True:
            try:
                return self._reader.decoded(message)
            except (SchemaUnknownError, RetriableError):
                if loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)


async def end(app: AppT, error: HeadraceError) -> NoReturn:
    """End *app* with the error of its agent, so that nothing is left out."""
    await app.crash(error)
    # The app cancels this when it stops. An error would restart the agent after it.
    await asyncio.Event().wait()
    raise error
