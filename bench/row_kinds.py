"""Rows of other kinds than plain inserts, made of recorded ones: the same cells, in other forms."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.recordings import Recording, mutations_of
from headrace.sources.cassandra.forge.segments import write_log
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue

KINDS: Final = ("insert", "update", "expiring")  # The last is an insert with a TTL.
ROWS_MAX: Final = 20_000
_MESSAGING: Final = 12
_FIRST_ID: Final = 1_790_000_100_000
_TTL: Final = b"\xf0\x00\x01\x51\x80"  # A day, as an unsigned vint.
_EXPIRING: Final = constants.USE_ROW_TIMESTAMP | constants.USE_ROW_TTL | constants.IS_EXPIRING


def write_kinds(recording: Recording, folder: Path) -> Mapping[str, Path]:
    """Write a log of each kind into *folder*, from the first rows of a recording of inserts."""
    inserts = mutations_of(recording.schema)[: min(ROWS_MAX, recording.mutations)]
    cutter = Cutter(Catalogue(parse_schema(recording.schema.read_text())))
    logs = {kind: folder / kind for kind in KINDS}
    for kind, log in logs.items():
        rows = [_row_of_kind(raw, cutter, kind) for raw in inserts]
        write_log(log, rows, first_id=_FIRST_ID)
    return logs


def _row_of_kind(raw: bytes, cutter: Cutter, kind: str) -> bytes:
    """Return an insert of one row, whose cells have its write time, as another *kind* of row."""
    if kind == "insert":
        return raw
    count = cutter.cut(raw, 0, len(raw), _MESSAGING)
    words = cutter.operations
    operations = [words[i * constants.WIDTH : (i + 1) * constants.WIDTH] for i in range(count)]
    at = _row_flags_at(raw, operations[0])
    flags = raw[at]
    values = [op for op in operations if op[0] == constants.VALUE]
    key_end = values[-1][constants.START] + values[-1][constants.LENGTH] if values else at + 1
    cells_at = _behind(raw, key_end)
    written = raw[key_end:cells_at]
    if kind == "update":
        flags, times, mark = flags & ~constants.HAS_TIMESTAMP, b"", b"\0" + written
    else:
        flags, times, mark = flags | constants.HAS_TTL, written + 2 * _TTL, bytes([_EXPIRING])
    made = [raw[:at], bytes([flags]), raw[at + 1 : key_end], times]
    at = cells_at
    for op in operations:
        if op[0] == constants.COMPLEX:
            parts = 3 if flags & constants.HAS_COMPLEX_DELETION else 1  # Times; the cells' number.
            end = at
            for _ in range(parts):
                end = _behind(raw, end)
            made.append(raw[at:end])
        elif op[0] == constants.CELL:
            end = op[constants.START] + op[constants.LENGTH]
            empty = raw[at] & constants.HAS_EMPTY_VALUE
            made += [bytes([mark[0] | empty]), mark[1:], raw[at + 1 : end]]
        else:
            continue
        at = end
    return b"".join([*made, raw[at:]])


def _row_flags_at(raw: bytes, update: memoryview) -> int:
    """Return where the flags of the first row are, behind bases, columns and the estimate."""
    at = update[constants.START] + update[constants.LENGTH] + 1
    for _ in range(3):
        at = _behind(raw, at)
    columns, at = raw[at], at + 1
    for _ in range(columns):
        at += 1 + raw[at]
    return _behind(raw, at)


def _behind(raw: bytes, at: int) -> int:
    """Return where the vint at raw[at] ends."""
    return at + 1 + (8 - (raw[at] ^ 0xFF).bit_length())
