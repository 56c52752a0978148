"""What is compared and joined, where the reading of recordings seldom comes."""

from pathlib import Path
from typing import Final

from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.logs.reread import Copy
from headrace.sources.cassandra.reading.comparison import Comparison
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema_versions.epochs import Epoch
from headrace.sources.cassandra.state.chunks import Chunk
from headrace.sources.cassandra.state.rows import chunks_of, latest_rows
from helpers.logs.forged import SCHEMA, TABLE, insert, mutation, update
from helpers.logs.log_job import EXPIRY_S, REST_S, Job, shown
from helpers.model.agreement_rules import everyone

# The same row in other bytes: said once, and said twice.
RAWS: Final = (insert(b"k"), mutation(update(b"k"), update(b"k")))


def test_what_another_joined_is_published_once_whatever_the_order_in_memory() -> None:
    """Line 19: a younger record may stand before the older one, as after a load.

    Then the older one, published with both copies, is met again in the same comparison.
    """
    before = Agreement(everyone())
    for number, raw in enumerate(RAWS):
        before.observe(number, number, 1, 0, 7, 5, 100 + number, len(raw))
    rows = latest_rows([Chunk(before.changed_rows())]).values()
    after = Agreement(everyone())
    for chunk in chunks_of(reversed(rows)):
        after.restore(chunk.words, [0, 1, 2], [0])
    epoch = Epoch(1, parse_schema(SCHEMA))

    def find(slot: int) -> Copy:
        number, _, _ = after.identity(slot)
        return Copy(RAWS[number], number, 5, 100 + number, messaging=12)

    for slot in Comparison(after, find, lambda _: epoch).compare(
        after.unchecked(after.oldest_pending(after.pending), 0)
    ):
        after.publish(slot, 0, 5, 100, len(RAWS[0]))

    assert (0, 1, 1) == (after.pending, after.agreed, after.reencoded)


def test_what_was_published_late_is_known_in_other_bytes(tmp_path: Path) -> None:
    """Lines 16 and 17: what was learned of a token when it expired is not what it is after that."""
    written, streamed = RAWS
    job = Job(tmp_path, dedup_window_seconds=10 * EXPIRY_S, expiry_seconds=10 * EXPIRY_S)
    job.log("a", written)
    job.read()
    job.wait(10 * EXPIRY_S + REST_S)
    assert 1 == job.books()["mutations.expired"]
    job.log("b", written)
    assert shown(b"k") == job.read()
    for node in ("b", "c"):
        job.log(node, streamed)
        assert [] == job.read()

    assert (1, 1) == (job.books()["mutations.agreed"], job.books()["mutations.reencoded"])


def test_other_bytes_with_the_newest_write_time_are_compared(tmp_path: Path) -> None:
    """Line 17: only what is newer than all that was published of its token cannot be known."""
    job = Job(tmp_path, consistency="ONE")
    job.log("a", insert(b"k", at_us=-1))
    assert shown(b"k") == job.read()
    job.log("a", insert(b"k"))
    assert shown(b"k") == job.read()
    job.log("b", mutation(update(b"k"), update(b"k")))

    assert [] == job.read()
    assert (2, 1) == (job.books()["mutations.agreed"], job.books()["mutations.reencoded"])


EMPTY: Final = mutation(TABLE.bytes + b"\1k\1")


def test_what_says_nothing_was_compared(tmp_path: Path) -> None:
    """Line 36: all of it is known, so that nothing written to its key may have come twice."""
    job = Job(tmp_path)
    for raw in (EMPTY, insert(b"k", at_us=-1), insert(b"k", at_us=-2)):
        for node in ("a", "b"):
            job.log(node, raw)
        job.read()

    books = job.books()
    assert (3, 0) == (books["mutations.agreed"], books["repeats.reencoded"])
