"""Divides submitted records by a history's parts, and converts them to bytes and back."""

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

import msgspec

from headrace.connector.history.store.contract import HistoryStore
from headrace.plugins import EncodedRecords
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER
from headrace.plugins.records.encoded import Facts

_Stretch = tuple[bytes, list[bytes | None], list[bytes]]
_NONE: Final = memoryview(array("q"))
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(list[_Stretch]).decode


def divided(encoded: EncodedRecords, file: HistoryStore) -> Sequence[EncodedRecords]:
    """Return the records of each part of *file*, in order, with the facts that it needs."""
    parts, buckets = len(file.parts), file.buckets
    if parts == 1:
        return [encoded]
    of_bucket = [bucket % parts for bucket in range(buckets)]
    indexes: list[list[int]] = [[] for _ in range(parts)]
    for index, key in enumerate(encoded.keys):
        indexes[of_bucket[crc32(key or b"") % buckets]].append(index)
    is_one = len({*map(id, encoded.headers)}) == 1
    return [
        msgspec.structs.replace(
            encoded,
            keys=_chosen(encoded.keys, mine),
            values=_chosen(encoded.values, mine),
            headers=[encoded.headers[0]] * len(mine) if is_one else _chosen(encoded.headers, mine),
            tables=[encoded.tables[0]] * len(mine) if mine else [],
            tombstones=(),
            topics=None,
            left={},
            facts=encoded.facts and _facts(encoded.facts, mine),
            checksums=None,
        )
        for mine in indexes
    ]


def schemas_of(encoded: EncodedRecords) -> list[bytes]:
    """Return the ids of the schemas that records name, in order."""
    used = {id(headers): headers for headers in encoded.headers}
    return [dict(headers).get(SCHEMA_ID_HEADER, b"") for headers in used.values()]


def content_of(submitted: Sequence[EncodedRecords]) -> bytes:
    """Return records as bytes, each with the id of its schema."""
    made: list[_Stretch] = []
    for each in submitted:
        begin = 0
        for headers, same in groupby(each.headers):
            end = begin + sum(1 for _ in same)
            schema_id = dict(headers)[SCHEMA_ID_HEADER]
            made.append((schema_id, list(each.keys[begin:end]), list(each.values[begin:end])))
            begin = end
    return _ENCODE(made)


def records_of(content: bytes, table: str) -> Iterator[EncodedRecords]:
    """Yield the records from the result of `content_of`."""
    for schema_id, keys, values in _DECODE(content):
        headers = ((SCHEMA_ID_HEADER, schema_id),)
        yield EncodedRecords(keys, values, [headers] * len(keys), [table] * len(keys))


def _facts(facts: Facts, indexes: list[int]) -> Facts:
    """Return the chosen write times and operations."""
    times, operations = (
        memoryview(array("q", _chosen(each, indexes)))
        for each in (facts.timestamps_us, facts.operations)
    )
    return Facts(timestamps_us=times, operations=operations, indexes=_NONE, mutations=_NONE)


def _chosen(values: Sequence[Any], indexes: list[int]) -> list[Any]:  # Any: of any type.
    if len(indexes) < 2:  # noqa: PLR2004 (an itemgetter of one returns no tuple)
        return [values[index] for index in indexes]
    return list(itemgetter(*indexes)(values))
