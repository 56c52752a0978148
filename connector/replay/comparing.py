"""What the logs hold and what a topic holds, as sums of buckets, and as single changes.

First each side is summed up by table and bucket of keys; only buckets that differ are looked into.
What a task does is here; which tasks there are, and what follows, is `reconciling`.
"""

import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.selection import Selection, name_of, names_of
from headrace.connector.replay.shards import Shard, batches, encoded_changes, inside, opened
from headrace.connector.serde import Encoder
from headrace.connector.serde.decoding import Decoder
from headrace.plugins import (
    OPERATIONS,
    Batch,
    Document,
    EncodedRecords,
    HeadraceError,
    SinkOptions,
    Stored,
)

CONFLUENT_PREFIX_BYTES: Final = 5
ROWS_MAX: Final = 1_000_000  # Single changes of one side's task that are looked into.
_NAME_HASH_BYTES: Final = 8
_INDEX_FACTOR: Final = 0x9E3779B97F4A7C15  # Spreads small numbers over 64 bits.
_MASK: Final = (1 << 64) - 1

Bucket = tuple[str, int]


class Members(NamedTuple):
    """How many different changes a bucket has, and the sum of their hashes."""

    changes: int
    hashes: int


class ChangeRow(NamedTuple):
    """A single change of one side. `copies` is 0 where that is not known."""

    name: bytes
    table: str
    key: bytes
    operation: str
    time_us: int
    copies: int = 0
    expires_s: int | None = None


@dataclass(frozen=True, slots=True)
class SideReport:
    """What one task found: sums, or single changes where buckets were given."""

    sums: Mapping[Bucket, Members] = field(default_factory=dict)
    rows: Sequence[ChangeRow] = ()
    schemas: Mapping[bytes, Document] = field(default_factory=dict)
    records: int = 0
    unreadable: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What both sides share: the sink, how keys fall into buckets, and which changes count.

    `wanted` are the buckets whose single changes are asked for; None asks for sums.
    """

    sink: Mapping[str, Any]
    directory: str
    buckets: int
    selection: Selection
    wanted: frozenset[Bucket] | None = None


class _Side:
    """Collects one side."""

    def __init__(self, comparison: Comparison) -> None:
        self._buckets = comparison.buckets
        self._wanted = comparison.wanted
        self._hashes: dict[Bucket, array[int]] = defaultdict(lambda: array("Q"))
        self.rows: list[ChangeRow] = []
        self.records = 0

    def add(self, row: ChangeRow) -> bool:
        """Count a change; say whether it is among those asked for one by one."""
        self.records += 1
        bucket = row.table, bucket_of(row.key, self._buckets)
        if self._wanted is None:
            self._hashes[bucket].append(_hash(row.name))
            return False
        if bucket not in self._wanted:
            return False
        if len(self.rows) >= ROWS_MAX:
            hint = "compare a shorter time, fewer tables or a range of tokens"
            raise bad_option("reconcile", f"more than {ROWS_MAX} changes differ in a task", hint)
        self.rows.append(row)
        return True

    def sums(self) -> dict[Bucket, Members]:
        """Return the sums; a change that is there twice counts once."""
        found = {}
        for bucket, hashes in self._hashes.items():
            members = set(hashes)
            found[bucket] = Members(len(members), sum(members) & _MASK)
        return found


@dataclass(frozen=True, slots=True)
class LogSide:
    """What a shard of the logs agrees on."""

    shard: Shard
    comparison: Comparison

    def __call__(self) -> SideReport:
        """Read it."""
        side = _Side(self.comparison)
        schemas: dict[bytes, Document] = {}
        try:
            with (
                sink_and_encoder(self.comparison.sink, "reconcile") as (_, encoder),
                opened(self.shard) as source,
            ):
                for batch in batches(source, self.shard):
                    announced = [encoder.schema(schema) for schema in batch.schemas()]
                    schemas |= {each.schema_id: each.value for each in announced}
                    self._take(encoder, batch, side, schemas)
        except HeadraceError as error:
            return SideReport(problem=f"{error.code}: {error}")
        return SideReport(side.sums(), side.rows, schemas, side.records)

    def _take(
        self,
        encoder: Encoder,
        batch: Batch,
        side: _Side,
        schemas: Mapping[bytes, Document],
    ) -> None:
        made = encoded_changes(encoder, batch)
        encoded = self.comparison.selection.apply(made)
        decoder: Decoder | None = None
        for number, row in enumerate(rows_of(encoded)):
            if side.add(row):
                decoder = decoder or decoder_of(self.comparison, schemas)
                stored = Stored(number, row.key, encoded.values[number], encoded.headers[number])
                document = decoder.value(stored) or {}
                side.rows[-1] = row._replace(expires_s=document.get("expires"))


@dataclass(frozen=True, slots=True)
class TopicSide:
    """What one part of what the sink wrote holds."""

    part: str
    comparison: Comparison
    schemas: Mapping[bytes, Document]

    def __call__(self) -> SideReport:
        """Read it."""
        side = _Side(self.comparison)
        unreadable = 0
        selection = self.comparison.selection
        decoder = decoder_of(self.comparison, self.schemas)
        try:
            with (
                inside(self.comparison.directory),
                sink_and_encoder(self.comparison.sink, "reconcile") as (sink, _),
            ):
                for records in sink.read_back(self.part):
                    for stored in records:
                        try:
                            row = row_of(stored, decoder)
                        except HeadraceError:
                            unreadable += 1
                            continue
                        if row is not None and _is_selected(row, selection):
                            side.add(row)
        except HeadraceError as error:
            return SideReport(problem=f"{error.code}: {error}")
        return SideReport(side.sums(), side.rows, {}, side.records, unreadable)


def decoder_of(comparison: Comparison, schemas: Mapping[bytes, Document]) -> Decoder:
    """Return what decodes the values that the sink writes."""
    with sink_and_encoder(comparison.sink, "reconcile") as (sink, _):
        codec = sink.encoding().codec
        options = sink.config if hasattr(sink, "config") else None
    prefix = 0
    if isinstance(options, SinkOptions) and options.schema_framing == "confluent":
        prefix = CONFLUENT_PREFIX_BYTES
    return Decoder(schemas, codec=codec, prefix_bytes=prefix)


def bucket_of(key: bytes, buckets: int) -> int:
    """Return the bucket of a message's key."""
    return zlib.crc32(key) % buckets


def rows_of(encoded: EncodedRecords) -> Iterator[ChangeRow]:
    """Yield encoded records as rows.

    Raises:
        ConfigError: they do not tell what names them: another envelope than `cep44`.

    """
    facts = encoded.facts
    names = names_of(facts) if facts is not None else ()
    if facts is None or len(names) != len(encoded):
        if not len(encoded):
            return
        hint = "the envelope must be cep44, without transforms, and the key that of the partition"
        raise bad_option("reconcile", "the job's messages do not tell what names a change", hint)
    columns = zip(
        names, encoded.tables, encoded.keys, facts.operations, facts.timestamps_us, strict=True
    )
    for name, table, key, operation, time_us in columns:
        yield ChangeRow(name, table, key or b"", OPERATIONS[operation].value, time_us)


def row_of(stored: Stored, decoder: Decoder) -> ChangeRow | None:
    """Return a message as a row; None for a tombstone.

    Raises:
        BadRecordError: it cannot be decoded, or is in another envelope.

    """
    document = decoder.value(stored)
    if document is None:
        return None
    try:
        if "sourceTable" in document:
            table = f"{document['sourceKeyspace']}.{document['sourceTable']}"
            operation, time_us = document["operationType"], document["timestampMicros"]
            mutation = document["mutation"]
        else:
            table, operation = document["table"], document["op"]
            time_us, mutation = document["timestamp"], bytes.fromhex(document["mutation"])
        name = name_of(mutation, document["index"])
    except (KeyError, TypeError, ValueError) as error:
        message = f"the envelope lacks {error}"
        raise bad_option("reconcile", message, "only envelope cep44 can be compared") from error
    copies = int(document.get("copies", 0))
    return ChangeRow(name, table, stored.key or b"", operation, time_us, copies)


def _is_selected(row: ChangeRow, selection: Selection) -> bool:
    """Say whether a change counts; tokens cannot be told of a message."""
    return (
        (not selection.tables or row.table in selection.tables)
        and (not selection.operations or row.operation in selection.operations)
        and (not selection.keys or row.key in selection.keys)
        and (selection.from_us is None or row.time_us >= selection.from_us)
        and (selection.to_us is None or row.time_us < selection.to_us)
    )


def _hash(name: bytes) -> int:
    """Return 64 bits of a name, which is a hash already but for the index."""
    index = int.from_bytes(name[-4:], "big")
    return int.from_bytes(name[:_NAME_HASH_BYTES], "big") ^ (index * _INDEX_FACTOR & _MASK)


def with_wanted(comparison: Comparison, wanted: frozenset[Bucket]) -> Comparison:
    """Ask for the single changes of these buckets."""
    return replace(comparison, wanted=wanted)
