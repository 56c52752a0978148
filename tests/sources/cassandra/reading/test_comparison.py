"""What is compared and joined, where the reading of recordings seldom comes."""

from pathlib import Path
from typing import Final

import pytest

from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.logs.reread import Copy
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.reading.comparison import Atoms, Comparison, Decision
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema_versions.epochs import Epoch
from headrace.sources.cassandra.state.chunks import Chunk
from headrace.sources.cassandra.state.rows import chunks_of, latest_rows
from helpers.logs.forged import NOW_US, SCHEMA, TABLE, insert, mutation, update
from helpers.logs.log_job import EXPIRY_S, REST_S, Job, shown
from helpers.model.agreement_rules import everyone

# The same row in other bytes: said once, and said twice.
RAWS: Final = (insert(b"k"), mutation(update(b"k"), update(b"k")))


def test_what_another_joined_is_published_once_for_any_order_in_memory() -> None:
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


class Compared:
    """Records of one token, each compared and then published when its second copy comes."""

    def __init__(self) -> None:
        """Have none."""
        self.agreement = Agreement(everyone())
        self.raws: list[bytes] = []
        epoch = Epoch(1, parse_schema(SCHEMA))
        self.comparison = Comparison(self.agreement, self.find, lambda _: epoch)

    def find(self, slot: int) -> Copy:
        """Return a copy of a record's bytes."""
        number, _, _ = self.agreement.identity(slot)
        return Copy(self.raws[number], number, 5, 100 + number, messaging=12)

    def observe(self, number: int, host: int) -> int:
        """Take a copy of mutation *number* from *host*."""
        length = len(self.raws[number])
        return self.agreement.observe(host, number, 1, 0, 7, 5, 100 + number, length)

    def decide(self, raw: bytes) -> int:
        """Return what is decided about a mutation that two hosts have."""
        number, agreement = len(self.raws), self.agreement
        self.raws.append(raw)
        self.observe(number, 0)
        if self.observe(number, 1) != constants.SUSPECT:  # The first of its token.
            return Decision.NEW
        slot = agreement.suspect
        decision = self.comparison.decide(slot)
        if decision == Decision.NEW:
            agreement.publish(slot, 1, 5, 100 + number, len(raw))
            agreement.learn_newest(slot, NOW_US)
        return decision


def test_what_was_published_of_a_token_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its mutations have the same write time: the work grows with their number."""
    looked_at: list[int] = []
    content_of = Comparison._of  # noqa: SLF001 (each look at the content of a record)

    def noted(comparison: Comparison, slot: int) -> Atoms | None:
        looked_at.append(slot)
        return content_of(comparison, slot)

    monkeypatch.setattr(Comparison, "_of", noted)
    compared, count = Compared(), 100
    decisions = [compared.decide(insert(b"k", b"%d" % number)) for number in range(count)]

    assert [Decision.NEW] * count == decisions
    assert count <= len(looked_at) <= 2 * count
    assert Decision.KNOWN == compared.decide(mutation(*[update(b"k", b"7")] * 2))


def test_what_was_forgotten_is_not_known() -> None:
    """Also if it was compared with before, and older records of its token are still there."""
    compared, (written, streamed) = Compared(), RAWS
    compared.decide(insert(b"k", b"older"))
    compared.decide(written)
    assert Decision.KNOWN == compared.decide(streamed)
    compared.agreement.split_time_ms += 10
    compared.observe(0, 2)  # So that this one is kept.
    assert 1 == compared.agreement.forget_old(5, 5)

    assert Decision.NEW == compared.decide(mutation(*[update(b"k")] * 3))
