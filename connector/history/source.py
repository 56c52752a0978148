"""The source `history`: a history's changes with images of their rows, for any sink.

A history assigns arrivals to its changes one commit after the other, so reading in the order of
arrivals is complete and preserves the order of a row's changes. A change has the bytes that the
history stores, followed by its images.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final

from headrace import plugins
from headrace.connector.history import arrival
from headrace.connector.history.avro_images import NO_IMAGE, ImagedSchema
from headrace.connector.history.errors import HistoryBusyError, HistoryMissingError
from headrace.connector.history.images import WIDE, repairable
from headrace.connector.history.reading import History, Row
from headrace.connector.history.rendering import Shape
from headrace.connector.history.store.contract import Change, HistoryStore
from headrace.connector.history.store.places import opened, whole_place
from headrace.connector.serde.codecs.records import ShapedRecord, ShapedSchema, reader_of, writer_of
from headrace.connector.serde.image_fields import POST, PRE
from headrace.plugins import NumberPosition, Operation, Position
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER
from headrace.plugins.records.record import OPERATIONS

SPLIT: Final = plugins.Split("history", "all changes, in the order of their arrival")
BOTH: Final = "both"
_AVRO: Final = "avro"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySourceConfig:
    """Options of the history source."""

    path: str = plugins.option("The place of the history, as DESCRIBE CDC shows it.", reads=True)
    images: str = plugins.option(
        "The images of its row that each change has: `pre`, before it; `post`, after it; or both.",
        default=BOTH,
        choices=(PRE, POST, BOTH),
    )
    tables: tuple[str, ...] = plugins.option(
        "The table, as keyspace.table; by default that of the history.", default=()
    )

    @property
    def place(self) -> str:
        """Return the place in a form that is valid from any folder."""
        return whole_place(self.path)

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return the images, in order."""
        return tuple(name for name in (PRE, POST) if self.images in (name, BOTH))


class HistorySource(plugins.Source, plugins.Relocation):
    """Reads the changes of one history. It has one split: order is by arrival."""

    word = "history"
    config_class = HistorySourceConfig
    config: HistorySourceConfig

    def __init__(self, config: HistorySourceConfig, context: plugins.Context) -> None:
        """Read the origin of the changes from the file, if it exists."""
        super().__init__(config, context)
        with suppress(HistoryMissingError), closing(self._file()) as file:  # `plan` reports it.
            self.origin = file.origin()

    def plan(self) -> Sequence[plugins.Split]:
        """Return the only split.

        Raises:
            HistoryMissingError: the history does not exist yet.
            ConfigError: it is not the history of this table.

        """
        with closing(self._file()) as file:
            if self.config.tables not in ((), (file.table,)):
                what = f"{self.config.path} is the history of {file.table}"
                raise plugins.ConfigError([plugins.Problem("tables", what)])
        return [SPLIT]

    def open(self, split: plugins.Split, resume: Position | None) -> "HistoryReader":
        """Start after the arrival *resume*; without one, at the oldest stored change."""
        del split
        behind = resume.number if isinstance(resume, NumberPosition) else None
        history = History(self._file(), frozenset(), self.context.clock, Shape)
        return HistoryReader(history, self.config.scopes, behind)

    def backlog(self, split: plugins.Split, position: Position | None) -> Sequence[plugins.Backlog]:
        """Return the bytes of the changes after *position*."""
        del split
        behind = position.number if isinstance(position, NumberPosition) else 0
        with closing(self._file()) as file:
            size_bytes = file.size_behind(behind)
        return [plugins.Backlog(partition={}, size_bytes=size_bytes, files=int(size_bytes > 0))]

    def locate(
        self, split: plugins.Split, position: Position | None, target: str
    ) -> Position | None:
        """Find the arrival before a time; `latest` is the last one."""
        del split, position
        if target == "earliest":
            return None
        if target == "latest":
            with closing(self._file()) as file:
                with suppress(HistoryBusyError):
                    file.catch_up()
                return NumberPosition(file.last())
        return NumberPosition(max(0, arrival.first_of(_ms(target)) - 1))

    @classmethod
    def check_place(cls, target: str) -> None:
        """Refuse a target that is not a time."""
        if target not in ("earliest", "latest"):
            _ms(target)

    @classmethod
    def first_position(cls) -> Position:
        """Return the position before all changes."""
        return NumberPosition(0)

    def _file(self) -> HistoryStore:
        return opened(self.config.place, self.context.clock)


def _ms(target: str) -> int:
    try:
        return arrival.us_of(dt.datetime.fromisoformat(target)) // 1_000
    except ValueError:
        what = f"expected a time, found {target[:48]!r}"
        hint = "earliest, latest, or a time such as 2026-01-31T12:00:00Z"
        raise plugins.ConfigError([plugins.Problem("position", what, hint)]) from None


class HistoryReader(plugins.Reader):
    """Reads a history from an arrival."""

    def __init__(self, history: History, images: Sequence[str], behind: int | None) -> None:
        """Read *history*, which `close` closes, after an arrival, or everything stored."""
        self._history = history
        self._images = images
        self._scopes = frozenset(images)
        self._behind = history.file.removed() if behind is None else behind
        self._seen = -1
        self._schemas: dict[int, _Schema] = {}

    def read(self, demand: plugins.Demand) -> "HistoryBatch | plugins.Idle":
        """Return the next changes, each with its images.

        Raises:
            HistoryTruncatedError: changes after the position were removed before they were read.
            ImageNotKeptError: images of these changes were not stored.
            HistoryBusyError: another process kept the file locked.

        """
        version = self._history.file.version()
        if version == self._seen:
            return plugins.Idle()
        announced: list[plugins.RecordSchema] = []
        made, size_bytes = [], 0
        found = self._history.changes(self._behind, self._scopes, max(0, demand.records_max) + 1)
        for change in found[: demand.records_max]:
            if size_bytes >= demand.bytes_max:
                break
            if change.schema not in self._schemas:
                self._schemas[change.schema] = _Schema(self._history, change, self._images)
                announced.append(self._schemas[change.schema].imaged.schema)
            with repairable():
                made.append(self._message(change))
            size_bytes += len(made[-1].value)
        more = len(made) < len(found)
        if not more:
            self._seen = version
        if not made:
            return plugins.Idle(more=more)
        self._behind = found[len(made) - 1].arrival
        end = NumberPosition(self._behind)
        return HistoryBatch(end, size_bytes, made, announced, more=more)

    def close(self, reason: plugins.CloseReason) -> None:
        """Close the file."""
        del reason
        self._history.close()

    def _message(self, change: Change) -> "_Message":
        schema = self._schemas[change.schema]
        row = self._history.row_of(change)
        content = schema.of_row(row, change.change) if row.is_derived else change.change
        images = [NO_IMAGE] * len(self._images)
        if OPERATIONS[change.operation] not in WIDE:
            images = self._images_of(change, row, schema.imaged)
        return _Message(schema.shaped, change, b"".join((content, *images)))

    def _images_of(self, change: Change, row: Row, imaged: ImagedSchema) -> list[bytes]:
        past = self._history.past_of(change, row)
        is_deletion = OPERATIONS[change.operation] is Operation.DELETE
        at_s = arrival.ms_of(change.arrival) // 1_000
        return [
            NO_IMAGE
            if name == POST and is_deletion
            else imaged.image(row, past, past.before if name == PRE else past.after, at_s)
            for name in self._images
        ]


class _Schema:
    """A schema of changes without images, and the same with images."""

    def __init__(self, history: History, change: Change, images: Sequence[str]) -> None:
        shape = history.shape(change.schema)
        self.imaged = ImagedSchema(shape, images)
        self.shaped = ShapedSchema(self.imaged.schema)
        self._read_all = reader_of(shape.schema.value)
        self._write = writer_of(shape.schema.value)
        self._clustering = shape.view.clustering

    def of_row(self, row: Row, content: bytes) -> bytes:
        """Return the deletion of one row from a deletion of many rows."""
        value = self._read_all(content)
        payload = {
            **value["payload"],
            **dict(zip(self._clustering, row.clustering or (), strict=True)),
        }
        operation = Operation.DELETE.value
        return self._write({**value, "operationType": operation, "payload": payload, "range": None})


@dataclass(frozen=True, slots=True)
class _Message:
    """A change in the form in which it is sent."""

    shaped: ShapedSchema
    change: Change
    value: bytes


class HistoryBatch(plugins.Batch):
    """Changes of a history, as their stored bytes followed by those of their images."""

    encodings = frozenset((_AVRO,))

    def __init__(
        self,
        end: Position,
        size_bytes: int,
        messages: Sequence[_Message],
        announced: Sequence[plugins.RecordSchema],
        *,
        more: bool,
    ) -> None:
        """Keep the arguments."""
        self.split = SPLIT.split_id
        self.end = end
        self.size_bytes = size_bytes
        self.more = more
        self._messages = messages
        self._announced = announced

    def records(self) -> Iterator[ShapedRecord]:
        """Make the records in order."""
        for each in self._messages:
            change = each.change
            yield ShapedRecord(
                each.shaped,
                change.key,
                each.value,
                operation=OPERATIONS[change.operation],
                timestamp_us=change.written_us,
                headers=(),
                original=(change.key, each.value),
            )

    def schemas(self) -> Sequence[plugins.RecordSchema]:
        """Return the schemas that are used for the first time here."""
        return self._announced

    def encode(self, encoding: str) -> plugins.EncodedRecords:
        """Return all changes in Avro."""
        assert encoding == _AVRO  # noqa: S101 (the only one of `encodings`)
        return plugins.EncodedRecords(
            keys=[each.change.key for each in self._messages],
            values=[each.value for each in self._messages],
            headers=[_headers(each) for each in self._messages],
            tables=[each.shaped.schema.table for each in self._messages],
        )


def _headers(message: _Message) -> plugins.Headers:
    return ((SCHEMA_ID_HEADER, message.shaped.schema.schema_id),)
