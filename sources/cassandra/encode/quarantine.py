"""Makes quarantined mutations, with the data for reading them again, and reads them again.

A mutation that did not fit its schema is decoded with the current schema. The bytes of a damaged
part are searched for complete entries with two correct checksums.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from headrace.plugins import HeadraceError, Quarantined
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.mutation.changes import MutationDecoder
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.schema_versions.epochs import Epoch

_SIZE_MIN: Final = 10
_OVERHEAD: Final = 12


def set_aside(  # noqa: PLR0913 (a mutation's place, and its error)
    code: str,
    message: str,
    *,
    node: str,
    segment: int,
    position: int,
    messaging: int,
    copies: int,
    raw: bytes,
    checksum: int = 0,
) -> Quarantined:
    """Return the quarantine entry of a mutation that cannot be delivered."""
    place = f"node {node}: segment {segment}: entry that ends at {position}"
    origin = {
        "node": node,
        "segment": segment,
        "position": position,
        "messaging": messaging,
        "copies": copies,
    }
    return Quarantined(place, code, message, raw, origin=origin, checksum=checksum)


def quarantined_mutation(
    agreed: AgreedMutations, base: int, nodes: Sequence[str], error: HeadraceError
) -> Quarantined:
    """Return the agreed mutation whose fields start at *base*, as `set_aside` does."""
    meta = memoryview(agreed.meta)[base : base + constants.AGREED_WIDTH].tolist()
    return set_aside(
        error.code,
        str(error),
        node=nodes[meta[constants.AGREED_HOST]],
        segment=meta[constants.AGREED_SEGMENT],
        position=meta[constants.AGREED_POSITION],
        messaging=meta[constants.AGREED_MESSAGING],
        copies=meta[constants.AGREED_COPIES],
        raw=bytes(agreed.data[meta[constants.AGREED_START] : meta[constants.AGREED_END]]),
        checksum=ops.checksum_of(agreed.meta, base + constants.AGREED_DIGEST),
    )


def salvaged(lost: Quarantined, epoch: Epoch) -> AgreedMutations | None:
    """Return the mutations in quarantined bytes; None if there are none.

    They are read with the schema of *epoch*. Mutations of damaged parts are returned only if it has
    their first table: a damaged part also has mutations of other tables.
    """
    origin = lost.origin
    if not origin.get("messaging"):
        return None
    agreed = AgreedMutations()
    segment, messaging = int(origin["segment"]), int(origin["messaging"])
    found = [(lost.content, int(origin["position"]))]
    if "begin" in origin:
        begin = int(origin["begin"])
        whole = whole_entries(lost.content)
        found = [(raw, begin + end) for raw, end in whole if _known(raw, messaging, epoch.decoder)]
    for raw, position in found:
        copies = int(origin["copies"])
        # Nothing agreed on it now, so it has no digest.
        agreed.append(raw, 0, len(raw), 0, segment, position, copies, messaging, epoch.number, 0, 0)
    return agreed if agreed.count else None


def whole_entries(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the mutations in *content* with correct sizes and checksums, and their ends."""
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
    except BadMutationError:  # Reported when its records are made.
        return True
    return True
