"""Handles values that are too large for a message: truncates or stores them.

Consumers find functions here to read stored values and join chunks.
"""

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace.connector.foundation.files import write_durably
from headrace.connector.serde.avro_types import field_of
from headrace.connector.serde.envelopes import Columns
from headrace.connector.serde.transcode.sums import bytes_of
from headrace.plugins import (
    BadRecordError,
    Batch,
    ClaimStore,
    Document,
    EncodedRecords,
    FatalError,
    Headers,
    Record,
    RecordSchema,
    RetriableError,
    SinkOptions,
    Stored,
    option,
)
from headrace.plugins.records.codecs import (
    CHUNK_COUNT_HEADER,
    CHUNK_ID_HEADER,
    CHUNK_INDEX_HEADER,
    CLAIM_HEADER,
    chunk_id_of,
)

_MARGIN_BYTES: Final = 64  # Lengths and a column's name may add this.
_CUTS_MAX: Final = 64
_CUT_BYTES_MIN: Final = 64  # Shorter values stay, because addresses are strings too.
_CUT_TYPES: Final = (["null", "string"], ["null", "bytes"])
_NAME_BYTES: Final = 32
_DIGITS_MAX: Final = 9
_HOUR_S: Final = 3_600
_HEADERS_MAX: Final = 1_000  # The number of different headers to cache.
Pair = tuple[bytes | None, bytes]
"""A message's key and value."""


class ValueTooLargeError(FatalError):
    """A value is too large for a message, and `large.policy` is `fail`."""

    code = "value_too_large"


class ClaimLostError(RetriableError):
    """The claim store does not have the value of a claim, or has another value."""

    code = "claim_lost"


class BrokenChunkError(BadRecordError):
    """A message is a chunk of a value, but its headers do not identify the chunk."""

    code = "broken_chunk"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryConfig:
    """Options of the claim store `directory`."""

    path: str = option("The folder; created if it does not exist.", writes=True)
    retention_hours: int | None = option(
        "Values that were stored longer ago are removed: set it above the topics' "
        "retention. By default none is.",
        name="retention.hours",
        default=None,
        minimum=1,
    )


class DirectoryClaimStore(ClaimStore):
    """Stores each value as a file, in a folder by the first digits of its name."""

    config_class = DirectoryConfig
    config: DirectoryConfig

    def __init__(self, config: DirectoryConfig) -> None:
        """Store nothing yet. The first value, and then one every hour, also deletes old values."""
        super().__init__(config)
        self._swept_s: float | None = None

    def put(self, name: str, content: bytes) -> str:
        """Write the file durably and atomically; return its path within the folder."""
        place = f"{name[:2]}/{name}"
        path = Path(self.config.path) / place
        try:
            write_durably(path, content)
        except OSError as error:
            raise ClaimLostError(str(error), place=str(path)) from error
        self._sweep()
        return place

    def get(self, place: str) -> bytes:
        """Read the file."""
        folder = Path(self.config.path)
        path = folder / place
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ClaimLostError("leads out of the folder", place=str(path))
        try:
            return path.read_bytes()
        except OSError as error:
            raise ClaimLostError(str(error), place=str(path)) from error

    def _sweep(self) -> None:
        """Delete old values; one that cannot be deleted is tried again after an hour."""
        hours = self.config.retention_hours
        now_s = time.time()  # The clock used for file times.
        if hours is None or (self._swept_s is not None and now_s - self._swept_s < _HOUR_S):
            return
        self._swept_s = now_s
        for path in Path(self.config.path).glob("[0-9a-f][0-9a-f]/*"):
            with suppress(OSError):
                if path.stat().st_mtime < now_s - hours * _HOUR_S:
                    path.unlink()


class LargeValues:
    """Handles large values as the sink's options say, except chunking, which the sink does."""

    def __init__(
        self,
        options: SinkOptions,
        bytes_max: int,
        store: ClaimStore | None,
        encode_one: Callable[[Record], tuple[Sequence[bytes | None], Sequence[bytes]]],
    ) -> None:
        """*encode_one* encodes a single truncated record in the sink's form."""
        self._options = options
        self._bytes_max = bytes_max
        self._store = store
        self._encode_one = encode_one
        self._cuttable_names: dict[bytes, Sequence[str]] = {}  # By schema id.

    def apply(self, encoded: EncodedRecords, batch: Batch) -> EncodedRecords:
        """Return *encoded*, the encoded *batch*, without values that are too large.

        Raises:
            ValueTooLargeError: the policy is to fail.
            RetriableError: the claim store cannot store a value.

        """
        values = encoded.values
        if bytes_of(values)[1] <= self._bytes_max:  # True for nearly every batch.
            return encoded
        made: list[bytes] = list(values)
        headers: list[Headers] = list(encoded.headers)
        cut: list[int] = []
        for index, value in enumerate(values):
            if len(value) <= self._bytes_max:
                continue
            match self._options.large_policy_of(encoded.tables[index]):
                case "fail":
                    raise ValueTooLargeError(
                        f"a value has {len(value)} bytes, allowed are {self._bytes_max}",
                        place=f"table {encoded.tables[index]}",
                        hint="set large.policy to handle large values otherwise",
                    )
                case "claim-check" if self._store is not None:
                    made[index], headers[index] = self._claimed(self._store, value, headers[index])
                case "truncate":
                    cut.append(index)
        if cut:
            sought = {(encoded.keys[index], values[index]) for index in cut}
            shorter = self._truncated(sought, {encoded.tables[index] for index in cut}, batch)
            for index in cut:
                made[index] = shorter.get((encoded.keys[index], values[index]), values[index])
        return msgspec.structs.replace(encoded, values=made, headers=headers)

    def _claimed(self, store: ClaimStore, value: bytes, headers: Headers) -> tuple[bytes, Headers]:
        digest = hashlib.sha256(value).hexdigest()
        place = store.put(digest[:_NAME_BYTES], value)
        claim = {"claim": place, "bytes": len(value), "sha256": digest}
        return json.dumps(claim).encode(), (*headers, (CLAIM_HEADER, place.encode()))

    def _truncated(
        self, sought: Collection[Pair], tables: Collection[str], batch: Batch
    ) -> Mapping[Pair, bytes]:
        """Return truncated values of the messages *sought*, of *tables*, if they then fit.

        A message is found by encoding its record again: transforms drop and add records, so indexes
        do not match. The largest records are tried first, because most messages sought are theirs.
        """
        records = [record for record in batch.records() if record.schema.table in tables]
        records.sort(key=lambda record: sum(self._cuttable(record).values()), reverse=True)
        left = set(sought)
        shorter: dict[Pair, bytes] = {}
        for record in records:
            if not left:
                break
            keys, values = self._encode_one(record)
            for number, pair in enumerate(zip(keys, values, strict=True)):
                if pair in left:
                    left.remove(pair)
                    shorter[pair] = self._fitted(record, number, len(values), pair[1])
        return shorter

    def _fitted(self, record: Record, number: int, count: int, whole: bytes) -> bytes:
        """Truncate the longest strings and bytes of *record* until it fits, or return *whole*.

        The value has index *number* among the *count* values of the record.
        """
        value = whole
        useless: set[str] = set()
        for _ in range(_CUTS_MAX):
            sizes = {name: n for name, n in self._cuttable(record).items() if name not in useless}
            longest = max(sizes, key=lambda name: sizes[name], default=None)
            if longest is None:
                return whole
            cut = record.changed(value=_cut(record.value, longest, len(value) - self._bytes_max))
            _, made = self._encode_one(cut)
            if len(made) != count or len(made[number]) >= len(value):
                useless.add(longest)  # A transform removes it from the message.
                continue
            record, value = cut, made[number]
            if len(value) <= self._bytes_max:
                return value
        return whole

    def _cuttable(self, record: Record) -> Mapping[str, int]:
        """Return the columns of a change that may be truncated, with their sizes in bytes."""
        schema = record.schema
        names = self._cuttable_names.get(schema.schema_id)
        if names is None:
            names = self._cuttable_names[schema.schema_id] = _strings_and_blobs(schema)
        sizes = {name: _size(record.value["payload"].get(name)) for name in names}
        return {name: size for name, size in sizes.items() if size >= _CUT_BYTES_MIN}


def _strings_and_blobs(schema: RecordSchema) -> Sequence[str]:
    """Return the columns of a change that may be truncated.

    Columns of the primary key must not be truncated, because they would name another row. Numbers
    and UUIDs must not, because they would have other values.
    """
    if field_of(schema.value, "truncatedFields") is None:
        return ()
    columns = Columns(schema)
    plain = (field["name"] for field in columns.fields if field["type"] in _CUT_TYPES)
    return [name for name in plain if name not in columns.key]


def _cut(value: Document, name: str, by: int) -> Document:
    """Return a change with column *name* truncated by about *by* bytes and listed.

    Blobs lose fewer bytes, because JSON needs four bytes for three of them. A string is cut between
    characters. A column that is shorter than *by* becomes empty.
    """
    payload: Mapping[str, Any] = value["payload"]
    column = payload[name]
    if isinstance(column, str):
        left = max(0, _size(column) - by - _MARGIN_BYTES)
        shorter: str | bytes = column.encode()[:left].decode(errors="ignore")
    else:
        shorter = column[: max(0, len(column) - by * 3 // 4 - _MARGIN_BYTES)]
    return {
        **value,
        "payload": {**payload, name: shorter},
        "truncatedFields": sorted({*value["truncatedFields"], name}),
    }


def _size(column: object) -> int:
    if isinstance(column, bytes):
        return len(column)
    return len(column.encode()) if isinstance(column, str) else 0


# For consumers.


def resolved(value: bytes, headers: Mapping[str, bytes], folder: Path) -> bytes:
    """Return a message's value, if necessary from the claim store's *folder*.

    Raises as `claimed`.
    """
    if CLAIM_HEADER not in headers:
        return value
    return claimed(value, DirectoryClaimStore(DirectoryConfig(path=str(folder))))


def claimed(value: bytes, store: ClaimStore) -> bytes:
    """Return the value that a message with the header of a claim has in its *store*.

    Raises:
        ClaimLostError: the store does not have the value, or has another one.
        MissingRequirementError: the store cannot be read.

    """
    try:
        claim = json.loads(value)
        place, digest = claim["claim"], claim["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ClaimLostError("the message has a claim's header, but no claim") from error
    if not isinstance(place, str):
        raise ClaimLostError("the message has a claim's header, but no claim")
    content = store.get(place)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ClaimLostError("holds something else", place=place)
    return content


class Reassembler:
    """Joins the chunks of values, message by message; one for each topic partition.

    It keeps incomplete values up to a limit. Beyond it, the value that has waited longest for a
    chunk is dropped: a producer that died while sending sends the whole value again.
    """

    def __init__(self, *, bytes_max: int = 256 * 1024 * 1024) -> None:
        """*bytes_max* limits the incomplete values."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._parts: OrderedDict[tuple[bytes, int], dict[int, bytes]] = OrderedDict()

    @property
    def waiting(self) -> frozenset[bytes]:
        """The ids of incomplete values."""
        return frozenset(chunk_id for chunk_id, _ in self._parts)

    def add(self, value: bytes, headers: Mapping[str, bytes]) -> bytes | None:
        """Return a whole value: of a plain message, or of chunks after the last one.

        Raises:
            BrokenChunkError: the headers of a chunk are incomplete.

        """
        chunk_id = headers.get(CHUNK_ID_HEADER)
        if chunk_id is None:
            return value
        index, count = _place(headers)
        name = chunk_id, count  # If it is sent again in other sizes, its chunks are separate.
        parts = self._parts.setdefault(name, {})
        self._parts.move_to_end(name)
        self._bytes += len(value) - len(parts.get(index, b""))
        parts[index] = value
        if len(parts) == count:
            whole = b"".join(parts[number] for number in range(count))
            if chunk_id_of(whole) == chunk_id:
                self._forget(name)
                return whole
            # The same number of chunks in other sizes: they replace the first attempt.
        while self._bytes > self._bytes_max and len(self._parts) > 1:
            self._forget(next(iter(self._parts)))
        return None

    def _forget(self, name: tuple[bytes, int]) -> None:
        self._bytes -= sum(map(len, self._parts.pop(name).values()))


def whole_messages(came: Iterable[Sequence[Stored]]) -> Iterator[Sequence[Stored]]:
    """Yield the messages of a topic partition, with the chunks of each value joined.

    The joined message is at the place of the last chunk. A chunk with incomplete headers is
    unchanged.
    """
    joiner = Reassembler()
    for messages in came:
        found = []
        for stored in messages:
            value = stored.value
            if value is not None and _are_of_a_chunk(stored.headers):
                with suppress(BrokenChunkError):
                    value = joiner.add(value, dict(stored.headers))
                if value is None:
                    continue
            found.append(stored if value is stored.value else stored._replace(value=value))
        yield found


@lru_cache(_HEADERS_MAX)
def _are_of_a_chunk(headers: Headers) -> bool:
    return CHUNK_ID_HEADER in dict(headers)


def _place(headers: Mapping[str, bytes]) -> tuple[int, int]:
    """Return the index of a chunk, and the number of chunks."""
    found = [headers.get(name, b"") for name in (CHUNK_INDEX_HEADER, CHUNK_COUNT_HEADER)]
    if not all(each.isdigit() and len(each) <= _DIGITS_MAX for each in found):
        raise BrokenChunkError(f"expected the index and the number of chunks, found {found}")
    index, count = map(int, found)
    if index >= count:
        raise BrokenChunkError(f"expected an index below {count}, found {index}")
    return index, count
