"""Any bytes at all: they are read, or refused by one of our errors; never slowly, never otherwise.

Runs a few rounds of examples, or for as many seconds as HEADRACE_FUZZ_SECONDS says (`make fuzz`),
over the same bytes each time unless HEADRACE_FUZZ_SEED is 0. What fails is shrunk and printed with
the line that does it again.
"""

import io
import itertools
import json
import os
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.connector.runtime.books.equations import SplitBooks, differences
from headrace.plugins import HeadraceError
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.commitlog.segment import parse_name
from headrace.sources.cassandra.encode.transcode import Transcoder
from headrace.sources.cassandra.errors import CorruptSegmentError, WrongKeyError
from headrace.sources.cassandra.forge.mutations import MESSAGING
from headrace.sources.cassandra.forge.segments import segment, write_segment
from headrace.sources.cassandra.forge.wrapping import PLAIN, Wrapping, compression, encryption
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.log import LogEntries, LogHandler, read_log
from headrace.sources.cassandra.mutation.change_json import change_document
from headrace.sources.cassandra.mutation.changes import Mutation, MutationDecoder
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.mutation.mutation_json import mutation_document
from headrace.sources.cassandra.reading.deliveries import Deliveries
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import Schema
from headrace.sources.cassandra.schema_versions.epochs import Epoch
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from helpers.logs.forged import SCHEMA, insert
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.logs.sample_log import segments
from helpers.recordings.corpora import recording

SECONDS = float(os.environ.get("HEADRACE_FUZZ_SECONDS", "0"))
ROUNDS_MIN = 2  # However fast the machine is: without seconds, these are all.
SEED = int(os.environ.get("HEADRACE_FUZZ_SEED", "1"))  # 0 is another one each time.
pytestmark = pytest.mark.timeout(900 + SECONDS)
SLOWER_MAX = 10  # Times the clean rate, with
GRACE_SECONDS = 0.05  # for what the machine does meanwhile.
TRIES = 3
MEMORY_MAX = 64 * 1024 * 1024  # More than before, for any claim of the bytes.
PER_RECORDING = 40
KEY = bytes(range(16))
KEYS = Keys(KeyOptions(raw_key=KEY.hex()))
WRAPPINGS: Sequence[Wrapping] = (
    PLAIN,
    *(compression(f"{n}Compressor") for n in ("LZ4", "Snappy", "Deflate", "Zstd", "Noop")),
    encryption(KEY, "testing:1", bytes(16)),
)
# Numbers that lengths, counts and times break at.
EDGES = [
    *(bytes([b]) for b in (0, 1, 0x7F, 0x80, 0xFE, 0xFF)),
    *(bytes.fromhex(h) for h in ("7fffffff", "80000000", "ffffffff", "f0ffffffff", "f07fffffff")),
    *(bytes.fromhex(h) for h in ("ff" * 9, "ff80" + "00" * 7, "ff7f" + "ff" * 7, "c0" * 4)),
]


@dataclass(frozen=True)
class Seed:
    """Mutations of one recording, and what it takes to read them."""

    schema: Schema
    version: int
    raws: tuple[bytes, ...]


class Everything(LogHandler):
    """Continues after each error, and makes of each mutation all that can be made."""

    def on_mutation(self, mutation: Mutation) -> None:
        """Show it in both forms."""
        json.dumps(mutation_document(mutation))
        with suppress(HeadraceError):
            for change in mutation.changes():
                json.dumps(change_document(change))

    def on_bad_mutation(self, error: BadMutationError) -> None:
        """Continue."""

    def on_damage(self, error: CorruptSegmentError) -> None:
        """Continue."""

    def on_unknown_table(self, error: UnknownTableError) -> None:
        """Continue."""


@lru_cache
def seeds() -> Sequence[Seed]:
    """Return some mutations of each kind and version; the forged ones are the simplest."""
    found = [Seed(parse_schema(SCHEMA), 7, (insert(b"k", b"v"), insert(b"k" * 30, b"w" * 90)))]
    for name in ("4.0-types", "5.0-v8-ops", "6.0-v9-random", "5.0-compact"):
        folder = recording(name)
        schema = parse_schema((folder / "schema.cql").read_text())
        raws: list[bytes] = []
        for path in segments(folder / "segments"):
            version = (parse_name(path.name) or (0, 0))[0]
            with path.open("rb") as stream:
                raws += [raw for raw in LogEntries(stream) if _is_known(schema, raw, version)]
        step = max(1, len(raws) // PER_RECORDING)
        found.append(Seed(schema, version, tuple(raws[::step])))
    return found


def _is_known(schema: Schema, raw: bytes, version: int) -> bool:
    try:
        MutationDecoder(Catalogue(schema)).decode(
            raw, messaging=MESSAGING[version], segment_id=0, position=0
        )
    except HeadraceError:
        return False
    return len(raw) < 4096


@dataclass(frozen=True)
class Edit:
    """A change somewhere in bytes: *place* is a part of 65536 of their length."""

    place: int
    kind: str
    with_: bytes
    length: int

    def of(self, content: bytes) -> bytes:
        """Return *content* with the change."""
        at = self.place * len(content) >> 16
        match self.kind:
            case "flip":
                edges = self.with_[0] or 1
                return content[:at] + bytes([content[at] ^ edges]) + content[at + 1 :]
            case "put":
                return content[:at] + self.with_ + content[at + len(self.with_) :]
            case "insert":
                return content[:at] + self.with_ + content[at:]
            case "cut":
                return content[:at] + content[at + self.length :]
            case "end":
                return content[:at]
            case _:
                return content[: at + self.length] + content[at:]


edits = st.lists(
    st.builds(
        Edit,
        st.integers(0, 65535),
        st.sampled_from(["flip", "put", "insert", "cut", "end", "repeat"]),
        st.one_of(st.sampled_from(EDGES), st.binary(min_size=1, max_size=9)),
        st.integers(1, 64),
    ),
    min_size=1,
    max_size=6,
)


def spoil(content: bytes, changes: Sequence[Edit]) -> bytes:
    """Return *content* after all changes."""
    for change in changes:
        if content:
            content = change.of(content)
    return content


def read_all(content: bytes, seed: Seed) -> None:
    """Read a segment and everything in it."""
    with suppress(HeadraceError):  # Of the header.
        read_log(io.BytesIO(content), seed.schema, Everything(), keys=KEYS)


@lru_cache
def transcoder(number: int) -> tuple[Transcoder, Epoch]:
    """Return what the live path encodes a seed's mutations with, and their epoch."""
    deliveries = Deliveries((), lambda _keyspace: 0)
    epoch = deliveries.epochs.of(seeds()[number].schema)
    deliveries.routes_of(epoch)
    return Transcoder(deliveries), epoch


def measured(call: Callable[[], None]) -> float:
    """Return how long a call takes, in CPU seconds."""
    started = time.process_time()
    call()
    return time.process_time() - started


def in_pace(clean: Callable[[], None], spoilt: Callable[[], None]) -> bool:
    """Compare a call with the one on bytes that were not touched; a slow one has more tries."""
    if measured(spoilt) <= GRACE_SECONDS:
        return True
    bound = SLOWER_MAX * measured(clean) + GRACE_SECONDS
    return any(measured(spoilt) < bound for _ in range(TRIES))


def growth(check: Callable[[], None]) -> int:
    """Repeat a property until the time is over; return the bytes that the process grew by."""
    until = time.monotonic() + SECONDS / 4
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for done in itertools.count():
        if done >= ROUNDS_MIN and time.monotonic() >= until:
            break
        if SEED:
            hypothesis.seed(SEED + done)(check)
        check()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


fuzzed = settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=False,  # Each round has a seed of its own.
    suppress_health_check=list(HealthCheck),
)


def test_any_segment() -> None:
    """Bytes of the file: headers, markers, lengths, blocks of every codec."""

    @fuzzed
    @given(st.integers(0, len(seeds()) - 1), st.sampled_from(WRAPPINGS), edits)
    def check(number: int, wrapping: Wrapping, changes: Sequence[Edit]) -> None:
        seed = seeds()[number]
        half = len(seed.raws) // 2
        made = segment(
            [seed.raws[:half], seed.raws[half:]], version=seed.version, wrapping=wrapping
        )
        spoilt = spoil(made.content, changes)
        assert in_pace(lambda: read_all(made.content, seed), lambda: read_all(spoilt, seed))

    assert growth(check) < MEMORY_MAX


def test_any_mutation() -> None:
    """Bytes of a mutation under good checksums: vints, counts, flags, values, names."""

    @fuzzed
    @given(st.integers(0, len(seeds()) - 1), st.integers(0, 1 << 16), edits)
    def check(number: int, pick: int, changes: Sequence[Edit]) -> None:
        seed = seeds()[number]
        raw = seed.raws[pick % len(seed.raws)]
        clean = segment([[raw] * 9], version=seed.version).content
        spoilt = segment([[spoil(raw, changes).ljust(10, b"\0")] * 9], version=seed.version)
        assert in_pace(lambda: read_all(clean, seed), lambda: read_all(spoilt.content, seed))

    assert growth(check) < MEMORY_MAX


def test_any_mutation_in_the_live_path() -> None:
    """What is agreed and cannot be encoded is quarantined, each mutation by itself."""

    @fuzzed
    @given(st.integers(0, len(seeds()) - 1), st.integers(0, 1 << 16), edits)
    def check(number: int, pick: int, changes: Sequence[Edit]) -> None:
        seed = seeds()[number]
        raw = seed.raws[pick % len(seed.raws)]

        def encode(middle: bytes) -> int:
            agreed = AgreedMutations()
            encoder, epoch = transcoder(number)
            for each in (raw, middle, raw):
                version = MESSAGING[seed.version]
                agreed.append(each, 0, len(each), 0, 1, 99, 1, version, epoch.number, 0, 0)
            encoded = encoder.encode(agreed, ["n1"])
            return len(encoded) + len(encoded.quarantined)

        whole = encode(raw)
        spoilt = spoil(raw, changes).ljust(10, b"\0")
        assert in_pace(lambda: _ignore(encode(raw)), lambda: _ignore(encode(spoilt)))
        assert encode(spoilt) >= 2 * whole // 3

    assert growth(check) < MEMORY_MAX


def test_any_segment_of_one_node(tmp_path: Path) -> None:
    """For any content of a node's file, the copies of the others agree, and the books balance."""
    rows = [insert(b"k%d" % n, b"%c" % n) for n in range(40)]
    options = forged_nodes(tmp_path, {"n1": rows, "n2": rows, "n3": rows})
    options |= {"raw_key": KEY.hex(), "splits": 2}

    @fuzzed
    @given(st.sampled_from(WRAPPINGS), edits)
    def check(wrapping: Wrapping, changes: Sequence[Edit]) -> None:
        made = segment([rows[:13], rows[13:], []], wrapping=wrapping)
        write_segment(tmp_path / "n1", spoil(made.content, changes))
        try:
            found = list(batches(open_all(source(options)).values()))
        except WrongKeyError:  # Where not one block opens no one can tell it from another key.
            return
        assert len(rows) == sum(len(list(batch.records())) for batch in found)
        ends = {batch.split: batch.end.books() for batch in found}
        damaged = sum(books["entries.n1.damaged"] for books in ends.values())
        assert damaged == sum(len(batch.quarantined()) for batch in found)
        for split, books in ends.items():
            assert [] == differences(SplitBooks(split, books, {}, BOOKKEEPING))

    assert growth(check) < MEMORY_MAX


def _ignore(_count: int) -> None:
    return


@pytest.mark.parametrize("edge", EDGES, ids=bytes.hex)
def test_every_byte_replaced_by_an_edge(edge: bytes) -> None:
    """Exhaustively, in one mutation of each kind of seed: counts of 2^31-1, nine-byte integers."""
    for number, seed in enumerate(seeds()[1:], 1):
        raw = min(seed.raws, key=len)
        decoded = partial(_decoded, MutationDecoder(Catalogue(seed.schema)), version=seed.version)
        clean = measured(partial(decoded, raw))
        took = 0.0
        for at in range(len(raw)):
            spoilt = raw[:at] + edge + raw[at + len(edge) :]
            took += measured(partial(decoded, spoilt))
        assert took < SLOWER_MAX * clean * len(raw) + GRACE_SECONDS, number


def _decoded(decoder: MutationDecoder, raw: bytes, version: int) -> None:
    with suppress(HeadraceError):
        mutation = decoder.decode(raw, messaging=MESSAGING[version], segment_id=1, position=1)
        for change in mutation.changes():
            change_document(change)
