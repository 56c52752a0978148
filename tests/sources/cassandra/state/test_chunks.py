"""A split's records in chunks: none is lost, no commit writes all, and the chunks are bounded."""

import os
import tracemalloc
from contextlib import suppress
from random import Random
from time import process_time

import cramjam
import pytest

from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.state.cdc_state import CdcState
from headrace.sources.cassandra.state.chunks import (
    CHUNK_BYTES_MAX,
    CHUNKS_PER_PART_MAX,
    ROUND,
    Chunk,
    RecordChunks,
    seal,
    unseal,
)
from helpers.model.agreement_rules import everyone
from helpers.settings.native_modules import is_compiled

RECORDS = "headrace.sources.cassandra.agreement.rules"
WORDS = 10
HEAD_BYTES_MAX = 64 * 1024
SEALED_PREFIX_BYTES = 14


def fill(agreement: Agreement, count: int, random: Random) -> list[tuple[int, int, int]]:
    """Feed so many pending mutations, none like another, as a log would have them."""
    made = []
    for i in range(count):
        digest = random.getrandbits(64), random.getrandbits(64)
        token = random.getrandbits(64) - (1 << 63)
        agreement.split_time_ms += i % 1_000 == 0
        agreement.observe(i % 3, *digest, 0, token, 1763740800012 + i // 99_999, 330 * i, 280)
        made.append((*digest, token))
    return made


def loaded(chunks: tuple[Chunk, ...]) -> Agreement:
    """Return an agreement made from what is stored, as sealed bytes."""
    agreement = Agreement(everyone())
    for chunk in chunks:
        agreement.restore(Chunk(sealed=chunk.sealed).words, [0, 1, 2], [0])
    return agreement


def state(chunks: tuple[Chunk, ...]) -> CdcState:
    """Return a state with these chunks."""
    return CdcState(1, 1, ("a", "b", "c"), ("ks",), {}, {}, chunks=chunks)


@pytest.mark.skipif(not is_compiled(RECORDS), reason="the figures are those of machine code")
def test_the_figures_of_a_large_state() -> None:
    """400,000 pending: 64 bytes each at rest, 1 s to load, 50 ms for 5,000 that changed.

    CPU time, with room for a machine that is slower or runs other things: loading takes a tenth of
    its bound, a commit a fiftieth. What a commit writes is counted: what changed, and its turn of
    the rest.
    """
    records = int(os.environ.get("HEADRACE_STATE_RECORDS", "100000"))
    slack = 4
    random = Random(1)  # noqa: S311 (a test's dice)
    agreement = Agreement(everyone())
    digests = fill(agreement, records, random)
    kept = RecordChunks(())
    at_rest = sum(len(chunk.sealed) for chunk in kept.take(agreement))
    assert at_rest <= 64 * records

    started = process_time()
    restored = loaded(kept.chunks)
    load_s = process_time() - started
    assert records == restored.pending
    assert load_s <= slack * records / 400_000

    kept = RecordChunks(kept.chunks)
    before = {chunk.sealed for chunk in kept.chunks}
    longest, written = 0.0, 0
    for _ in range(ROUND + 2):
        for digest in random.choices(digests, k=5_000):
            restored.observe(0, *digest[:2], 0, digest[2], 1763740800099, 7, 280)
        started = process_time()
        encoded = state(kept.take(restored)).encode()
        longest = max(longest, process_time() - started)
        now = {chunk.sealed for chunk in kept.chunks}
        written = max(written, sum(map(len, now - before)))
        before = now
        assert max(map(len, encoded.chunks.values())) <= CHUNK_BYTES_MAX
        assert len(encoded.head) <= HEAD_BYTES_MAX
    assert longest <= slack * 0.05
    assert written <= 64 * (5_000 + 2 * records // ROUND) < at_rest
    stored = sum(len(chunk) for chunk in encoded.chunks.values())
    assert stored <= 8 * at_rest


def test_crashes_leave_no_heap_of_chunks() -> None:
    """However often a process ends soon after it started, what it loads stays bounded."""
    random = Random(2)  # noqa: S311 (a test's dice)
    agreement = Agreement(everyone())
    kept = RecordChunks(())
    most = 0
    for _ in range(2 * CHUNKS_PER_PART_MAX * ROUND):
        fill(agreement, 1, random)
        most = max(most, len(kept.take(agreement)))
        kept = RecordChunks(kept.chunks)

    assert most <= CHUNKS_PER_PART_MAX * ROUND + 1
    assert agreement.live == loaded(kept.chunks).live


def test_what_does_not_change_is_stored_by_turns() -> None:
    """After a round, the chunks from before it are gone, and every record is still there."""
    random = Random(3)  # noqa: S311 (a test's dice)
    agreement = Agreement(everyone())
    fill(agreement, 5_000, random)
    kept = RecordChunks((), parts=4)
    first = kept.take(agreement)
    for _ in range(11):
        fill(agreement, 1, random)
        chunks = kept.take(agreement)

    assert not set(first) & set(chunks)
    assert 5_011 == loaded(chunks).pending
    assert chunks == kept.take(agreement)  # Nothing changed, so nothing is stored.


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (4, 7),  # An unknown kind.
        (4, 1 | 1 << 32),  # A keyspace that there is not.
        (4, 1 | 3 << 48),  # A host that there is not.
        (2, 0b1000),
        (9, 2),  # More copies than follow.
        (9, (1 << 64) - 1),
        (10, 3),  # A copy on a host that there is not.
        (10, (1 << 64) - 1),
    ],
)
def test_forged_rows_are_refused(word: int, value: int) -> None:
    """A number out of range is a named error, even if it was sealed correctly."""
    agreement = Agreement(everyone())
    agreement.observe(1, 5, 6, 0, 7, 8, 9, 10)
    rows = memoryview(bytearray(agreement.changed_rows())).cast("Q")
    rows[word] = value

    with pytest.raises(StateError, match="a row that does not fit at word 0"):
        loaded((Chunk(rows.tobytes()),))


@pytest.mark.parametrize("length", [1, 9, 8 * (WORDS - 1), 8 * (WORDS + 1), 8 * (WORDS + 3)])
def test_rows_that_end_early_are_refused(length: int) -> None:
    """Whole words that are not a whole row, and bytes that are not whole words."""
    agreement = Agreement(everyone())
    agreement.observe(1, 5, 6, 0, 7, 8, 9, 10)

    with pytest.raises(StateError, match=r"does not fit|found [19] bytes"):
        loaded((Chunk(agreement.changed_rows()[:length]),))


@pytest.mark.parametrize("seed", range(20))
def test_random_rows_are_refused_or_read(seed: int) -> None:
    """With any numbers a chunk is a named error or records."""
    random = Random(seed)  # noqa: S311 (a test's dice)
    small = [random.choice([0, 1, 2, 3, 6, 7, 1 << 32, random.getrandbits(64)]) for _ in range(60)]
    rows = b"".join(number.to_bytes(8, "little") for number in small)
    with suppress(StateError):
        assert loaded((Chunk(rows),)).live <= len(small) // WORDS


@pytest.mark.long
def test_rows_that_wait_for_a_commit_are_bounded() -> None:
    """What many reads without a commit have changed is kept as small as it will be stored."""
    slack_bytes = 2 << 20  # A MiB of rows as they are, and lists.
    random = Random(4)  # noqa: S311 (a test's dice)
    agreement = Agreement(everyone())
    kept = RecordChunks(())
    tracemalloc.start()
    try:
        for _ in range(20):
            fill(agreement, 5_000, random)
            kept.take(agreement)
        held = tracemalloc.get_traced_memory()[0]
        chunks = [(len(chunk.rows), len(chunk.sealed)) for chunk in kept.chunks]
        kept.chunks = ()
        held -= tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    rows, stored = (sum(sizes) for sizes in zip(*chunks, strict=True))
    assert stored + 2 * slack_bytes < rows
    assert held < stored + slack_bytes


@pytest.mark.parametrize("length", [0, 1, 255, 2_047, 2_048, 2_049])
def test_any_zstd_reads_what_is_sealed_however_small(length: int) -> None:
    """A small content is not compressed, and its frame is a zstd frame all the same."""
    content = Random(length).randbytes(length)  # noqa: S311 (a test's dice)
    sealed = seal(b"HRSC", content)
    assert content == bytes(cramjam.zstd.decompress(sealed[SEALED_PREFIX_BYTES:]))
    assert content == unseal(b"HRSC", sealed, "a test")
    for place in range(len(sealed)):
        spoilt = bytearray(sealed)
        spoilt[place] ^= 1
        with pytest.raises(StateError):
            unseal(b"HRSC", bytes(spoilt), "a test")
