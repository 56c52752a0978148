"""Opens a segment's bytes, of any origin: header, wrapping, framer."""

import weakref
from collections.abc import Callable
from typing import Final

from headrace.sources.cassandra.commitlog.compression import LZ4, compressor
from headrace.sources.cassandra.commitlog.encryption import SectionCipher
from headrace.sources.cassandra.commitlog.framer import Framer, ReadInto
from headrace.sources.cassandra.commitlog.manifest import file_of
from headrace.sources.cassandra.commitlog.segment import (
    Compression,
    Descriptor,
    Encryption,
    header_length,
    parse_descriptor,
)
from headrace.sources.cassandra.commitlog.unwrap import Unpack, Unwrapped, Workspace
from headrace.sources.cassandra.errors import CorruptSegmentError, SegmentKeyError
from headrace.sources.cassandra.keystore.keys import Keys

_START_BYTES: Final = 14  # The part of a header that contains its length.


def open_segment(  # noqa: PLR0913 (a segment, and the start of reading)
    framer: Framer,
    read_into: ReadInto,
    *,
    keys: Keys,
    place: str,
    resume: int = 0,
    segment_id: int | None = None,
    workspace: Workspace | None = None,
) -> tuple[Descriptor, ReadInto]:
    """Read a segment's header and set *framer* to its first sync marker.

    Returns the header, and a function that reads the segment at logical positions: forwards only,
    from the framer's position. *read_into* is called with ascending offsets. Entries that end at or
    before *resume* are skipped. *segment_id* is the segment's number. Errors name the segment
    *place*; inside a compressed or encrypted one, `<place>, unpacked`, with logical positions. A
    caller that reads many segments in turn passes a *workspace*.

    Raises:
        CorruptSegmentError: the header is damaged, or is not that of segment *segment_id*.
        UnsupportedSegmentError: the version, the compressor, or the cipher is not supported.
        SegmentKeyError: the segment is encrypted, and its key is missing.

    """
    descriptor = parse_descriptor(_header(read_into), place=place)
    number = descriptor.segment_id if segment_id is None else segment_id
    if descriptor.segment_id != file_of(number):
        raise CorruptSegmentError(
            f"the header says segment {descriptor.segment_id}",
            place=f"{place}: byte 4",
            hint="the file was renamed or overwritten",
        )
    logical = read_into
    if descriptor.wrapping is not None:
        unpack, growth_max = _unpacking(descriptor.wrapping, keys, f"{place}: byte {_START_BYTES}")
        logical = Unwrapped(
            read_into,
            descriptor,
            unpack,
            growth_max=growth_max,
            resume=resume,
            expects=_expects(framer),
            workspace=workspace or Workspace(),
            place=place,
        ).read_into
    framer.open(
        logical,
        segment_id=number,
        header_bytes=descriptor.header_bytes,
        messaging=descriptor.messaging,
        resume=resume,
        place=f"{place}, unpacked" if descriptor.wrapping else place,
        by_section=descriptor.wrapping is not None,
    )
    return descriptor, logical


def _header(read_into: ReadInto) -> bytes:
    """Return the header, or the existing part of it."""
    start = _read(read_into, 0, _START_BYTES)
    if len(start) < _START_BYTES:
        return start
    return start + _read(read_into, _START_BYTES, header_length(start) - _START_BYTES)


def _read(read_into: ReadInto, at: int, size: int) -> bytes:
    room = memoryview(bytearray(size))
    count = 0
    while count < size and (came := read_into(at + count, room[count:])):
        count += came
    return bytes(room[:count])


def _unpacking(wrapping: Compression | Encryption, keys: Keys, place: str) -> tuple[Unpack, int]:
    """Return the function that unpacks a section, and the largest growth of a packed byte."""
    if isinstance(wrapping, Compression):
        found = compressor(wrapping.class_name, place=place)
        return found.unpack, found.growth_max
    try:
        key = keys.key(wrapping.alias)
    except SegmentKeyError as error:
        error.place = place
        raise
    return SectionCipher(key, wrapping.iv).unpack, LZ4.growth_max


def _expects(framer: Framer) -> Callable[[], int | None]:
    """Return a function for how far *framer* expects sections; it holds only a weak reference.

    Its result is None while the framer waits for more.
    """
    held = weakref.ref(framer)

    def expects() -> int | None:
        alive = held()
        if alive is None:
            return 0
        return None if alive.limit >= 0 else alive.durable

    return expects
