"""The two recordings of bench/data, prepared to be read: unpacked, with their other replicas.

The logs of nodes 2 and 3 are forged from node 1's entries: the same mutation bytes in segments of
other ids, in an order a little different, as replicas have them.
"""

import os
import random
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.commitlog.segment import parse_name
from headrace.sources.cassandra.commitlog.unwrap import Workspace
from headrace.sources.cassandra.forge.segments import SegmentWriter, write_log, write_segment
from headrace.sources.cassandra.forge.wrapping import compression
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.ddl import parse_schema

DATA: Final = Path(__file__).parent / "data"
SHUFFLE_WINDOW: Final = 200  # Entries; about how far apart replicas log the same mutation.
LZ4_SECTION_BYTES: Final = 4 * 1024 * 1024
_NO_KEYS: Final = Keys(KeyOptions())
_WORKSPACE: Final = Workspace()
_KEY_AT: Final = 18  # Behind the count of updates, the table's id and the key's length.
_KEY_END: Final = _KEY_AT + 4  # Of the part that differs.
_FIRST_ID: Final = 1_790_000_000_000
_FACTOR: Final = re.compile(r"('replication_factor': )\d+")


@dataclass(frozen=True, slots=True)
class Recording:
    """Logs of one table, and what is known of them. Each node's log holds all mutations."""

    name: str
    schema: Path
    nodes: dict[str, Path]
    lz4: Path  # The first node's log, as it is with LZ4 compression.
    empty_nodes: dict[str, Path]
    consistency: str
    mutations: int
    mutation_bytes: float

    @property
    def log(self) -> Path:
        """The log of the first node."""
        return next(iter(self.nodes.values()))


def prepare(  # noqa: PLR0913 (what a recording is made of)
    name: str,
    folder: Path,
    *,
    replicas: int,
    consistency: str,
    mutations_max: int | None,
    times: int = 1,
) -> Recording:
    """Unpack recording *name* into *folder* and forge the logs that it does not have.

    Its keyspace has so many *replicas*.

    With *mutations_max* every log is forged, from so many mutations; so it is with *times*, from
    each mutation so often, every time with another key.
    """
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        # Python 3.11.0 to 3.11.3 extract without a filter and know no other way.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder / "unpacked")  # noqa: S202 (archives of this repository)
    (schema,) = (folder / "unpacked").rglob("schema.cql")
    schema.write_text(_FACTOR.sub(rf"\g<1>{replicas}", schema.read_text()))
    recorded = mutations_of(schema)[:mutations_max]
    entries = [with_key(each, number) for number in range(times) for each in recorded]
    forged = range(1 if mutations_max or times > 1 else 2, replicas + 1)
    nodes = {"node1": schema.parent / "segments" / "node1"}
    for number in forged:
        node = f"node{number}"
        nodes[node] = folder / "forged" / node
        order = entries if number == 1 else shuffled(entries, seed=number)
        write_log(nodes[node], order, first_id=_FIRST_ID + 1_000 * number)
    empty_nodes = {node: folder / "empty" / node for node in nodes}
    for number, path in enumerate(empty_nodes.values()):
        write_log(path, [], first_id=_FIRST_ID + 1_000 * number)
    _write_lz4(folder / "lz4", entries)
    return Recording(
        name,
        schema,
        nodes,
        folder / "lz4",
        empty_nodes,
        consistency,
        mutations=len(entries),
        mutation_bytes=round(sum(map(len, entries)) / len(entries), 1),
    )


def segments(folder: Path) -> list[Path]:
    """Return the segments in *folder* by id."""
    named = [(parsed[1], path) for path in folder.iterdir() if (parsed := parse_name(path.name))]
    return [path for _, path in sorted(named)]


def each_segment(framer: Framer, folder: Path) -> Iterator[None]:
    """Let *framer* begin to read each segment in *folder*, one after another."""
    for path in segments(folder):
        descriptor = os.open(path, os.O_RDONLY)
        open_segment(
            framer,
            partial(_read_into, descriptor),
            keys=_NO_KEYS,
            place=path.name,
            workspace=_WORKSPACE,
        )
        yield
        os.close(descriptor)


def _read_into(descriptor: int, offset: int, buffer: memoryview) -> int:
    return os.preadv(descriptor, [buffer], offset)


def mutations_of(schema: Path) -> list[bytes]:
    """Return node 1's mutations of the recorded table."""
    (table,) = parse_schema(schema.read_text()).tables
    found = []
    framer = Framer()
    for _ in each_segment(framer, schema.parent / "segments" / "node1"):
        while framer.next_entry() == constants.ENTRY:
            entry = framer.entry()
            if entry[1:17] == table.bytes:  # After the count of updates, which is 1.
                found.append(entry)
    return found


def with_key(entry: bytes, number: int) -> bytes:
    """Return *entry* with a key of its own, for each *number* of 32 bits; 0 leaves it as it is.

    The first bytes of the key differ: the last ones of recorded keys count up.
    """
    key = int.from_bytes(entry[_KEY_AT:_KEY_END], "big") ^ number
    return entry[:_KEY_AT] + key.to_bytes(_KEY_END - _KEY_AT, "big") + entry[_KEY_END:]


def _write_lz4(folder: Path, entries: Sequence[bytes]) -> None:
    """Write *entries* as one LZ4 segment of large sections, as a busy node's periodic syncs do."""
    writer = SegmentWriter(segment_id=_FIRST_ID, wrapping=compression("LZ4Compressor"))
    for entry in entries:
        writer.add(entry)
        if writer.unsynced >= LZ4_SECTION_BYTES:
            writer.sync()
    writer.sync()
    write_segment(folder, writer.forged().content, segment_id=_FIRST_ID)


def shuffled(entries: Sequence[bytes], *, seed: int) -> list[bytes]:
    """Return *entries* in another order, no entry more than SHUFFLE_WINDOW places from its own."""
    places = random.Random(seed)  # noqa: S311 (the same order in every run, not a secret)
    order = sorted(range(len(entries)), key=lambda place: place + places.random() * SHUFFLE_WINDOW)
    return [entries[place] for place in order]
