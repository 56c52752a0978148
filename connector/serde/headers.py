"""Headers of messages: constant ones, made once per schema and lease, and record headers.

A constant list costs nothing per record. Every other header costs about as much as encoding a
record, so a sink requests these by name. `reshape` makes the headers of changes.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headrace.plugins import Headers, Origin, Record
from headrace.plugins.records.codecs import (
    CHUNK_COUNT_HEADER,
    CHUNK_ID_HEADER,
    CHUNK_INDEX_HEADER,
    CLAIM_HEADER,
    CONSTANT_HEADERS,
    CONTROL_HEADER,
    SCHEMA_ID_HEADER,
    record_headers,
)

# Headers that messages receive after the transforms, so transforms do not see them.
LATE_HEADERS: Final = frozenset(
    {
        *CONSTANT_HEADERS,
        "__key_schema_id",
        "__value_schema_id",
        CLAIM_HEADER,
        CHUNK_ID_HEADER,
        CHUNK_INDEX_HEADER,
        CHUNK_COUNT_HEADER,
        CONTROL_HEADER,
    }
)
_SPAN_HEX: Final = 16
_SAMPLED: Final = "01"


class ConstantHeaders:
    """Replaces the header with the schema id by the wanted constant headers; for one thread."""

    def __init__(self, wanted: Sequence[str]) -> None:
        """Add the constant headers of *wanted*, in this order."""
        self._wanted = [name for name in CONSTANT_HEADERS if name in wanted]
        self._token = -1
        self._made: dict[tuple[str, bytes], Headers] = {}

    def give(
        self, headers: Sequence[Headers], tables: Sequence[str], token: int
    ) -> Sequence[Headers]:
        """Return the headers of records of *tables*, read under the fencing *token*."""
        if self._wanted == [SCHEMA_ID_HEADER] or not headers:
            return headers
        if token != self._token:
            self._token = token
            self._made.clear()
        first = headers[0]
        if len(first) == 1 and headers.count(first) == len(headers):  # Nearly every batch.
            return [self._of(tables[0], first)] * len(headers)
        given: list[Headers] = []
        before: Headers | None = None
        made: Headers = ()
        for each, table in zip(headers, tables, strict=True):
            if each is not before:
                before = each
                made = self._of(table, each)
            given.append(made)
        return given

    def _of(self, table: str, headers: Headers) -> Headers:
        schema_id = headers[0][1]
        made = self._made.get((table, schema_id))
        if made is None:
            contents = {
                SCHEMA_ID_HEADER: schema_id,
                "table": table.encode(),
                "keyspace": table.partition(".")[0].encode(),
                "token": b"%d" % self._token,
            }
            made = tuple((name, contents[name]) for name in self._wanted)
            self._made[table, schema_id] = made
        return made + headers[1:] if len(headers) > 1 else made


class RecordHeaders:
    """Makes the wanted headers that differ between records."""

    def __init__(self, wanted: Sequence[str], origin: Origin) -> None:
        """Make the headers of *wanted* that are facts of a record; the source has *origin*."""
        self._makers = [
            (name, _MAKERS.get(name) or _stated(name))
            for name in record_headers(origin)
            if name in wanted
        ]

    def __bool__(self) -> bool:
        """Return whether any header is wanted."""
        return bool(self._makers)

    def of(self, record: Record) -> Headers:
        """Return the headers for which *record* has the facts."""
        made = ((name, make(record)) for name, make in self._makers)
        return tuple((name, content) for name, content in made if content is not None)


def _stated(name: str) -> "_Maker":
    def make(record: Record) -> bytes | None:
        fact = record.origin.get(name, record.value.get(name))
        if fact is None:
            return None
        return (fact.hex() if isinstance(fact, bytes) else str(fact)).encode()

    return make


def _traceparent(record: Record) -> bytes | None:
    """Return W3C's header: the mutation is the trace, the change is a span."""
    mutation = record.value.get("mutation")
    if not isinstance(mutation, bytes):
        return None
    index = b"%d" % record.value["index"]
    span = hashlib.sha256(mutation + index).hexdigest()[:_SPAN_HEX]
    return f"00-{mutation.hex()}-{span}-{_SAMPLED}".encode()


_Maker = Callable[[Record], bytes | None]
_MAKERS: Final[Mapping[str, _Maker]] = {
    "op": lambda record: record.operation.value.encode(),
    "timestamp": lambda record: b"%d" % record.timestamp_us,
    "traceparent": _traceparent,
}
