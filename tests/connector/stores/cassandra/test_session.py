"""What the store's options make of its connection, as a node sees it."""

import re
import ssl
from contextlib import closing
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel

from headrace.connector.stores.cassandra.session import (
    CassandraSession,
    CassandraStoreConfig,
    StoreUnreachableError,
)
from headrace.plugins import parse_config
from helpers.servers.authority import Authority
from helpers.servers.cql_node import TEXT, VOID, CqlNode, rows
from helpers.stores.drivers import MADE, VERSION


def levels(node: CqlNode, **options: object) -> dict[str, int]:
    """Connect to *node*, make missing tables; return the requests it got, and their levels."""
    given = {"contact_points": [node.point], **options}
    CassandraSession(
        parse_config(CassandraStoreConfig, given), create=node.answers is not MADE
    ).close()
    return node.levels


def test_the_keyspace_is_used() -> None:
    """The tables are looked for in the keyspace that is named, and nothing is made of them."""
    with CqlNode(answers=MADE) as node:
        asked = levels(node, keyspace="kept")

    assert 'USE "kept"' in asked
    assert not [each for each in asked if each.startswith("CREATE")]


def test_the_keyspace_is_made() -> None:
    """What is missing is made, with so many copies."""
    answers = {"SELECT table_name": rows({"table_name": TEXT}), "CREATE KEYSPACE": VOID}
    with CqlNode(answers=answers) as node, pytest.raises(StoreUnreachableError, match="TABLE"):
        levels(node, keyspace="kept", replication_factor=2)

    (made,) = (each for each in node.levels if each.startswith("CREATE KEYSPACE"))
    assert made.startswith('CREATE KEYSPACE IF NOT EXISTS "kept" WITH replication = ')
    assert "'replication_factor': 2" in made


def test_all_who_make_a_table_give_it_one_id() -> None:
    """Through several nodes they would make several tables of one name. No two tables share it."""
    tables = {"one": "k int PRIMARY KEY)", "two": "k int PRIMARY KEY) WITH gc_grace_seconds = 0"}
    ids: list[str] = []
    for keyspace in ("kept", "kept", "Other"):
        with CqlNode(answers=MADE | {"CREATE TABLE": VOID}) as node:
            config = CassandraStoreConfig(contact_points=(node.point,), keyspace=keyspace)
            with closing(CassandraSession(config, create=False)) as session:
                session.make(tables)
        made = [each for each in node.levels if each.startswith("CREATE TABLE")]
        ids += [each[-36:] for each in made if re.search(r" (WITH|AND) ID = \S{36}$", each)]
    assert ids[:2] == ids[2:4]
    assert [4, 6] == [len(set(ids)), len(ids)]


@pytest.mark.parametrize(
    ("consistency", "expected"),
    [("QUORUM", ConsistencyLevel.SERIAL), ("LOCAL_QUORUM", ConsistencyLevel.LOCAL_SERIAL)],
)
def test_who_decides(consistency: str, expected: int) -> None:
    """Workers in one data centre need no other for what a condition decides."""
    with CqlNode(answers=MADE) as node:
        asked = levels(node, consistency=consistency)

    assert [expected] == [asked[each] for each in asked if each.startswith(VERSION)]


def test_another_data_centre_is_not_asked() -> None:
    """Of several data centres only one is asked."""
    with CqlNode(answers=MADE, datacenter="here") as node:
        assert levels(node, datacenter="here")
        with pytest.raises(StoreUnreachableError, match="none of the nodes is in the data centre"):
            levels(node, datacenter="there")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"username": "u", "password": "p"}, None),
        ({"username": "u", "password": "q"}, "u is not known so"),
        ({"username": "v", "password": "p"}, "v is not known so"),
        ({}, "AuthenticationFailed"),
    ],
)
def test_logging_in(options: dict[str, str], message: str | None) -> None:
    """A node that asks who it is hears name and password."""
    with CqlNode(answers=MADE, users={"u": "p"}) as node:
        if message is None:
            assert levels(node, **options)
        else:
            with pytest.raises(StoreUnreachableError, match=message):
                levels(node, **options)


def test_tls(tmp_path: Path) -> None:
    """A node that wants a certificate gets one, and shows one of the authority that is given."""
    authority = Authority(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("node"))
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    certificate, key = map(str, authority.issue("worker"))
    known = {"ssl_ca": str(authority.file)}
    with CqlNode(answers=MADE, tls=context) as node:
        assert levels(node, ssl_certificate=certificate, ssl_key=key, **known)
        with pytest.raises(StoreUnreachableError):
            levels(node, **known)
        with pytest.raises(StoreUnreachableError):
            levels(node, ssl_certificate=certificate, ssl_key=key, ssl_ca=certificate)


def test_a_slow_node_is_not_waited_for() -> None:
    """A statement that is not answered within the time is given up."""
    late = pytest.raises(StoreUnreachableError, match="OperationTimedOut")
    with CqlNode(answers=MADE, slow=VERSION) as node, late:
        levels(node, request_seconds_max=0.2)


@pytest.mark.parametrize("in_batches", [False, True])
def test_more_than_a_connection_takes_at_once(*, in_batches: bool) -> None:
    """What was not sent, because the network took no more, is sent when it does, once."""
    insert = "INSERT INTO plain (partition, name) VALUES (?, ?)"
    writes = [(insert, [str(number), "x" * 1_000_000]) for number in range(96)]
    with CqlNode(answers=MADE | {"INSERT": VOID}) as node:
        config = CassandraStoreConfig(contact_points=(node.point,))
        with closing(CassandraSession(config, create=False)) as session:
            if in_batches:
                session.write_batches([[write] for write in writes])
            else:
                session.write(writes)

    assert len(writes) == node.executed.count(insert)
