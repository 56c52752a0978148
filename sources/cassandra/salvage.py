"""What goes into quarantine with enough to read it again, and reading it again.

A mutation that did not fit its schema is tried with the schema of now. In the bytes of a damaged
part whole entries are looked for, which both their checksums vouch for.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from headrace.plugins import HeadraceError, Quarantined
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.changes import MutationDecoder
from headrace.sources.cassandra.epochs import Epoch
from headrace.sources.cassandra.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.intake import Outbox

_SIZE_MIN: Final = 10
_OVERHEAD: Final = 12


def set_aside(  # noqa: PLR0913 (where a mutation was, and what is wrong with it)
    code: str,
    message: str,
    *,
    node: str,
    segment: int,
    position: int,
    messaging: int,
    copies: int,
    raw: bytes,
) -> Quarantined:
    """Return a mutation that cannot be delivered as it goes into quarantine."""
    place = f"node {node}: segment {segment}: entry that ends at {position}"
    origin = {
        "node": node,
        "segment": segment,
        "position": position,
        "messaging": messaging,
        "copies": copies,
    }
    return Quarantined(place, code, message, raw, origin=origin)


def mail_set_aside(
    outbox: Outbox, base: int, nodes: Sequence[str], error: HeadraceError
) -> Quarantined:
    """Return the mutation whose numbers stand at *base* of an outbox, as `set_aside` does."""
    meta = memoryview(outbox.meta)[base : base + codes.MAIL_WIDTH].tolist()
    return set_aside(
        error.code,
        str(error),
        node=nodes[meta[codes.MAIL_HOST]],
        segment=meta[codes.MAIL_SEGMENT],
        position=meta[codes.MAIL_POSITION],
        messaging=meta[codes.MAIL_MESSAGING],
        copies=meta[codes.MAIL_COPIES],
        raw=bytes(outbox.data[meta[codes.MAIL_START] : meta[codes.MAIL_END]]),
    )


def salvaged(lost: Quarantined, epoch: Epoch) -> Outbox | None:
    """Return the mutations in what was quarantined; None if there are none.

    They are read as of *epoch*; those of damaged parts only where it has their first table: a
    part has others too.
    """
    origin = lost.origin
    if not origin.get("messaging"):
        return None
    outbox = Outbox()
    segment, messaging = int(origin["segment"]), int(origin["messaging"])
    found = [(lost.content, int(origin["position"]))]
    if "begin" in origin:
        begin = int(origin["begin"])
        whole = whole_entries(lost.content)
        found = [(raw, begin + end) for raw, end in whole if _known(raw, messaging, epoch.decoder)]
    for raw, position in found:
        copies = int(origin["copies"])
        outbox.append(raw, 0, len(raw), 0, segment, position, copies, messaging, epoch.number)
    return outbox if outbox.count else None


def whole_entries(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the mutations in *content* whose sizes and checksums are right, and where they end."""
    view = memoryview(content)
    at = 0
    while at + _OVERHEAD + _SIZE_MIN <= len(view):
        size = int.from_bytes(view[at : at + 4], "big")
        end = at + _OVERHEAD + size
        if size >= _SIZE_MIN and end <= len(view) and _vouched(view, at, end):
            yield bytes(view[at + 8 : end - 4]), end
            at = end
        else:
            at += 1


def _vouched(view: memoryview, at: int, end: int) -> bool:
    crc = zlib.crc32(view[at : at + 4])
    if crc != int.from_bytes(view[at + 4 : at + 8], "big"):
        return False
    return zlib.crc32(view[at + 8 : end - 4], crc) == int.from_bytes(view[end - 4 : end], "big")


def _known(raw: bytes, messaging: int, decoder: MutationDecoder) -> bool:
    try:
        decoder.decode(raw, messaging=messaging, segment_id=0, position=0)
    except UnknownTableError:
        return False
    except BadMutationError:  # Told of when its records are made.
        return True
    return True
