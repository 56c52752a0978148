"""The messages of a delivery: one per record, and sometimes a tombstone or chunks."""

from collections.abc import Callable, Sequence

import msgspec

from headrace.plugins import EncodedRecords, Headers
from headrace.plugins.records.codecs import (
    CHUNK_COUNT_HEADER,
    CHUNK_ID_HEADER,
    CHUNK_INDEX_HEADER,
    chunk_id_of,
)


class Messages(msgspec.Struct, frozen=True):
    """Messages in columns; `owners[i]` is the record of message i; None: message i is record i.

    `topic_of` returns the topic of `places[i]`, which is its record's table, or the topic itself.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]
    places: Sequence[str]
    records: int
    topic_of: Callable[[str], str]
    owners: Sequence[int] | None = None

    def owner(self, number: int) -> int:
        """Return the index of the record of message *number*."""
        return number if self.owners is None else self.owners[number]

    def topic(self, number: int) -> str:
        """Return the topic of message *number*."""
        return self.topic_of(self.places[number])


def messages_of(
    encoded: EncodedRecords,
    *,
    topic_of: Callable[[str], str],
    chunk_bytes: int | None,
    is_chunked: Callable[[str], bool],
) -> Messages:
    """Return the messages of *encoded*; *topic_of* returns the topic of a table.

    A value of more than *chunk_bytes*, of a table that *is_chunked*, is sent in parts of that size;
    None if no table is.
    """
    places = encoded.tables
    if encoded.topics is not None:
        places, topic_of = encoded.topics, str  # Unchanged.
    values, count = encoded.values, len(encoded)
    large = bool(values) and chunk_bytes is not None and max(map(len, values)) > chunk_bytes
    if not large and not encoded.tombstones:  # Nearly every delivery.
        return Messages(encoded.keys, values, encoded.headers, places, count, topic_of)
    buried = frozenset(encoded.tombstones)
    rows: list[tuple[int, bytes | None, Headers]] = []
    for index, value in enumerate(values):
        headers = encoded.headers[index]
        if (
            chunk_bytes is not None
            and len(value) > chunk_bytes
            and is_chunked(encoded.tables[index])
        ):
            rows += [(index, part, more) for part, more in _chunks(value, headers, chunk_bytes)]
        else:
            rows.append((index, value, headers))
        if index in buried:
            rows.append((index, None, headers))
    owners = [index for index, _, _ in rows]
    return Messages(
        keys=[encoded.keys[index] for index in owners],
        values=[value for _, value, _ in rows],
        headers=[headers for _, _, headers in rows],
        places=[places[index] for index in owners],
        records=count,
        topic_of=topic_of,
        owners=owners,
    )


def _chunks(value: bytes, headers: Headers, chunk_bytes: int) -> Sequence[tuple[bytes, Headers]]:
    parts = [value[start : start + chunk_bytes] for start in range(0, len(value), chunk_bytes)]
    chunk_id = chunk_id_of(value)
    return [
        (
            part,
            (
                *headers,
                (CHUNK_ID_HEADER, chunk_id),
                (CHUNK_INDEX_HEADER, b"%d" % number),
                (CHUNK_COUNT_HEADER, b"%d" % len(parts)),
            ),
        )
        for number, part in enumerate(parts)
    ]
