"""What a commit asks of Cassandra, as a node counts it."""

import struct
from collections import Counter
from dataclasses import replace

import pytest

from cql_node import BIGINT, BLOB, BOOLEAN, INT, SMALLINT, TEXT, VARINT, VOID, CqlNode, rows
from headrace.connector.stores import Commit, StateLostError, TableCounts, cdc_state
from headrace.connector.stores.cassandra_losses import CassandraLosses
from headrace.connector.stores.cassandra_session import CassandraSession, CassandraStoreConfig
from headrace.connector.stores.cassandra_state import CassandraHeads
from headrace.plugins import EncodedPosition
from stores import MADE

SPLITS = ("1-of-2", "2-of-2")
OWNER, PLAN, TOKEN, SEQ = b"w1", 1, 7, 4
HEAD = {
    "plan": INT,
    "fence": BIGINT,
    "owner": TEXT,
    "seq": BIGINT,
    "head": BLOB,
    "chunks": TEXT,
    "counters": TEXT,
}
STORED = (struct.pack(">i", PLAN), struct.pack(">q", TOKEN), OWNER, struct.pack(">q", SEQ))
ANSWERS = {
    **MADE,
    "SELECT plan": rows(HEAD, [*STORED, b"", b"{}", b"{}"]),
    "UPDATE heads": rows({"[applied]": BOOLEAN}, [b"\1"]),
    "INSERT INTO chunks": VOID,
    "INSERT INTO cdc_state": VOID,
    "SELECT job_key": rows({"job_key": BLOB}, [bytes(16)]),
}
# When it opens, and once a minute.
BESIDE = ("SELECT config FROM", "INSERT INTO cdc_state", "SELECT job_key FROM")
BINDS = {
    "UPDATE heads": (BIGINT, BLOB, TEXT, TEXT, TEXT, TEXT, INT, BIGINT, TEXT, BIGINT),
    "INSERT INTO chunks": (TEXT, TEXT, BIGINT, TEXT, BLOB),
    "INSERT INTO cdc_state": (TEXT, SMALLINT, VARINT, VARINT, BLOB),
    "SELECT name, content": (TEXT, TEXT, BIGINT, TEXT),
}


def commit(split: str) -> Commit:
    """Return the commit of a state with one chunk, after the one that is stored."""
    return Commit(
        split=split,
        plan=PLAN,
        token=TOKEN,
        owner=OWNER.decode(),
        previous=SEQ,
        seq=SEQ + 1,
        position=EncodedPosition(b"tau 1", {"c1": b"records"}),
        counters={"shop.orders": TableCounts(cut=1, delivered=1)},
        losses=(),
    )


def test_a_commit_of_time_alone_is_one_statement() -> None:
    """Line 32: it is a compare-and-set of the head; nothing is read, no chunk is written."""
    with CqlNode(answers=ANSWERS, binds=BINDS) as node:
        session = CassandraSession(CassandraStoreConfig(contact_points=(node.point,)), create=False)
        losses = CassandraLosses(session, "job", bytes_max=0)
        heads = CassandraHeads(session, "job", losses)
        first = [commit(split) for split in SPLITS]
        assert {} == heads.commit(first, SPLITS)
        later = [
            replace(
                each,
                previous=each.seq,
                seq=each.seq + 1,
                position=replace(each.position, head=b"tau 2"),
            )
            for each in first
        ]
        assert {} == heads.commit(later, SPLITS)
        session.close()

    asked = Counter(" ".join(each.split()[:3]) for each in node.executed)
    heads_only = {"SELECT plan, fence,": 2, "INSERT INTO chunks": 2, "UPDATE heads SET": 2 + 2}
    assert heads_only == {each: n for each, n in asked.items() if each not in BESIDE}


def test_a_chunk_that_is_named_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays in the list of the head; only the copy for those who look asks for its bytes."""
    monkeypatch.setattr(cdc_state, "PUBLISH_SECONDS", 0)
    found = rows({"name": TEXT, "content": BLOB}, [b"c1", b"records"])
    answers = {**ANSWERS, "SELECT name, content": found}
    with CqlNode(answers=answers, binds=BINDS) as node:
        session = CassandraSession(CassandraStoreConfig(contact_points=(node.point,)), create=False)
        heads = CassandraHeads(session, "job", CassandraLosses(session, "job", bytes_max=0))
        first = commit("1-of-2")
        assert {} == heads.commit([first], SPLITS)
        later = replace(
            first,
            previous=first.seq,
            seq=first.seq + 1,
            position=EncodedPosition(b"tau 2", {}, frozenset({"c1"})),
        )
        assert {} == heads.commit([later], SPLITS)
        gone = replace(
            later,
            previous=later.seq,
            seq=later.seq + 1,
            position=EncodedPosition(b"tau 3", {}, frozenset({"c0", "c1"})),
        )
        refused = heads.commit([gone], SPLITS)["1-of-2"]
        session.close()

    assert isinstance(refused, StateLostError)
    assert "chunk c0, kept from an earlier commit, is missing" in str(refused)
    asked = Counter(" ".join(each.split()[:3]) for each in node.executed)
    statements = ("INSERT INTO chunks", "UPDATE heads SET", "SELECT name, content")
    assert (1, 2, 1) == tuple(asked[each] for each in statements)


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        ({"head": None}, "column head: found NULL, expected the position of commit 4"),
        ({"chunks": b"x"}, "column chunks: JSON is malformed"),
        ({"chunks": b'["c1"]'}, "column chunks: Expected `object`, got `array`"),
        ({"chunks": None}, "column chunks: found NULL, expected JSON"),
        ({"counters": b'{"shop.orders": [1]}'}, "found 1 numbers of shop.orders, expected 5 or 8"),
        ({"counters": None}, "column counters: found NULL"),
        ({"seq": None}, "columns plan, seq: found int, NULL"),
    ],
)
def test_a_head_that_was_spoilt_is_lost(spoilt: dict[str, bytes | None], message: str) -> None:
    """A head that lacks something, or has nonsense, is no state: the job stops, and says what."""
    whole = dict(zip(HEAD, [*STORED, b"", b"{}", b"{}"], strict=True))
    found: list[bytes | None] = [{**whole, **spoilt}[column] for column in HEAD]
    answers = {**ANSWERS, "SELECT plan": rows(HEAD, found)}
    with CqlNode(answers=answers, binds=BINDS) as node:
        session = CassandraSession(CassandraStoreConfig(contact_points=(node.point,)), create=False)
        heads = CassandraHeads(session, "job", CassandraLosses(session, "job", bytes_max=0))
        with pytest.raises(StateLostError, match=message) as caught:
            heads.state("1-of-2")
        session.close()

    assert "job job, split 1-of-2" == caught.value.place
