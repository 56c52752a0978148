"""What bulk work adds to records; delivery itself is in the tests of `delivery`."""

from collections import deque

from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.sending import Sending
from headrace.connector.replay.shards import batches, opened
from headrace.connector.serde import Encoder
from headrace.plugins import Encoding
from headrace.plugins.testing.doubles import ChaosConfig, ChaosResult, ChaosSink, context
from helpers.recordings.shards import ring


def test_headers_of_a_run() -> None:
    """Each record has those of its run and its write time, whichever way a sink reads them."""
    sink = ChaosSink(ChaosConfig(script=deque([ChaosResult.HOLD])), context())
    outlet = Sending(sink, Encoder(Encoding(codec="avro")), run="r7", attempt=3)
    shard = planned(ring("5.0-ring"), Selection(), shards=2).shards[0]
    with opened(shard) as source:
        batch = next(iter(batches(source, shard)))
        encoded = outlet.encode(batch)
        outlet.take(encoded, batch)
    ((delivery, _),) = sink.held
    headers, facts = delivery.encoded.headers, encoded.facts
    assert facts is not None
    marked = [
        (*own, ("replay_id", b"r7"), ("replay_attempt", b"3"), ("write_time", b"%d" % time_us))
        for own, time_us in zip(encoded.headers, facts.timestamps_us, strict=True)
    ]

    assert len(encoded) > 100
    assert marked == list(headers)
    assert marked == [headers[number] for number in range(len(headers))]
    assert marked[7:11] == list(headers[7:11])


def test_a_shared_writer_stays_open() -> None:
    """The sendings of a pass have one writer, which stays open when they are closed."""
    sink = ChaosSink(ChaosConfig(script=deque()), context())
    writer = sink.open()
    for _ in range(2):
        Sending(sink, Encoder(Encoding(codec="json")), shared=writer).close()

    assert 1 == sink.writers_open
    writer.close()
    assert 0 == sink.writers_open
