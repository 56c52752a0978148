"""The ring of a live node, and a job that goes by it."""

from dataclasses import replace

import pytest
from cassandra.cluster import Session

from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.ring.live_ring import ASK_MS, LOOK_MS, LiveRing
from headrace.sources.cassandra.schema.contact import Contact
from headrace.sources.cassandra.schema.live import ClusterUnreachableError
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real


def test_a_live_ring_is_what_its_tables_say(node: Cassandra, session: Session) -> None:
    """Tokens, rack and data centre are those of `system.local`; nothing new is nothing."""
    ring = LiveRing(Contact((f"{node.host}:{node.port}",)), {node.host: "n1"}, context())
    found = ring.changed(0)
    local = session.execute("SELECT tokens, data_center, rack FROM system.local").one()

    assert found is not None
    (member,) = found
    tokens = tuple(sorted(int(token) for token in local.tokens))
    assert ("n1", tokens) == (member.name, member.tokens)
    assert (local.data_center, local.rack) == (member.datacenter, member.rack)
    assert None is ring.changed(LOOK_MS)
    assert None is ring.changed(ASK_MS)
    ring.close()


def test_nobody_answers(node: Cassandra) -> None:
    """Without a contact point that answers a job does not begin."""
    contact = Contact((f"{node.host}:{node.port}",))
    ring = LiveRing(replace(contact, points=("127.0.0.1:1",)), {}, context())

    with pytest.raises(ClusterUnreachableError):
        ring.changed(0)
    ring.close()
