"""A third-party source with its own bookkeeping: a mill, with counters and origin fields.

It shares no name with the Cassandra source: what works with both is specific to neither.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path

import pytest

from headrace.plugins import (
    Backlog,
    Bookkeeping,
    Context,
    CounterGroup,
    DebeziumSource,
    Delivery,
    Demand,
    EncodedPosition,
    Encoding,
    Idle,
    Operation,
    Origin,
    Position,
    Reader,
    Record,
    RecordBatch,
    RecordSchema,
    RepeatCause,
    Settle,
    Sink,
    SinkOptions,
    Source,
    SourceField,
    Split,
    Waiting,
    WaitingCounter,
    Writer,
    option,
)
from headrace.plugins.records.codecs import header_problems

ENTRY_POINTS = """\
[headrace.sources]
mill = helpers.jobs.mill:MillSource
[headrace.sinks]
barn = helpers.jobs.mill:BarnSink
"""
TABLE = "bakery.flour"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the mill and the barn an installed distribution for one test."""
    metadata = folder / "mill-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: mill\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(folder)


BOOKKEEPING = Bookkeeping(
    groups=(
        CounterGroup(
            name="sacks",
            part="wheel",
            title="sacks at {part}",
            metric="mill_sacks_total",
            doc="Sacks by what became of them; brought is all.",
            left=("brought",),
            right=("ground", "spilt", "stored"),
        ),
        CounterGroup(
            name="loaves",
            title="loaves",
            metric="mill_loaves_total",
            doc="Loaves by what became of them.",
            left=("handed_on", "ordered"),
            right=("baked", "handed_over", "rising"),
        ),
    ),
    waiting=WaitingCounter(
        counter="loaves.rising",
        passed_on="loaves.handed_over",
        one="loaf is rising",
        many="loaves are rising",
        metric="mill_loaves_rising",
        doc="Loaves that rise.",
    ),
    held_back=("loaves.rising",),
    repeats={
        "echo": RepeatCause(unit="loaves", why="the baker stutters", counter="stutters"),
    },
)
ORIGIN = Origin(
    fields={"wheel": "string", "sack": "long", "grams": "int"},
    debezium=DebeziumSource(
        connector="mill",
        db="barn",
        name="wheel",
        fields=(
            SourceField(name="bag", of="sack", as_text=True),
            SourceField(name="grams", of="grams"),
            SourceField(name="village"),
            SourceField(name="table", of="sourceTable"),
        ),
    ),
)


def _optional(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None}


def _record(name: str, *fields: dict[str, object], **rest: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **rest}


def _own_fields() -> list[dict[str, object]]:
    return [{"name": name, "type": kind} for name, kind in ORIGIN.fields.items()]


def _texts(name: str) -> dict[str, object]:
    return {"name": name, "type": {"type": "array", "items": "string"}}


_PAYLOAD = _record(
    "Payload",
    _optional("id", "long"),
    _optional("kind", "string"),
    partitionKey=["id"],
    clustering=[],
    static=[],
)
_NOTE = _record(
    "CellNote",
    {"name": "field", "type": "string"},
    _optional("timestampMicros", "long"),
    _optional("ttl", "int"),
    _optional("expires", "long"),
    {"name": "isEmpty", "type": "boolean"},
)
_BOUND = _record(
    "Bound",
    {"name": "values", "type": _record("Prefix")},
    {"name": "count", "type": "int"},
    {"name": "inclusive", "type": "boolean"},
)
SCHEMA = RecordSchema.of(
    TABLE,
    "flour: id, kind",
    key=_record("Key", {"name": "id", "type": "long"}),
    value=_record(
        "Change",
        {"name": "timestampMicros", "type": "long"},
        {
            "name": "operationType",
            "type": {
                "type": "enum",
                "name": "OperationType",
                "symbols": [operation.value for operation in Operation],
            },
        },
        {"name": "sourceKeyspace", "type": "string"},
        {"name": "sourceTable", "type": "string"},
        _texts("truncatedFields"),
        {"name": "isStatic", "type": "boolean"},
        _optional("ttl", "int"),
        _optional("expires", "long"),
        _texts("updateFields"),
        {"name": "payload", "type": _PAYLOAD},
        {"name": "cells", "type": {"type": "array", "items": _NOTE}},
        _optional("range", _record("Range", _optional("start", _BOUND), _optional("end", "Bound"))),
        {"name": "mutation", "type": {"type": "fixed", "name": "MutationId", "size": 16}},
        {"name": "index", "type": "int"},
        {"name": "of", "type": "int"},
        *_own_fields(),
    ),
)


@dataclass(frozen=True, slots=True)
class MillPosition(Position):
    """How many bytes of a wheel's file were read, and the counters at that point."""

    wheel: str
    offset: int
    counters: Mapping[str, int]

    def encode(self) -> EncodedPosition:
        """Return both as JSON."""
        return EncodedPosition(json.dumps([self.wheel, self.offset, self.counters]).encode())

    def describe(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str]]]:
        """Return the place in the file."""
        return [({"wheel": self.wheel}, {"turn": self.offset})]

    def books(self) -> Mapping[str, int]:
        """Return the counters."""
        return self.counters

    def waiting(self) -> Sequence[Waiting]:
        """Return a line for all loaves that are rising."""
        count = self.counters.get("loaves.rising", 0)
        return [Waiting(subject=f"{count} loaves", copies={}, missing=(), needed="", seconds=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MillConfig:
    """The options of the mill."""

    path: str = option("A folder with a file for each wheel.")
    tables: tuple[str, ...] = option("The tables, of which there is one.", default=())
    forgets: int = option("Of so many sacks one is not counted; 0 for none.", default=0)


class MillSource(Source):
    """`CREATE DATA_SOURCE mill`: a line of a file is a sack, which is ground, spilt or stored."""

    word = "mill"
    config_class = MillConfig
    config: MillConfig
    bookkeeping = BOOKKEEPING
    origin = ORIGIN

    def plan(self) -> Sequence[Split]:
        """Return a split for each wheel."""
        return [Split(path.stem) for path in sorted(Path(self.config.path).glob("*.sacks"))]

    def open(self, split: Split, resume: Position | None) -> Reader:
        """Continue after *resume*."""
        assert resume is None or isinstance(resume, MillPosition)
        begin = resume or MillPosition(split.split_id, 0, {})
        return MillReader(self._path(split), begin, self.config.forgets)

    @classmethod
    def decode_position(cls, encoded: EncodedPosition) -> MillPosition:
        """Read JSON."""
        return MillPosition(*json.loads(encoded.head))

    def backlog(self, split: Split, position: Position | None) -> Sequence[Backlog]:
        """Return how many bytes of a wheel's file are unread."""
        assert position is None or isinstance(position, MillPosition)
        size_bytes = self._path(split).stat().st_size - (position.offset if position else 0)
        part = {"wheel": split.split_id}
        return [Backlog(partition=part, size_bytes=size_bytes, files=int(size_bytes > 0))]

    def _path(self, split: Split) -> Path:
        return Path(self.config.path) / f"{split.split_id}.sacks"


class MillReader(Reader):
    """Reads the sacks of one wheel."""

    def __init__(self, path: Path, begin: MillPosition, forgets: int) -> None:
        """Continue at *begin*."""
        self._path = path
        self._wheel = begin.wheel
        self._offset = begin.offset
        self._counters = Counter(begin.counters)
        self._forgets = forgets
        self._announce = [SCHEMA]

    def read(self, demand: Demand) -> RecordBatch | Idle:
        """Grind the sacks that are there."""
        made: list[Record] = []
        begin = self._offset
        with self._path.open("rb") as file:
            file.seek(begin)
            while len(made) < demand.records_max and self._offset - begin < demand.bytes_max:
                line = file.readline()
                if not line.endswith(b"\n"):
                    break
                made += self._ground(json.loads(line))
                self._offset += len(line)
        if self._offset == begin:
            return Idle()
        end = MillPosition(self._wheel, self._offset, dict(self._counters))
        announced, self._announce = self._announce, []
        return RecordBatch(self._wheel, end, self._offset - begin, made, announced, more=True)

    def _ground(self, sack: Mapping[str, int | str]) -> Iterator[Record]:
        count, number = self._counters, self._counters[f"sacks.{self._wheel}.brought"]
        count[f"sacks.{self._wheel}.brought"] += 1
        fate = str(sack["fate"])
        if not self._forgets or (number + 1) % self._forgets:
            count[f"sacks.{self._wheel}.{fate}"] += 1
        count["stutters"] += fate == "spilt"
        if fate == "ground":
            count["loaves.ordered"] += 1
            count["loaves.baked"] += 1
            yield change_of(self._wheel, number, sack)
        if fate == "stored":
            count["loaves.ordered"] += 1
            count["loaves.rising"] += 1


def change_of(wheel: str, number: int, sack: Mapping[str, int | str]) -> Record:
    """Return the change that a sack makes."""
    origin = {"wheel": wheel, "sack": number, "grams": sack["grams"]}
    keyspace, _, table = TABLE.partition(".")
    value = {
        "timestampMicros": 1_000_000 + number,
        "operationType": Operation.INSERT.value,
        "sourceKeyspace": keyspace,
        "sourceTable": table,
        "truncatedFields": [],
        "isStatic": False,
        "ttl": None,
        "expires": None,
        "updateFields": ["kind"],
        "payload": {"id": sack["id"], "kind": sack["kind"]},
        "cells": [],
        "range": None,
        "mutation": md5(f"{wheel} {number}".encode(), usedforsecurity=False).digest(),
        "index": 0,
        "of": 1,
        **origin,
    }
    return Record(
        key={"id": sack["id"]},
        value=value,
        operation=Operation.INSERT,
        timestamp_us=1_000_000 + number,
        schema=SCHEMA,
        origin=origin,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BarnConfig(SinkOptions):
    """The options of the barn."""

    path: str = option("The file to append to.", writes=True)
    format: str = option("The codec.", default="json")
    envelope: str = option("The envelope.", default="")
    headers: tuple[str, ...] = option("The headers.", default=("schemaId",))

    def __post_init__(self) -> None:
        """Refuse unknown headers."""
        SinkOptions.__post_init__(self)
        assert not header_problems(self.headers)


class BarnSink(Sink):
    """`barn:///path`: writes a line of JSON for each message, in hex."""

    schemes = ("barn",)
    config_class = BarnConfig
    config: BarnConfig

    def __init__(self, config: BarnConfig, context: Context) -> None:
        """Write nothing yet."""
        super().__init__(config, context)

    def encoding(self) -> Encoding:
        """Return the encoding that the options ask for."""
        given = self.config
        return Encoding(codec=given.format, envelope=given.envelope, headers=given.headers)

    def open(self) -> Writer:
        """Append to the file."""
        return BarnWriter(Path(self.config.path))


class BarnWriter(Writer):
    """Settles each delivery at once."""

    def __init__(self, path: Path) -> None:
        """Write to *path*."""
        self._path = path

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Append all messages."""
        made = delivery.encoded
        with self._path.open("a", encoding="utf-8") as file:
            for key, value, headers in zip(made.keys, made.values, made.headers, strict=True):
                reported = {name: content.hex() for name, content in headers}
                row = {"key": key and key.hex(), "value": value.hex(), "headers": reported}
                file.write(f"{json.dumps(row)}\n")
        settle(range(len(made)))

    def drain(self, deadline_ms: int) -> bool:
        """Return True: everything is settled."""
        del deadline_ms
        return True
